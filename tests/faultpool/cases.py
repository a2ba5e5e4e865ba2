"""What is tried with a seed: each kind so many times, with another rank, step, place, launcher each time."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.faultpool.kind import Kind
from tests.faultpool.kinds import KINDS


@dataclass(frozen=True)
class Case:
    """One run.

    :param number: of this kind
    :param bare: whether it does without torch
    :param waits: how its ranks wait for each other
    :param nodes: two halves of the ranks, as if on a node each, or all on one
    :param ranks: whom it concerns: what is true of a fault
    """

    kind: Kind
    number: int
    launcher: str
    bare: bool
    site: str
    waits: str
    nodes: int
    ranks: tuple[int, ...]
    step: int

    @property
    def name(self) -> str:
        """It has no blanks."""
        return f"{self.kind.name}-{self.number}".replace("_", "-")

    @property
    def fault(self) -> bool:
        """Whether somebody is to be named."""
        return self.kind.state in ("hung", "ended")

    @property
    def blamed(self) -> tuple[tuple[int, ...], ...]:
        """Sets of ranks, any of which may be named."""
        if self.kind.state == "healthy":
            return ()
        partner = (*self.ranks, (self.ranks[0] + 1) % self.kind.world)
        return (self.ranks, tuple(sorted(partner))) if self.kind.partner else (self.ranks,)


def cases(seed: int) -> list[Case]:
    """All that are tried with this seed."""
    return [_case(kind, number, seed) for kind in KINDS for number in range(1, kind.times + 1)]


def _case(kind: Kind, number: int, seed: int) -> Case:
    # What comes in turn does so from another beginning with each seed.
    turn = random.Random(f"{seed} {kind.name}").randrange(10**6) + number
    rng = random.Random(f"{seed} {kind.name} {number}")
    bare = kind.bare == "only" or (kind.bare == "may" and turn % 3 == 0 and kind.body in ("loop", "child"))
    sites = [site for site in kind.sites if not (bare and site in ("backward", "average"))]
    launchers = tuple(each for each in kind.launchers if not bare or each == "command") or ("command",)
    # Half of all runs are the cheap ones.
    launcher = launchers[0] if turn % 2 and len(launchers) > 1 else launchers[turn // 2 % len(launchers)]
    nodes = 2 if kind.world % 2 == 0 and (kind.who == "node" or rng.random() < 0.4) else 1
    waits = kind.bare_waits if bare else kind.waits
    ranks = _ranks(kind, rng)
    step = rng.randint(12, 16)
    return Case(
        kind, number, launcher, bare, sites[turn % len(sites)], waits[turn % len(waits)], nodes, ranks, step
    )


def _ranks(kind: Kind, rng: random.Random) -> tuple[int, ...]:
    every = range(kind.world)
    if kind.ranks:
        return kind.ranks
    if kind.who == "all":
        return tuple(every)
    if kind.who == "node":
        return tuple(every[kind.world // 2 :])
    if kind.who == "zero":
        return (0,)
    if kind.who == "two":
        return tuple(sorted(rng.sample(every, 2)))
    return (rng.choice(every[1:] if kind.who == "some" else every),)
