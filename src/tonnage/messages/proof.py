"""What is said of the proof to run."""

from __future__ import annotations

MESSAGES: dict[str, tuple[str, str]] = {
    "title": ("the proof to run for #{rank}", "方案 #{rank} 的验证测试"),
    "least_certain": (
        "least certain, by the chance that it turns the answer",
        "最不确定的数字（按改变结论的概率排序）",
    ),
    "over_device": (
        "device memory {value}: {percent} that it is more than {limit}",
        "显存 {value}：超过 {limit} 的概率 {percent}",
    ),
    "over_host": (
        "host memory {value}: {percent} that it is more than {limit}",
        "主机内存 {value}：超过 {limit} 的概率 {percent}",
    ),
    "over_ttft": (
        "first token after {value}: {percent} that it is later than {limit} (--ttft)",
        "首 token {value}：晚于 {limit} 的概率 {percent}（--ttft）",
    ),
    "over_tpot": (
        "a token in {value}: {percent} that it is slower than {limit} (--tpot)",
        "每 token {value}：慢于 {limit} 的概率 {percent}（--tpot）",
    ),
    "over_deadline": (
        "done after {value}: {percent} that it is later than {limit} (--deadline)",
        "完成时间 {value}：晚于 {limit} 的概率 {percent}（--deadline）",
    ),
    "over_budget": (
        "to buy {value}: {percent} that it is more than {limit} (--budget); an offer settles it, no run does",
        "购买 {value}：超过 {limit} 的概率 {percent}（--budget）；需询价，测试无法确定",
    ),
    "over_rent": (
        "rent of an hour {value}: {percent} that it is more than {limit} (--rent); an offer settles it, no run does",
        "每小时租金 {value}：超过 {limit} 的概率 {percent}（--rent）；需询价，测试无法确定",
    ),
    "over_spend": (
        "the job {value}: {percent} that it is more than {limit} (--spend)",
        "整个任务 {value}：超过 {limit} 的概率 {percent}（--spend）",
    ),
    "speed": ("speed {value}", "速度 {value}"),
    "speed_rival": (
        "speed {value}: {percent} that #{rank} is better at what is wanted",
        "速度 {value}：#{rank} 更优的概率 {percent}",
    ),
    "run_serve": (
        "the run: start it and send {requests} requests of {input} and {output} tokens; the start shows the memory, the requests the speed",
        "测试：启动服务并发送 {requests} 个请求（输入 {input}、输出 {output} token）；启动日志给出显存，请求给出速度",
    ),
    "device": ("one device", "1 张卡"),
    "devices": ("{num} devices", "{num} 张卡"),
    "run_train": (
        "the run: {steps} steps on {devices}, {layers} layers; the second step shows the memory, the last ten the speed",
        "测试：{devices}，{layers} 层，{steps} 步；第 2 步给出显存，最后 10 步给出速度",
    ),
    "run_memory": (
        "the run: {steps} steps on {devices}, {layers} layers: the second step shows the memory",
        "测试：{devices}，{layers} 层，{steps} 步：第 2 步给出显存",
    ),
    "takes": (
        "takes {seconds} ({low} to {high}), getting the machine and loading included; {cost}",
        "耗时 {seconds}（{low} 至 {high}，含申请机器和加载）；{cost}",
    ),
    "costs": ("costs {usd} USD ({low} to {high})", "费用 {usd} 美元（{low} 至 {high}）"),
    "costs_unknown": (
        "nobody on record rents these machines: on your own it costs the time",
        "没有这类机器的租金记录：在自有机器上只花时间",
    ),
    "expect_serve": ("it should show {memory} on a device and {rate}", "预期：每张卡 {memory}，{rate}"),
    "expect_train": (
        "it should show {memory} on a device and {seconds} a step",
        "预期：每张卡 {memory}，每步 {seconds}",
    ),
    "dummy": (
        "random weights take the same memory and time, nothing is downloaded; experts are met more evenly than in truth",
        "随机权重占用相同的显存和时间，无需下载；但专家负载比真实情况更均匀",
    ),
    "one_stage": (
        (
            "{layers} of {all} layers on machines: {nodes}, split inside as in the whole; write num_hidden_layers = {layers} "
            "into a copy of config.json"
        ),
        "{all} 层中取 {layers} 层，机器数：{nodes}，内部划分方式不变；在 config.json 的副本中写 num_hidden_layers = {layers}",
    ),
    "left": (
        "it leaves open what the network between machines takes, and the pipeline's idle time",
        "机器之间的网络开销和流水线空闲时间仍未验证",
    ),
    "short_step": (
        "a step of {batch} sequences: more micro-batches repeat what one shows",
        "每步只取 {batch} 条序列：更多微批量只是重复",
    ),
    "teaches": (
        "what was measured teaches later plans on this machine",
        "测得的结果会用于这台机器以后的规划",
    ),
}
