"""Notes in the ring when a rank begins the rendezvous of its process group, and when that group is there.

Read as a file by ``hooks``; the words are those of :mod:`cockpit.base.progress.ring`. Nothing is wrapped:
torch's ``init_process_group`` looks up how to meet the others in a dict, and sets ``_default_pg`` of its
``_World`` once all are there. Both are ours. Where its code is not like that, nothing is noted.
"""

from __future__ import annotations

import os
import time
from typing import Any

BEGAN, JOINED = range(16 + 4 * 508 + 1 + 4095 + 64, 16 + 4 * 508 + 1 + 4095 + 66)
"""Words of the ring."""


class Noted:
    """Writes when each was last; a child, which has the same ring, writes nothing."""

    def __init__(self, words: Any) -> None:
        self._words, self._pid = words, os.getpid()

    def note(self, word: int) -> None:
        """It is now."""
        if os.getpid() == self._pid:
            self._words[word] = time.time_ns()


class Handlers(dict):  # type: ignore[type-arg]
    """Stands for torch's handlers of rendezvous by scheme of URL, of which one is looked up to begin it."""

    def __init__(self, handlers: Any, noted: Noted) -> None:
        super().__init__(handlers)
        self._noted = noted

    def __getitem__(self, scheme: Any) -> Any:
        self._noted.note(BEGAN)
        return super().__getitem__(scheme)


class DefaultGroup:
    """Stands for ``_default_pg`` of a class; set only: reading it finds the world's own, as without us."""

    def __init__(self, noted: Noted) -> None:
        self._noted = noted

    def __set__(self, world: Any, group: Any) -> None:
        world.__dict__["_default_pg"] = group
        if group is not None:
            self._noted.note(JOINED)


def arm(words: Any, modules: Any) -> str:
    """Have both noted; say why they are not, empty: they are.

    :param words: of the ring
    :param modules: those that are imported, by name
    """
    meeting: Any = modules.get("torch.distributed.rendezvous")
    world: Any = getattr(modules.get("torch.distributed.distributed_c10d"), "_World", None)
    setter = getattr(getattr(world, "default_pg", None), "fset", None)
    if not (
        "_rendezvous_handlers" in _names(getattr(meeting, "_rendezvous_helper", None))
        and type(meeting._rendezvous_handlers) is dict
        and "_default_pg" in _names(setter)
        and not hasattr(world, "_default_pg")
    ):
        return "this torch gives no sign of it"
    noted = Noted(words)
    world._default_pg = DefaultGroup(noted)  # first: without its end, a beginning would seem to last
    meeting._rendezvous_handlers = Handlers(meeting._rendezvous_handlers, noted)
    return ""


def _names(function: Any) -> Any:
    """That it reads or sets."""
    return getattr(getattr(function, "__code__", None), "co_names", ())
