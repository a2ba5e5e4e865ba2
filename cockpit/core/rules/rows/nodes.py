"""Nodes: what is not the same on all of them, and what else is at work there."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

_SAME_PACKAGE = Next(
    "python -m pip install PACKAGE==VERSION", "the same version on every node", "所有节点装同一版本"
)
WITHOUT = Next("--exclude NODE", "train without it", "训练时排除该节点")
THROTTLED = Next(
    "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    "on that node: is it cooling, or power?",
    "在该节点上看是散热还是供电的问题",
)

ROWS: tuple[Row, ...] = (
    Row(
        id="versions-differ",
        checks=frozenset(
            f"differs_{name}"
            for name in (
                *("python", "torch", "deepspeed", "accelerate"),
                *("numpy", "triton", "transformers", "flash_attn"),
            )
        ),
        means="Ranks with other versions of Python or of a package may fail, hang or compute different results.",
        zh="各 rank 的 Python 或软件包版本不一致，可能导致出错、卡住或计算结果不同。",
        next=(_SAME_PACKAGE, Next("--python PATH", "the same Python everywhere", "所有节点用同一个 Python")),
        severity="warning",
        source="nccl#286",
    ),
    Row(
        id="code-differs",
        checks=frozenset({"differs_code"}),
        means="Ranks with other code than the rest hang in collectives, or compute different results.",
        zh="代码和其他节点不一致的 rank 会卡在 collective 里，或计算结果不同。",
        next=(
            Next(
                "",
                "Copy the folder of the script to those nodes.",
                "把脚本所在的目录复制到这些节点。",
            ),
        ),
        severity="warning",
        source="pytorch#78022",
    ),
    Row(
        id="login-shell-only",
        checks=frozenset({"login_only", "differs_login"}),
        means="Ranks do not get what only login shells set: ssh and launchers start none.",
        zh="只在登录 shell 里设置的内容 rank 拿不到：ssh 和启动器不会启动登录 shell。",
        next=(
            Next(
                "--setup 'module load …'",
                "or 'export NAME=VALUE': the same for the ranks",
                "或 'export NAME=VALUE'：让 rank 也得到同样的设置",
            ),
            Next(
                "ssh NODE 'echo $PATH; env'",
                "what ranks get; compare with a login",
                "看 rank 实际拿到的环境，与登录后比较",
            ),
        ),
        severity="warning",
        source="DeepSpeed#4992, DeepSpeed#1481",
    ),
    Row(
        id="name-differs",
        checks=frozenset({"name_differs"}),
        means="A node's name leads to different addresses from different nodes: a hosts file or DNS is out of date.",
        zh="不同节点把同一个节点名解析成了不同的地址：hosts 文件或 DNS 没有更新。",
        next=(
            Next("getent hosts NODE", "is /etc/hosts there out of date?", "看该处的 /etc/hosts 是否过期"),
            Next("--master-addr ADDRESS", "an address instead of the name", "直接用 IP 地址"),
        ),
        severity="warning",
        source="volcano#2952, CPM-2-Finetune#42",
    ),
    Row(
        id="clocks-differ",
        checks=frozenset({"clock"}),
        means="A clock is off, so times in the logs of several nodes cannot be compared.",
        zh="时钟不准，多个节点的日志时间无法对照。",
        next=(
            Next(
                "timedatectl; chronyc tracking",
                "fix NTP; cockpit corrects the times that it shows",
                "修好 NTP；cockpit 显示的时间已校正",
            ),
        ),
        severity="warning",
        source="timedatectl(1), chronyc(1)",
    ),
    Row(
        id="node-shared",
        checks=frozenset({"own_run", "others_job"}),
        means="Another job trains there: they share cores, memory, network and ports, and maybe GPUs.",
        zh="节点上有另一个训练在运行：CPU、内存、网络和端口是共用的，GPU 也可能是。",
        next=(
            Next("cockpit attach RUN", "shows it", "查看它"),
            Next(
                "--exclude NODE",
                "train without it, or ask whose job it is",
                "训练时排除该节点，或问清是谁的作业",
            ),
        ),
        severity="info",
        source="DeepSpeed#1016",
    ),
    Row(
        id="gpu-throttled",
        checks=frozenset({"gpu_slow", "gpu slowed"}),
        means="A GPU lowers its clocks to protect itself: its rank is slow, and all others wait for it.",
        zh="GPU 为保护自己而降频：它的 rank 变慢，其他 rank 都要等它。",
        next=(THROTTLED, WITHOUT),
        severity="warning",
        source="nvml.h",
    ),
)
