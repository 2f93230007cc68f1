"""What `tonnage gpus` says, and what devices say of themselves."""

MESSAGES = {
    "assumed": (
        "'{query}' is taken for {assumed}; name another to choose it",
        "“{query}”按 {assumed} 处理；如指其他型号请写全",
    ),
    "unofficial": (
        "an unofficial board: no maker's warranty, its VBIOS and drivers are nobody's promise, often loud and hot",
        "非官方改装板：没有原厂保修，VBIOS 与驱动无人担保，噪声和温度常偏高",
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
}
