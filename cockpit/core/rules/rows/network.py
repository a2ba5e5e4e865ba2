"""Network: how NCCL, RCCL, HCCL and gloo find and reach each other; InfiniBand, EFA and P2P: ``fabric``."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_ADDRESSES = Next(
    "ip -br addr", "on each node: its interfaces and their addresses", "在各节点上查看网卡和地址"
)
_IFNAME = Next(
    "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0",
    "the interface between the nodes (cockpit run: --env)",
    "节点之间的网卡（cockpit run 用 --env）",
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
        checks=frozenset({"no_interface NCCL"}),
        signs=(
            r"\bBootstrap ?: no socket interface found",
            r"\bNET/Socket ?: no (?:socket )?interface found",
            r"\bno socket interface found\b",
        ),
        deep=(r"no socket interface found|Bootstrap : no socket interface",),
        means="NCCL_SOCKET_IFNAME matches no interface of this node; eth matches eth0, =eth0 is exact, ^docker excludes.",
        zh="NCCL_SOCKET_IFNAME 在本节点上匹配不到网卡；写 eth 能匹配 eth0，写 =eth0 是精确匹配，写 ^docker 是排除。",
        next=(
            _ADDRESSES,
            Next(
                "export NCCL_SOCKET_IFNAME=eth0,eno1",
                "one name of each kind of node, or unset it (cockpit run: --env)",
                "每类节点各写一个网卡名，或干脆不设（cockpit run 用 --env）",
            ),
        ),
        source="nccl#210, nccl#286, nccl-tests#9",
    ),
    Row(
        id="gloo-no-interface",
        checks=frozenset({"no_interface GLOO", "deep_no_interface"}),
        signs=(
            r"\bUnable to find (?:address for|interface for): ",
            r"\bgloo/transport/tcp/device\.cc:\d{1,5}\][^\n]{0,60}?\bUnable to (?:find|resolve)\b",
        ),
        deep=(r"Unable to find (?:address for|interface)",),
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
        deep=(r"Address family not supported by protocol",),
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
        checks=frozenset({"name_loopback"}),
        signs=(
            rf"\b(?:gloo|NCCL WARN)\b[^\n]{{0,300}}?{_LOOPBACK}[^\n]{{0,200}}?\bConnection refused\b",
            rf"\b(?:gloo|NCCL WARN)\b[^\n]{{0,300}}?\bConnection refused\b[^\n]{{0,200}}?{_LOOPBACK}",
            r"\bSO_ERROR: Connection refused, remote=\[127\.",
        ),
        but=r"\bretrying\b",
        deep=(rf"{_LOOPBACK}.{{0,200}}refused|refused.{{0,200}}{_LOOPBACK}",),
        means="A node's name resolves to a loopback address there: others are given it, and connect to themselves.",
        zh="有节点把主机名解析成了回环地址（127.x）：拿到这个地址的 rank 连到的是自己。",
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
        checks=frozenset({"no_interface lo", "nccl-bridge lo"}),
        signs=(r"\b(?:Bootstrap ?:|NET/Socket :) Using ?(?:\[\d{1,2}\])?lo:(?:127\.|\[?::1)",),
        severity="warning",
        means="Ranks talk over loopback (lo): right on one node; with more, no other node can reach this one.",
        zh="通信走的是回环网卡 lo：单机没问题，多机时其他节点连不上本节点。",
        next=(
            _IFNAME,
            Next(
                "echo $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME",
                "^docker0 alone lets lo in: write ^docker0,lo, or unset it",
                "只写 ^docker0 会选中 lo：应写 ^docker0,lo，或不设",
            ),
        ),
        source="horovod#700, nccl/src/misc/socket.cc",
    ),
    Row(
        id="on-bridge",
        checks=frozenset({"nccl-bridge"}),
        signs=(rf"\b(?:Bootstrap ?:|NET/Socket :) Using ?(?:\[\d{{1,2}}\])?{_BRIDGES}[\w.-]{{0,20}}:",),
        severity="warning",
        means="NCCL talks over a bridge of containers or VMs, which other nodes cannot reach.",
        zh="NCCL 走的是容器或虚拟机的网桥，其他节点连不上。",
        next=(
            _IFNAME,
            Next("export NCCL_SOCKET_IFNAME=^docker,lo,virbr", "or exclude the bridges", "或排除这些网桥"),
            _ADDRESSES,
        ),
        source="horovod#584, nccl-tests#15, nccl/src/misc/socket.cc",
    ),
    Row(
        id="nccl-interface",
        checks=frozenset({"nccl-interface"}),
        severity="warning",
        means="A few ranks use another interface or device than most: unreachable over it, or slower.",
        zh="少数 rank 用的网卡或 IB 设备与多数 rank 不同：可能连不通，或者更慢。",
        next=(
            Next("export NCCL_SOCKET_IFNAME=eth0", "the one that most take", "改用多数 rank 所用的网卡"),
            Next(
                "ip -br addr",
                "on that node: is the interface up, with an address?",
                "在该节点上看这块网卡是否 up、有没有地址",
            ),
        ),
        source="nccl/src/bootstrap.cc",
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
        deep=(r"No route to host|Network is unreachable",),
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
        deep=(r"Duplicate GPU detected",),
        means="Two ranks use the same GPU; each needs its own: check slots=N in the hostfile.",
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
        id="cuda-fails",
        signs=(
            r"\bno CUDA-capable device is detected\b",
            r"\bNCCL WARN C(?:uda|UDA) failure\b",
        ),
        deep=(r"no CUDA-capable device|CUDA driver version is insufficient|CUDA failure",),
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
        checks=frozenset({"differs_nccl", "nccl-versions"}),
        signs=(
            r"\bMismatched NCCL version\b",
            r"\bNCCL version mismatch\b",
            r"\bNCCL WARN[^\n]{0,200}?\bwrong type \d{1,6} != \d",
        ),
        deep=(
            r"Mismatched NCCL version|NCCL version mismatch|wrong type \d+ != \d+|mismatch.{0,200} NCCL version",
        ),
        means="Nodes have different versions or builds of NCCL.",
        zh="各节点的 NCCL 版本或构建不一致。",
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
        deep=(r"Connection refused",),
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
        deep=(
            r"Software caused connection abort|Connection reset by peer|Connection closed by (?:remote )?peer"
            r"|remote process exited or there was a network error",
        ),
        means="The peer rank exited; the rank that reports it is not the cause.",
        zh="对端 rank 已经退出；报这个错的 rank 不是起因。",
        next=(
            Next(
                "",
                "Look for the rank that failed first: a rank that prints this only lost its connection.",
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
        deep=(
            r"connectFullMesh failed|no answer within|Timed out waiting|timed out after|wait timeout|[Tt]imeout",
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
        means="An Ascend NPU waited for another rank until HCCL's timeout: that rank exited, or did not join.",
        zh="昇腾 NPU 等待其他 rank 直到 HCCL 超时：对方已退出或没有进入通信。",
        next=(
            Next(
                "",
                "Look for the rank that failed first, or that printed nothing.",
                "找最先出错或没有输出的 rank。",
            ),
            Next(
                "export HCCL_CONNECT_TIMEOUT=1800 HCCL_EXEC_TIMEOUT=1800",
                "if ranks are only late, as after a long compile",
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
)
