"""Rendezvous: how ranks find each other at the start."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_BRIDGE = r"(?:\[?(?:::ffff:)?(?:172\.1[78]|10\.88\.0|192\.168\.122)\.)"
_LOW = r"(?:\d{1,3}|10[01]\d|102[0-3])(?!\d)"
_LISTENS = Next(
    "ss -ltnp 'sport = :29500'", "on the first node: does rank 0 listen?", "在首节点上看 rank 0 是否在监听"
)

ROWS: tuple[Row, ...] = (
    Row(
        id="port-privileged",
        signs=(
            r"\bserver socket has failed to listen[^\n]{0,400}?(?:EACCES|errno: 13\b|[Pp]ermission denied)",
            rf"\bserver socket has failed to (?:listen|bind)[^\n]{{0,300}}?(?:\bport: |[\]?\d]:){_LOW}",
            rf"\bclient socket has [^\n]{{0,120}}?connect to \([^)\n]{{1,100}}, {_LOW}\)",
        ),
        means="MASTER_PORT is below 1024, which ordinary users may not use: 22 is ssh's own.",
        zh="MASTER_PORT 小于 1024，普通用户不能使用；22 是 ssh 的端口。",
        next=(
            Next("export MASTER_PORT=29500", "any free port of 1024 and more", "换成 1024 以上的空闲端口"),
            Next("env | grep -i port", "is the port read from the wrong variable?", "看是不是错用了别的变量"),
        ),
        source="mmpretrain#960",
    ),
    Row(
        id="port-in-use",
        checks=frozenset({"port_taken", "port_in_use"}),
        signs=(
            r"\bserver socket has failed to listen[^\n]{0,600}?(?:EADDRINUSE|errno: 98\b|[Aa]ddress already in use)",
            r"\[c10d\][^\n]{0,60}? failed to bind to [^\n]{0,200}?(?:EADDRINUSE|errno: 98\b)",
            r"^RuntimeError: Address already in use",
            r"\bTried to launch distributed communication on port ",
        ),
        deep=("EADDRINUSE|Address already in use",),
        means="The rendezvous port is in use.",
        zh="rendezvous 端口已被占用：另一个训练在用，或者上次的进程还没退出。",
        next=(
            Next(
                "ss -ltnp 'sport = :29500'",
                "on the first node: whose is it? ranks of an ended run may still be there",
                "在首节点上看被谁占用，可能是上次残留的进程",
            ),
            Next(
                "export MASTER_PORT=29501",
                "another port (torchrun, cockpit run: --master-port N; cockpit run finds a free one itself)",
                "换一个端口（torchrun、cockpit run 用 --master-port N；cockpit run 会自己找空闲端口）",
            ),
            Next("ps -fp PID", "who holds it: is it still needed?", "看占用者是谁、是否还需要"),
        ),
        source="pytorch#73320, torchtune#392, torchtune#1025",
    ),
    Row(
        id="master-bridge-address",
        signs=(
            rf"\bclient socket has (?:timed out|failed)[^\n]{{0,120}}?connect to [^\n]{{0,30}}?\(?{_BRIDGE}",
            rf"\bTCP client failed to connect/validate to host {_BRIDGE}",
        ),
        means="The master's address is that of a container's or VM's bridge, which other nodes cannot reach.",
        zh="主节点给出的是容器或虚拟机网桥的地址，其他节点连不上。",
        next=(
            Next(
                "export MASTER_ADDR=ADDRESS",
                "the first node's address on the data network",
                "改用首节点在数据网络上的地址",
            ),
            Next(
                "docker run --network host …",
                "gives containers the node's own addresses",
                "让容器直接使用宿主机网络",
            ),
        ),
        source="vllm#19670",
    ),
    Row(
        id="master-loopback-address",
        signs=(
            r"\bclient socket has (?:timed out|failed)[^\n]{0,120}?connect to [^\n]{0,30}?\(?\[?(?:127\.\d|localhost\b|::1\b)",
        ),
        means="Nobody answered on this node itself: MASTER_ADDR is localhost or resolves to 127.x, right for one node only.",
        zh="连的是本机，而本机上没有响应：MASTER_ADDR 是 localhost 或被解析成 127.x，只适用于单机。",
        next=(
            Next(
                "getent hosts $MASTER_ADDR",
                "a line of /etc/hosts with 127.0.1.1?",
                "看 /etc/hosts 里是否写成 127.0.1.1",
            ),
            Next(
                "export MASTER_ADDR=ADDRESS",
                "the first node's address on the data network",
                "改用首节点在数据网络上的地址",
            ),
        ),
        source="pytorch#79388, DeepSpeed#2612",
    ),
    Row(
        id="master-unreachable",
        signs=(
            r"\bclient socket has timed out after \S{1,20} while trying to connect\b",
            r"\bclient socket has failed to connect to any network address\b",
            r"\bconnect\(\) timed out\. Original timeout was",
            r"\bTCP client failed to connect/validate to host \S{1,200} - timed out\b",
        ),
        means="Nobody answered at MASTER_ADDR:MASTER_PORT: rank 0 is not up, or a firewall or wrong address.",
        zh="MASTER_ADDR:MASTER_PORT 没有响应：rank 0 没起来、地址不对，或被防火墙拦住。",
        next=(
            Next("nc -vz $MASTER_ADDR $MASTER_PORT", "from this node", "从本节点测试"),
            _LISTENS,
            Next("cockpit doctor HOSTFILE --deep", "tries it between all nodes", "在所有节点之间测试"),
        ),
        source="pytorch#79388, pytorch#105782, pytorch#124380, ColossalAI#4009",
    ),
    Row(
        id="first-node-unreached",
        checks=frozenset({"unreached"}),
        means="A node cannot connect to the first one: no route, a firewall, or an address of another network.",
        zh="有节点连不上首节点：没有路由、被防火墙拦住，或用的是另一个网络的地址。",
        next=(
            Next("ip route get MASTER_IP", "is there a route?", "看有没有路由"),
            Next("getent hosts MASTER_NAME", "is it known there?", "看该节点能否解析"),
            Next(
                "--master-addr ADDRESS",
                "another address of that node; or open the firewall between the nodes",
                "换成首节点的另一个地址，或放行节点之间的防火墙",
            ),
        ),
        source="DeepSpeed#2973, pytorch#79388",
    ),
    Row(
        id="port-blocked",
        checks=frozenset({"deep_port"}),
        means="A firewall blocks that port of the first node: others can be reached.",
        zh="首节点的这个端口被防火墙拦住，其他端口可以连上。",
        next=(
            Next(
                "sudo nft list ruleset",
                "on the first node: which rule drops or refuses it?",
                "在首节点上看是哪条规则拦住了它",
            ),
            Next(
                "--master-port N",
                "a port that is open; without it, a free one is found",
                "换成已放行的端口；不写则自动找空闲端口",
            ),
        ),
        source="DeepSpeed#2973",
    ),
    Row(
        id="ranks-absent",
        signs=(
            r"\b[Tt]imed out after \d{1,6} seconds waiting for clients\. \d{1,6}/\d{1,6} clients joined",
            r"\bRanks? [\d, ]{1,400} failed to pass monitoredBarrier\b",
        ),
        means="Some ranks never joined: they died at startup, were not launched, or cannot reach rank 0.",
        zh="有 rank 一直没有来：启动时就退出了、没有被启动，或连不上 rank 0。",
        next=(
            Next(
                "",
                "Read the logs of the ranks that are missing: their error comes first.",
                "先看没有来的 rank 的日志，那里的错误才是起因。",
            ),
            Next("cockpit doctor HOSTFILE --deep", "can all nodes connect?", "检查节点之间能否互连"),
        ),
        source="torch/csrc/distributed/c10d/TCPStore.cpp, ProcessGroupGloo.cpp",
    ),
    Row(
        id="launched-without-launcher",
        signs=(
            r"\benvironment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set\b",
        ),
        means="The script was started by python itself: a launcher sets RANK, WORLD_SIZE and MASTER_ADDR.",
        zh="脚本是直接用 python 启动的，而 RANK、WORLD_SIZE、MASTER_ADDR 要由启动器设置。",
        next=(
            Next(
                "torchrun --nproc-per-node 8 train.py",
                "or deepspeed, accelerate, cockpit run",
                "或用 deepspeed、accelerate、cockpit run",
            ),
        ),
        source="torch/distributed/rendezvous.py",
    ),
    Row(
        id="reverse-lookup-fails",
        signs=(r"\bThe hostname of the client socket cannot be retrieved\. err=",),
        severity="info",
        means="Node addresses have no reverse DNS; this only slows startup.",
        zh="节点的 IP 地址没有反向解析：只会让启动变慢，没有其他影响。",
        next=(
            Next(
                "getent hosts ADDRESS",
                "add the nodes to /etc/hosts if the start takes minutes",
                "如果启动要几分钟，就把各节点加进 /etc/hosts",
            ),
        ),
        source="pytorch#159007",
    ),
    Row(
        id="rendezvous-failed",
        signs=(r"(?:^|\.|raise )Rendezvous(?:Connection|Timeout)Error\b",),
        but=r"due to an error of type|keep-alive heartbeat",
        means="torchrun's agents did not meet at the rendezvous endpoint: unreachable, or too few nodes came.",
        zh="torchrun 的 agent 没能在 rendezvous 端点会合：端点连不上，或来的节点不够。",
        next=(
            Next("nc -vz HOST PORT", "the --rdzv-endpoint, from each node", "在每个节点测试 --rdzv-endpoint"),
            Next(
                "",
                "Give every node the same --rdzv-id, --rdzv-endpoint and --nnodes.",
                "所有节点的 --rdzv-id、--rdzv-endpoint、--nnodes 必须一致。",
            ),
        ),
        source="pytorch#79388, torch/distributed/elastic/rendezvous",
    ),
    Row(
        id="store-closed",
        signs=(
            r"\b[Ss]top_waiting response\b",
            r"^(?:RuntimeError|torch\.distributed\.Dist\w{1,20}Error): Connection reset by peer",
            r"\bsendBytes failed on SocketImpl\b",
            r"\brecvValue failed on SocketImpl\b",
        ),
        means="The connection to rank 0's store was cut: rank 0 has ended, or a firewall or NAT drops it.",
        zh="到 rank 0 上 store 的连接断了：rank 0 已退出，或连接被防火墙、NAT 切断。",
        next=(
            Next(
                "",
                "Read the log of rank 0 first: if it failed, that is the cause.",
                "先看 rank 0 的日志；如果它先出错，那才是起因。",
            ),
            Next(
                "nc -vz $MASTER_ADDR $MASTER_PORT",
                "from this node, while rank 0 runs",
                "rank 0 运行时从本节点测试",
            ),
        ),
        source="DeepSpeed#2973, torch/csrc/distributed/c10d/TCPStore.cpp",
    ),
    Row(
        id="store-timeout",
        signs=(
            r"\bError waiting on exit barrier\b",
            r"^(?:RuntimeError|torch\.distributed\.DistStoreError): Socket Timeout",
            r"\bDistStoreError: (?:wait timeout after|Timed out after) \d",
        ),
        but=r"waiting for clients",
        means="A rank waited in vain for another one in the store: that one has ended or is stuck elsewhere.",
        zh="有 rank 在 store 里等另一个 rank 等到超时：对方已退出，或卡在别处。",
        next=(
            Next(
                "",
                "Look for the node that ended first: who prints this only waited.",
                "找最先退出的节点；打印这句的 rank 只是在等。",
            ),
        ),
        source="nccl#1105, torch/distributed/elastic/utils/store.py",
    ),
)
