"""Merge the lines of many ranks into one stream in which equal lines appear once.

Thousands of ranks say the same thing within a moment. A line waits until every rank that could still say it
has (``hold`` seconds at most), and then becomes one :class:`Folded` with all who said it. The order of each
rank's own lines is never changed, and no line is lost or doubled.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

Source = tuple[str, int | str]
"""Who prints: a node, and a global rank or ``"launcher"``."""

RECORD_LINES = 2000
RECORD_LINE = 1 << 16
RECORD_WAIT = 2.0
"""An unfinished traceback is held back for so many lines, of so many bytes, and seconds after the last."""

RUN = 16
"""Lines of one source in a row where others have lines too: quicker than taking turns, and easier to read."""

LINE_OVERHEAD = 128
"""Bytes of memory that a waiting line takes beside its text."""

_TRACEBACK = b"Traceback (most recent call last):"
# `[rank3]: ` of torch, `[default3]:` of torchrun, `host: ` of pdsh, `12: ` of srun -l.
_HEAD = re.compile(rb"((?:\[[^\]\n]{1,64}\]:? ?|[\w.-]{1,64}: ?){0,3})Traceback \(most recent call last\):")
_CHAINED = (b"During handling of the above exception,", b"The above exception was the direct cause")


class Folded(NamedTuple):
    """One item of the merged stream.

    :param sources: who printed it, in the order they were merged; at least one
    :param text: a line, or the lines of one traceback with newlines between them
    """

    sources: list[Source]
    text: bytes


class _Queue:
    """What one source has printed and has not been given out."""

    __slots__ = ("items", "left", "old", "record", "source", "taken", "touched")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.items: deque[bytes] = deque()
        self.left: dict[bytes, int] = {}  # how often each text is in `items`
        self.taken = 0  # items given out since the beginning
        self.old = 0  # the value of `taken` after the last item that waits no longer
        self.record: list[bytes] = []  # an unfinished traceback
        self.touched = False  # it grew since the last drain


class Folder:
    """Folds the lines of many sources; time is what :meth:`drain` is told.

    Work is linear in the number of lines, whatever their order.

    :param hold: seconds that a line waits for other sources to print it too
    """

    def __init__(self, hold: float = 0.5) -> None:
        self._hold = hold
        self._queues: dict[Source, _Queue] = {}
        # Per text: how many sources have it, and which have it as their next item.
        self._holders: dict[bytes, int] = {}
        self._heads: dict[bytes, list[_Queue]] = {}
        self._new: list[tuple[_Queue, int]] = []  # (queue, value of `taken` after its last new item)
        self._waiting: deque[tuple[float, _Queue, int]] = deque()
        self._old: deque[tuple[_Queue, int]] = deque()
        self.held = 0
        """About how many bytes of memory the lines held back take."""
        self._records: dict[Source, float] = {}  # unfinished tracebacks, and when they last grew

    def add(self, source: Source, lines: Sequence[bytes]) -> None:
        """Take the next lines of a source."""
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = _Queue(source)
        if queue.record or any(_TRACEBACK in line for line in lines):
            lines = self._group(queue, lines)
        self._append(queue, lines)

    def holds(self, source: Source) -> bool:
        """Whether lines of this source are still held back."""
        queue = self._queues.get(source)
        return queue is not None and bool(queue.items or queue.record)

    def drain(self, now: float) -> list[Folded]:
        """Return what need not wait: older than ``hold`` seconds, or printed by every source already.

        :param now: seconds of any clock that does not go back
        """
        for queue, end in self._new:
            self._waiting.append((now, queue, end))
        self._new.clear()
        for source, since in list(self._records.items()):
            queue = self._queues[source]
            if queue.touched:
                queue.touched = False
                self._records[source] = now
            elif now - since >= RECORD_WAIT:
                self._release(queue)
        waiting = self._waiting
        while waiting and waiting[0][0] <= now - self._hold:
            _, queue, end = waiting.popleft()
            queue.old = end
            self._old.append((queue, end))
        return self._merge()

    def flush(self) -> list[Folded]:
        """Return all that is held back, unfinished tracebacks too."""
        for source in list(self._records):
            self._release(self._queues[source])
        self._old.extend((queue, end) for _, queue, end in self._waiting)
        self._old.extend(self._new)
        self._waiting.clear()
        self._new.clear()
        for queue in self._queues.values():
            queue.old = queue.taken + len(queue.items)
        return self._merge()

    def _append(self, queue: _Queue, items: Sequence[bytes]) -> None:
        if not items:
            return
        self.held += sum(map(len, items)) + LINE_OVERHEAD * len(items)
        left, holders = queue.left, self._holders
        for item in items:
            if item in left:
                left[item] += 1
            else:
                left[item] = 1
                holders[item] = holders.get(item, 0) + 1
        if not queue.items:
            self._heads.setdefault(items[0], []).append(queue)
        queue.items.extend(items)
        self._new.append((queue, queue.taken + len(queue.items)))

    def _release(self, queue: _Queue) -> None:
        """Give up waiting for the end of a traceback."""
        record, queue.record = queue.record, []
        del self._records[queue.source]
        self._append(queue, [b"\n".join(record)])

    def _group(self, queue: _Queue, lines: Sequence[bytes]) -> list[bytes]:
        """Join the lines of each traceback; keep an unfinished one in the queue's ``record``."""
        items: list[bytes] = []
        record = queue.record
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if not record:
                if _HEAD.match(line):
                    record.append(line)
                else:
                    items.append(line)
                continue
            record.append(line)
            head = _HEAD.match(record[0])
            prefix = head[1] if head else b""
            body = line[len(prefix) :] if line.startswith(prefix) else line
            ended = not body.startswith((b" ", b"\t", b"Traceback (most")) and bool(body.strip())
            if ended and not body.startswith(_CHAINED):
                # A chained exception: an empty line, the sentence, an empty line, the next traceback.
                chain = lines[at : at + 2]
                if len(chain) == 2 and any(sentence in chain[1] for sentence in _CHAINED):
                    continue
            else:
                ended = False
            if ended or len(record) >= RECORD_LINES or len(line) > RECORD_LINE:
                items.append(b"\n".join(record))
                record.clear()
        if record:
            queue.touched = True
            self._records.setdefault(queue.source, 0.0)
        else:
            self._records.pop(queue.source, None)
        return items

    def _merge(self) -> list[Folded]:
        out: list[Folded] = []
        everyone = len(self._queues)
        heads, holders, old = self._heads, self._holders, self._old
        ready = deque(text for text, queues in heads.items() if len(queues) == holders[text])
        while True:
            # Texts that all who have them would print next: these fold completely.
            while ready:
                text = ready.popleft()
                queues = heads.get(text, ())
                if not queues or len(queues) != holders[text]:
                    continue
                if len(queues) == 1 and queues[0].taken < queues[0].old:
                    self._emit_run(queues[0], out, ready)
                    continue
                if len(queues) == everyone or any(queue.taken < queue.old for queue in queues):
                    self._emit(text, out, ready)
            # Texts of different sources wait for each other, or the oldest is nobody else's turn yet.
            while old and old[0][0].taken >= old[0][1]:
                old.popleft()
            if not old:
                return out
            self._emit(old[0][0].items[0], out, ready)

    def _emit_run(self, queue: _Queue, out: list[Folded], ready: deque[bytes]) -> None:
        """Give out the next old items of ``queue`` as long as nobody else has them, ``RUN`` at most."""
        holders, left, items = self._holders, queue.left, queue.items
        sources = [queue.source]
        del self._heads[items[0]]
        end = min(queue.taken + RUN, queue.old)
        before = queue.taken
        size = 0
        while queue.taken < end and holders[items[0]] == 1:
            text = items.popleft()
            queue.taken += 1
            size += len(text)
            out.append(Folded(sources, text))
            if left[text] == 1:
                del left[text], holders[text]
            else:
                left[text] -= 1
        self.held -= size + LINE_OVERHEAD * (queue.taken - before)
        if items:
            self._set_head(queue, ready)

    def _set_head(self, queue: _Queue, ready: deque[bytes]) -> None:
        """Note the next item of a queue whose head was given out, and whether it is ready now."""
        head = queue.items[0]
        others = self._heads.get(head)
        if others is None:
            self._heads[head] = others = []
        others.append(queue)
        if len(others) == self._holders[head]:
            ready.append(head)

    def _emit(self, text: bytes, out: list[Folded], ready: deque[bytes]) -> None:
        """Give out ``text`` for the sources that have it as next item; note what becomes ready by that."""
        heads, holders = self._heads, self._holders
        queues = heads.pop(text)
        out.append(Folded([queue.source for queue in queues], text))
        self.held -= (len(text) + LINE_OVERHEAD) * len(queues)
        gone = 0
        for queue in queues:
            queue.taken += 1
            items, left = queue.items, queue.left
            items.popleft()
            if left[text] == 1:
                del left[text]
                gone += 1
            else:
                left[text] -= 1
        if gone == holders[text]:
            del holders[text]
        elif gone:
            holders[text] -= gone
        for queue in queues:
            if queue.items:
                self._set_head(queue, ready)
        # Fewer have it now, so those who have it next may be all (the list is there only if one does).
        if gone and text in heads and len(heads[text]) == holders[text]:
            ready.append(text)
