"""Processes that stay when they should end."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="kernel-stuck",
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
