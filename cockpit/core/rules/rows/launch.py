"""Rows of launch."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="deepspeed-kill-cmd",
        signs=(r"\bfree variable 'kill_cmd' (?:referenced before assignment|where it is not associated)",),
        means="DeepSpeed's launcher was interrupted and failed while it handled that: ranks may run on.",
        zh="DeepSpeed 启动器收到中断信号，处理时自己出错：各 rank 可能还在运行。",
        next=(
            Next(
                "pgrep -af -- --local_rank", "do ranks still run? kill PID", "rank 还在跑吗？用 kill PID 结束"
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
