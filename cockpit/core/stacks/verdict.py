"""The verdict: rules that say which rank holds up the others ("rank 3 is stopped") and why.

One rule after the other looks at the facts of a snapshot, the surest evidence first: ranks that have ended,
that are stopped, that are not in the collective that all others wait in, that are in a different one. None of
them knows what a collective is about: a rank that is not in it may be late, stuck, or right to be elsewhere.
Certainty says which: ``sure`` needs waiters and suspect both unmoved over two samples, and all must answer.
No verdict about ranks whose numbers are inferred is sure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from cockpit.base.shell import quote
from cockpit.base.stacks.kinds import COLLECTIVES, doing
from cockpit.core.finding import RULE_FAILED, Finding, Rule, Step, findings
from cockpit.core.inferred import UNKNOWN
from cockpit.core.masks import count, mask_of, ranks_of
from cockpit.core.stacks.evidence import (
    EVIDENCE,
    Case,
    ClassPart,
    bad_child,
    by_reason,
    ended_words,
    every_text,
    kept,
    number_text,
    place_text,
    ranks_words,
    state_fact,
    state_of,
    union,
)
from cockpit.core.stacks.sentences import MORE, STEPS, native_step, story
from cockpit.core.stacks.snapshot import Snapshot

KINDS = {
    "ended": "ranks were killed, crashed or exited with an error",
    "exited": "ranks ended with status 0 while others wait for them",
    "missing": "ranks have no process, or have not started",
    "silent": "ranks did not answer, and the others wait",
    "stopped": "ranks are stopped by a signal or held by a debugger",
    "gil": "ranks hold the GIL in C code",
    "loader": "ranks wait for a data loader",
    "io": "ranks wait for a file, a pipe or a disk",
    "lock": "ranks wait for a lock",
    "build": "ranks wait for an extension to be built",
    "absent": "ranks are not in the collective that the others wait in",
    "mismatch": "ranks wait in different collectives",
    "together": "all wait in the same place: stacks cannot tell for whom",
    "moving": "nobody is stuck",
    "over": "all ranks ended with status 0",
    "unknown": "not enough to say",
}
"""Every verdict, by the id of its finding."""

GOOD = frozenset({"moving", "over"})
"""Those that find nothing wrong."""

P2P = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "recv_object_list", "send_object_list"}
)
"""Stages of a pipeline are in different ones of these by design."""


_HEARS = frozenset(
    {"recvfrom", "recvmsg", "accept", "accept4", "poll", "ppoll", "select", "pselect6"}
    | {"epoll_wait", "epoll_pwait", "epoll_pwait2"}
)
"""System calls that wait for what another process sends."""


def verdict(snapshot: Snapshot) -> Finding:
    """The verdict on a snapshot; it may still grow while it is looked at."""
    case = Case(snapshot)
    failed = []
    for found in findings(RULES, {"case": case}):
        if found.id != RULE_FAILED:
            break
        failed.append(found.what)
    else:
        found = _unknown(case)
    return _completed(case, found, failed)


def _nothing(case: Case) -> Finding | None:
    """Nobody was asked, or nobody answered."""
    if not case.snapshot.ranks:
        return Finding("unknown", "no ranks to look at")
    if case.ended or case.absent or case.stopped or case.live:
        return None
    if case.pending:
        return Finding("unknown", "no rank has answered yet")
    hint = next((dump.hint for dump in case.sample.dumps.values() if dump.hint), "")
    why = next(iter(case.unheard.values()))
    return Finding("unknown", "no rank could be looked at", detail=why, steps=(Step(hint),) if hint else ())


def _ended(case: Case) -> Finding | None:
    """Ranks whose process is over."""
    if not case.ended:
        return None
    good = mask_of(rank for rank, why in case.ended.items() if why == "exited 0")
    bad = mask_of(case.ended) & ~good
    if good == case.snapshot.world:
        return Finding(
            "over",
            every_text(good, "has ended with status 0", "have ended with status 0"),
            certainty="sure",
        )
    # An end is early only if somebody waits for the rank: it may simply have finished.
    if not bad and not case.frozen:
        return None
    # SIGTERM is what launchers end the others with.
    late = mask_of(rank for rank in ranks_of(bad) if "SIGTERM" in case.ended[rank])
    first = bad & ~late or bad or good
    reasons = by_reason(case.ended, first)
    (why, ranks), *more = reasons
    headline = ended_words(why, ranks)
    if more:
        headline += f", {ranks_words(first & ~ranks)} ended too"
    if case.waits:
        headline += f": {case.wait_words()}"
    alone = count(first) == 1
    sure = alone and case.all_frozen and case.heard and not case.others and why != "is gone"
    facts = [ended_words(text, group) for text, group in more]
    facts.append(case.wait_fact())
    if late & ~first:
        facts.append(f"{ranks_words(late & ~first)} ended by SIGTERM, as launchers end the others")
    facts.append(case.unheard_fact())
    return Finding(
        "ended" if bad else "exited",
        headline,
        first,
        detail="" if alone else "Several ranks have ended: which one was first is not in the stacks.",
        evidence=tuple(facts),
        certainty="sure" if sure else "likely",
        steps=_ended_steps(case, next(ranks_of(ranks)), why),
    )


def _ended_steps(case: Case, rank: int, why: str) -> tuple[Step, ...]:
    node, pid = case.process_of(rank)
    steps = []
    if case.snapshot.run:
        steps.append(Step(f"cockpit logs {quote(case.snapshot.run)} --rank {rank}", "its last words"))
    if node and "SIGKILL" in why:
        steps.append(Step("dmesg -T | grep -i oom", node=node))
    if node and "zombie" in why:
        steps.append(Step(f"ps -o ppid= -p {pid}", "its parent takes no note of its end", node))
    return tuple(steps)


def _stopped(case: Case) -> Finding | None:
    """Ranks that somebody has stopped."""
    if not case.stopped:
        return None
    ranks = case.stopped
    dumps = {rank: case.dumps(rank) for rank in ranks_of(ranks)}
    traced = all(state_of(each[-1]) == "t" for each in dumps.values())
    how = "held by a debugger (state t)" if traced else "stopped (state T)"
    headline = f"{ranks_words(ranks, 'is', 'are')} {how}"
    if case.waits:
        headline += f": {case.wait_words()}"
    always = case.looks > 1 and all(
        len(each) == case.looks and all(state_of(dump) == "T" for dump in each) for each in dumps.values()
    )
    sure = always and case.heard and not case.others and (case.all_frozen or not case.waits)
    stopped: dict[str, list[str]] = defaultdict(list)
    for node, pid in map(case.process_of, ranks_of(ranks)):
        if node and pid and not traced:
            stopped[node].append(str(pid))
    part = next((one for one in case.classes if one.ranks & ranks), None)
    facts = (
        f"state T in {case.looks} of {case.looks} samples" if always else "",
        case.wait_fact(),
        case.unheard_fact(),
    )
    return Finding(
        "stopped",
        headline,
        ranks,
        place_text(part.doing.frame) if part is not None else "",
        "" if traced else "SIGSTOP, a debugger or a batch system did it; SIGCONT lets it go on.",
        facts,
        "sure" if sure else "likely",
        tuple(Step(f"kill -CONT {' '.join(pids)}", node=node) for node, pids in stopped.items())[:EVIDENCE],
    )


def _not_there(case: Case) -> Finding | None:
    """Ranks that nobody has seen."""
    ranks = mask_of(case.absent)
    if not ranks or (case.waits and case.passing):
        return None
    if case.waits and case.others and count(ranks) > count(case.live):
        return None  # most of the job was not asked; what is odd among the rest is the better answer
    (why, group), *_ = by_reason(case.absent, ranks)
    headline = ended_words(why, group)
    if case.waits:
        headline += f": {case.wait_words()}"
    steps: tuple[Step, ...] = ()
    detail = "The launcher runs, the training process does not yet."
    if why != "has not started":
        detail = "They have ended, or are on nodes that were not asked."
        if count(ranks) == 1:
            detail = "It has ended, or is on a node that was not asked."
        steps = (Step("name every node of the job in the hostfile"),)
    likely = case.frozen and case.heard and not case.others
    return Finding(
        "missing",
        headline,
        ranks,
        "",
        detail,
        (case.wait_fact(), *(case.part_fact(one) for one in case.others), case.unheard_fact()),
        "likely" if likely else "unsure",
        steps,
    )


def _gil(case: Case) -> Finding | None:
    """Ranks in which a thread sleeps in C code and keeps the GIL."""
    ranks = case.holders
    if not ranks or 2 * count(ranks) > count(case.live) or case.passing:
        return None
    rank = next(ranks_of(ranks))
    dump = case.dumps(rank)[-1]
    holder = next(thread for thread in dump.threads if thread.gil)
    main = holder is dump.threads[0]
    by = "main thread" if main else f"thread {holder.name}"
    headline = f"{ranks_words(ranks, 'holds', 'hold')} the GIL in C code"
    if case.waits:
        headline += f": {case.wait_words()}"
    facts = (
        f"GIL held by its {by}, asleep, {case.still()}",
        state_fact(dump),
        case.wait_fact(),
        case.unheard_fact(),
    )
    sure = case.all_frozen and case.heard and not case.others and not case.gpu_only
    act = doing(holder.frames, dump.process if main else None)
    does = act.text if main and act.kind == "io" else "sleeps"
    return Finding(
        "gil",
        headline,
        ranks,
        place_text(act.frame or (holder.frames[-1] if holder.frames else None)),
        f"Its {by} {does} in a C function and keeps the GIL: no other Python thread of it can run.",
        facts,
        "sure" if sure else "likely",
        (native_step(rank),),
    )


def _absent(case: Case) -> Finding | None:
    """Some wait in a collective, and others are elsewhere."""
    waiting, suspects = case.waiting, case.suspects
    if not waiting or not suspects or count(suspects) > count(waiting) or case.passing:
        return None
    first = case.others[0]
    dump = case.dumps(next(ranks_of(first.ranks)))[-1]
    joined = case.blocked or "the collective"
    if case.gpu_only:
        headline = (
            f"{ranks_words(suspects, 'is', 'are')} not where {number_text(waiting)} wait for their GPUs"
        )
    elif case.looks < 2:
        there = number_text(waiting, "is", "are")
        headline = f"{ranks_words(suspects, 'is', 'are')} not in {joined}, where {there}"
    elif not first.frozen:
        headline = f"{ranks_words(suspects, 'has', 'have')} not come to {joined} yet"
    else:
        named = joined in COLLECTIVES and joined != "wait_tensor"
        joined = joined if named or not case.blocked else f"the others in {joined}"
        headline = f"{ranks_words(suspects)} did not join {joined}"
    facts = [case.wait_fact(), case.suspect_fact(first), state_fact(dump)]
    facts += [case.part_fact(one) for one in case.others[1:]]
    if case.absent:
        facts.append(f"{ranks_words(mask_of(case.absent))} not found")
    facts.append(case.unheard_fact())
    kind, detail, steps = story(case, first, dump)
    return Finding(kind, headline, suspects, first.where, detail, tuple(facts), _certainty(case), steps)


def _group(case: Case) -> Finding | None:
    """Some wait and others do not join them, while the rest goes on: a group that the rest does not need."""
    going = case.live & ~union(one for one in [*case.waits, *case.others] if one.frozen) & ~case.holders
    if not going or going == case.live:
        return None
    places = case.snapshot.ranks
    group = {rank: place for rank, place in places.items() if not going >> rank & 1}
    found = _absent(Case(replace(case.snapshot, ranks=group)))
    if found is None:
        return None
    # Those that make progress elsewhere may be on their way to the same collective.
    likely = found.certainty == "sure" and all(one.frozen for one in case.others)
    headline = f"{found.what}, while {number_text(going, 'gets', 'get')} on"
    return replace(found, what=headline, certainty="likely" if likely else "unsure")


def _certainty(case: Case) -> str:
    """How certain it is that the suspects are what the others wait for."""
    if case.looks < 2:
        return "unsure"
    doubts = (
        not case.all_frozen,
        not all(one.frozen for one in case.others),
        not case.heard,
        bool(case.absent),
        # One of them may be what the next one waits for.
        len(case.others) > 1,
        # A wait for a GPU may be for anything; and a wait in a library may be one for other ranks.
        case.gpu_only,
        any(one.kind == "library" for one in case.others),
        2 * count(case.suspects) >= count(case.live),
    )
    return "likely" if any(doubts) else "sure"


def _unheard(case: Case) -> Finding | None:
    """All ranks with a stack wait in a collective, and some have not answered."""
    ranks = mask_of(case.unheard)
    if not ranks or case.others or not case.waits or case.passing:
        return None
    (why, group), *_ = by_reason(case.unheard, ranks)
    dump = case.sample.dumps.get(next(ranks_of(group)))
    hint = dump.hint if dump is not None else ""
    few = count(ranks) <= count(case.waiting) and case.all_frozen
    return Finding(
        "silent",
        f"{ranks_words(ranks)} did not answer: {case.wait_words()}",
        ranks,
        "",
        why,
        (case.wait_fact(), state_fact(dump) if dump is not None else ""),
        # In state D it does not answer because it is stuck.
        "likely" if few and state_of(dump) == "D" else "unsure",
        (Step(hint),) if hint else (),
    )


def _few(case: Case) -> Finding | None:
    """A few wait in a collective in which the many are not."""
    if not case.waits or count(case.suspects) <= count(case.waiting) or not case.frozen:
        return None
    if not any(one.frozen for one in case.others):
        headline = f"{case.wait_words()}, {number_text(case.suspects, 'is', 'are')} on the way"
        return Finding("moving", headline, evidence=(case.wait_fact(),), steps=(MORE,))
    waits = ranks_words(case.waiting, "waits", "wait")
    return Finding(
        "mismatch",
        f"{waits} in {case.blocked or 'collectives'}, in which {number_text(case.suspects, 'is', 'are')} not",
        case.waiting,
        case.waits[0].where,
        "Either these few called what the others never reach, or the others are held up elsewhere.",
        (case.wait_fact(), *(case.part_fact(one) for one in case.others), case.unheard_fact()),
        steps=(MORE,),
    )


def _mismatch(case: Case) -> Finding | None:
    """Everybody waits, but not in the same collective."""
    if not case.waits or case.others or case.passing:
        return None
    places = _groups(case.waits, lambda one: f"{one.what} at {one.where}")
    groups = _groups(case.waits, lambda one: one.what) or places
    if not groups:
        return None
    facts = [f"{ranks_words(ranks)} in {what}".removesuffix(" at ") for what, ranks in places]
    (most, many), (what, ranks), *rest = groups
    kinds = {one.kind for one in case.waits}
    by_design = not kinds <= {"collective", "backward"} or any(one.what in P2P for one in case.waits)
    if rest or 2 * count(many) <= count(case.waiting) or "sync" in kinds:
        detail = (
            "Stages of a pipeline and groups of ranks may do so by design; or ranks have parted somewhere."
        )
        headline = "ranks wait in different collectives"
        return Finding("mismatch", headline, 0, "", detail, (*facts, case.unheard_fact()), steps=STEPS)
    likely = not by_design and case.all_frozen and case.heard
    if by_design:
        detail = "Stages of a pipeline may do so by design; else they have parted in the user's code."
    else:
        detail = "They wait for each other in different collectives: they have parted in the user's code."
    return Finding(
        "mismatch",
        f"{ranks_words(ranks, 'is', 'are')} in {what}, {number_text(many)} in {most}",
        ranks,
        next(one for one in case.waits if one.ranks & ranks).where,
        detail,
        (case.wait_fact(), *facts, case.unheard_fact()),
        "likely" if likely else "unsure",
        STEPS,
    )


def _groups(parts: Iterable[ClassPart], name: Callable[[ClassPart], str]) -> list[tuple[str, int]]:
    """The ranks of each name, the largest group first; empty if there is only one name."""
    found: dict[str, int] = defaultdict(int)
    for one in parts:
        found[name(one)] |= one.ranks
    return sorted(found.items(), key=lambda item: (-count(item[1]), item[0])) if len(found) > 1 else []


def _together(case: Case) -> Finding | None:
    """Everybody waits at the same place."""
    if not case.waits or case.others or case.passing:
        return None
    part = case.waits[0]
    if case.looks < 2:
        headline = f"{every_text(case.waiting, 'is', 'are')} in {part.what}, in one sample"
        return Finding(
            "unknown", headline, 0, "", "Another sample will show whether they move.", steps=(MORE,)
        )
    steps: tuple[Step, ...] = STEPS
    detail = "Stacks do not show what they wait for: the network, a GPU, or a rank's own request."
    if part.kind == "sync":
        detail = "They wait for their GPUs; what those wait for is not in the stacks."
        steps = (Step("nvidia-smi", "are the GPUs busy?"), *STEPS)
    elif part.kind == "rendezvous":
        detail = "The ranks are there and do not find each other: address, port, or firewall."
    headline = f"{every_text(case.waiting, 'waits', 'wait')} in {part.what}"
    facts = (case.wait_fact(), case.unheard_fact())
    return Finding("together", headline, 0, part.where, detail, facts, steps=steps)


def _apart(case: Case) -> Finding | None:
    """Nobody is in a collective that we know, many wait at one and the same place, and a few are elsewhere.

    Programs have barriers of their own; ranks in one have the same stack, and whoever is missing has not.
    """
    parts = case.others
    if case.looks < 2 or case.waits or len(parts) < 2 or not all(one.frozen for one in parts):
        return None
    many = max(parts, key=lambda one: count(one.ranks))
    rest = [one for one in parts if one is not many]
    few = union(rest)
    if count(many.ranks) < 2 or count(few) >= count(many.ranks) or not _awaits_others(case, many):
        return None
    first = rest[0]
    dump = case.dumps(next(ranks_of(first.ranks)))[-1]
    kind, detail, steps = story(case, first, dump)
    alike = number_text(many.ranks, "waits", "wait")
    facts = (
        f"{case.part_fact(many)}, {case.still()}",
        case.suspect_fact(first),
        state_fact(dump),
        *(case.part_fact(one) for one in rest[1:]),
        case.unheard_fact(),
    )
    # One that serves the others waits for them in its own way.
    likely = len(rest) == 1 and case.heard and not case.absent and not _awaits_others(case, first)
    return Finding(
        kind,
        f"{ranks_words(few, 'is', 'are')} not where {alike}",
        few,
        first.where,
        detail,
        facts,
        "likely" if likely else "unsure",
        steps,
    )


def _awaits_others(case: Case, part: ClassPart) -> bool:
    """Whether what a class waits for may come from another rank."""
    process = case.dumps(next(ranks_of(part.ranks)))[-1].process
    return process is not None and process.call in _HEARS


def _at_one_place(case: Case) -> Finding | None:
    """Nobody is in a collective, and many do not move: loaders, builds, files, locks."""
    still = [one for one in case.others if one.frozen]
    ranks = union(still)
    if not still or case.waits or 2 * count(ranks) < count(case.live):
        return None
    parts = sorted(still, key=lambda one: -count(union(each for each in still if each.kind == one.kind)))
    parts = [one for one in parts if one.kind == parts[0].kind]
    group = union(parts)
    broken = mask_of(rank for rank in ranks_of(group) if bad_child(case.dumps(rank)[-1]) is not None)
    rank = next(ranks_of(broken or group))
    part = next(one for one in parts if one.ranks >> rank & 1)
    kind, detail, steps = story(case, part, case.dumps(rank)[-1])
    facts = (
        f"{number_text(ranks)} {case.still()}",
        *(case.part_fact(one) for one in still),
        case.unheard_fact(),
    )
    waits = every_text(group, "waits", "wait") if group == case.live else ranks_words(group, "waits", "wait")
    if kind == "loader":
        certainty = "likely" if broken else "unsure"
        headline = f"{waits} for data"
        return Finding(kind, headline, broken or group, part.where, detail, facts, certainty, steps)
    if kind == "build":
        return Finding(kind, f"{waits} for a build", group, part.where, detail, facts, "likely", steps)
    headline = f"{number_text(ranks, 'has', 'have')} not moved, none of them in a collective"
    if part.found.doing.what == "thread" and group == ranks:
        # A program that trains in another thread has only this wait in the main one.
        headline = f"{every_text(group, 'waits', 'wait')} for another thread, none in a collective"
    return Finding("unknown", headline, 0, part.where, detail, facts, steps=steps)


def _moving(case: Case) -> Finding | None:
    """Nobody is stuck, or only a few that nobody waits for."""
    if case.looks < 2 or not case.live:
        return None
    parts = [one for one in [*case.others, *case.waits] if one.frozen]
    still = union(parts) | case.holders
    going = case.live & ~still
    facts = [f"{case.looks} samples, {case.span}", case.unheard_fact()]
    if not still and case.busy == going:
        headline = f"{every_text(going, 'is', 'are')} busy, at the same place in {case.looks} samples"
        facts = [case.span, *(case.part_fact(one) for one in [*case.others, *case.waits])]
        detail = "A long step, an endless loop, or a wait for a GPU that keeps a core busy."
        return Finding("moving", headline, 0, "", detail, tuple(facts), steps=STEPS)
    if not still:
        certainty = "sure" if going == case.snapshot.world and not case.busy else "likely"
        facts.insert(1, f"{ranks_words(case.busy)} busy at one place" if case.busy else "")
        headline = f"{every_text(going, 'is', 'are')} moving"
        return Finding("moving", headline, evidence=tuple(facts), certainty=certainty)
    if count(still) > count(going):
        return None
    headline = f"{number_text(going, 'is', 'are')} moving, {ranks_words(still, 'has', 'have')} not moved"
    facts += [case.part_fact(one) for one in parts]
    where = parts[0].where if parts else ""
    return Finding("moving", headline, still, where, evidence=tuple(facts), steps=(MORE,))


def _unknown(case: Case) -> Finding:
    """What is left."""
    facts = [case.part_fact(one) for one in [*case.others, *case.waits]]
    detail = "One sample does not tell what moves." if case.looks < 2 else ""
    facts.append(case.unheard_fact())
    return Finding("unknown", "Not enough to say", 0, "", detail, tuple(facts), steps=(MORE,))


def _completed(case: Case, found: Finding, failed: list[str]) -> Finding:
    """The same with what holds for every verdict: its nodes, how bad it is, and what makes it less sure.

    Facts that do not exist are left out, and what was already asked for is not asked again. A rule that
    failed may have had a better answer.
    """
    have = [f"--{name}" for name in ("native", "children") if case.snapshot.options.get(name)]
    steps = tuple(step for step in found.steps if not any(option in step.command for option in have))
    doubts = [f"{number_text(case.pending)} still to answer"] if case.pending else []
    inferred = (found.ranks or case.snapshot.world) & case.snapshot.inferred
    if inferred:
        doubts.append(_inferred_fact(case, inferred))
    certainty = "likely" if doubts and found.certainty == "sure" else found.certainty
    certainty = "unsure" if failed else certainty
    nodes = dict.fromkeys(case.snapshot.ranks[rank].node for rank in ranks_of(found.ranks))
    wrong = "error" if found.ranks and certainty != "unsure" else "warning"
    return replace(
        found,
        steps=steps or (found.steps and (MORE,)),
        evidence=kept([*failed, *doubts, *found.evidence]),
        certainty=certainty,
        nodes=tuple(filter(None, nodes)),
        severity="info" if found.id in GOOD and not found.ranks and not failed else wrong,
    )


def _inferred_fact(case: Case, ranks: int) -> str:
    first = next(ranks_of(ranks))
    how = "numbered by pid" if case.snapshot.ranks[first].inferred == UNKNOWN else "inferred"
    if count(ranks) > 1:
        return f"{ranks_words(ranks)} are {how}"
    node, pid = case.process_of(first)
    return f"rank {first} is {how}: process {pid} on {node}"


RULES = tuple(
    Rule(test.__name__[1:], ("case",), test)
    for test in (
        _nothing,
        _ended,
        _stopped,
        _not_there,
        _gil,
        _absent,
        _unheard,
        _group,
        _few,
        _mismatch,
        _together,
        _apart,
        _at_one_place,
        _moving,
    )
)
"""In their order: the first that finds something gives the verdict."""
