"""Merge the lines of many ranks into one stream in which lines that differ only in numbers appear once.

Thousands of ranks say the same thing within a moment. A line waits until every rank that could still say it
has (``hold`` seconds at most), and then becomes one :class:`Folded` with all its sources. Lines are the same
if they are equal, or have one shape (``core.logs.shapes``) and no number far from those of the others.
The order of each rank's own lines is never changed, and no line is lost or doubled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from cockpit.core.logs.blocks import Records, TracebackBlock
from cockpit.core.logs.shapes import Shape, record_shape, shape_of, told
from cockpit.core.logs.sources import Source

RECORD_WAIT = 2.0
"""Seconds after its last line that an unfinished traceback is held back."""

RUN = 16
"""Lines of one source in a row when others have lines too: faster than taking turns, and easier to read."""

LINE_OVERHEAD = 300
"""Bytes of memory that a waiting line takes besides its text."""


class Folded(NamedTuple):
    """One item of the merged stream.

    :param sources: who printed it, in the order they were merged; at least one
    :param text: a line, or the lines of one traceback with newlines between them
    :param originals: what each source printed, if ``text`` was made from different lines; else empty
    """

    sources: list[Source]
    text: bytes
    originals: Sequence[bytes] = ()


def folded(said: Iterable[tuple[Source, bytes]]) -> list[Folded]:
    """Fold lines that have no order among each other, one per source."""
    groups: dict[bytes, list[tuple[Source, bytes, Shape | None]]] = {}
    for source, line in said:
        shape = shape_of(line)
        groups.setdefault(line if shape is None else shape.of(line)[0], []).append((source, line, shape))
    return [item for group in groups.values() for item in _told(group)]


def _told(said: Sequence[tuple[Source, bytes, Shape | None]]) -> list[Folded]:
    """Fold lines of one shape, except those that stand out."""
    texts: dict[bytes, list[Source]] = {}
    shapes: list[Shape] = []
    for source, line, shape in said:
        sources = texts.get(line)
        if sources is not None:
            sources.append(source)
            continue
        texts[line] = [source]
        if shape is not None:
            shapes.append(shape)
    lines, owners = list(texts), list(texts.values())
    if len(lines) == 1:
        return [Folded(owners[0], lines[0])]
    items = []
    for group, text in told(lines, shapes):
        who = [source for index in group for source in owners[index]]
        originals = [lines[index] for index in group for _ in owners[index]] if len(group) > 1 else ()
        items.append(Folded(who, text, originals))
    return items


class _Group:
    """Lines of one shape.

    :ivar holders: how many sources have one of them
    :ivar ready: those that every source which has such a line has as its next item
    :ivar at: how many sources that is
    :ivar due: one of these waits no longer
    """

    __slots__ = ("at", "due", "holders", "key", "ready")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.holders = self.at = 0
        self.ready: list[_Like] | None = None
        self.due = False

    def clear(self) -> list[_Like]:
        """Forget what is ready, and return it."""
        ready, self.ready = self.ready, None
        self.at = 0
        self.due = False
        return ready or []


class _Like(_Group):
    """Lines of one shape that count the same, and the sources that have one as their next item.

    Where nothing is counted they are a group of their own.
    """

    __slots__ = ("group", "heads")

    def __init__(self, key: bytes, group: _Group | None) -> None:
        super().__init__(key)
        self.group = group or self
        self.heads: list[_Queue] = []


_Item = tuple[_Like, bytes, Shape | None]


class _Queue:
    """What one source has printed and has not been given out yet."""

    __slots__ = ("held", "items", "old", "records", "source", "taken", "touched")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.items: deque[_Item] = deque()
        self.held: dict[_Group, int] = {}  # how many of `items` are of each group, and each like
        self.taken = 0  # items given out since the beginning
        self.old = 0  # the value of `taken` after the last item that waits no longer
        self.records = Records()
        self.touched = False  # its unfinished traceback grew since the last drain


class Folder:
    """Folds the lines of many sources; :meth:`drain` is passed the time.

    Work is linear in the number of lines, whatever their order.

    :param hold: seconds that a line waits for other sources to print it too
    :param shapes: fold lines of one shape; otherwise only equal ones
    """

    def __init__(self, hold: float = 0.5, *, shapes: bool = True) -> None:
        self._hold = hold
        self._shapes = shapes
        self._queues: dict[Source, _Queue] = {}
        self._likes: dict[bytes, _Like] = {}
        self._groups: dict[bytes, _Group] = {}
        self._items: dict[bytes, _Item] = {}  # lines since the last merge: many sources print the same
        # What can be given out: groups that all their holders would print next, and others in part.
        self._whole: deque[_Group] = deque()
        self._part: deque[_Group] = deque()
        self._new: list[tuple[_Queue, int]] = []  # (queue, value of `taken` after its last new item)
        self._waiting: deque[tuple[float, _Queue, int]] = deque()
        self._old: deque[tuple[_Queue, int]] = deque()
        self.held = 0
        """Roughly how many bytes of memory the held-back lines take."""
        self._records: dict[_Queue, float] = {}  # with unfinished tracebacks, and when they last grew

    def add(self, source: Source, lines: Sequence[bytes]) -> None:
        """Take the next lines of a source."""
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = _Queue(source)
        items = queue.records.add(lines)
        if queue.records.open:
            queue.touched = True
            self._records.setdefault(queue, 0.0)
        else:
            self._records.pop(queue, None)
        self._append(queue, items)

    def holds(self, source: Source) -> bool:
        """Whether lines of this source are still held back."""
        queue = self._queues.get(source)
        return queue is not None and bool(queue.items or queue.records.open)

    def drain(self, now: float) -> list[Folded]:
        """Return what need not wait: older than ``hold`` seconds, or already printed by every source.

        :param now: seconds of any clock that does not go back
        """
        for queue, end in self._new:
            self._waiting.append((now, queue, end))
        self._new.clear()
        for queue, since in list(self._records.items()):
            if queue.touched:
                queue.touched = False
                self._records[queue] = now
            elif now - since >= RECORD_WAIT:
                self._release(queue)
        waiting = self._waiting
        while waiting and waiting[0][0] <= now - self._hold:
            _, queue, end = waiting.popleft()
            queue.old = end
            self._old.append((queue, end))
        return self._merge()

    def flush(self) -> list[Folded]:
        """Return everything that is held back, including unfinished tracebacks."""
        for queue in list(self._records):
            self._release(queue)
        self._old.extend((queue, end) for _, queue, end in self._waiting)
        self._old.extend(self._new)
        self._waiting.clear()
        self._new.clear()
        for queue in self._queues.values():
            queue.old = queue.taken + len(queue.items)
        return self._merge()

    def _release(self, queue: _Queue) -> None:
        """Give up waiting for the end of a traceback."""
        del self._records[queue]
        self._append(queue, queue.records.release())

    def _append(self, queue: _Queue, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        self.held += sum(map(len, lines)) + LINE_OVERHEAD * len(lines)
        known = self._items
        items = [known.get(line) or self._item(line) for line in lines]
        held = queue.held
        for like, _, _ in items:
            if like in held:
                held[like] += 1
            else:
                held[like] = 1
                like.holders += 1
            group = like.group
            if group is like:
                continue
            if group in held:
                held[group] += 1
            else:
                held[group] = 1
                group.holders += 1
        if not queue.items:
            items[0][0].heads.append(queue)
        queue.items.extend(items)
        self._new.append((queue, queue.taken + len(queue.items)))

    def _item(self, line: bytes) -> _Item:
        """A line that is new since the last merge, as an item of a queue."""
        shape = group = None
        key = line
        if self._shapes:
            shape = record_shape(line) if isinstance(line, TracebackBlock) else shape_of(line)
        if shape is not None:
            common, key = shape.of(line)
            if common is not key:
                group = self._groups.get(common)
                if group is None:
                    group = self._groups[common] = _Group(common)
        like = self._likes.get(key)
        if like is None:
            like = self._likes[key] = _Like(key, group)
        item = self._items[line] = like, line, shape
        return item

    def _merge(self) -> list[Folded]:
        out: list[Folded] = []
        everyone = len(self._queues)
        old = self._old
        self._items.clear()
        self._look_at_heads()
        while True:
            # What all its holders would print next folds completely.
            if self._whole:
                group = self._whole.popleft()
                if not group.at or group.at != group.holders:
                    continue
                if group.due and group.at == 1:
                    self._emit_run(group, out)
                elif group.due or group.at == everyone:
                    self._emit(group.clear(), out)
                continue
            if self._part:
                group = self._part.popleft()
                if group.due:
                    self._emit(group.clear(), out)
                continue
            # Texts of different sources wait for each other: the oldest goes first.
            while old and old[0][0].taken >= old[0][1]:
                old.popleft()
            if not old:
                return out
            self._emit([old[0][0].items[0][0]], out)

    def _look_at_heads(self) -> None:
        """Find what can be given out now."""
        heads = [queue.items[0][0] for queue in self._queues.values() if queue.items]
        for like in heads:
            like.group.clear()
        for like in dict.fromkeys(heads):
            if len(like.heads) == like.holders:
                self._note_ready(like)

    def _note_ready(self, like: _Like) -> None:
        """Note lines that all holders of such a line would print next."""
        group = like.group
        if group.ready is None:
            group.ready = [like]
        else:
            group.ready.append(like)
        group.at += len(like.heads)
        if not group.due:
            group.due = any(queue.taken < queue.old for queue in like.heads)
        if group.at == group.holders:
            self._whole.append(group)
        elif group.due:
            self._part.append(group)

    def _emit_run(self, group: _Group, out: list[Folded]) -> None:
        """Give out the next old items of a source as long as nobody else has such lines, ``RUN`` at most."""
        [like] = group.clear()
        [queue] = like.heads
        like.heads = []
        sources = [queue.source]
        count = 0
        for like, line, _ in islice(queue.items, min(RUN, queue.old - queue.taken)):
            if like.group.holders > 1:
                break
            out.append(Folded(sources, line))
            count += 1
        self._take([queue] * count)
        self._set_heads([queue])

    def _emit(self, likes: list[_Like], out: list[Folded]) -> None:
        """Give out lines of one group for the sources that have them as next items."""
        queues = [queue for like in likes for queue in like.heads]
        items = [queue.items[0] for queue in queues]
        if items.count(items[0]) == len(items):
            out.append(Folded([queue.source for queue in queues], items[0][1]))
        else:
            out += _told([(queue.source, *item[1:]) for queue, item in zip(queues, items, strict=True)])
        for like in likes:
            like.heads = []
        self._take(queues)
        self._set_heads(queues)
        # Fewer sources have such a line now, so those that have it next may be all.
        group = likes[0].group
        if group.at and group.at == group.holders:
            self._whole.append(group)

    # These two do most of the work when all sources print the same; they call nothing.

    def _set_heads(self, queues: Sequence[_Queue]) -> None:
        """Note the next items of queues whose heads were given out."""
        for queue in queues:
            if queue.items:
                like = queue.items[0][0]
                heads = like.heads
                heads.append(queue)
                # Only the last one completes it.
                if len(heads) == like.holders:
                    self._note_ready(like)

    def _take(self, queues: Sequence[_Queue]) -> None:
        """Remove the next item of each queue, and its count wherever it is counted."""
        size = 0
        for queue in queues:
            like, line, _ = queue.items.popleft()
            queue.taken += 1
            size += len(line)
            held = queue.held
            if held[like] > 1:
                held[like] -= 1
            else:
                del held[like]
                like.holders -= 1
                if not like.holders:
                    del self._likes[like.key]
                    # It refers to itself: until that is collected it would keep its text, a megabyte at most.
                    like.key = b""
            group = like.group
            if group is like:
                continue
            if held[group] > 1:
                held[group] -= 1
            else:
                del held[group]
                group.holders -= 1
                if not group.holders:
                    del self._groups[group.key]
        self.held -= size + LINE_OVERHEAD * len(queues)
