"""What a rehearsal of torch on the nodes shows: findings, interfaces, and the rate between pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from cockpit.base.rehearsal_answers import TrialAnswer
from cockpit.base.shell import quote
from cockpit.core.doctor.hunt import Culprit, Group
from cockpit.core.doctor.nccl_words import meanings, typed
from cockpit.core.doctor.node_checks import clean
from cockpit.core.finding import Finding, Step
from cockpit.core.nccl.findings import found as nccl_found
from cockpit.core.nccl.reading import Reader, networks
from cockpit.core.nccl.table import Table
from cockpit.core.ranks import nodes_text, set_words
from cockpit.core.rules.explanation import explanation, meant, recognised
from cockpit.core.rules.row import Row
from cockpit.core.text import counted

PEERS = 8
"""Each node is measured with so many others, at most."""
SLOW = 3.0
"""A pair is slow if half of the pairs are so many times as fast."""
NO_TORCH = "no torch"
"""Why a node took no part: its Python has none."""
SHOWN = 5
"""Pairs that are shown, the slowest first."""

STEPS = {
    "start": "starting",
    "rendezvous": "connecting to where the ranks meet",
    "gather": "waiting for the other ranks",
    "connect": "connecting with the other ranks",
    "reduce": "all-reduce of 4 MB",
    "measure": "sending to another rank",
}
"""What a rank does in each step of a trial."""

_NOISE = re.compile(
    r"\[/\S{1,300}:\d+\] |\[enforce fail at \S{1,300}\] |\s{0,8}This is typically caused.*", re.DOTALL
)


@dataclass(frozen=True)
class Attempt:
    """How a group went.

    :param place: where they were to meet: ``10.0.0.1:29500``
    :param unreached: who could not even connect to that, and why
    :param ranks: what each of them answered
    :param errors: why others gave no answer
    """

    group: Group
    place: str = ""
    unreached: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, TrialAnswer] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        """Whether all of them got to the end."""
        return all(who in self.ranks and self.ranks[who].step == "done" for who in self.group)


@dataclass(frozen=True)
class Rehearsed:
    """All that was tried.

    :param members: the nodes that took part, in their order
    :param iface: the interface that was asked for; empty: what torch takes by itself
    :param out: nodes that were left out, and why
    :param lacking: nodes without that interface, and what they have
    :param broken: nodes on which torch did not start, and why
    :param has: the interfaces that each node has
    :param dropped: an attempt at the port that was asked for, if others could not connect there
    :param rates: bytes a second between two nodes
    :param unmeasured: an attempt to measure them that failed
    :param torch: its version
    :param late: nodes on which torch would have been imported too late, and after what time
    :param timeout_s: for all of it
    :param stopped: the time was over before all was tried
    """

    members: Group
    backend: str = "gloo"
    iface: str = ""
    torch: str = ""
    out: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)
    has: Mapping[str, frozenset[str]] = field(default_factory=dict)
    dropped: Attempt | None = None
    attempts: tuple[Attempt, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    unmeasured: Attempt | None = None
    late: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 300.0
    stopped: bool = False

    def took(self) -> dict[str, TrialAnswer]:
        """The last answer of each member that says which interface it took."""
        return {
            who: answer
            for attempt in self.attempts
            for who, answer in attempt.ranks.items()
            if answer.address
        }

    @property
    def reduce_s(self) -> float | None:
        """How long all of them together took for an all-reduce of 4 MB, the last one; None: they did not."""
        took = [
            max(answer.took_s.get("reduce", 0.0) for answer in attempt.ranks.values())
            for attempt in self.attempts
            if attempt.works and attempt.group == self.members
        ]
        return min(took, default=None)

    def nccl(self) -> Table:
        """What NCCL says on each member; ranks of a trial are no ranks of a run."""
        reader = Reader()
        took = self.took()
        for place, who in enumerate(took):
            reader.take(took[who].said.encode("utf-8", "replace"), place)
        table = reader.table(dict(enumerate(took)))
        return replace(table, rows=tuple(replace(row, numbers=()) for row in table.rows))

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        table = self.nccl()
        return {
            **({"nccl": table.as_json()} if table else {}),
            "backend": self.backend,
            "torch": clean(self.torch),
            "nodes": list(self.members),
            "interfaces": {
                who: {"name": clean(answer.interface), "address": clean(answer.address)}
                for who, answer in self.took().items()
            },
            "reduce_s": self.reduce_s,
            "trials": len(self.attempts),
            "pairs": [
                {"nodes": list(pair), "bytes_per_s": round(rate)} for pair, rate in _sorted(self.rates)
            ],
        }


def tournament(members: Sequence[str], rounds: int = PEERS) -> list[list[tuple[str, str]]]:
    """Pairs to measure, round by round: nobody is in two pairs of a round, no pair is there twice.

    With up to ``rounds`` + 1 members everybody meets everybody; with more, each meets ``rounds`` others, near
    ones and far ones.
    """
    ring: list[str | None] = [*members, *([None] if len(members) % 2 else [])]
    size = len(ring)
    every = max(0, size - 1)
    chosen = sorted({turn * every // min(rounds, every) for turn in range(min(rounds, every))})
    found = []
    for turn in chosen:
        turned = [ring[0], *(ring[1 + (place + turn) % every] for place in range(every))]
        pairs = [(turned[at], turned[size - 1 - at]) for at in range(size // 2)]
        found.append([(one, other) for one, other in pairs if one is not None and other is not None])
    return found


def slow(rates: Mapping[tuple[str, str], float]) -> list[tuple[str, str]]:
    """The pairs that are much slower than most, the slowest first."""
    if len(rates) < 3:
        return []
    usual = median(rates.values())
    return [pair for pair, rate in _sorted(rates) if rate * SLOW < usual]


def _sorted(rates: Mapping[tuple[str, str], float]) -> list[tuple[tuple[str, str], float]]:
    return sorted(rates.items(), key=lambda item: item[1])


def speed(rate: float) -> str:
    """Bytes a second as a person says them: ``1.2 GB/s``."""
    return f"{rate / 1e9:.3g} GB/s" if rate >= 1e9 else f"{rate / 1e6:.3g} MB/s"


def summary(done: Rehearsed) -> list[str]:
    """What was tried, which interface each rank took, and the slowest pairs: lines of text."""
    if not done.members:
        return []
    took = done.reduce_s
    speed_of_all = f", all-reduce of 4 MB in {took * 1000:.0f} ms" if took is not None else ""
    lines = [f"torch {clean(done.torch)}, {done.backend}: {nodes_text(done.members)}{speed_of_all}"]
    interfaces: dict[str, list[str]] = {}
    for who, answer in done.took().items():
        interfaces.setdefault(clean(answer.interface or "?"), []).append(who)
    lines += [f"interface {name}: {nodes_text(nodes)}" for name, nodes in interfaces.items()]
    for what, nodes in _nccl_networks(done).items():
        lines.append(f"NCCL says: {what}: {nodes_text(nodes)}")
    if done.rates:
        usual = speed(median(done.rates.values()))
        lines.append(f"{counted(len(done.rates), 'pair')} measured, median {usual}; the slowest:")
        shown = _sorted(done.rates)[:SHOWN]
        lines += [f"  {one} - {other}  {speed(rate)}" for (one, other), rate in shown]
    return lines


def _nccl_networks(done: Rehearsed) -> dict[str, list[str]]:
    """What NCCL took, without addresses: they differ from node to node."""
    found: dict[str, list[str]] = {}
    for who, answer in done.took().items():
        for what in networks(answer.said):
            name = clean(what.split(":")[0])
            if who not in found.setdefault(name, []):
                found[name].append(who)
    return found


def found(done: Rehearsed) -> tuple[Finding, ...]:
    """Everything that is wrong."""
    return tuple(_found(done))


def _found(done: Rehearsed) -> Iterator[Finding]:
    for why, nodes in _alike(done.lacking):
        yield recognised(_finding("deep_no_interface", f"no interface {done.iface}: {why}", nodes))
    for why, nodes in _alike(done.out):
        step = (
            Step("--python PATH", "a Python with torch that these nodes have")
            if why == NO_TORCH
            else Step(
                f"--exclude {quote(','.join(set_words(nodes_text(nodes))))}", "or retry once it is free"
            )
        )
        what = f"left out of the torch test: {why}"
        yield _finding("deep_left_out", what, nodes, steps=(step,), severity="warning")
    for why, nodes in _alike(done.broken):
        step = Step("python -c 'import torch.distributed'", "by hand, on that node")
        found = _finding("deep_no_torch", f"torch does not start: {why}", nodes, steps=(step,))
        yield meant(found, explanation(why.encode()))
    if done.dropped is not None:
        yield _port(done.dropped)
    for culprit in done.culprits:
        lost = _lost(done, culprit)
        if lost:
            yield _finding(
                "deep_lost",
                "lost during the torch test",
                lost,
                evidence=tuple(f"{nodes_text(nodes)}: {why}" for why, nodes in _alike(lost)),
                steps=(
                    Step(
                        "sudo dmesg -T | tail", "was its python killed? is its network up?", next(iter(lost))
                    ),
                ),
            )
        if rest := tuple(node for node in culprit.nodes if node not in lost):
            yield _blamed(done, replace(culprit, nodes=rest))
    more_time = (Step(f"--deep-timeout {max(300.0, 3 * done.timeout_s):g}", "more time"),)
    for why, nodes in _alike(done.late):
        what = f"left out of the torch test: {why}"
        yield _finding("deep_unfinished", what, nodes, steps=more_time, severity="warning")
    if done.stopped:
        what = f"the torch test ran out of time ({done.timeout_s:g} s)"
        yield _finding("deep_unfinished", what, done.members, steps=more_time, severity="warning")
    if done.unmeasured is not None:
        yield _unmeasured(done.unmeasured)
    yield from _other_interfaces(done)
    for each in nccl_found(done.nccl()):
        yield replace(each, nodes=tuple(dict.fromkeys(map(node_of, each.nodes))))
    pairs = slow(done.rates)
    if pairs:
        yield _slow(done, pairs)


def _alike(words: Mapping[str, str]) -> list[tuple[str, tuple[str, ...]]]:
    """The same words once, with all nodes that they are about."""
    alike: dict[str, list[str]] = {}
    for node, why in words.items():
        alike.setdefault(clean(why, 400), []).append(node)
    return [(why, tuple(nodes)) for why, nodes in alike.items()]


def _finding(
    id: str,
    what: str,
    nodes: Iterable[str],
    *,
    steps: tuple[Step, ...] = (),
    evidence: tuple[str, ...] = (),
    detail: str = "",
    severity: str = "error",
    certainty: str = "sure",
    row: Row | None = None,
) -> Finding:
    return Finding(
        id,
        what,
        detail=detail,
        evidence=evidence,
        certainty=certainty,
        steps=steps,
        nodes=tuple(dict.fromkeys(node_of(node) for node in nodes)),
        severity=severity,
        rule=row.id if row else "",
        meaning=row.meaning() if row else "",
    )


def node_of(member: str) -> str:
    """The node of a member, which may be one of its GPUs: ``gpu03/2``."""
    return member.partition("/")[0]


def _port(attempt: Attempt) -> Finding:
    evidence = tuple(f"{nodes_text(nodes)}: {why}" for why, nodes in _alike(attempt.unreached))
    what = f"cannot connect to {attempt.group[0]} at {clean(attempt.place)}, though other ports are reachable"
    found = _finding("deep_port", what, attempt.unreached, evidence=evidence)
    first = node_of(attempt.group[0])
    return recognised(
        found, typed=lambda step: (replace(step, node=first if step.command[:1] != "-" else ""),)
    )


def _unmeasured(attempt: Attempt) -> Finding:
    return _finding(
        "deep_unmeasured",
        "failed while pairs were measured, though all had worked together",
        [who for who in attempt.group if who not in attempt.ranks or attempt.ranks[who].step != "done"],
        evidence=tuple(_evidence(attempt)),
        steps=(Step("--deep", "run it again: does it fail intermittently?"),),
        severity="warning",
    )


_SENTENCES = {
    "alone": "torch fails by itself, without any other node",
    "member": "does not work with other nodes, though they work with each other",
    "link": "do not work together, though each works with other nodes",
    "pair": "do not work together, though each works alone",
    "between": "do not work with {others}, though each side works",
    "nobody": "no two of them work together, though each works alone",
    "together": "fail only when all are tried together: too many connections, or the failure is intermittent",
    "among": "do not work together; there was no time to find out which of them is to blame",
}


def _blamed(done: Rehearsed, culprit: Culprit) -> Finding:
    """What is said of a culprit: the last failing trial that it was in tells why."""
    attempts = _telling(done, culprit)
    nodes = culprit.nodes if culprit.kind == "between" else culprit.all
    what = _SENTENCES[culprit.kind].format(others=nodes_text(culprit.others))
    said = [why for attempt in attempts for why in attempt.unreached.values()]
    for attempt in attempts:
        failed = [one for who, one in attempt.ranks.items() if one.step != "done" and who in culprit.all]
        said += [f"{one.error}\n{one.said}" for one in failed]
    rows = [row for _, row in meanings("\n".join(said))]
    gpus = [f"GPU {member.partition('/')[2]}" for member in nodes if "/" in member]
    what = f"{' and '.join(gpus)}: {what.replace('node', 'GPU')}" if gpus else what
    usual, odd = _odd(done)
    if culprit.kind == "member" and node_of(culprit.nodes[0]) in odd:
        what = f"{what}: it {odd[node_of(culprit.nodes[0])]}"
        steps = _named(usual)
    elif rows:
        steps = tuple(each for step in rows[0].steps() for each in typed(step)) or rows[0].steps()[:1]
    else:
        steps = (_by_hand(culprit),)
    return _finding(
        f"deep_{culprit.kind}",
        what,
        nodes,
        evidence=tuple(line for attempt in attempts for line in _evidence(attempt)),
        certainty="likely" if culprit.kind in ("together", "among") else "sure",
        steps=steps,
        row=rows[0] if rows else None,
    )


def _by_hand(culprit: Culprit) -> Step:
    """What tells more where the words of those that failed have no known meaning."""
    first, *more = (node_of(node) for node in culprit.all)
    if culprit.kind in ("link", "pair") and more and more[0] != first:
        return Step(f"ping -c 3 {quote(clean(more[0]))}", "is there a route? are packets lost?", first)
    if culprit.kind in ("together", "among"):
        return Step("--deep", "run it again: does it fail intermittently?")
    return Step("ip -br addr; ip route; sudo nft list ruleset", "a firewall, an address, a route?", first)


def _lost(done: Rehearsed, culprit: Culprit) -> dict[str, str]:
    """Those that fail alone without a word of torch, and why: a lost link, a process that was killed."""
    return {
        node: attempt.errors[node]
        for attempt in (_telling(done, culprit) if culprit.kind == "alone" else ())
        for node in attempt.group
        if node in attempt.errors
    }


def _telling(done: Rehearsed, culprit: Culprit) -> list[Attempt]:
    """The failing attempts that tell most: of each alone, or else the smallest that has all of them."""
    failed = [attempt for attempt in done.attempts if not attempt.works]
    if culprit.kind == "alone":
        return [attempt for attempt in failed if attempt.group in {(each,) for each in culprit.nodes}]
    sides = (
        [culprit.nodes, culprit.others] if culprit.kind == "between" else [(each,) for each in culprit.all]
    )
    there = [attempt for attempt in failed if all({*side} & {*attempt.group} for side in sides)]
    return sorted(there, key=lambda attempt: len(attempt.group))[:1]


def _odd(done: Rehearsed) -> tuple[str, dict[str, str]]:
    """The interface that most took, and nodes that took another, though they have that one; or loopback."""
    took = {node_of(who): answer for who, answer in done.took().items()}
    names = [answer.interface for answer in took.values() if answer.interface]
    usual, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if not usual or usual == "lo" or count * 2 <= len(took):
        return "", {}
    return usual, {
        node: f"took {_place(answer)}, most others {clean(usual)}"
        for node, answer in took.items()
        if answer.interface == "lo" or (answer.interface != usual and usual in done.has.get(node, ()))
    }


def _other_interfaces(done: Rehearsed) -> Iterator[Finding]:
    """Those that work all the same, this time."""
    blamed = {node_of(node) for culprit in done.culprits for node in culprit.nodes}
    usual, odd = _odd(done)
    for node, words in odd.items():
        if node not in blamed:
            yield _finding("deep_interface", words, (node,), severity="warning", steps=_named(usual))


def _named(usual: str) -> tuple[Step, ...]:
    """What makes all nodes take the interface that most of them took."""
    name = quote(clean(usual))
    return (
        Step(f"--deep --iface {name}", "does it work over that?"),
        Step(f"--env GLOO_SOCKET_IFNAME={name} --env NCCL_SOCKET_IFNAME={name}", "for the launch"),
        Step("getent hosts $(hostname)", "on that node: gloo takes the interface of this address"),
    )


def _place(answer: TrialAnswer) -> str:
    return f"{clean(answer.interface or '?')} ({clean(answer.address)})"


def _evidence(attempt: Attempt) -> Iterator[str]:
    """What each of a failing group says."""
    for who, why in attempt.unreached.items():
        yield f"{who}: cannot connect to {attempt.group[0]} at {clean(attempt.place)}: {clean(why)}"
    for who, why in attempt.errors.items():
        yield f"{who}: {clean(why, 300)}"
    for who, answer in attempt.ranks.items():
        took = f"took {_place(answer)}; " if answer.address else ""
        if answer.error:
            doing = STEPS.get(answer.step, clean(answer.step))
            yield f"{who}: {took}{doing}: {_words(answer.error)}"
        known = {row.id for _, row in meanings(answer.error)}
        for line, row in meanings(answer.said):
            if row.id not in known:
                yield f"{who}: {_words(line)} ({row.means.rstrip('.')})"


def _words(error: str) -> str:
    """An error without places in somebody else's sources."""
    return clean(_NOISE.sub("", error), 300)


def _slow(done: Rehearsed, pairs: list[tuple[str, str]]) -> Finding:
    usual = speed(median(done.rates.values()))
    (one, other), *more = pairs
    what = f"{speed(done.rates[one, other])} between them, half of the pairs have {usual} or more"
    counts: dict[str, int] = {}
    for pair in pairs:
        for node in pair:
            counts[node] = counts.get(node, 0) + 1
    busiest = max(counts, key=lambda node: counts[node])
    everywhere = counts[busiest] > 1 and counts[busiest] == len(pairs)
    what = f"slow to every node it was measured with: {what}" if everywhere else what
    return _finding(
        "deep_slow",
        f"{what} ({counted(len(more), 'more pair')} as slow)" if more and not everywhere else what,
        (busiest,) if everywhere else (one, other),
        severity="warning",
        certainty="likely",
        evidence=tuple(f"{a} - {b}: {speed(done.rates[a, b])}" for a, b in pairs),
        steps=(
            Step("ethtool IFACE", "speed, duplex; ip -s link: errors; is something else using the link?"),
        ),
    )
