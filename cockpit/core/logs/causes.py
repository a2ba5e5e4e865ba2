"""Why a rank ended, as far as the end of its log shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from cockpit.core.finding import Finding
from cockpit.core.logs.cause_words import (
    AFTERMATH,
    BLAMES,
    CALL,
    CHILD,
    HANDLED,
    NOISE_BEFORE,
    NOISE_FRAME,
    PASSED_ON,
    PROGRESS,
    REFERS_BACK,
    SIGNS,
    STOPPED,
    TALK,
    TRIGGER,
    VICTIM,
    Weight,
)
from cockpit.core.logs.levels import Level, level_of
from cockpit.core.logs.prefixes import TRACEBACK, message, split
from cockpit.core.logs.tracebacks import WORDS, Traceback, dumped, read_lines, read_tracebacks, reason, shown
from cockpit.core.masks import mask_of
from cockpit.core.text import one_line

TAIL = 64 << 10
"""Bytes at the end of a log that are looked at first."""
BLOCK, OVERLAP = 256 << 10, 16 << 10
"""Bytes that are looked at then, each time; what is in both may be in two halves else."""
SEARCHED = 16 << 20
"""Bytes at the end of a log, at least, beyond which no cause is looked for: a second of CPU."""
RANKS_MOST = 1 << 20

SURVIVED = 4
"""So many lines of training after an error show that the error did not end it."""


class Cause(NamedTuple):
    """What a rank's log says of its end.

    :param found: as a finding, see :func:`cause`
    :param at: the byte of the log at which it begins
    :param blames: who is missing, as it says: ranks, as a mask
    :param call: number and kind of the collective that it waited in; empty: it does not say
    :param said: its words, line by line, and then those of what happened with it
    """

    weight: Weight
    found: Finding
    at: int
    blames: int = 0
    call: tuple[int, str] | None = None
    said: bytes = b""


class _Event(NamedTuple):
    """Something that may have ended the rank: lines ``start`` to ``end``."""

    start: int
    end: int
    weight: Weight
    words: bytes
    traceback: Traceback | None = None
    chain: Sequence[Traceback] = ()


# The last is the line before each exception of a group.
_CHAIN = re.compile(
    rb"During handling of the above exception|The above exception was the direct cause"
    rb"|\+-{4,80} \d{1,4} -{4,80}"
)
_THROWN = re.compile(rb"terminate called after throwing an instance of '([^'\n]{1,500})'")
_WHAT = re.compile(rb"what\(\):\s*")
_FATAL = re.compile(rb"Traceback \(most recent|\n[\w.]{1,100}(?:Error|Exception)\b")
_RUNNING = 2
"""Lines of an unknown kind that show a running program; a single one may be its last."""
_MESSAGE = 4
"""Lines after an event that may still belong to its message."""
_REPEATED = 100
"""So many bytes at the end of a message show that another one repeats it."""
_SAID = 16
"""Events of one burst whose words are kept."""
_DIGIT = re.compile(rb"\d")
_LETTERS = re.compile(rb"[^A-Za-z]+")


def search(read: Callable[[int, int], bytes], size: int, most: int = SEARCHED) -> Cause | None:
    """Search a whole log for the cause, from its end, in blocks; stop at output of ongoing training.

    :param read: gives so many bytes from an offset on
    :param size: bytes of the log
    :param most: bytes at its end that are looked at, about
    """
    best, end, length = None, size, TAIL
    while True:
        start = max(0, end - length)
        data = read(start, end - start)
        found = cause(data) if length == TAIL or _FATAL.search(data) or SIGNS.hint(data) else None
        if found is not None:
            found = found._replace(at=start + found.at)
            if found.weight >= Weight.VICTIM:
                return found
            best = best or found
        # Numbers of training after it: whatever was before has been survived.
        if not start or size - start >= most or len(PROGRESS.findall(data)) >= SURVIVED:
            return best
        end, length = start + OVERLAP, BLOCK


def cause(tail: bytes) -> Cause | None:
    """The cause at the end of a failed rank's log; None if nothing in it looks like one.

    Its sentence is one line of the log: ``RuntimeError: CUDA out of memory. …``. Its evidence is where in the
    user's code, outermost first, three places at most: ``train.py:188 forward``; if nothing of the traceback
    is the user's, the last places there are.

    Read backwards from the last event: events without output of ongoing training in between belong together,
    and the one that caused the others counts. Training survived an event that more such output follows.
    """
    starts: list[int] = []
    lines = read_lines(tail, starts)
    events = sorted(_events(lines), key=lambda event: event.start)
    if not events:
        return None
    states = [
        tail.count(b"\r", at, after) for at, after in zip(starts, [*starts[1:], len(tail)], strict=True)
    ]
    talk, progress = _goes_on(lines, events, states)
    left = [event for event in events if progress[-1] - progress[event.end] < SURVIVED]
    bursts = list(_bursts(left, talk, progress))
    ended = next((burst for burst in bursts if _heaviest(burst) >= Weight.VICTIM), None)
    burst = ended or max(bursts, key=_heaviest, default=None)
    if burst is None:
        return None
    event = _first(burst)
    said = b"\n".join(one.words for one in burst)
    named = (number for match in BLAMES.finditer(said) for number in re.findall(rb"\d+", match.group()))
    ranks = mask_of(int(number) for number in named if int(number) < RANKS_MOST)
    call = CALL.search(said)
    waited = None if call is None else (int(call[1]), call[2].decode())
    words = b"\n".join(one.words[:WORDS] for one in [event, *burst[:_SAID]])
    return Cause(event.weight, _cause(lines, event), starts[event.start], ranks, waited, words)


def _bursts(events: Sequence[_Event], talk: Sequence[int], progress: Sequence[int]) -> Iterator[list[_Event]]:
    """Events with no output of a running program between them; the last ones first.

    A possible consequence goes with what was before it, unless training went on between them.
    """
    burst: list[_Event] = []
    weight = Weight.PASSED_ON
    for event in reversed(events):
        if burst:
            until = max(burst[-1].start, event.end)
            consequence = weight < Weight.OWN and progress[until] == progress[event.end]
            if talk[until] - talk[event.end] >= _RUNNING and not consequence:
                yield burst[::-1]
                burst, weight = [], Weight.PASSED_ON
        burst.append(event)
        weight = max(weight, event.weight)
    if burst:
        yield burst[::-1]


def _heaviest(burst: Sequence[_Event]) -> Weight:
    return max(event.weight for event in burst)


def _first(burst: Sequence[_Event]) -> _Event:
    """The first of the heaviest; of tracebacks in a row the last: a process dies of only one.

    Of one that repeats the first, and says more, as what was thrown does, that one.
    """
    weight = _heaviest(burst)
    heaviest = [event for event in burst if event.weight == weight]
    found = heaviest[0]
    for event in heaviest[1:]:
        more = len(event.words) > len(found.words) and found.words[-_REPEATED:] in event.words
        if not more and (found.traceback is None or event.traceback is None):
            break
        found = event
    return found


def _goes_on(
    lines: Sequence[bytes], events: Sequence[_Event], states: Sequence[int]
) -> tuple[list[int], list[int]]:
    """For each line, how many lines up to it show a running program, and how many show training."""
    taken = {at for event in events for at in range(event.start, event.end + 1)}
    first = events[0].start
    before: Counter[bytes] = Counter()
    talk = [0] * len(lines)
    progress = [0] * len(lines)
    event = first
    for at in range(first, len(lines)):
        text = split(lines[at])[1]
        event = at if at in taken else event
        if at == event or AFTERMATH.search(text) or level_of(text):
            continue
        # Of a bar each state is one; all of them are one line.
        progress[at] = max(1, states[at]) if PROGRESS.search(text) else 0
        if text[:1] in b" \t" and not progress[at]:
            continue
        if not progress[at] and _DIGIT.search(text):
            # Of an unknown form that was seen before.
            before = before or Counter(_shape(split(line)[1]) for line in lines[:first])
            progress[at] = int(before[_shape(text)] > 1)
        if progress[at] or TALK.search(text):
            talk[at] = _RUNNING
        elif at > event + _MESSAGE:
            talk[at] = 1
    return list(accumulate(talk)), list(accumulate(progress))


def _shape(text: bytes) -> bytes:
    return _LETTERS.sub(b" ", text[:300])


def _events(lines: Sequence[bytes]) -> Iterator[_Event]:
    tracebacks = read_tracebacks(lines)
    yield from _chains(lines, tracebacks)
    taken = {at for each in tracebacks for at in range(each.start, each.end + 1)}
    for at, line in enumerate(lines):
        # The head of a traceback without its end says nothing.
        if at in taken or TRACEBACK in line:
            continue
        signs = SIGNS.found_in(message(line)) if SIGNS.hint(line) else []
        if signs:
            weight, words = max(weight for weight, _ in signs), _words(lines, at, message(line))
            # What was thrown says more than that it was not caught.
            yield _Event(at, at, min(weight, Weight.VICTIM) if VICTIM.search(words) else weight, words)
        elif level_of(line) is Level.ERROR and not NOISE_BEFORE.search(line):
            yield _Event(at, at, Weight.ERROR, _words(lines, at, message(line)))


def _chains(lines: Sequence[bytes], tracebacks: Sequence[Traceback]) -> Iterator[_Event]:
    """Each traceback that is not the consequence of another one."""
    chain: list[Traceback] = []
    for each in tracebacks:
        between = lines[chain[-1].end + 1 : each.start] if chain else ()
        if chain and not any(_CHAIN.search(line) for line in between):
            yield _chained(lines, chain)
            chain = []
        chain.append(each)
    if chain:
        yield _chained(lines, chain)


def _chained(lines: Sequence[bytes], chain: Sequence[Traceback]) -> _Event:
    """The first exception that says something ("_queue.Empty" alone is not a cause); it led to the others.

    But one that code expected, and answered with another, is not what went wrong: that one says it.
    """
    telling = [each for each in chain if b":" in each.summary and not PASSED_ON.match(each.summary)]
    found = telling[0] if telling else chain[0]
    last = telling[-1].summary if telling else b""
    if TRIGGER.match(found.summary) and last and not TRIGGER.match(last) and not REFERS_BACK.search(last):
        found = telling[-1]
    return _Event(chain[0].start, chain[-1].end, _weight(lines, chain, found), found.summary, found, chain)


def _weight(lines: Sequence[bytes], chain: Sequence[Traceback], found: Traceback) -> Weight:
    start, end = chain[0].start, chain[-1].end
    before = b"\n".join(lines[max(0, start - 2) : start + 1])
    if PASSED_ON.match(found.summary):
        return Weight.PASSED_ON
    if NOISE_BEFORE.search(before) or any(NOISE_FRAME.search(b"%s %s %s" % frame) for frame in found.frames):
        return Weight.NOISE
    if _handled(lines, start, end):
        return Weight.NOISE
    if STOPPED.match(found.summary):
        return Weight.ERROR
    if CHILD.search(found.summary):
        return Weight.CHILD
    return Weight.VICTIM if VICTIM.search(found.summary) else Weight.OWN


def _handled(lines: Sequence[bytes], start: int, end: int) -> bool:
    """Whether its message before it, or the line after it, says that the program goes on."""
    before = lines[start - 1] if start else b""
    after = lines[end + 1] if end + 1 < len(lines) else b""
    told = HANDLED.search(before) and level_of(before) is not Level.PLAIN
    return bool(told or (HANDLED.search(after) and not AFTERMATH.search(after)))


def _words(lines: Sequence[bytes], at: int, text: bytes) -> bytes:
    """What the line with a sign says, with the type of a C++ exception and what() together."""
    if b"Fatal Python error: " in text:
        return text[text.index(b"Fatal Python error: ") :]
    thrown = _THROWN.search(text)
    for index in range(at, min(at + 4, len(lines))) if thrown else (at,):
        prefix, own = split(lines[index])
        what = _WHAT.search(own)
        if what is not None:
            # The message may begin with a newline.
            words = own[what.end() :].strip() or b"what():"
            words = reason(lines, index, words, prefix).removeprefix(b"what(): ") or words
            return thrown[1] + b": " + words if thrown else words
    return text if thrown else reason(lines, at, text.strip(), split(lines[at])[0])


def _cause(lines: Sequence[bytes], event: _Event) -> Finding:
    frames = event.traceback.frames if event.traceback else ()
    if event.words.startswith(b"Fatal Python error: "):
        frames = tuple(dumped(lines, event.start))
    places = shown(frames, *(each.frames for each in reversed(event.chain)))
    what = one_line(event.words.strip()[:WORDS])
    return Finding("cause", what, 0, places[-1] if places else "", "", places, "likely")
