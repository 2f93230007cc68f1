"""What `tonnage doctor` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    # table
    "check": ("check", "检查项"),
    "required": ("required", "要求"),
    "found": ("found", "实际"),
    "verdict_ok": ("ok", "正常"),
    "verdict_warning": ("warning", "警告"),
    "verdict_fail": ("fail", "不满足"),
    "verdict_not_found": ("not found", "未找到"),
    "verdict_not_measured": ("not measured", "未测量"),
    "summary": (
        "{ok} ok, {warning} warnings, {fail} fail, {unknown} not found or not measured",
        "{ok} 项正常，{warning} 项警告，{fail} 项不满足，{unknown} 项未找到或未测量",
    ),
    "for_plan": ("held against {plan}", "对照方案：{plan}"),
    "fix": ("{name}: {fix}", "{name}：{fix}"),
    "measuring": ("measuring memory and disk …", "正在测量内存与磁盘……"),
    # words
    "unknown": ("unknown", "未知"),
    "none": ("none", "无"),
    "at_least": ("at least {amount}", "至少 {amount}"),
    "free_of": ("{free} free of {total}", "空闲 {free} / 共 {total}"),
    "no_limit": ("no limit", "无限制"),
    "not_loaded": ("not loaded", "未加载"),
    "loaded": ("loaded", "已加载"),
    # fixes
    "fix_glibc": (
        "a newer release of the system (Ubuntu 24.04 has 2.39), or containers, which bring their own",
        "升级系统（Ubuntu 24.04 为 2.39），或使用自带 glibc 的容器",
    ),
    "fix_driver_missing": (
        "install the driver: tonnage deploy PLAN --to DIR writes prepare.sh",
        "安装驱动：tonnage deploy PLAN --to DIR 会写出 prepare.sh",
    ),
    "fix_driver_old": (
        "install branch R{branch} or newer, held (apt-mark hold)",
        "安装 R{branch} 或更新的驱动并锁定（apt-mark hold）",
    ),
    "fix_driver_mismatch": (
        "the driver was updated while the old module runs: restart the machine, then hold the package",
        "驱动已更新而旧模块仍在运行：重启机器，然后锁定软件包",
    ),
    "fix_driver_silent": ("see dmesg for NVRM and Xid; restart the machine", "查看 dmesg 中的 NVRM 与 Xid；重启机器"),
    "fix_modules": ("install the open kernel modules (nvidia-open)", "安装开源内核模块（nvidia-open）"),
    "fix_cuda": (
        "a driver of R{branch} or newer, or PyTorch's wheels for an older CUDA",
        "R{branch} 或更新的驱动，或面向较旧 CUDA 的 PyTorch wheel",
    ),
    "fix_cudnn": (
        "PyTorch's wheel brings its cuDNN: install it again in an environment of its own",
        "PyTorch 的 wheel 自带 cuDNN：在独立环境中重新安装",
    ),
    "fix_torch_cpu": (
        "this PyTorch is a build without CUDA: install the one from download.pytorch.org/whl/cu130",
        "该 PyTorch 是无 CUDA 的版本：安装 download.pytorch.org/whl/cu130 中的版本",
    ),
    "fix_architecture": (
        "this PyTorch has no kernels for sm_{arch}: a build for CUDA 12.8 or newer",
        "该 PyTorch 没有 sm_{arch} 的内核：使用面向 CUDA 12.8 或更新版本的构建",
    ),
    "fix_gpus": (
        "plan again with what is here: tonnage plan MODEL --here",
        "按现有硬件重新规划：tonnage plan MODEL --here",
    ),
    "fix_gpu_memory": (
        "end the programs that hold memory (nvidia-smi), or plan with what is free: --here",
        "结束占用显存的程序（nvidia-smi），或按空闲显存规划：--here",
    ),
    "fix_board": (
        "an altered board: no warranty, unknown VBIOS; hold its memory to a pattern test (--measure) before use",
        "改装板卡：无保修、VBIOS 来源不明；使用前用 --measure 做显存花纹测试",
    ),
    "fix_pattern": ("memory that is reported is not there: return the board", "所报告的显存并不存在：退回板卡"),
    "fix_lanes": (
        "seat the card anew, see the slot's lanes in the board's manual and bifurcation in the firmware",
        "重新插卡，查看主板手册中插槽的通道数与固件中的拆分设置",
    ),
    "fix_generation": (
        "low while idle is normal; under load see the firmware's setting of the slot and the riser",
        "空闲时降速属正常；负载时若仍低，检查固件插槽设置与转接线",
    ),
    "fix_peer": (
        "plan for traffic through the host (no P2P), or turn ACS and IOMMU off in the firmware where the cards allow P2P",
        "按经由主机的通信规划（无 P2P），若显卡支持 P2P 则在固件中关闭 ACS 与 IOMMU",
    ),
    "fix_nvlink": (
        "see nvidia-smi nvlink -s and -e; reseat the bridge or board",
        "查看 nvidia-smi nvlink -s 与 -e；重新安装桥接器或板卡",
    ),
    "fix_fabric": (
        "systemctl enable --now nvidia-fabricmanager, of the driver's own version",
        "systemctl enable --now nvidia-fabricmanager，版本须与驱动一致",
    ),
    "fix_ecc_errors": (
        "drain the machine, nvidia-smi -q -d ROW_REMAPPER; reset or replace the card",
        "腾空机器，nvidia-smi -q -d ROW_REMAPPER；重置或更换显卡",
    ),
    "fix_persistence": ("nvidia-smi -pm 1, or nvidia-persistenced", "nvidia-smi -pm 1，或启用 nvidia-persistenced"),
    "fix_power": ("nvidia-smi -pl {watts}, unless the limit is meant", "如非有意限制：nvidia-smi -pl {watts}"),
    "fix_clocks": ("cooling, the power supply's cables and budget", "检查散热、供电线与电源功率"),
    "fix_nouveau": (
        "blacklist nouveau, options nouveau modeset=0, update-initramfs -u or dracut -f, restart",
        "blacklist nouveau、options nouveau modeset=0、update-initramfs -u 或 dracut -f，然后重启",
    ),
    "fix_secure_boot": (
        "enrol the key of the driver package (mokutil --import), or turn Secure Boot off",
        "登记驱动包的密钥（mokutil --import），或关闭 Secure Boot",
    ),
    "fix_toolkit": (
        "install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker",
        "安装 nvidia-container-toolkit，然后 nvidia-ctk runtime configure --runtime=docker",
    ),
    "fix_gpudirect": (
        "modprobe nvidia_peermem, or open kernel modules with a kernel of 5.12 or newer (dma-buf)",
        "modprobe nvidia_peermem，或开源内核模块配合 5.12 及以上内核（dma-buf）",
    ),
    "fix_cpu_features": (
        "another route for the experts: llama.cpp with avx2, or the whole model on the cards",
        "改用其他方式放置专家：llama.cpp（avx2），或整个模型放在显卡上",
    ),
    "fix_cpu_slow_route": (
        "works, without the matrix units that the fastest kernels use: expect less than on a Xeon with AMX",
        "可用，但没有最快内核所需的矩阵单元：速度低于带 AMX 的 Xeon",
    ),
    "fix_cores": ("plan with this machine's own processor: --host or --here", "按本机处理器规划：--host 或 --here"),
    "fix_numa": (
        "threads that compute beside memory of another node are slow: one pool of threads a node, numactl --interleave=all",
        "跨 NUMA 节点访存很慢：每个节点一个线程池，或 numactl --interleave=all",
    ),
    "fix_governor": ("cpupower frequency-set -g performance", "cpupower frequency-set -g performance"),
    "fix_memory": ("free host memory, or plan with what is there: --here", "释放主机内存，或按现有内存规划：--here"),
    "fix_group_memory": (
        "raise the control group's memory limit (MemoryMax, docker --memory)",
        "提高控制组内存上限（MemoryMax、docker --memory）",
    ),
    "fix_bandwidth": (
        "fill all memory channels with equal modules; plan again with the measured figure (--host)",
        "用相同内存条插满所有通道；按实测值重新规划（--host）",
    ),
    "fix_swap": (
        "swap in use slows what the host computes: free memory, vm.swappiness=10",
        "正在使用交换区会拖慢主机计算：释放内存，vm.swappiness=10",
    ),
    "fix_cpu_limit": (
        "raise the control group's share (CPUQuota, docker --cpus)",
        "提高控制组 CPU 配额（CPUQuota、docker --cpus）",
    ),
    "fix_pids": ("TasksMax=infinity, docker --pids-limit -1", "TasksMax=infinity，docker --pids-limit -1"),
    "fix_disk": ("free space, or another folder", "清理空间，或换一个目录"),
    "fix_disk_speed": ("an NVMe drive, or expect the weights to load in {time}", "使用 NVMe，或接受权重加载需 {time}"),
    "fix_shm": (
        "docker --shm-size {amount}, or remount /dev/shm larger",
        "docker --shm-size {amount}，或扩大 /dev/shm",
    ),
    "fix_files": ("LimitNOFILE=1048576, ulimit -n 65536", "LimitNOFILE=1048576，ulimit -n 65536"),
    "fix_locks": ("LimitMEMLOCK=infinity, ulimit -l unlimited", "LimitMEMLOCK=infinity，ulimit -l unlimited"),
    "fix_interface": (
        "a faster network, or plan with --network of what is there",
        "更快的网络，或用 --network 按现有网络规划",
    ),
    "fix_ib": (
        "see ibstat and the cable; the subnet manager has to run (opensm)",
        "查看 ibstat 与线缆；子网管理器（opensm）须运行",
    ),
    "fix_clock": ("timedatectl set-ntp true, or chrony", "timedatectl set-ntp true，或使用 chrony"),
    "fix_port": (
        "end what listens there (ss -ltnp), or tonnage deploy --port",
        "结束占用端口的程序（ss -ltnp），或 tonnage deploy --port",
    ),
    "fix_package": (
        "pip install '{package}' in an environment of its own (install.sh)",
        "在独立环境中 pip install '{package}'（install.sh）",
    ),
    "fix_peers": (
        "nccl-test.sh of the bundle on all machines; iperf3 -c HOST -P 8",
        "在所有机器上运行 bundle 中的 nccl-test.sh；iperf3 -c HOST -P 8",
    ),
    "fix_measure": ("tonnage doctor --measure", "tonnage doctor --measure"),
    "fix_diagnostic": ("dcgmi diag -r 2 -v; drain the machine", "dcgmi diag -r 2 -v；腾空机器"),
    # findings with words
    "cores_threads": ("{cores} cores, {threads} threads", "{cores} 核，{threads} 线程"),
    "numa_nodes": ("{nodes} nodes, automatic balancing {balancing}", "{nodes} 个节点，自动均衡{balancing}"),
    "on": ("on", "开启"),
    "off": ("off", "关闭"),
    "lanes": (
        "gen {generation} x{lanes} now, gen {generation_max} x{lanes_max} possible",
        "当前 gen {generation} x{lanes}，最高 gen {generation_max} x{lanes_max}",
    ),
    "limit_of": ("{limit} W of {default} W by default", "{limit} W（默认 {default} W）"),
    "gpus_found": ("{num} × {name}", "{num} × {name}"),
    "reported_as": ("{name} reports {reported}, sold with {sold}", "{name} 报告 {reported}，标称 {sold}"),
    "not_in_catalogue": ("{name}: not in the catalogue", "{name}：不在目录中"),
    "held_of": ("{held} of {reported} hold their pattern", "{held} / {reported} 通过花纹测试"),
    "read_write": (
        "{read}/s read, {write}/s written, {random} random reads/s",
        "读 {read}/s，写 {write}/s，随机读 {random} 次/秒",
    ),
    "synchronised": ("synchronised", "已同步"),
    "not_synchronised": ("not synchronised", "未同步"),
    "listening": ("port {port} is taken", "端口 {port} 已被占用"),
    "free": ("free", "空闲"),
    "passed": ("passed", "通过"),
}
