"""What `tonnage deploy` says, and the texts inside bundles."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "no_trainer": ("no launch is known for this training software", "没有该训练软件的启动方式"),
    "pick_engine": ("plan with --engine, one of: {known}", "用 --engine 规划，可选：{known}"),
    "foreign_plan": (
        "the plan was counted for {planned}, and its memory does not hold for {asked}",
        "该方案按 {planned} 计算，其内存数字不适用于 {asked}",
    ),
    "plan_for": ("plan with --engine, one of: {engines}", "用 --engine 重新规划，可选：{engines}"),
    "replicas_of_a_job": ("a training job has no replicas", "训练任务没有副本"),
    "place_scales_not": ("replicas do not come and go by themselves in '{place}'", "'{place}' 不会自动增减副本"),
    "scale_there": ("deploy with --place kubernetes", "用 --place kubernetes 部署"),
    "nothing_to_scale": (
        "there is nothing to scale by: no server, or one that does not tell how many requests wait",
        "没有可依据的指标：不是服务，或引擎不报告等待的请求数",
    ),
    "leave_out": ("leave it out", "去掉该选项"),
    "replan": ("plan again with tonnage plan", "用 tonnage plan 重新规划"),
    "known_checkpoint": ("{name} holds the weights in {weights}", "{name} 提供 {weights} 格式的权重"),
    "no_conversion": (
        "no conversion of {name} from {own} to {weights} is known: name a checkpoint in {weights} yourself",
        "不知道如何把 {name} 从 {own} 转成 {weights}：请自行指定 {weights} 的检查点",
    ),
    "conversion": (
        "{name} has to be converted to {weights}: about {disk} of disk, {host} of host memory and {time} (weights.sh)",
        "{name} 需要转换为 {weights}：约 {disk} 磁盘、{host} 主机内存、{time}（weights.sh）",
    ),
    "gguf_repository": (
        "GGUF_REPO=owner/name takes a file in {kind} that somebody has published instead of making one",
        "设置 GGUF_REPO=owner/name 可直接下载已发布的 {kind} 文件，而不自行转换",
    ),
    "weights_purpose": (
        "Makes the weights that the plan assumes; run again it changes nothing.",
        "生成方案所假设的权重；重复运行不会改变任何内容。",
    ),
    "purpose_weights": ("makes the weights", "生成权重"),
    "prepare_purpose": (
        "Prepares this machine: prints what it would do; --yes does it. Run again it finds everything done.",
        "准备本机：打印将要执行的操作；加 --yes 才执行。再次运行会发现均已完成。",
    ),
    "purpose_prepare": ("prepares the machine", "准备机器"),
    "prepare_reboot": ("restart the machine, then run this again", "重启机器后再运行一次"),
    "prepare_memory": ("host memory: {amount} available", "主机内存：需可用 {amount}"),
    "prepare_disk": ("disk: {amount} free here", "磁盘：此处需空闲 {amount}"),
    "prepare_driver": ("NVIDIA driver {branch} or newer, {modules}", "NVIDIA 驱动 {branch} 或更新，{modules}"),
    "modules_open": ("open kernel modules", "开源内核模块"),
    "modules_closed": ("proprietary kernel modules", "专有内核模块"),
    "prepare_hold": (
        "the driver is held: an unattended upgrade would part it from the running kernel module",
        "固定驱动版本：自动升级会使其与正在运行的内核模块不一致",
    ),
    "prepare_nouveau": ("nouveau is kept from loading", "禁止加载 nouveau"),
    "prepare_secure_boot": (
        "Secure Boot is on: enrol the key that the driver package makes when it asks at the next start (MOK)",
        "已启用 Secure Boot：下次启动时按提示登记驱动包生成的密钥（MOK）",
    ),
    "prepare_persistence": ("persistence mode", "持久模式"),
    "prepare_power": ("power limit of {watts} W a card", "每卡功耗上限 {watts} W"),
    "no_image": ("no container image of {name} is known", "不知道 {name} 的容器镜像"),
    "other_place": ("use --place local, systemd or slurm", "改用 --place local、systemd 或 slurm"),
    "one_node": ("Compose runs on one machine, the plan needs several", "Compose 只在一台机器上运行，而方案需要多台"),
    "many_nodes": ("use --place slurm, kubernetes or skypilot", "改用 --place slurm、kubernetes 或 skypilot"),
    "server_nodes": (
        "a server over several machines needs a controller that starts its pods together",
        "跨多台机器的服务需要能同时启动各 Pod 的控制器",
    ),
    "one_node_plan": (
        "plan with --nodes 1 and serve with --replicas, or use --place slurm",
        "用 --nodes 1 规划并用 --replicas 部署，或改用 --place slurm",
    ),
    "no_cloud": ("SkyPilot has no cloud that rents {name}", "SkyPilot 没有出租 {name} 的云"),
    "secret_note": (
        "a gated model needs a secret: kubectl create secret generic {name} --from-literal=token=…",
        "受限模型需要密钥：kubectl create secret generic {name} --from-literal=token=…",
    ),
    "head": ("Starts {name}: {command}", "启动 {name}：{command}"),
    "purpose_router": ("the router in front of the replicas", "副本前的路由器"),
    "purpose_compose": ("the Compose project", "Compose 项目"),
    "purpose_kubernetes": ("the Kubernetes objects", "Kubernetes 对象"),
    "purpose_slurm": ("the batch script", "批处理脚本"),
    "purpose_skypilot": ("the SkyPilot task", "SkyPilot 任务"),
    "start_purpose": ("Starts {name} in the foreground; Ctrl-C stops it.", "在前台启动 {name}；Ctrl-C 停止。"),
    "install_purpose": ("Installs the engine into .venv beside this script.", "把引擎安装到本脚本旁的 .venv。"),
    "unit_description": ("{name} (tonnage)", "{name}（tonnage）"),
    "unit_installer": (
        "Shows the unit {name} filled in; with --yes writes and starts it (root).",
        "显示填好的单元 {name}；加 --yes 则写入并启动（需要 root）。",
    ),
    "purpose_start": ("starts the service in the foreground", "在前台启动服务"),
    "purpose_plan": ("the plan that this bundle carries out", "本目录所执行的方案"),
    "purpose_readme": ("how to start, and what was predicted", "如何启动，以及预测值"),
    "purpose_engine": ("read by the engine", "由引擎读取"),
    "purpose_install": ("installs the engine", "安装引擎"),
    "purpose_unit": ("the systemd unit", "systemd 单元"),
    "purpose_unit_install": ("installs the unit", "安装单元"),
    "readme_what": ("Made from `{command}`.", "由 `{command}` 生成。"),
    "readme_memory": (
        "Predicted: {best} of {capacity} on the fullest device, {high} at the upper end of the 80 % interval.",
        "预测：最满的设备用 {best} / {capacity}，80% 区间上端 {high}。",
    ),
    "written": ("{path}: {num} files, start with: {start}", "{path}：{num} 个文件，启动命令：{start}"),
    "foreign_start": (
        "{path} is there already and is not tonnage's: it does not start this plan; name another folder with --to",
        "{path} 已存在且不是 tonnage 写的：它不会启动本方案；请用 --to 指定其他目录",
    ),
    "kept": (
        "{path} was changed by hand and is left alone; --diff shows the difference",
        "{path} 被手工改过，保持不动；--diff 显示差异",
    ),
    "taken": (
        "{path} is there already and was not written by tonnage; it is left alone",
        "{path} 已存在且不是 tonnage 写的，保持不动",
    ),
}
