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
    "image_unseen": (
        (
            "the tag of {image} follows from the version and was not read in a public source: "
            "`docker manifest inspect {image}` tells whether it is there; pin its digest"
        ),
        "{image} 的标签由版本推得，未在公开来源中读到：用 `docker manifest inspect {image}` 确认是否存在，并固定摘要",
    ),
    "supervise_purpose": (
        "Starts the service again after a failure, later each time; not when it is done, wrong or given up.",
        "失败后重新启动服务，间隔逐次加长；完成、请求有误或放弃时不再启动。",
    ),
    "results_in_volume": (
        "checkpoints lie in the volume: `docker compose cp {name}:/cache/run .` brings them here; text to train on goes into data/",
        "检查点在卷中：`docker compose cp {name}:/cache/run .` 取出；训练文本放入 data/",
    ),
    "volume_owner": (
        "a named volume belongs to root: it is handed to the user of the containers once",
        "命名卷属于 root：一次性交给容器用户",
    ),
    "limited_purpose": (
        "Starts the service inside a control group that cannot take the host down; GPU memory is not limited by it.",
        "在控制组内启动服务，不会拖垮主机；它不限制显存。",
    ),
    "purpose_limited": ("starts the service with a limit on host memory", "以主机内存上限启动服务"),
    "purpose_scaling": ("scales the replicas with the queue", "按队列长度伸缩副本"),
    "scaling_hpa": (
        (
            "Either this or keda.yaml: `kubectl apply -f hpa.yaml` scales {name} by {metric}; "
            "it needs Prometheus Adapter with adapter-rule.yaml, for Kubernetes itself knows no such metric."
        ),
        (
            "与 keda.yaml 二选一：`kubectl apply -f hpa.yaml` 按 {metric} 伸缩 {name}；"
            "需要带 adapter-rule.yaml 的 Prometheus Adapter，因为 Kubernetes 本身没有该指标。"
        ),
    ),
    "scaling_keda": (
        (
            "Either this or hpa.yaml: `kubectl apply -f keda.yaml` scales {name} by {metric}; it needs KEDA, "
            "and the address of your own Prometheus."
        ),
        "与 hpa.yaml 二选一：`kubectl apply -f keda.yaml` 按 {metric} 伸缩 {name}；需要 KEDA，并填入自己的 Prometheus 地址。",
    ),
    "scaling_rule": (
        "A rule for Prometheus Adapter (values `rules.custom`): the engine's metric under a name that the API takes.",
        "Prometheus Adapter 的规则（values 中的 `rules.custom`）：把引擎指标改成 API 接受的名称。",
    ),
    "scaling_note": (
        "`kubectl apply -f hpa.yaml` or `keda.yaml`, not both, adds replicas while more than {threshold} requests wait for each",
        "`kubectl apply -f hpa.yaml` 或 `keda.yaml`（二选一）：每个副本等待的请求超过 {threshold} 个时增加副本",
    ),
    "no_scaling": (
        "{name} shows no number of waiting requests: nothing scales its replicas by itself",
        "{name} 不提供等待请求数：无法自动伸缩副本",
    ),
    "static_cores": (
        (
            "whole cores, asked for and limited alike: with the kubelet's --cpu-manager-policy=static and "
            "--topology-manager-policy=single-numa-node they lie beside the devices"
        ),
        "请求与上限相同的整数核：kubelet 设置 --cpu-manager-policy=static 和 --topology-manager-policy=single-numa-node 时，核与设备同侧",
    ),
    "rdma_resource": (
        "RDMA inside pods needs the resource of your cluster's device plugin (as rdma/hca_shared_devices_a) in the limits",
        "Pod 内使用 RDMA 需在 limits 中加入集群设备插件的资源（如 rdma/hca_shared_devices_a）",
    ),
    "model_in_volume": (
        "the model lies on this machine: copy {folder} to the same path in the volume {name}, or publish it",
        "模型在本机：请把 {folder} 复制到卷 {name} 的相同路径，或发布它",
    ),
    "weights_in_volume": (
        "weights.sh makes the folder weights/ on a machine with such a card: it has to lie at /cache/weights in the volume {name}",
        "weights.sh 在有同类卡的机器上生成 weights/ 目录：需放到卷 {name} 的 /cache/weights",
    ),
    "shared_folder": (
        "{folder} has to be there on every machine, as on a shared file system",
        "每台机器上都需要有 {folder}，例如位于共享文件系统",
    ),
    "bucket": (
        "the name of the bucket has to be free world-wide: change it in task.yaml; checkpoints survive a machine only there",
        "存储桶名须全球唯一：请在 task.yaml 中修改；只有存在那里的检查点才能在机器回收后保留",
    ),
    "unit_folder": (
        "install-unit.sh: a unit cannot name this folder: its name ends in a blank or a backslash, or has a line break",
        "install-unit.sh: 单元文件无法使用此目录名：以空格或反斜杠结尾，或含换行",
    ),
    "backoff": (
        "later each time, with systemd 254 and later",
        "间隔逐次加长，需 systemd 254 及以上",
    ),
    "model_gone": (
        "{path} is not here: the bundle names the model by it; run deploy where the plan was made",
        "{path} 不在此处：目录以它命名模型；请在制定方案的位置运行 deploy",
    ),
    "start_behind": (
        "{path} was changed by hand and stays: it starts the earlier plan; --diff shows what this one asks for",
        "{path} 被手工改过，保持不动：它启动的是先前的方案；--diff 显示新方案的差异",
    ),
    "ollama_create": (
        "once the server answers: `ollama create {name} -f Modelfile`, and ask for {name}",
        "服务可用后运行 `ollama create {name} -f Modelfile`，然后以 {name} 请求",
    ),
    "fp8_recipe": (
        (
            "FP8 is Accelerate's recipe of torchao: matrices are multiplied in 8 bits, weights, gradients and states stay as planned; "
            "Transformer Engine instead: set the backend of fp8_config to TE in accelerate.json and install transformer-engine[pytorch]"
        ),
        (
            "FP8 采用 Accelerate 的 torchao 方案：矩阵以 8 位相乘，权重、梯度与优化器状态不变；"
            "若用 Transformer Engine：把 accelerate.json 中 fp8_config 的 backend 设为 TE，并安装 transformer-engine[pytorch]"
        ),
    ),
    "exporter": (
        "`docker compose --profile monitor up -d` also shows the cards' metrics at http://127.0.0.1:9400/metrics, for Prometheus",
        "`docker compose --profile monitor up -d` 同时在 http://127.0.0.1:9400/metrics 提供显卡指标，供 Prometheus 抓取",
    ),
    "not_there": ("{what} is not here: bash {script}", "缺少 {what}：请先运行 bash {script}"),
    "patience": (
        "the launcher kills its processes 30 s after a stop unless it is told how long a checkpoint takes",
        "停止后启动器默认 30 秒即杀死进程，需告知写检查点要多久",
    ),
    "job_purpose": (
        "Starts the job and ends with the code of its processes: torch's launcher ends with 1 whatever they end with.",
        "启动任务并以其进程的退出码结束：torch 的启动器总是以 1 结束。",
    ),
    "no_user_session": (
        "systemd has no session of this user here: use --place systemd, or sudo loginctl enable-linger and a new login",
        "systemd 在此没有该用户的会话：请用 --place systemd，或运行 sudo loginctl enable-linger 后重新登录",
    ),
    "purpose_test": ("tests the links between the devices", "测试设备间链路"),
    "purpose_program": ("run by the scripts", "由脚本运行"),
    "readme_test": (
        "`{command}` tests the links between the devices against the plan, with exit code 3 where they are slower.",
        "`{command}` 按方案测试设备间链路，低于预期时退出码为 3。",
    ),
}
