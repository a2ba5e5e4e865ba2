"""Merge the lines of many ranks into one stream in which lines that differ in numbers only appear once.

Thousands of ranks say the same thing within a moment. A line waits until every rank that could still say it
has (``hold`` seconds at most), and then becomes one :class:`Folded` with all who said it. Lines are the same
if they are equal, or have one shape (:mod:`cockpit.core.shapes`) and no number far from those of the others.
The order of each rank's own lines is never changed, and no line is lost or doubled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

from cockpit.core.records import Record, Records
from cockpit.core.shapes import Shape, record_shape, shape_of, told

Source = tuple[str, int | None]
"""Who prints: a node, and a global rank; None: its launcher."""

RECORD_WAIT = 2.0
"""Seconds after its last line that an unfinished traceback is held back."""

RUN = 16
"""Lines of one source in a row where others have lines too: quicker than taking turns, and easier to read."""

LINE_OVERHEAD = 300
"""Bytes of memory that a waiting line takes beside its text."""


class Folded(NamedTuple):
    """One item of the merged stream.

    :param sources: who printed it, in the order they were merged; at least one
    :param text: a line, or the lines of one traceback with newlines between them
    :param originals: what each source printed, where ``text`` is made of different ones; else empty
    """

    sources: list[Source]
    text: bytes
    originals: Sequence[bytes] = ()

    @property
    def said(self) -> Iterator[tuple[Source, bytes]]:
        """Who printed what."""
        return zip(self.sources, self.originals or repeat(self.text), strict=False)


def folded(said: Iterable[tuple[Source, bytes]]) -> list[Folded]:
    """Fold lines that have no order among each other, one of each source."""
    texts: dict[bytes, list[Source]] = {}
    for source, text in said:
        texts.setdefault(text, []).append(source)
    shapes = {text: shape_of(text) for text in texts}
    alike: dict[bytes, list[bytes]] = {}
    for text, shape in shapes.items():
        alike.setdefault(text if shape is None else shape.of(text), []).append(text)
    return [
        item
        for some in alike.values()
        for item in _told(some, [shapes[text] for text in some], [texts[text] for text in some])
    ]


def _told(
    texts: Sequence[bytes], shapes: Sequence[Shape | None], sources: Sequence[list[Source]]
) -> list[Folded]:
    """Fold different texts of one shape, but for those that stand out.

    :param sources: who printed each
    """
    if len(texts) == 1:
        return [Folded(sources[0], texts[0])]
    items = []
    for group, text in told(texts, [shape for shape in shapes if shape is not None]):
        who = [source for index in group for source in sources[index]]
        originals = [texts[index] for index in group for _ in sources[index]] if len(group) > 1 else ()
        items.append(Folded(who, text, originals))
    return items


class _Queue:
    """What one source has printed and has not been given out."""

    __slots__ = ("groups", "items", "old", "records", "source", "taken", "texts", "touched")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.items: deque[_Text] = deque()
        # How often each text, and each group, is in `items`.
        self.texts: dict[_Text, int] = {}
        self.groups: dict[_Group, int] = {}
        self.taken = 0  # items given out since the beginning
        self.old = 0  # the value of `taken` after the last item that waits no longer
        self.records = Records()
        self.touched = False  # its unfinished traceback grew since the last drain


class _Group:
    """Texts of one shape.

    :ivar holders: how many sources have one of them
    :ivar ready: those that all who have them have as their next item
    :ivar at: how many sources these are
    :ivar due: one of these waits no longer
    """

    __slots__ = ("at", "due", "holders", "key", "ready")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.holders = self.at = 0
        self.ready: list[_Text] | None = None
        self.due = False

    def clear(self) -> list[_Text]:
        """Forget what is ready, and return it."""
        ready, self.ready = self.ready, None
        self.at = 0
        self.due = False
        return ready or []


class _Text(_Group):
    """A text, and the sources that have it as their next item; without a shape it is a group of its own."""

    __slots__ = ("group", "heads", "shape", "text")

    def __init__(self, text: bytes, shape: Shape | None, group: _Group | None) -> None:
        super().__init__(text)
        self.text = text
        self.shape = shape
        self.group = group or self
        self.heads: list[_Queue] = []


class Folder:
    """Folds the lines of many sources; time is what :meth:`drain` is told.

    Work is linear in the number of lines, whatever their order.

    :param hold: seconds that a line waits for other sources to print it too
    :param shapes: fold lines of one shape; else equal ones only
    """

    def __init__(self, hold: float = 0.5, *, shapes: bool = True) -> None:
        self._hold = hold
        self._shapes = shapes
        self._queues: dict[Source, _Queue] = {}
        self._texts: dict[bytes, _Text] = {}
        self._groups: dict[bytes, _Group] = {}
        # What can be given out: groups that all who hold them would print next, and others in part.
        self._whole: deque[_Group] = deque()
        self._part: deque[_Group] = deque()
        self._new: list[tuple[_Queue, int]] = []  # (queue, value of `taken` after its last new item)
        self._waiting: deque[tuple[float, _Queue, int]] = deque()
        self._old: deque[tuple[_Queue, int]] = deque()
        self.held = 0
        """About how many bytes of memory the lines held back take."""
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
        """Return what need not wait: older than ``hold`` seconds, or printed by every source already.

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
        """Return all that is held back, unfinished tracebacks too."""
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
        texts, groups, known = queue.texts, queue.groups, self._texts
        items = [known.get(line) or self._text(line) for line in lines]
        for text in items:
            if text in texts:
                texts[text] += 1
            else:
                texts[text] = 1
                text.holders += 1
            group = text.group
            if group is text:
                continue
            if group in groups:
                groups[group] += 1
            else:
                groups[group] = 1
                group.holders += 1
        if not queue.items:
            items[0].heads.append(queue)
        queue.items.extend(items)
        self._new.append((queue, queue.taken + len(queue.items)))

    def _text(self, line: bytes) -> _Text:
        """A text that nobody holds yet."""
        shape = group = None
        if self._shapes:
            shape = record_shape(line) if isinstance(line, Record) else shape_of(line)
        if shape is not None:
            key = shape.of(line)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(key)
        text = self._texts[line] = _Text(line, shape, group)
        return text

    def _merge(self) -> list[Folded]:
        out: list[Folded] = []
        everyone = len(self._queues)
        old = self._old
        self._look_at_heads()
        while True:
            # What all who have it would print next folds completely.
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
            self._emit([old[0][0].items[0]], out)

    def _look_at_heads(self) -> None:
        """Find what can be given out now."""
        heads = [queue.items[0] for queue in self._queues.values() if queue.items]
        for text in heads:
            text.group.clear()
        for text in dict.fromkeys(heads):
            self._look_at(text)

    def _look_at(self, text: _Text) -> None:
        """Note that a text is ready, if it is."""
        if len(text.heads) != text.holders:
            return
        group = text.group
        if group.ready is None:
            group.ready = [text]
        else:
            group.ready.append(text)
        group.at += len(text.heads)
        if not group.due:
            group.due = any(queue.taken < queue.old for queue in text.heads)
        if group.at == group.holders:
            self._whole.append(group)
        elif group.due:
            self._part.append(group)

    def _emit_run(self, group: _Group, out: list[Folded]) -> None:
        """Give out the next old items of a source as long as nobody else has the like, ``RUN`` at most."""
        [text] = group.clear()
        [queue] = text.heads
        text.heads = []
        sources = [queue.source]
        items = queue.items
        end = min(queue.taken + RUN, queue.old)
        while queue.taken < end and items[0].group.holders == 1:
            text = items[0]
            out.append(Folded(sources, text.text))
            self._take(queue)
        if items:
            items[0].heads.append(queue)
            self._look_at(items[0])

    def _emit(self, texts: list[_Text], out: list[Folded]) -> None:
        """Give out texts of one group for the sources that have them as next items."""
        out += _told(
            [text.text for text in texts],
            [text.shape for text in texts],
            [[queue.source for queue in text.heads] for text in texts],
        )
        queues = [queue for text in texts for queue in text.heads]
        group = texts[0].group
        for text in texts:
            text.heads = []
        for queue in queues:
            self._take(queue)
        for queue in queues:
            if queue.items:
                head = queue.items[0]
                head.heads.append(queue)
                # Only the last one makes it complete.
                if len(head.heads) == head.holders:
                    self._look_at(head)
        # Fewer have the like now, so those who have it next may be all.
        if group.at and group.at == group.holders:
            self._whole.append(group)

    def _take(self, queue: _Queue) -> None:
        """Take the next item of a queue away; whoever counts on it no longer does."""
        text = queue.items.popleft()
        queue.taken += 1
        self.held -= len(text.text) + LINE_OVERHEAD
        texts = queue.texts
        if texts[text] == 1:
            del texts[text]
            text.holders -= 1
            if not text.holders:
                del self._texts[text.text]
        else:
            texts[text] -= 1
        group = text.group
        if group is text:
            return
        if queue.groups[group] == 1:
            del queue.groups[group]
            group.holders -= 1
            if not group.holders:
                del self._groups[group.key]
        else:
            queue.groups[group] -= 1
