"""What bundles say of machines and networks: why a variable is set, what has to be there, what a test tells."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "nccl_debug": (
        "warnings of NCCL, which is silent by default; INFO belongs to the bring-up (nccl-test.sh)",
        "显示 NCCL 警告（默认不输出）；INFO 只用于调试阶段（nccl-test.sh）",
    ),
    "nccl_net": (
        "the plan counts on RDMA: without it NCCL would take TCP and only its log would say so",
        "方案依赖 RDMA：缺少时 NCCL 会改用 TCP，且只在日志里说明",
    ),
    "nccl_sockets": (
        "sockets carry {rate} here: several of them fill the link (the product of both is at most 64)",
        "此处由套接字承载 {rate}：需多个套接字才能占满链路（两者乘积不超过 64）",
    ),
    "flight_recorder": (
        "the last collectives of each rank, written to traces/ when one of them times out",
        "记录每个 rank 最近的集合通信，超时后写入 traces/",
    ),
    "interface": (
        "the interface by which the first machine is reached: names differ between machines",
        "通往第一台机器的网络接口：各机器上名称不同",
    ),
    "rdma": (
        "the plan counts on InfiniBand or RoCE: a machine without it would be many times slower",
        "方案依赖 InfiniBand 或 RoCE：没有它会慢很多倍",
    ),
    "no_rdma": (
        "start.sh: no device in /sys/class/infiniband, on which the plan counts; NCCL_NET=Socket starts without it",
        "start.sh: /sys/class/infiniband 中没有方案所依赖的设备；设置 NCCL_NET=Socket 可不用它启动",
    ),
    "master": (
        "set it to the address of the first machine",
        "请设为第一台机器的地址",
    ),
    "rank": (
        "set it to 0 on the first machine and to 1, 2, … on the others",
        "第一台机器设为 0，其余依次为 1、2……",
    ),
    "on_each": (
        "on each of the {num} machines, with MASTER_ADDR set to the address of the first and NODE_RANK to 0, 1, …",
        "在 {num} 台机器上分别运行；MASTER_ADDR 设为第一台的地址，NODE_RANK 依次为 0、1……",
    ),
    "servers_apart": (
        "a server of its own on each of the {num} machines: requests are spread by a router in front of them",
        "{num} 台机器上各运行一个独立的服务：由前面的路由器分配请求",
    ),
    "omp": (
        "processor threads of each process: torchrun would set 1",
        "每个进程的处理器线程数：torchrun 默认设为 1",
    ),
    "allocator": (
        "segments that grow leave fewer holes; torch reads the new name for CUDA since 2.11, the old one before",
        "可扩展段减少碎片；torch 自 2.11 起对 CUDA 读取新变量名，之前读取旧名",
    ),
    "numa": (
        "several memory nodes: each process stays beside its device",
        "有多个内存节点：每个进程固定在其设备旁",
    ),
    "old_driver": (
        "Accelerate refuses RTX 40 cards on drivers before 550.40.07 unless both are off",
        "驱动低于 550.40.07 时，Accelerate 要求 RTX 40 关闭这两项",
    ),
    "followers": (
        "only the first machine answers requests",
        "只有第一台机器响应请求",
    ),
    "no_p2p": (
        "this card has no peer access: NCCL finds that out by itself and goes through host memory; nothing is to be set",
        "该卡不支持点对点访问：NCCL 会自行检测并经主机内存传输；无需设置",
    ),
    "no_rendezvous": (
        "no way is known to start {name} on several machines together",
        "不知道如何在多台机器上同时启动 {name}",
    ),
    "one_node": (
        "plan with --nodes 1, or with --engine vllm or sglang",
        "用 --nodes 1 规划，或用 --engine vllm 或 sglang",
    ),
    "experts_over_nodes": (
        "experts spread over copies on several machines are not started as one server",
        "专家分布在多台机器的副本上时，无法作为一个服务启动",
    ),
    "no_experts_over_nodes": ("plan with --ep 1", "用 --ep 1 规划"),
    "test_purpose": (
        "Tests the links between the devices: {smallest} to {largest}, as the plan's messages; it counts on {rate} ({link}).",
        "测试设备间链路：消息大小 {smallest} 到 {largest}，与方案一致；方案预期 {rate}（{link}）。",
    ),
    "test_verdict": (
        "bus bandwidth of the largest message: %.1f GB/s; the plan counts on %.1f",
        "最大消息的总线带宽：%.1f GB/s；方案预期 %.1f",
    ),
    "test_network": ("the network that NCCL took:", "NCCL 使用的网络："),
    "purpose_test": ("tests the links between the devices", "测试设备间链路"),
    "purpose_program": ("run by the scripts", "由脚本运行"),
    "readme_test": (
        "`{command}` tests the links between the devices against the plan, with exit code 3 where they are slower.",
        "`{command}` 按方案测试设备间链路，低于预期时退出码为 3。",
    ),
}
