"""What `tonnage plan` says."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    # what was assumed, each with the flag that changes it
    "assumed": ("assumed: {text}", "默认假设：{text}"),
    "comma": (", ", "，"),
    "bracketed": ("{text} ({more})", "{text}（{more}）"),
    "assumed_serve": ("serving (--serve)", "部署推理（--serve）"),
    "assumed_context": ("a context of {value} tokens (--context)", "上下文 {value} 个 token（--context）"),
    "assumed_concurrency": ("{value} request at a time (--concurrency)", "同时 {value} 个请求（--concurrency）"),
    "assumed_lengths": (
        "prompts of {input} and answers of {output} tokens (--input-tokens, --output-tokens)",
        "提示词 {input} 个 token、回答 {output} 个 token（--input-tokens、--output-tokens）",
    ),
    "assumed_input_tokens": ("prompts of {value} tokens (--input-tokens)", "提示词 {value} 个 token（--input-tokens）"),
    "assumed_output_tokens": (
        "answers of {value} tokens (--output-tokens)",
        "回答 {value} 个 token（--output-tokens）",
    ),
    "assumed_tpot": ("no slower than {value} a token (--tpot)", "每个 token 不慢于 {value}（--tpot）"),
    "assumed_seq_len": ("sequences of {value} tokens (--seq-len)", "序列长度 {value}（--seq-len）"),
    "assumed_global_batch": (
        "a global batch of {value} sequences (--global-batch)",
        "全局批量 {value}（--global-batch）",
    ),
    "assumed_lora_rank": ("LoRA rank {value} (--lora-rank)", "LoRA 秩 {value}（--lora-rank）"),
    "assumed_lora_targets": (
        "adapters on every linear layer (--lora-targets)",
        "适配器加在所有线性层（--lora-targets）",
    ),
    "assumed_lora_targets_moe": (
        "adapters on every linear layer but the routed experts (--lora-targets)",
        "适配器加在除路由专家外的所有线性层（--lora-targets）",
    ),
    "experts_kept": (
        "{weights} leaves the experts in {experts}: transformers 5 stacks them into one tensor that bitsandbytes passes over",
        "{weights} 不量化专家，专家保持 {experts}：transformers 5 把专家叠成一个张量，bitsandbytes 会跳过它",
    ),
    "experts_in": ("{weights}, experts {experts}", "{weights}，专家 {experts}"),
    "assumed_drive": (
        "a drive that reads and writes {rate}/s (--host '… nvme 2 TB 7/5 GB/s')",
        "NVMe 盘读写 {rate}/s（--host '… nvme 2 TB 7/5 GB/s'）",
    ),
    "assumed_host": ("a host with {host} (--host)", "主机内存 {host}（--host）"),
    "assumed_host_speed": ("host memory of the speed of {host} (--host)", "主机内存速度按 {host}（--host）"),
    "assumed_reserve": (
        "{reserve} of the card taken by the desktop (--reserve)",
        "桌面占用显存 {reserve}（--reserve）",
    ),
    "assumed_network": (
        "{name} for each card between machines (--network)",
        "机器之间每张卡 {name}（--network）",
    ),
    "price_rent": ("{name}: rent as {provider} asked in {day}", "{name}：租金取自 {provider}，{day}"),
    "price_launch": ("{name}: price at launch, {day} (--price)", "{name}：首发价，{day}（--price）"),
    "price_third_party": (
        "{name}: a third party's list price estimate of {day}; used cards may cost far less (--price)",
        "{name}：第三方的标价估计，{day}；二手可能便宜很多（--price）",
    ),
    "today_not_compared": (
        "{path}: {reason}; nothing is said of what carries over",
        "{path}：{reason}；无法比较哪些可以沿用",
    ),
    # traps of a machine
    "unofficial": (
        "{name} is an unofficial board: no warranty, altered firmware; test it under load before you rely on it",
        "{name} 是非官方改装卡：无质保、固件经修改，使用前请做满载测试",
    ),
    "beyond": (
        "{asked:,} tokens are beyond the {most:,} that the model was trained for: needs RoPE scaling, engines refuse it otherwise",
        "{asked:,} 个词元超过模型训练时的 {most:,}：需要 RoPE 缩放，否则引擎会拒绝",
    ),
    "mixed": (
        "the cards differ: every share is cut for {num} of the smallest, {name}",
        "显卡型号不同：按 {num} 张最小的 {name} 划分",
    ),
    "trap_display": (
        "a screen hangs on this card: {taken} of it is taken already and other programs may take more",
        "该显卡连接了显示器：已占用 {taken}，其他程序可能继续占用",
    ),
    "trap_wddm": (
        "Windows' driver spills into shared memory instead of failing: what does not fit gets slow, not refused",
        "Windows 驱动会溢出到共享内存而不报错：放不下时会变慢，而不是失败",
    ),
    "trap_wsl": (
        "WSL2 gives Linux only a share of the host's memory ({available} free here): memory= in .wslconfig raises it",
        "WSL2 只把部分主机内存分给 Linux（当前可用 {available}）：可在 .wslconfig 里用 memory= 调大",
    ),
    "trap_cgroup": (
        "a control group limits this process to {limit} of host memory",
        "控制组把本进程的主机内存限制为 {limit}",
    ),
    "trap_taken": (
        "other programs hold {taken} of the card; nvidia-smi names them",
        "其他程序已占用显存 {taken}，可用 nvidia-smi 查看",
    ),
    # the answer
    "yes": ("{model} on {where}: yes", "{model} 在 {where} 上：可以"),
    "yes_unsure": (
        "{model} on {where}: perhaps – it fits at the best estimate, not at its upper end",
        "{model} 在 {where} 上：勉强——按最佳估计放得下，按误差上限放不下",
    ),
    "no": ("{model} on {where}: no – {short} short", "{model} 在 {where} 上：不行——缺 {short}"),
    "no_reason": ("{model} on {where}: no – {reason}", "{model} 在 {where} 上：不行——{reason}"),
    "speed": (" – {rate} tokens/s ({low}–{high})", "——{rate} token/s（{low}–{high}）"),
    "job": (", the job done after {time} ({low}–{high})", "，任务用时 {time}（{low}–{high}）"),
    "disk": ("disk for #{rank}: {text}", "#{rank} 的磁盘：{text}"),
    "disk_weights": ("weights {size}", "权重 {size}"),
    "disk_data": ("data {size}", "数据 {size}"),
    "disk_checkpoint": ("a checkpoint {size}", "每个检查点 {size}"),
    "capped": (
        "kept with each at {watts} W (nvidia-smi -pl {watts}): {percent} % of the speed, {least} % at least",
        "每张限到 {watts} W（nvidia-smi -pl {watts}）即可：速度为 {percent} %，至少 {least} %",
    ),
    "drive_experts": (
        "experts are read from the drive at half its rate, an assumption that no measured run stands behind",
        "假设按硬盘速率的一半读取专家，尚无实测支持",
    ),
    "drive_ready": (
        "needs {size} free in the folder nvme beside the job, a link to the drive or a mount, and libaio's headers (libaio-dev)",
        "作业旁的 nvme 目录（指向硬盘的链接或挂载）需有 {size} 空闲，并需安装 libaio 头文件（libaio-dev）",
    ),
    "drive_wear": (
        "each step writes {step} to a machine's drive, {day} a day: hold that against what it is rated for (TBW)",
        "每步向每台机器的盘写入 {step}，每天 {day}：请对照盘的写入寿命（TBW）",
    ),
    "disk_offload": ("{size} on each machine's drive while it trains", "训练时每台机器的盘上 {size}"),
    "disk_rate": (
        "{rate}/s on each machine loads the weights in {time} (--assume load_time)",
        "每台机器读取 {rate}/s 可在 {time} 内加载权重（--assume load_time）",
    ),
    "disk_feed": ("the data are read at up to {rate}/s in all", "训练数据总读取速率最高 {rate}/s"),
    "with": (" with {engine}, {weights}, {place}", "，{engine}，{weights}，{place}"),
    "where_open": ("the catalogue's cards", "目录中的显卡"),
    "no_card": (
        "no card of the catalogue does, up to {num} of a kind",
        "目录中没有可行的显卡（每种最多 {num} 张）",
    ),
    "kinds": ("{num} kinds of cards", "{num} 种显卡"),
    "lack": ("lack what is required: {features} (--require)", "不具备所要求的 {features}（--require）"),
    "catalogue": ("searched {num} kinds of cards", "已搜索 {num} 种显卡"),
    # where the model lives
    "place_gpu": ("all on the GPU", "全部在显存"),
    "place_gpus": ("all on the GPUs", "全部在显存"),
    "place_experts": ("experts of {num} of {all} layers in host memory", "{all} 层中 {num} 层的专家在主机内存"),
    "place_experts_nvme": (
        "experts of {num} of {all} layers in host memory and on NVMe",
        "{all} 层中 {num} 层的专家在主机内存和 NVMe 盘",
    ),
    "place_layers": ("{num} of {all} layers on the host", "{all} 层中 {num} 层在主机上"),
    "place_optimizer": ("optimizer in host memory", "优化器在主机内存"),
    "place_parameters": ("weights and optimizer in host memory", "权重和优化器在主机内存"),
    "place_parameters_nvme": ("weights and optimizer on NVMe", "权重和优化器在 NVMe 盘"),
    "place_weights_nvme": ("weights on NVMe", "权重在 NVMe 盘"),
    "place_optimizer_nvme": ("optimizer on NVMe", "优化器在 NVMe 盘"),
    "place_optimizer_nvme_weights": (
        "weights in host memory, optimizer on NVMe",
        "权重在主机内存，优化器在 NVMe 盘",
    ),
    "place_activations": ("kept activations in host memory", "保留的激活在主机内存"),
    "place_weights": ("weights in host memory", "权重在主机内存"),
    # the table
    "weights_and_cache": ("{weights}, {kv} cache", "{weights}，{kv} 缓存"),
    "no_price": ("price unknown (--price)", "价格未知（--price）"),
    "instead": ("nearest:", "最接近的可行方案："),
    "col_rank": ("#", "#"),
    "col_engine": ("engine", "引擎"),
    "col_software": ("software", "软件"),
    "col_weights": ("weights", "权重"),
    "col_cache": ("cache", "缓存"),
    "col_place": ("where it lives", "放置"),
    "col_gpu": ("hardware", "硬件"),
    "col_layout": ("layout", "并行"),
    "col_device": ("device memory", "显存"),
    "col_host": ("host memory", "主机内存"),
    "col_rate": ("tokens/s", "token/s"),
    "col_ttft": ("first token", "首 token"),
    "col_micro": ("micro-batch", "微批量"),
    "col_recompute": ("recompute", "重计算"),
    "col_cost": ("cost", "费用"),
    "of": ("{used} of {capacity}", "{used} / {capacity}"),
    "up_to": ("{used}, up to {high} of {capacity}", "{used}，最多 {high} / {capacity}"),
    "why_first": ("why this order", "为什么这样排序"),
    "from_memory": (
        "{path}: {measured} measured, {predicted} predicted, so modelled memory x {ratio} (x {taken} here, {steps} steps away)",
        "{path}：实测 {measured}，预测 {predicted}，显存建模部分 × {ratio}（此处 × {taken}，相距 {steps} 步）",
    ),
    "from_speed": (
        "{path}: {measured} a step measured, {predicted} predicted, so speed x {ratio} (x {taken} here, {steps} steps away)",
        "{path}：每步实测 {measured}，预测 {predicted}，速度 × {ratio}（此处 × {taken}，相距 {steps} 步）",
    ),
    "from_less": (
        "less memory was measured than the {counted} of its own weights, gradients and states",
        "实测显存少于其权重、梯度和优化器状态的 {counted}",
    ),
    "from_nothing": ("neither memory nor speed is measured", "没有显存或速度的实测值"),
    "from_far_memory": (
        "what is modelled of memory came out {ratio} times as large: that is another configuration",
        "显存建模部分相差 {ratio} 倍：配置不一致",
    ),
    "from_far_speed": (
        "it ran {ratio} times as fast as predicted: that is another configuration",
        "速度是预测的 {ratio} 倍：配置不一致",
    ),
    "from_fix": (
        "compare its configuration with what ran; tonnage plan --help names the fields",
        "核对配置是否与实际运行一致",
    ),
    "whole_job": (
        "{num} tokens take {seconds} ({low} – {high}){energy}{money}",
        "{num} 个 token 需要 {seconds}（{low} – {high}）{energy}{money}",
    ),
    "job_energy": (", {kwh} kWh", "，{kwh} kWh"),
    "job_rent": (", {amount} rented", "，租用 {amount}"),
    "job_own": (", {amount} on machines of one's own", "，自有机器 {amount}"),
    "room": (
        "fits up to micro-batch {batch:,} (surely {batch_surely:,}) or sequences of {length:,} tokens (surely {length_surely:,})",
        "最多可到微批量 {batch:,}（稳妥 {batch_surely:,}）或序列长度 {length:,}（稳妥 {length_surely:,}）",
    ),
    "room_unsure": (
        "fits at best up to micro-batch {batch:,} or sequences of {length:,} tokens",
        "按最佳估计最多可到微批量 {batch:,} 或序列长度 {length:,}",
    ),
    "room_sure": (
        "fits up to micro-batch {batch:,} or sequences of {length:,} tokens",
        "最多可到微批量 {batch:,} 或序列长度 {length:,}",
    ),
    "rule_serve": (
        (
            "order: sure fits before those that fit at the best estimate only, weights of 4 bits or more before smaller "
            "ones (they answer visibly worse), then {objective}"
        ),
        "排序：误差上限也放得下的在前，权重不低于 4 位的在前（更低时质量明显下降），再按{objective}",
    ),
    "rule_train": (
        "order: sure fits before those that fit at the best estimate only, then {objective}",
        "排序：误差上限也放得下的在前，再按{objective}",
    ),
    "objective_speed": ("speed", "速度"),
    "objective_throughput": ("throughput", "吞吐量"),
    "objective_value": ("price of a token a second", "每 token/s 的价格"),
    "objective_latency": ("time of one request or step", "单个请求或步骤的时间"),
    "objective_cost": ("money for the job or a token", "任务或每 token 的费用"),
    "objective_time": ("time until it is done", "完成时间"),
    "objective_price": ("price to buy", "购买价格"),
    "objective_energy": ("energy of a token", "每 token 能耗"),
    "objective_change": ("how little of today's set-up changes", "对现有环境改动最少"),
    "lost": ("why the others lost", "其他方案为什么落选"),
    "other_checkpoint": (
        "{model} is stored in {own}: other weights need a checkpoint of that kind, or quantising it",
        "{model} 的原始权重是 {own}：其他格式需要相应的权重文件，或自行量化",
    ),
    "carries": ("carries over: {same}; changes: {changed}", "可沿用：{same}；需改动：{changed}"),
    "nothing": ("nothing", "无"),
    "more_bits": ("weights of {bits} bits instead of {least}", "权重 {bits} 位，而非 {least} 位"),
    "slower": ("{percent} % slower than #{rank}", "比 #{rank} 慢 {percent}%"),
    "unsure": ("fits at the best estimate, not at the upper end", "按最佳估计放得下，按误差上限放不下"),
    "few_bits": ("below 4 bits a weight", "每权重低于 4 位"),
    "binds": ("bound by {what}", "受限于{what}"),
    "limits": (
        "holds a context of up to {context} tokens, or {requests} requests of {asked}",
        "上下文最多 {context} 个 token，或 {requests} 个各 {asked} token 的请求",
    ),
    "limits_one": (
        "holds a context of up to {context} tokens, one request at a time",
        "上下文最多 {context} 个 token，一次一个请求",
    ),
    "least_memory": ("does with {memory} a device", "每卡 {memory} 即够"),
    "breaks": ("breaks {limit}", "不满足 {limit}"),
    # why not
    "not_started": ("tonnage deploy does not start it: {reason}", "tonnage deploy 不会启动它：{reason}"),
    "short_device": (
        "{short} short on the device: needs {used} of {capacity}",
        "显存缺 {short}：需要 {used}，只有 {capacity}",
    ),
    "short_host": (
        "{short} short in host memory: needs {used} of {capacity}",
        "主机内存缺 {short}：需要 {used}，只有 {capacity}",
    ),
    "ruled_out": ("{reason}", "{reason}"),
    "too_slow_ttft": (
        "first token after {value}, asked for {limit} (--ttft)",
        "首 token 需 {value}，要求 {limit}（--ttft）",
    ),
    "too_slow_tpot": ("{value} a token, asked for {limit} (--tpot)", "每 token {value}，要求 {limit}（--tpot）"),
    "too_late": ("done after {value}, asked for {limit} (--deadline)", "完成需 {value}，要求 {limit}（--deadline）"),
    "too_dear": ("costs {value}, asked for {limit} ({flag})", "费用 {value}，要求 {limit}（{flag}）"),
    "of_larger": (
        "{value} for a machine of {num} devices, the smallest on record",
        "{value}（记录中最小的是 {num} 卡整机）",
    ),
    "too_hot": (
        "draws up to {value}, asked for {limit} (--max-power)",
        "功耗最高 {value}，要求 {limit}（--max-power）",
    ),
    # what would make it fit
    "changes": ("what would make it fit, the nearest first", "怎样才放得下（由近及远）"),
    "no_change": (
        "nothing near makes it fit: not a smaller format, nor host memory, nor more of this card up to {num}",
        "附近没有可行的改动：更小的格式、主机内存、增加到 {num} 张同型卡都放不下",
    ),
    "change_reserve": ("the card kept free of the desktop (--reserve 0)", "不让桌面占用该显卡（--reserve 0）"),
    "change_perhaps": ("{what} (perhaps: at the best estimate)", "{what}（勉强：按最佳估计）"),
    "change_tpot": ("a slower answer: {value} a token", "接受更慢的速度：每 token {value}"),
    "change_weights": ("weights in {value}", "权重用 {value}"),
    "change_num_seqs": ("at most {value} sequences at once", "同时最多 {value} 个序列"),
    "change_utilization": ("a share of {value} of the device", "使用设备的 {value}"),
    "change_step": ("the engine's own number of tokens a step", "采用引擎默认的每步 token 数"),
    "change_kv": ("cache in {value}", "缓存用 {value}"),
    "change_context": ("a context of {value} tokens", "上下文缩短到 {value} 个 token"),
    "change_concurrency": ("{value} requests at a time", "同时 {value} 个请求"),
    "change_experts": ("experts of {value} layers in host memory", "把 {value} 层的专家放到主机内存"),
    "change_layers": ("{value} layers on the host", "把 {value} 层放到主机"),
    "change_micro": ("a micro-batch of {value}", "微批量 {value}"),
    "change_recompute": ("recomputation: {value}", "重计算：{value}"),
    "change_optimizer": ("optimizer {value}", "优化器 {value}"),
    "change_offload": ("{value}", "{value}"),
    "change_limit": ("allowing {value} ({flag})", "把 {flag} 放宽到 {value}"),
    "change_layout": ("split as {value}", "划分改为 {value}"),
    "change_free": ("with nothing pinned", "不固定任何参数"),
    "change_bare": ("with nothing pinned and no limits", "不固定参数，也不设限制"),
    "change_machine": (
        "{value} x {name}, with nothing pinned and no limits",
        "{value} 张 {name}，不固定参数，也不设限制",
    ),
    "price_open": (
        "what {name} costs is not on record: the limit of money was not held against it (--price)",
        "{name} 的价格没有记录：金额限制未能核对（--price）",
    ),
    "change_machines": (
        "{num} x {value} {name}, with nothing pinned and no limits",
        "{num} 台机器，每台 {value} 张 {name}，不固定参数，也不设限制",
    ),
    "change_zero": ("ZeRO stage {value}", "ZeRO 阶段 {value}"),
    "change_seq_len": ("sequences of {value} tokens", "序列长度 {value}"),
    "change_method": ("{value} instead of {old}", "用 {value} 代替 {old}"),
    "change_engine": ("with {value}", "用 {value}"),
    "change_host": ("a host with {value}, {place}", "主机内存 {value}，{place}"),
    "change_driver": ("driver {value} or newer", "驱动 {value} 或更新"),
    "change_drive": ("an NVMe drive of {value}, {place}", "{value} NVMe 盘，{place}"),
    "change_gpus": ("{value} of this card", "{value} 张同型卡"),
    "change_nodes": ("{num} machines with {value} of this card", "{num} 台机器，每台 {value} 张同型卡"),
    "change_gpu": ("one {value}", "一张 {value}"),
    "change_gpu_many": ("{num} of {value}", "{num} 张 {value}"),
    "col_change": ("change", "改动"),
    "col_needs": ("needs", "需要"),
    "col_command": ("command", "命令"),
    "memory_line": ("{reason}: {pools}", "{reason}：{pools}"),
    "moe_note": (
        (
            "a mixture of experts: all {total} parameters must be held somewhere ({size} in bf16); the {active} that a "
            "token touches ({active_size}) set the speed, not the memory"
        ),
        "混合专家模型：全部 {total} 参数都要有地方放（bf16 共 {size}）；每个 token 只用到 {active}（{active_size}），它决定速度，不决定内存",
    ),
    # next
    "next": ("next", "接下来"),
    "next_keep": ("keep the first plan", "保存第一个方案"),
    "next_explain": ("where every byte and second goes", "每个字节和每一秒花在哪里"),
    "next_start": ("starts it", "启动命令"),
    "next_start_ik": (
        "starts it, with the llama-server that ik_llama.cpp builds",
        "启动命令，须用 ik_llama.cpp 自己编译的 llama-server",
    ),
    "next_start_other": (
        "starts it, given a checkpoint in {weights}",
        "启动命令，须换成 {weights} 格式的权重",
    ),
    "warning": ("note: {text}", "注意：{text}"),
    "kept": ("{path}: plan {rank} of {num}", "{path}：第 {rank} 个方案，共 {num} 个"),
    "num_looked": ("{num} candidates looked at", "共考察 {num} 个候选"),
    "imported": ("read from {path} ({kind}): {text}", "从 {path}（{kind}）读入：{text}"),
    "engine_defaults": (
        "{path}: not in the line, so as the engine has it: {text} (own: as the checkpoint has it)",
        "{path}：启动行未写，按引擎默认：{text}（own：与检查点一致）",
    ),
    "other_model": (
        "the file that is imported names another model, {other}: what is counted is {model}",
        "导入的文件写的是另一个模型 {other}：这里计算的是 {model}",
    ),
    "not_counted": ("{path}: not counted: {text}", "{path}：未计入：{text}"),
}
