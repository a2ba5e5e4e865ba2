"""Crashes: what killed a process that says nothing, or little, of it."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row

ROWS: tuple[Row, ...] = (
    Row(
        id="sigbus-silent",
        ends=frozenset({"SIGBUS", "silent"}),
        means="A bus error: memory-mapped pages could not be backed, usually because /dev/shm or a disk is full.",
        zh="总线错误：内存映射的页写不进去，通常是 /dev/shm 或磁盘满了。",
        next=(
            Next("df -h /dev/shm /tmp", "shows whether one is full", "看哪一个满了"),
            Next(
                "--shm-size=16g",
                "for docker run: its /dev/shm has 64 MB",
                "docker run 的选项：默认 /dev/shm 只有 64 MB",
            ),
        ),
        source="pytorch/ci-infra#490, Megatron-LM#878",
    ),
)
