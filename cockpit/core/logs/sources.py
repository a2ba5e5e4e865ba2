"""Who writes the logs of a run."""

from __future__ import annotations

from typing import NamedTuple

from cockpit.base.record import log_name, logged_rank, nccl_rank, rank_nccl


class Nccl(NamedTuple):
    """NCCL in a rank, where it writes a file of its own (``--nccl-debug``)."""

    rank: int


Writer = int | Nccl | None
"""A global rank, or NCCL in it; None: a launcher."""

Source = tuple[str, Writer]
"""Who writes a log: the node, and which of its writers."""

Output = tuple[str, int | None]
"""Who prints: the node, and its rank; None: its launcher."""


def file_of(writer: Writer) -> str:
    """The name of what it writes, in a run folder."""
    return rank_nccl(writer.rank) if isinstance(writer, Nccl) else log_name(writer)


def writer_of(file: str) -> Writer:
    """Who writes a log of this name."""
    rank = nccl_rank(file)
    return logged_rank(file) if rank is None else Nccl(rank)


def rank_of(writer: Writer) -> int | None:
    """Whose process writes it; None: a launcher's."""
    return writer.rank if isinstance(writer, Nccl) else writer
