"""What `tonnage gpus` says, and what devices say of themselves."""

MESSAGES = {
    # devices
    "assumed": (
        "'{query}' is taken for {assumed}; name another to choose it",
        "“{query}”按 {assumed} 处理；如指其他型号请写全",
    ),
    "unofficial": (
        "an unofficial board: no maker's warranty, nobody answers for its VBIOS, often loud and hot",
        "非官方改装板：没有原厂保修，VBIOS 无人负责，噪声和温度常偏高",
    ),
    "export_variant": ("an export variant of {of}", "{of} 的出口特供版"),
    "last_driver": (
        "driver branch {branch} and CUDA {cuda} are the last that know it",
        "驱动分支 {branch} 与 CUDA {cuda} 是支持它的最后版本",
    ),
    "marketed_memory": (
        "the memory is the marketed {sold_as}; what the driver reports is not on record and often a little less",
        "显存按标称 {sold_as} 计；驱动实际报告值未收录，通常略小",
    ),
    "unified": (
        "the memory is the machine's own: the system and other programs take their part of it",
        "内存与系统共用：操作系统和其他程序会占去一部分",
    ),
    "no_p2p": (
        "no NVLink, and the driver blocks peer access: several cards talk through the host",
        "没有 NVLink，驱动也禁用 P2P：多卡通信要经过主机",
    ),
    "weak_sources": ("its figures come from weak or conflicting sources", "其数据来源较弱或互相矛盾"),
    # words
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    "through_host": ("PCIe, host", "PCIe 经主机"),
    "open_modules": ("open modules", "开放内核模块"),
    "none": ("No accelerator matches.", "没有符合条件的加速卡。"),
    "fits": ("{left} left", "余 {left}"),
    "kind_own": ("your own price", "您的价格"),
    "kind_launch": ("at launch", "首发价"),
    "kind_third_party": ("third-party figure", "第三方估价"),
    "kind_rent": ("on demand", "按需"),
    "kind_spot": ("spot", "竞价"),
    # list
    "column_name": ("name", "名称"),
    "column_memory": ("GiB", "显存 GiB"),
    "column_bandwidth": ("GB/s", "带宽 GB/s"),
    "column_rate": ("16-bit T", "16 位 T"),
    "column_price": ("USD", "购价 USD"),
    "column_rent": ("USD/h", "租价 USD/h"),
    "column_power": ("W", "功耗 W"),
    "column_link": ("between cards, GB/s", "卡间互联 GB/s"),
    "column_fp8": ("fp8 T", "fp8 T"),
    "column_fp4": ("fp4 T", "fp4 T"),
    "column_architecture": ("architecture", "架构"),
    "list_note": (
        (
            "Memory is what the driver reports, else the size sold; rates are dense, fp32-accumulated, in TFLOPS of bf16 (fp16 before Ampere). "
            "USD: price at launch, or a third party's figure; USD/h: cheapest hour on record, a device. - is unknown. "
            "`tonnage gpus NAME NAME` compares, with sources and dates."
        ),
        (
            "显存为驱动报告值，未收录时为标称值；算力为稠密、fp32 累加的 bf16 TFLOPS（Ampere 之前为 fp16）。USD 为首发价或第三方估价；"
            "USD/h 为收录的最低单卡时租。- 表示未知。`tonnage gpus 型号 型号` 可对比并给出来源与日期。"
        ),
    ),
    # sheet
    "row_name": ("device", "型号"),
    "row_architecture": ("architecture", "架构"),
    "row_form": ("form", "形态"),
    "row_memory": ("memory", "显存"),
    "row_bandwidth": ("bandwidth", "带宽"),
    "sold_as": ("{size} (sold as {sold_as})", "{size}（标称 {sold_as}）"),
    "row_rate": ("{dtype} {unit}", "{dtype} {unit}"),
    "row_l2": ("L2 cache", "L2 缓存"),
    "row_link": ("between cards", "卡间互联"),
    "row_pcie": ("PCIe", "PCIe"),
    "row_p2p": ("peer access (PCIe)", "PCIe P2P"),
    "row_power": ("power", "功耗"),
    "row_cuda": ("CUDA", "CUDA"),
    "row_driver": ("driver", "驱动"),
    "row_engines": ("engines", "支持的引擎"),
    "row_launch": ("launched", "发布"),
    "row_fit": ("weights in {format}", "{format} 权重"),
    "row_buy": ("buy, USD", "购价 USD"),
    "row_rent": ("rent, USD/h", "租价 USD/h"),
    "row_spot": ("spot, USD/h", "竞价 USD/h"),
    "row_per_tflops": ("  per TFLOPS", "  每 TFLOPS"),
    "row_per_gib": ("  per GiB", "  每 GiB"),
    "row_per_gbs": ("  per GB/s", "  每 GB/s"),
    "dated": ("{usd} ({who})", "{usd}（{who}）"),
    "sources": ("sources: {keys} (confidence {confidence})", "来源：{keys}（可信度 {confidence}）"),
    "weights_alone": (
        "Weights of {model} alone; cache and workspace come on top: tonnage plan",
        "仅为 {model} 的权重；缓存与工作区另计：tonnage plan",
    ),
}
