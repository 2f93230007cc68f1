"""What `prepare.sh` says of a machine, beside the texts of `deploy`."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "other_maker": (
        "the driver of {maker} is installed as its maker describes; nothing is done here",
        "{maker} 的驱动请按厂商说明安装；此处不做任何操作",
    ),
    "unknown_distribution": (
        "no package of the driver is known for this distribution: install it as its documentation says",
        "不知道该发行版的驱动包：请按其文档安装",
    ),
    "repository": ("the repository that holds the driver", "提供驱动的软件源"),
    "signed": (
        "or install linux-modules-nvidia-{branch}-server{flavour}-$(uname -r): its modules are signed by Ubuntu, no key is enrolled",
        "或安装 linux-modules-nvidia-{branch}-server{flavour}-$(uname -r)：其模块由 Ubuntu 签名，无需登记密钥",
    ),
    "wheels": (
        "CUDA and cuDNN come with the engine's packages or image: no toolkit is installed, and nvcc tells nothing of them",
        "CUDA 与 cuDNN 随引擎的软件包或镜像提供：不安装工具包，nvcc 也说明不了它们",
    ),
    "build_tools": (
        "git, cmake and a C++ compiler, for the build from source",
        "从源码编译所需的 git、cmake 和 C++ 编译器",
    ),
    "nvcc": (
        "nvcc of NVIDIA's CUDA toolkit (https://developer.nvidia.com/cuda-downloads), no newer than the driver, for the build from source",
        "从源码编译所需的 nvcc（NVIDIA CUDA 工具包，https://developer.nvidia.com/cuda-downloads，不得新于驱动）",
    ),
    "fabric": (
        "Fabric Manager runs: without it CUDA does not start on boards with NVSwitches (error 802)",
        "Fabric Manager 在运行：带 NVSwitch 的主板缺少它时 CUDA 无法启动（错误 802）",
    ),
    "read_rate": (
        "storage: the plan reads {rate} in sequence; `fio --name=read --rw=read --bs=1M --size=4G --direct=1` measures it",
        "存储：方案按 {rate} 顺序读取；可用 `fio --name=read --rw=read --bs=1M --size=4G --direct=1` 测量",
    ),
    "libc": ("C library {version} or newer, that the wheels were built for", "C 库 {version} 或更新（预编译包的要求）"),
    "compiler": (
        "nvcc of the same CUDA as torch: DeepSpeed builds its optimizer for the host when it starts",
        "与 torch 相同 CUDA 版本的 nvcc：DeepSpeed 启动时编译主机端优化器",
    ),
    "architectures": (
        "a wheel runs on the architectures that it was built for, and on later ones of the same generation",
        "预编译包只能在其编译目标架构及同代更新的架构上运行",
    ),
    "disk": ("disk: %s GiB free at %s", "磁盘：需空闲 %s GiB（%s）"),
    "power_lasts": ("the power limit lasts until the machine restarts", "功耗上限在重启后失效"),
}
