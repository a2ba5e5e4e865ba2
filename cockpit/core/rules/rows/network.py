"""Network: NCCL, RCCL, HCCL, gloo, InfiniBand, EFA, and the links between GPUs of a node."""

from __future__ import annotations

from cockpit.core.rules.row import Deep, Next, Row

_ADDRESSES = Next(
    "ip -br addr", "on each node: its interfaces and their addresses", "在各节点上查看网卡和地址"
)
_IFNAME = Next(
    "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0",
    "the interface between the nodes (cockpit run: --env)",
    "指定节点之间通信的网卡（cockpit run 用 --env）",
)
_DEEP = Next(
    "cockpit doctor HOSTFILE --deep", "tries torch between all nodes", "在所有节点之间实际跑一遍 torch 通信"
)
_FIREWALL = Next(
    "sudo nft list ruleset; sudo iptables -L -n", "does a firewall refuse?", "看是否被防火墙拒绝"
)
_LOOPBACK = r"(?:\[|\b)(?:127\.\d+\.\d+\.\d+|::1)\b"
_BRIDGES = r"(?:docker|br-|virbr|cni|flannel|cali|veth|lxcbr|lxdbr|podman|nerdctl)"

ROWS: tuple[Row, ...] = (
    Row(
        id="nccl-no-interface",
        signs=(
            r"\bBootstrap ?: no socket interface found",
            r"\bNET/Socket ?: no (?:socket )?interface found",
            r"\bno socket interface found\b",
        ),
        deep=Deep((r"no socket interface found|Bootstrap : no socket interface",)),
        means="NCCL_SOCKET_IFNAME matches no interface of this node; eth matches eth0, =eth0 is exact, ^docker excludes.",
        zh="NCCL_SOCKET_IFNAME 在本节点上匹配不到网卡；写 eth 能匹配 eth0，写 =eth0 是精确匹配，写 ^docker 是排除。",
        next=(
            _ADDRESSES,
            Next(
                "export NCCL_SOCKET_IFNAME=eth0,eno1",
                "one name of each kind of node, or unset it",
                "每类节点各写一个网卡名，或干脆不设",
            ),
        ),
        source="nccl#210, nccl#286, nccl-tests#9",
    ),
    Row(
        id="gloo-no-interface",
        signs=(
            r"\bUnable to find (?:address for|interface for): ",
            r"\bgloo/transport/tcp/device\.cc:\d{1,5}\][^\n]{0,60}?\bUnable to (?:find|resolve)\b",
        ),
        deep=Deep((r"Unable to find (?:address for|interface)",), hint=": --iface NAME"),
        means="GLOO_SOCKET_IFNAME names no interface of this node, or one without an address.",
        zh="GLOO_SOCKET_IFNAME 指定的网卡在本节点上不存在，或没有地址。",
        next=(
            _ADDRESSES,
            _IFNAME,
            Next(
                "getent hosts $(hostname)",
                "gloo uses the interface of this address by default",
                "未指定时 gloo 使用该地址所在的网卡",
            ),
        ),
        source="gloo/transport/tcp/device.cc",
    ),
    Row(
        id="address-families-differ",
        signs=(r"\bAddress family not supported by protocol\b",),
        but=r"\[c10d\]",
        deep=Deep((r"Address family not supported by protocol",), step="--env NCCL_SOCKET_FAMILY=AF_INET"),
        means="One side uses IPv4, the other IPv6; or take an interface that has both on all nodes.",
        zh="一端用 IPv4，另一端用 IPv6；统一协议，或换成所有节点都同时支持两者的网卡。",
        next=(
            Next("export NCCL_SOCKET_FAMILY=AF_INET", "IPv4 on all nodes", "所有节点都用 IPv4"),
            _ADDRESSES,
        ),
        source="nccl#286, nccl-tests#9",
    ),
    Row(
        id="peer-gave-loopback",
        signs=(
            rf"\b(?:gloo|NCCL WARN)\b[^\n]{{0,300}}?{_LOOPBACK}[^\n]{{0,200}}?\bConnection refused\b",
            rf"\b(?:gloo|NCCL WARN)\b[^\n]{{0,300}}?\bConnection refused\b[^\n]{{0,200}}?{_LOOPBACK}",
            r"\bSO_ERROR: Connection refused, remote=\[127\.",
        ),
        but=r"\bretrying\b",
        deep=Deep(
            (rf"{_LOOPBACK}.{{0,200}}refused|refused.{{0,200}}{_LOOPBACK}",),
            hint=": correct /etc/hosts there, or --iface NAME",
        ),
        means="Another rank gave a loopback address, as its own name resolves to one.",
        zh="另一个 rank 给出的是回环地址，因为它把自己的主机名解析成了 127.x。",
        next=(
            Next(
                "getent hosts $(hostname)",
                "on each node; a line with 127.0.1.1 in /etc/hosts is the cause",
                "在各节点上查看；起因是 /etc/hosts 里的 127.0.1.1",
            ),
            _IFNAME,
        ),
        source="gloo/transport/tcp/device.cc",
    ),
    Row(
        id="on-loopback",
        signs=(r"\b(?:Bootstrap ?:|NET/Socket :) Using ?(?:\[\d{1,2}\])?lo:(?:127\.|\[?::1)",),
        severity="warning",
        means="NCCL talks over loopback (lo): right on one node; with more, no other node can reach this one.",
        zh="NCCL 走的是回环网卡 lo：单机没问题，多机时其他节点连不上本节点。",
        next=(
            Next(
                "echo $NCCL_SOCKET_IFNAME",
                "^docker0 alone lets lo in: write ^docker0,lo, or unset it",
                "只写 ^docker0 会选中 lo：应写 ^docker0,lo，或不设",
            ),
            _IFNAME,
        ),
        source="horovod#700, nccl/src/misc/socket.cc",
    ),
    Row(
        id="on-bridge",
        signs=(rf"\b(?:Bootstrap ?:|NET/Socket :) Using ?(?:\[\d{{1,2}}\])?{_BRIDGES}[\w.-]{{0,20}}:",),
        severity="warning",
        means="NCCL talks over a bridge of containers or VMs, which other nodes cannot reach.",
        zh="NCCL 走的是容器或虚拟机的网桥，其他节点连不上。",
        next=(
            _IFNAME,
            Next("export NCCL_SOCKET_IFNAME=^docker,lo,virbr", "or exclude the bridges", "或排除这些网桥"),
        ),
        source="horovod#584, nccl-tests#15",
    ),
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
        id="no-route",
        signs=(
            r"\bNCCL WARN[^\n]{0,300}?\b(?:No route to host|Network is unreachable)\b",
            r"\b(?:Call to connect|socketStartConnect|socketPollConnect)\b[^\n]{0,200}?\b(?:No route to host|Network is unreachable)\b",
            r"\b(?:gloo|c10d)\b[^\n]{0,300}?\b(?:No route to host|Network is unreachable)\b",
            r"\bRuntimeError: [^\n]{0,200}?\bconnect[^\n]{0,100}?\bNo route to host\b",
        ),
        but=r"\bNCCL INFO\b",
        deep=Deep(
            (r"No route to host|Network is unreachable",), step="ip -br addr; ip route", hint=": --iface NAME"
        ),
        means="The address that another rank gave cannot be reached, often a bridge's or the wrong interface's.",
        zh="另一个 rank 给出的地址无法到达，常见原因是它给出了网桥地址，或选错了网卡。",
        next=(
            Next(
                "ip -br addr; ip route", "on both nodes: whose address is it?", "在两端查看这是哪块网卡的地址"
            ),
            _IFNAME,
            _DEEP,
        ),
        source="horovod#584, nccl#1105, nccl-tests#15",
    ),
    Row(
        id="duplicate-gpu",
        signs=(r"\bDuplicate GPU detected\b",),
        deep=Deep((r"Duplicate GPU detected",), hint=": slots=N in the hostfile?"),
        means="Two ranks use the same GPU; each needs its own.",
        zh="两个 rank 用了同一块 GPU；每个 rank 要独占一块。检查 hostfile 里的 slots=N。",
        next=(
            Next(
                "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
                "as many GPUs as ranks on each node?",
                "看每个节点的 GPU 数和 rank 数是否一致",
            ),
            Next(
                "",
                "In the script: torch.cuda.set_device(LOCAL_RANK) before the first collective.",
                "脚本里在第一次 collective 之前调用 torch.cuda.set_device(LOCAL_RANK)。",
            ),
        ),
        source="nccl/src/init.cc",
    ),
    Row(
        id="locked-memory",
        signs=(
            r"\bibv_(?:exp_)?reg_mr\w{0,20}(?:\([^)\n]{0,200}\))? failed[^\n]{0,80}?Cannot allocate memory",
            r"\bibv_create_\w{1,10}\b[^\n]{0,200}?Cannot allocate memory",
            r"\bCall to ibv_reg_mr failed\b",
            r"\bPlease set max locked memory\b",
            r"\bmemlock limits are set too low\b",
            r"\ballocate some locked memory\b",
        ),
        deep=Deep(
            (r"ibv_reg_mr\w{0,40} failed|ibv_create_cq.{0,200} failed.{0,200}Cannot allocate memory",),
            step="ulimit -l",
            hint=": memlock unlimited in /etc/security/limits.conf",
        ),
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
        deep=Deep(
            (
                r"Got completion (?:from peer|with error).{0,200}(?:error 12|status=IBV_WC_RETRY_EXC_ERR|status=12)",
            ),
            step="ibstat; ibqueryerrors",
            hint="; RoCE: NCCL_IB_GID_INDEX, the same MTU",
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
        id="ib-missing",
        signs=(r"\bNET/IB : No device found",),
        severity="info",
        deep=Deep((r"NET/IB : No device found",), hint="; in a container, is /dev/infiniband there?"),
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
        deep=Deep(
            (r"fi_getinfo|NET/OFI.{0,200}(?:Unable|fail|No eligible)|provider efa output empty",),
            hint=": is the device in this instance and container?",
        ),
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
        id="cuda-fails",
        signs=(
            r"\bno CUDA-capable device is detected\b",
            r"\bNCCL WARN C(?:uda|UDA) failure\b",
        ),
        deep=Deep(
            (r"no CUDA-capable device|CUDA driver version is insufficient|CUDA failure",),
            step="nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'",
        ),
        means="CUDA itself fails on that node.",
        zh="该节点上 CUDA 本身就不可用。",
        next=(
            Next(
                "nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'",
                "on that node: driver and torch",
                "在该节点上检查驱动和 torch",
            ),
            Next(
                "echo $CUDA_VISIBLE_DEVICES; ls -l /dev/nvidia*",
                "are the GPUs there, and allowed?",
                "看 GPU 是否存在、是否有权限",
            ),
        ),
        source="nccl/src/include/checks.h",
    ),
    Row(
        id="nccl-versions-differ",
        signs=(
            r"\bMismatched NCCL version\b",
            r"\bNCCL version mismatch\b",
            r"\bNCCL WARN[^\n]{0,200}?\bwrong type \d{1,6} != \d",
        ),
        deep=Deep(
            (
                r"Mismatched NCCL version|NCCL version mismatch|wrong type \d+ != \d+|mismatch.{0,200} NCCL version",
            ),
            step="python -m pip install torch==VERSION",
            hint=": install the same torch on every node",
        ),
        means="Nodes have different versions of NCCL.",
        zh="各节点的 NCCL 版本不一致。",
        next=(
            Next(
                "python -c 'import torch; print(torch.__version__, torch.cuda.nccl.version())'",
                "on each node; LD_LIBRARY_PATH may bring another libnccl",
                "在各节点比较；LD_LIBRARY_PATH 可能引入了别的 libnccl",
            ),
            Next("python -m pip install torch==VERSION", "the same on every node", "所有节点装同一版本"),
        ),
        source="nccl#286, nccl/src/init.cc",
    ),
    Row(
        id="nothing-listens",
        signs=(
            r"\bNCCL WARN[^\n]{0,300}?\bConnection refused\b",
            r"\b(?:Call to connect|socketStartConnect|socketPollConnect)\b[^\n]{0,200}?\bConnection refused\b",
            r"\bgloo\b[^\n]{0,300}?\bConnection refused\b",
        ),
        but=r"\bNCCL INFO\b|\bretrying\b",
        deep=Deep((r"Connection refused",), step="sudo nft list ruleset; sudo iptables -L -n"),
        means="The node is up, but nothing listens: its rank has ended, or a firewall refuses.",
        zh="节点可达，但端口上没有进程监听：对端 rank 已退出，或连接被防火墙拒绝。",
        next=(
            Next(
                "",
                "First look for a rank on that node that failed before.",
                "先看那个节点上有没有更早出错的 rank。",
            ),
            _FIREWALL,
            _DEEP,
        ),
        source="nccl#1105, horovod#584",
    ),
    Row(
        id="gloo-mesh-failed",
        signs=(
            r"\bGloo connectFullMesh failed\b",
            r"\bgloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\][^\n]{0,60}?\b(?:timed out connecting|connect timeout|Connect timeout)\b",
            r"\bgloo/transport/tcp/[^\n]{0,200}?\bSO_ERROR: ",
        ),
        means="gloo's ranks could not connect with each other: a wrong interface, a firewall, or a rank that ended.",
        zh="gloo 的各 rank 之间没能互连：网卡选错、防火墙拦截，或有 rank 已退出。",
        next=(
            _IFNAME,
            Next(
                "getent hosts $(hostname)",
                "on each node: gloo takes the interface of this address",
                "在各节点上查看，gloo 默认用该地址的网卡",
            ),
            _DEEP,
        ),
        source="sglang#3226, occlum#1604, gpustack#2125, gloo/transport/tcp/pair.cc",
    ),
    Row(
        id="peer-gone",
        signs=(
            r"\bremote process exited or there was a network error\b",
            r"\bncclRemoteError: ",
            r"\bNCCL WARN[^\n]{0,300}?\b(?:Connection closed by remote peer|Connection reset by peer|Software caused connection abort|Broken pipe)\b",
            r"\bgloo/transport/tcp/[^\n]{0,200}?\b(?:Connection (?:closed|reset) by (?:remote )?peer|Broken pipe)\b",
        ),
        deep=Deep(
            (
                r"Software caused connection abort|Connection reset by peer|Connection closed by (?:remote )?peer"
                r"|remote process exited or there was a network error",
            ),
            step="--deep",
            hint=": what did the others say?",
        ),
        means="The rank at the other end has ended, and who says so is not the cause.",
        zh="对端 rank 已经退出；报这个错的 rank 不是起因。",
        next=(
            Next(
                "",
                "Look for the rank that failed first: who prints this only lost the connection to it.",
                "找最先出错的 rank；打印这句的 rank 只是和它断了连接。",
            ),
            Next(
                "cockpit explain FOLDER_OF_LOGS",
                "finds it among the logs of all ranks",
                "在所有 rank 的日志里找出它",
            ),
        ),
        source="pytorch/ProcessGroupNCCL.cpp, gloo/transport/tcp/pair.cc",
    ),
    Row(
        id="packets-lost",
        signs=(
            r"\bgloo/transport/tcp/[^\n]{0,200}?\b(?:Timed out waiting \d|Read timeout|[Ww]ait timeout)",
            r"\b(?:Call to connect|socketStartConnect|socketPollConnect)\b[^\n]{0,200}?\b(?:Connection timed out|[Tt]imeout)\b",
            r"\bNCCL WARN[^\n]{0,200}?\bConnection timed out\b",
        ),
        but=r"\bNCCL INFO\b|\bretrying\b",
        deep=Deep(
            (
                r"connectFullMesh failed|no answer within|Timed out waiting|timed out after|wait timeout|[Tt]imeout",
            ),
            step="sudo nft list ruleset; ip route",
            hint=" (--iface NAME)",
        ),
        means="Packets to another rank are lost: a firewall, a bad link, or a wrong interface.",
        zh="发往另一个 rank 的包丢失：防火墙、链路故障或网卡选错。",
        next=(
            Next(
                "sudo nft list ruleset; ip route",
                "on both nodes: ranks use random ports, all must be open between nodes",
                "在两端查看；rank 使用随机端口，节点间必须全部放行",
            ),
            _IFNAME,
            _DEEP,
        ),
        source="pytorch#79388, nccl#1105",
    ),
    Row(
        id="hccl-timeout",
        signs=(
            r"\bEI0002: ",
            r"\bEI0006: ",
        ),
        means="An Ascend NPU waited for another rank until HCCL's timeout: that rank ended, or did not come.",
        zh="昇腾 NPU 等待其他 rank 直到 HCCL 超时：对方已退出或没有进入通信。",
        next=(
            Next(
                "",
                "Look for the rank that failed first, or that says nothing.",
                "找最先出错或没有输出的 rank。",
            ),
            Next(
                "export HCCL_CONNECT_TIMEOUT=1800 HCCL_EXEC_TIMEOUT=1800",
                "if ranks only come late, as after a long compile",
                "如果只是来得晚（如编译很久），就加大超时",
            ),
            Next(
                "hccn_tool -i 0 -link -g",
                "on each node: is the NPU's link up?",
                "在各节点上看 NPU 网口是否 up",
            ),
        ),
        source="CANN error codes EI0002, EI0006",
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
