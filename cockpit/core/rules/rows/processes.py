"""Processes that stay when they should end."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="kernel-stuck",
        checks=frozenset({"stuck"}),
        signs=(
            r"\bINFO: task .{1,40}:\d{1,10} blocked for more than \d{1,6} seconds\.",
            r"\bINFO: rcu_\w{1,20} (?:self-)?detected stalls? on ",
            r"\bnv_dma_unmap\w{0,30}\+0x",
        ),
        means="A process is stuck in the kernel (GPU driver, disk or file server): not even SIGKILL can end it.",
        zh="有进程卡在内核里（GPU 驱动、磁盘或文件服务器）：SIGKILL 也杀不掉。",
        next=(
            Next(
                "dmesg -T | grep -A30 'blocked for more than'",
                "its stack names the driver or file system",
                "内核栈会指出是哪个驱动或文件系统",
            ),
            Next(
                "ps -eo pid,stat,wchan:32,cmd | awk '$2 ~ /^D/'",
                "still stuck? then the node needs a reboot",
                "看是否还卡着；还卡着就只能重启节点",
            ),
            Next("--exclude NODE", "run without it until then", "在此之前先排除该节点"),
        ),
        severity="warning",
        source="DeepSpeed#4003, gpud#117, linux kernel/hung_task.c, kernel/rcu/tree_stall.h",
    ),
    Row(
        id="ranks-left",
        checks=frozenset({"leftover_ranks"}),
        means="Ranks of another run, or left over from one, are on the node: they hold GPUs, memory and ports.",
        zh="节点上已经有 rank：属于正在运行的训练，或上次的残留；它们占着 GPU、内存和端口。",
        next=(
            Next(
                "cockpit stop RUN",
                "if it should not run; cockpit attach shows it",
                "如果不该运行就停掉；cockpit attach 可以查看",
            ),
            Next(
                "cockpit attach -w NODE",
                "opens it: this machine has no record of it",
                "打开它：本机没有它的记录",
            ),
            Next(
                "ps -fp PID",
                "what is it? cockpit attach -w NODES shows it",
                "看是什么进程；cockpit attach -w NODES 可以查看",
            ),
        ),
        severity="warning",
        source="DeepSpeed#1016, DeepSpeed#714, DeepSpeed#1995",
    ),
    Row(
        id="shm-left",
        checks=frozenset({"leftover_memory"}),
        means="Killed ranks left shared memory behind: no process uses it, and it takes room in /dev/shm.",
        zh="被杀的 rank 遗留了共享内存：没有进程在用，却占着 /dev/shm。",
        next=(Next("rm FILE", "removes it", "删除它"),),
        severity="warning",
        source="nccl#525, nccl#342",
    ),
    Row(
        id="deepspeed-kill-cmd",
        signs=(r"\bfree variable 'kill_cmd' (?:referenced before assignment|where it is not associated)",),
        means="DeepSpeed's launcher crashed in its own Ctrl-C handler, a bug of 0.9: ranks may still be running.",
        zh="DeepSpeed 启动器在处理 Ctrl-C 时自己崩了（0.9 的 bug）：各 rank 可能还在运行。",
        next=(
            Next(
                "pgrep -af -- --local_rank",
                "do ranks still run? kill PID",
                "看 rank 是否还在跑；还在就用 kill PID 结束",
            ),
            Next(
                "pip install 'deepspeed>=0.9.5'",
                "earlier versions fail at every Ctrl-C on one node",
                "更早的版本在单机上每次 Ctrl-C 都会这样",
            ),
        ),
        source="DeepSpeed#3645, DeepSpeed#3730",
    ),
)
