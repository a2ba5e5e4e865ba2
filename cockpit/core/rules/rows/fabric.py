"""InfiniBand, EFA, and the links between GPUs of a node."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="roce-address-wrong",
        signs=(r"\bCall to ibv_modify_qp failed\b",),
        means="RoCE queue pairs do not connect: NCCL_IB_GID_INDEX, the network or the HCAs differ between nodes.",
        zh="RoCE 的 QP（queue pair）连不上：各节点的 NCCL_IB_GID_INDEX、网络或网卡不一致。",
        next=(
            Next(
                "show_gids",
                "on each node: the index of the RoCE v2 address; it may change when a link bounces",
                "在各节点查看 RoCE v2 地址的序号；链路抖动后可能改变",
            ),
            Next(
                "unset NCCL_IB_GID_INDEX",
                "NCCL 2.21 and later choose it themselves",
                "NCCL 2.21 起会自动选择",
            ),
            Next(
                "export NCCL_IB_HCA=mlx5_0,mlx5_1",
                "only those that lead to all nodes",
                "只用能连到所有节点的网卡",
            ),
        ),
        source="nccl/src/misc/ibvwrap.cc",
    ),
    Row(
        id="locked-memory",
        checks=frozenset({"locked_memory"}),
        signs=(
            r"\bibv_(?:exp_)?reg_mr\w{0,20}(?:\([^)\n]{0,200}\))? failed[^\n]{0,80}?Cannot allocate memory",
            r"\bibv_create_\w{1,10}\b[^\n]{0,200}?Cannot allocate memory",
            r"\bCall to ibv_reg_mr failed\b",
            r"\bPlease set max locked memory\b",
            r"\bmemlock limits are set too low\b",
            r"\ballocate some locked memory\b",
        ),
        deep=(r"ibv_reg_mr\w{0,40} failed|ibv_create_cq.{0,200} failed.{0,200}Cannot allocate memory",),
        means="InfiniBand may not lock memory where ranks are started.",
        zh="rank 所在环境的 memlock 限制太低，InfiniBand 无法注册内存。",
        next=(
            Next(
                "ssh NODE ulimit -l",
                "must be unlimited in that session, not only in your login shell",
                "该会话里必须是 unlimited，不能只看登录 shell",
            ),
            Next(
                "",
                "Ask the admin for `* - memlock unlimited` in /etc/security/limits.d, and in sshd's or slurmd's unit.",
                "请管理员在 /etc/security/limits.d 里加 `* - memlock unlimited`，并在 sshd 或 slurmd 的 unit 里放开。",
            ),
            Next("docker run --ulimit memlock=-1 …", "in containers", "容器里"),
        ),
        source="nccl-tests#206, ucx#8684, ucx#8229",
    ),
    Row(
        id="ib-retries-exceeded",
        signs=(
            r"\bGot completion (?:from peer|with error)\b[^\n]{0,200}?(?:\berror 12\b|\bIBV_WC_RETRY_EXC_ERR\b|\bstatus=12\b)",
            r"\bTransport retry count exceeded on mlx",
        ),
        deep=(
            r"Got completion (?:from peer|with error).{0,200}(?:error 12|status=IBV_WC_RETRY_EXC_ERR|status=12)",
        ),
        means="InfiniBand packets to a peer are lost, or its process has ended.",
        zh="发往对端的 InfiniBand 包丢失，或者对端进程已经退出。",
        next=(
            Next(
                "",
                "First check the rank of that peer: if it ended before, that is the cause.",
                "先看对端的 rank，如果它更早退出，那就是原因。",
            ),
            Next("ibstat; ibqueryerrors", "links and their error counters", "看链路状态和错误计数"),
            Next(
                "show_gids",
                "RoCE: NCCL_IB_GID_INDEX, and the same MTU on all nodes",
                "RoCE：检查 NCCL_IB_GID_INDEX，各节点的 MTU 要一致",
            ),
        ),
        source="nccl#1405, nccl#1664, nccl#1814, nccl/src/transport/net_ib",
    ),
    Row(
        id="nccl-tcp",
        checks=frozenset({"nccl-tcp"}),
        severity="warning",
        means="NCCL uses TCP between nodes, not InfiniBand, RoCE or EFA: collectives take many times as long.",
        zh="NCCL 在节点之间走的是 TCP，没有用 InfiniBand、RoCE 或 EFA：集合通信会慢很多。",
        next=(
            Next(
                "env | grep NCCL_",
                "is NCCL_NET or NCCL_IB_DISABLE set?",
                "看是否设置了 NCCL_NET 或 NCCL_IB_DISABLE",
            ),
            Next(
                "ibv_devinfo; fi_info -p efa",
                "is the device there, also in the container, and its port active?",
                "看设备在不在（容器里也要有）、端口是否为 active",
            ),
            Next("ulimit -l", "where ranks run: must be unlimited", "在 rank 所在环境里必须是 unlimited"),
        ),
        source="nccl/src/plugin/net.cc",
    ),
    Row(
        id="ib-missing",
        checks=frozenset({"nccl-tcp none"}),
        signs=(r"\bNET/IB : No device found",),
        severity="info",
        deep=(r"NET/IB : No device found",),
        means="NCCL sees no InfiniBand device and falls back to TCP, which is slower.",
        zh="NCCL 没找到 InfiniBand 设备，退回较慢的 TCP；容器里看看有没有 /dev/infiniband。",
        next=(
            Next("ibv_devinfo", "does the node have one at all?", "看节点上到底有没有"),
            Next("docker run --device /dev/infiniband …", "gives it to a container", "把设备映射进容器"),
        ),
        source="nccl/src/transport/net_ib",
    ),
    Row(
        id="efa-missing",
        signs=(
            r"\bfi_getinfo: provider efa output empty\b",
            r"\bfi_getinfo\(?\)? ?(?:failed|returned)\b",
            r"\bNET/OFI[^\n]{0,200}?(?:No eligible providers|Only EFA provider is supported|aws-ofi-nccl initialization failed)",
            r"\bNET/OFI (?:Unable to find|Couldn't find any|Could not find any|Failed to initialize rdma protocol|Failed to initialize sendrecv protocol)",
            r"\bNET/OFI[^\n]{0,100}?\b(?:OFI fi_getinfo|fi_getinfo)\b[^\n]{0,60}?\b(?:call failed|failed)\b",
        ),
        deep=(r"fi_getinfo|NET/OFI.{0,200}(?:Unable|fail|No eligible)|provider efa output empty",),
        means="libfabric finds no usable provider (EFA) here.",
        zh="libfabric 在这里找不到可用的 provider（EFA）：检查实例和容器里有没有该设备。",
        next=(
            Next(
                "fi_info -p efa",
                "on each node, in the container: which ones lack it?",
                "在各节点的容器里执行，看哪些没有",
            ),
            Next(
                "docker run --device /dev/infiniband/uverbs0 …",
                "gives EFA to a container (Kubernetes: vpc.amazonaws.com/efa)",
                "把 EFA 映射进容器（Kubernetes 用 vpc.amazonaws.com/efa）",
            ),
        ),
        source="aws-ofi-nccl, libfabric src/fabric.c",
    ),
    Row(
        id="efa-failed",
        signs=(r"\bNET/OFI Request\b[^\n]{0,80}? completed with error\b",),
        means="EFA could not deliver to a peer: that rank has ended, or the security group or link drops it.",
        zh="EFA 无法把数据送到对端：对端 rank 已退出，或数据被安全组、链路丢弃。",
        next=(
            Next("", "First look for a rank that failed before.", "先找更早出错的 rank。"),
            Next(
                "",
                "The security group must allow all traffic to and from itself.",
                "安全组必须放行组内实例之间的全部入站和出站流量。",
            ),
        ),
        source="aws-ofi-nccl/src/nccl_ofi_rdma.cpp",
    ),
    Row(
        id="efa-no-memory",
        signs=(
            r"\bNET/OFI (?:Unable to register memory|Could not register memory|Couldn't register memory)\b",
        ),
        means="EFA may not register the memory of a buffer: a limit, or libfabric and NCCL do not fit each other.",
        zh="EFA 无法注册缓冲区的内存：超出限额，或 libfabric 与 NCCL 版本不匹配。",
        next=(
            Next("ulimit -l", "where ranks run: must be unlimited", "在 rank 所在环境里必须是 unlimited"),
            Next(
                "export FI_EFA_SET_CUDA_SYNC_MEMOPS=0",
                "for EFA installers before 1.29 with NCCL 2.19 and later",
                "EFA installer 低于 1.29 且 NCCL 为 2.19 及以上时使用",
            ),
        ),
        source="aws-ofi-nccl/src/nccl_ofi_rdma.cpp",
    ),
    Row(
        id="p2p-broken",
        signs=(r"\bP2P is disabled between NVLINK connected GPUs \d",),
        severity="warning",
        means="Two GPUs of this node do not reach each other though NVLink joins them: most likely the hardware.",
        zh="本节点两块由 NVLink 相连的 GPU 之间 P2P 不可用：多半是硬件问题。",
        next=(
            Next(
                "nvidia-smi topo -p2p r; nvidia-smi nvlink -s",
                "which pair; is its link up?",
                "看是哪一对、链路是否正常",
            ),
            Next(
                "export NCCL_P2P_DISABLE=1",
                "slower, but shows whether it is that",
                "会变慢，但能确认是不是 P2P 的问题",
            ),
        ),
        source="nccl/src/graph/paths.cc",
    ),
    Row(
        id="p2p-off",
        checks=frozenset({"nccl-p2p"}),
        signs=(r"\bP2P is disabled between connected GPUs\b",),
        severity="info",
        means="GPUs of this node do not reach each other directly: traffic goes through the host's memory, slower.",
        zh="本节点的 GPU 之间不能直接访问（P2P 关闭）：数据经主机内存中转，会更慢。",
        next=(
            Next(
                "nvidia-smi topo -p2p r; nvidia-smi topo -m",
                "CNS, NS: the platform has none, as with many PCIe GPUs",
                "CNS、NS 表示平台不支持，很多 PCIe 卡如此",
            ),
            Next(
                "sudo lspci -vvv | grep -i 'ACSCtl.*SrcValid+'",
                "bare metal: is ACS on, or the IOMMU?",
                "物理机上看 ACS 或 IOMMU 是否打开",
            ),
        ),
        source="nccl/src/graph/paths.cc",
    ),
    Row(
        id="nccl-gdr",
        checks=frozenset({"nccl-gdr"}),
        severity="warning",
        means="GPUDirect RDMA is off: data between nodes goes through the host's memory, slower.",
        zh="GPUDirect RDMA 没有启用：节点之间的数据要经主机内存中转，会更慢。",
        next=(
            Next(
                "lsmod | grep -E 'nvidia_peermem|nv_peer_mem|gdrdrv'",
                "load it: sudo modprobe nvidia_peermem",
                "没有就加载：sudo modprobe nvidia_peermem",
            ),
            Next(
                "nvidia-smi topo -m",
                "is the card near the GPU? PHB and SYS are far",
                "看网卡离 GPU 近不近：PHB、SYS 都算远",
            ),
        ),
        source="nccl/src/graph/paths.cc",
    ),
    Row(
        id="iommu-on",
        signs=(
            r"\bMissing \"iommu=pt\" from kernel command line\b",
            r"\bAMD-Vi: Event logged \[IO_PAGE_FAULT\b",
            r"\bDMAR: \[DMA (?:Read|Write)[^\n]{0,200}?\bfault",
        ),
        severity="warning",
        means="The IOMMU is not in passthrough mode: traffic between GPUs may be slow, wrong, or hang on such hosts.",
        zh="IOMMU 不是 passthrough 模式：这类主机上 GPU 间通信可能变慢、出错或卡住。",
        next=(
            Next(
                "cat /proc/cmdline",
                "iommu=pt, or the IOMMU off in the BIOS; then a reboot",
                "加上 iommu=pt，或在 BIOS 里关闭 IOMMU，然后重启节点",
            ),
            Next(
                "sudo lspci -vvv | grep -i 'ACSCtl.*SrcValid+'",
                "bare metal: ACS must be off as well",
                "物理机上还要关闭 ACS",
            ),
            Next("export NCCL_P2P_DISABLE=1", "until then", "改好之前先这样用"),
        ),
        source="rccl/src/init.cc, NCCL's troubleshooting guide",
    ),
)
