"""What a fault is made of: the code that a training script gets, where it runs, and what is true then."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.faultpool import RANKS

LAUNCHERS = ("command", "torchrun", "deepspeed", "accelerate")

SURE = ("sure", "likely")


@dataclass(frozen=True)
class Kind:
    """One fault, or one thing that is none.

    :param code: functions for the script; the first is where the ranks concerned are then
    :param call: what they call; empty: that function
    :param places: names of functions that may be named as the place; empty: the first one of the code
    :param sites: where in the script this may be: functions of it, see :mod:`tests.faultpool.script`
    :param who: ranks concerned: ``one``, ``some`` (one that is not rank 0), ``zero``, ``two``, ``node``
        (those of the second node), ``all``
    :param others: what the other ranks do there in that step
    :param setup: what all ranks do before the first step
    :param waits: how ranks wait for each other: ``all_reduce``, and others of
        :data:`tests.faultpool.script.WAITS`
    :param bare_waits: the same without torch
    :param body: ``loop``, ``child`` (training is in a child), ``ddp``, ``zero3``; ``gpipe``, ``alternating``
        (stages of a pipeline); ``thread``, ``thread_loop``, ``thread_poll`` (training is in a thread, and the
        main one joins it, or does something else)
    :param bare: whether it is had without torch: ``may``, ``never``, ``only``
    :param partner: whether the rank after the one concerned may be named as well
    :param silence: when it is right to name nobody: ``never``, ``without`` (the probe), ``always``
    :param certainty: what may be said about whom is named
    :param every: whether it is so in each step from then on
    :param rest: steps that are left once it was there; 0: more than will be seen
    :param times: how often it is tried
    :param state: ``hung``, ``ended``, ``slow``, or ``healthy``: then nobody is to blame
    :param like_hang: while it lasts it cannot be told from a hang: somebody may be named, but nobody is sure
        that it is stuck
    :param pause_s: of each step, of all ranks
    :param world: how many ranks there are
    :param stages: of how many stages a pipeline consists
    :param ranks: the ranks concerned, in place of ``who``
    :param leave: whether other ranks end before it hangs
    """

    name: str
    family: str
    code: str = ""
    call: str = ""
    places: tuple[str, ...] = ()
    sites: tuple[str, ...] = ("data", "log")
    who: str = "one"
    others: str = ""
    setup: str = ""
    waits: tuple[str, ...] = ("all_reduce",)
    bare_waits: tuple[str, ...] = ("socket", "files")
    body: str = "loop"
    bare: str = "may"
    launchers: tuple[str, ...] = LAUNCHERS
    partner: bool = False
    silence: str = "never"
    certainty: tuple[str, ...] = SURE
    every: bool = False
    rest: int = 0
    times: int = 2
    state: str = "hung"
    like_hang: bool = False
    pause_s: float = 0.25
    world: int = RANKS
    stages: int = 1
    ranks: tuple[int, ...] = ()
    leave: bool = False

    @property
    def called(self) -> str:
        """The statement that makes it happen."""
        return self.call or f"{self.first}()"

    @property
    def first(self) -> str:
        """The first function of the code."""
        found = re.search(r"^def (\w+)", self.code, re.MULTILINE)
        return found[1] if found else "pass"

    @property
    def named(self) -> tuple[str, ...]:
        """The places that may be named."""
        return self.places or ((self.first,) if self.code else ())
