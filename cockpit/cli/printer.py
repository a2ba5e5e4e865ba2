"""Live lines of a run on a text stream: for people (:class:`Printer`) or as JSON (:class:`JsonPrinter`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from typing import TextIO

from cockpit.base.events import Gap
from cockpit.base.gate import plain
from cockpit.core.logs.folding import Folded, Folder, folded
from cockpit.core.logs.lines import Cut, LineAssembler
from cockpit.core.logs.query import hushed
from cockpit.core.logs.sources import Nccl, Source, Writer, file_of, rank_of
from cockpit.core.ranks import in_order, nodes_text, ranks_text
from cockpit.core.run.event_table import missing
from cockpit.core.text import RESET, one_line, sanitise
from cockpit.errors import FULL, os_error
from cockpit.tui.look.units import clock_text

HOLD = 0.5
"""Seconds a line may wait for other ranks to print it too: twice the time between two polls of a log."""

LINE_LIMIT = 4096
"""Characters of a line shown on a terminal."""

PENDING_EVERY = 2.0
"""Seconds between two states of the same progress bar."""

HELD_BYTES = 2 << 20
"""Bytes that may wait for the next tick; past it they are printed at once, folded or not. In print they take
several times as much for a moment."""

LABEL_LIMIT = 32
GOES_ON = " … (line continues)"
LAUNCHER = "launcher"
NCCL = "nccl"


class _Unfinished:
    """An unfinished line of one log: the state last seen and since when, the one last shown and when."""

    __slots__ = ("seen", "seen_at", "shown", "shown_at")

    def __init__(self) -> None:
        self.seen = self.shown = b""
        self.seen_at = self.shown_at = float("-inf")


class _Out:
    """What waits to be written: for the next tick, or until it is too much."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: list[str] = []
        self._size = 0

    def append(self, text: str) -> None:
        """Add text; errors as for :meth:`write`."""
        self._texts.append(text)
        self._size += len(text)
        if self._size > HELD_BYTES:
            self.write()

    def write(self) -> None:
        """Write what waits.

        :raises CockpitError: the disk that it goes to is full
        """
        if self._texts:
            texts, self._texts, self._size = self._texts, [], 0
            try:
                self._stream.write("".join(texts))
                self._stream.flush()
            except OSError as error:
                if error.errno not in FULL:
                    raise  # nobody reads it any more
                raise os_error("cannot write", "stdout", error) from None


class Printer:
    r"""Writes lines ``node:rank | text``, equal ones of many ranks once as ``[0-3] ×4 | text``.

    For a person, lines that differ only in numbers also become one (``core.logs.shapes``); a file or a
    program gets each. One write per :meth:`tick`. Lines of a rank stay in order, a progress bar is printed as
    its last state. A prefix ``[rank3]: `` that torch puts before a line of rank 3 is not repeated. Lines of
    NCCL's own files are labelled ``node:rank:nccl``.

    :param stream: gets text; characters that its encoding lacks are escaped
    :param colour: pass colours of ranks through, and colour the labels
    :param terminal: a person is watching: long lines are cut, unfinished ones shown now and then, and those
        that differ in numbers only are told as one
    :param names: node of each expected global rank; sets the width of the labels
    :param fold: False: each line of each rank is printed by itself, as soon as it is complete
    :param nccl: print all that NCCL writes to files of its own, not only its warnings
    """

    at: float | None = None
    """When what is fed next was there, unix seconds; printed before each line. None: no times are."""

    def __init__(
        self,
        stream: TextIO,
        *,
        colour: bool,
        terminal: bool,
        names: Mapping[int, str] | None = None,
        fold: bool = True,
        nccl: bool = False,
    ) -> None:
        self._stream = stream
        self._nccl = nccl
        self._colour = colour
        self._limit = LINE_LIMIT if terminal else None
        self._terminal = terminal
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        self._fold = fold
        self._folder = Folder(HOLD, shapes=terminal)
        self._logs: dict[Source, LineAssembler] = {}
        self._repeated: dict[Source, bytes] = {}
        self._pending: dict[Source, _Unfinished] = {}
        self._labels: dict[tuple[Source, ...], str] = {}
        self._out = _Out(stream)
        names = names or {}
        self._nodes = list(dict.fromkeys(names.values()))
        width = max((len(f"{node}:{rank}") for rank, node in names.items()), default=0)
        if len(names) > 1:
            width = max(width, len(f"[0-{max(names)}] ×{len(names)}"))
        width = max(width, max((len(node) + 1 + len(LAUNCHER) for node in names.values()), default=0))
        self._width = min(width, LABEL_LIMIT)

    def feed(self, node: str, writer: Writer, data: bytes, offset: int = 0) -> None:
        """Take the next bytes of one log.

        :param node: the node's name
        :param data: a chunk of any size, cut anywhere
        :param offset: where in the log the chunk begins; printed by :class:`JsonPrinter` alone
        """
        source = (node, writer)
        lines = self._log(source).feed(data)
        self._add(source, lines)
        if self._terminal and (self._nccl or not isinstance(writer, Nccl)):
            unfinished = self._pending.setdefault(source, _Unfinished())
            if lines:
                unfinished.shown = b""
        if self._folder.held > HELD_BYTES:
            self._print(self._folder.flush())

    def _log(self, source: Source) -> LineAssembler:
        log = self._logs.get(source)
        if log is None:
            log = self._logs[source] = LineAssembler()
            self._repeated[source] = b"[rank%d]: " % source[1] if isinstance(source[1], int) else b""
        return log

    def gap(self, source: Source, gap: Gap, at: float) -> None:
        """Say that something of a log is missing here: a line that has not ended ends."""
        self._add(source, [*self._log(source).finish(), missing(gap).encode()])

    def flush(self) -> None:
        """Print all complete lines: what comes next does not fold with them."""
        self._print(self._folder.flush())
        self._folder = Folder(HOLD, shapes=self._terminal)  # an old one knows all sources there ever were
        self._out.write()

    def tick(self, now: float) -> None:
        """Print what is due; to be called about ten times a second.

        :param now: seconds of a monotonic clock
        """
        self._print(self._folder.drain(now))
        if self._pending:
            self._show_pending(now)
        self._out.write()

    def close(self) -> None:
        """Print everything that is left, including unfinished lines. The stream stays open."""
        for source, log in self._logs.items():
            self._add(source, log.finish())
        self._print(self._folder.flush())
        self._out.write()
        self._stream.flush()

    def _add(self, source: Source, lines: list[bytes]) -> None:
        if isinstance(source[1], Nccl) and not self._nccl:
            lines = [line for line in lines if not hushed(source[1], line)]
        if not lines:
            return
        prefix = self._repeated[source]
        if prefix and any(line.startswith(prefix) for line in lines):
            # Slicing makes bytes of a Cut: such a piece, which has the prefix only at its start, stays whole.
            lines = [
                line[len(prefix) :] if line.startswith(prefix) and not isinstance(line, Cut) else line
                for line in lines
            ]
        if self._fold:
            self._folder.add(source, lines)
        else:
            self._print(Folded([source], line) for line in lines)

    def _print(self, due: Iterable[Folded]) -> None:
        colour, limit, labels, append = self._colour, self._limit, self._labels, self._out.append
        stamp = self._stamp()
        for sources, text, _ in due:
            key = tuple(sources)
            label = stamp + (labels.get(key) or self._label(key))
            # What most lines are, without a call: plain ASCII that is not too long.
            if text.isascii() and len(text) <= LINE_LIMIT and (plain := text.decode("ascii")).isprintable():
                append(label + plain + "\n")
                continue
            if b"\n" in text:
                for line in text.split(b"\n"):
                    append(label + sanitise(line, colour=colour, limit=limit) + "\n")
                continue
            end = GOES_ON + "\n" if isinstance(text, Cut) else "\n"
            append(label + sanitise(text, colour=colour, limit=limit) + end)

    def _show_pending(self, now: float) -> None:
        """Print progress bars that changed, and unfinished lines that have not for a while (a prompt)."""
        shown: list[tuple[Source, bytes]] = []
        for source, unfinished in list(self._pending.items()):
            log = self._logs[source]
            state = log.pending()
            if not state.strip():
                if now - unfinished.shown_at >= PENDING_EVERY:
                    del self._pending[source]
                continue
            if state != unfinished.seen:
                unfinished.seen, unfinished.seen_at = state, now
            since = unfinished.shown_at if log.overwrites else unfinished.seen_at
            if state != unfinished.shown and now - since >= PENDING_EVERY and not self._folder.holds(source):
                unfinished.shown, unfinished.shown_at = state, now
                shown.append((source, state))
        for sources, state, _ in (
            folded(shown) if self._fold else [Folded([who], state) for who, state in shown]
        ):
            key = tuple(sources)
            label = self._labels.get(key) or self._label(key)
            state_text = sanitise(state, colour=self._colour, limit=self._limit)
            self._out.append(self._stamp() + label + state_text + "\n")

    def _stamp(self) -> str:
        return "" if self.at is None else clock_text(self.at) + " "

    def _label(self, sources: tuple[Source, ...]) -> str:
        """Return, and cache, the beginning of a line that these sources printed."""
        label = one_line(_who(sources, self._nodes))
        count = f" ×{len(sources)}" if len(sources) > 1 else ""
        room = LABEL_LIMIT - len(count)
        if len(sources) > 1 and len(label) > room:
            label = label[: room - 1] + "…"
        label = (label + count).ljust(self._width)
        if self._colour:
            # Six colours that are readable on dark and light ground, by rank; bold for several.
            rank = rank_of(sources[0][1])
            style = 1 if count else 31 + (3 if rank is None else rank) % 6
            label = f"\x1b[{style}m{label}{RESET}"
        label += " | "
        if len(self._labels) > 10_000:
            self._labels.clear()
        self._labels[sources] = label
        return label


def _who(sources: tuple[Source, ...], order: Iterable[str]) -> str:
    if len(sources) == 1:
        node, writer = sources[0]
        if isinstance(writer, Nccl):
            return f"{node}:{writer.rank}:{NCCL}"
        return f"{node}:{LAUNCHER if writer is None else writer}"
    ranks = [writer for _, writer in sources if isinstance(writer, int)]
    nccl = [writer.rank for _, writer in sources if isinstance(writer, Nccl)]
    nodes = in_order((node for node, writer in sources if writer is None), order)
    parts = []
    if ranks:
        parts.append(f"[{ranks_text(ranks)}]")
    if nccl:
        parts.append(f"[{ranks_text(nccl)}]:{NCCL}")
    if nodes:
        parts.append(f"{nodes_text(nodes)}:{LAUNCHER}")
    return ",".join(parts)


class JsonPrinter:
    """Writes one JSON object per line, in ASCII: safe for any terminal and any reader.

    :param stream: gets text
    :param nccl: write all that NCCL writes to files of its own, not only its warnings
    """

    at: float | None = None
    """When what is fed next was there, unix seconds, for the field ``t``. None: there is none."""

    def __init__(self, stream: TextIO, *, nccl: bool = False) -> None:
        self._nccl = nccl
        self._logs: dict[Source, LineAssembler] = {}
        self._offsets: dict[Source, int] = {}
        self._out = _Out(stream)

    def feed(self, node: str, writer: Writer, data: bytes, offset: int = 0) -> None:
        """Take the next bytes of one log; see :meth:`Printer.feed`.

        :param offset: where in the log the chunk begins; bytes before it may have been left out
        """
        source = (node, writer)
        log = self._logs.get(source)
        if log is None:
            log = self._logs[source] = LineAssembler()
        if not log.pending():
            self._offsets[source] = offset
        self._lines(source, log, log.feed(data))

    def gap(self, source: Source, gap: Gap, at: float) -> None:
        """Say that something of a log is missing, as an event; see :meth:`Printer.gap`."""
        if (log := self._logs.get(source)) is not None:
            self._lines(source, log, log.finish())
        self.event("gap", t=at, **plain(gap), node=source[0])

    def event(self, kind: str, **fields: object) -> None:
        """Write ``{"event": kind, …fields}`` at the next tick; what JSON does not know becomes a string."""
        self._out.append(json.dumps({"event": kind, **fields}, default=str) + "\n")

    def tick(self, now: float) -> None:
        """Write what has gathered; ``now`` is not used."""
        self._out.write()

    def flush(self) -> None:
        """Write what has gathered."""
        self.tick(0)

    def close(self) -> None:
        """Write unfinished lines too. The stream stays open."""
        for source, log in self._logs.items():
            self._lines(source, log, log.finish())
        self.tick(0)

    def _lines(self, source: Source, log: LineAssembler, lines: list[bytes]) -> None:
        """Write ``log`` events: ``offset`` is where the line begins in the log, ``cut`` that it goes on."""
        node, writer = source
        start = f'{{"event": "log", "node": {json.dumps(node)}, "rank": {json.dumps(rank_of(writer))}, '
        if isinstance(writer, Nccl):
            start += f'"file": "{file_of(writer)}", '
        when = "" if self.at is None else f', "t": {self.at:.3f}'
        offset = self._offsets[source]
        quiet = isinstance(writer, Nccl) and not self._nccl
        for line, span in zip(lines, log.spans, strict=True):
            at, offset = offset, offset + span
            if quiet and hushed(writer, line):
                continue
            text = json.dumps(line.decode("utf-8", "backslashreplace"))
            end = ', "cut": true}\n' if isinstance(line, Cut) else "}\n"
            self._out.append(f'{start}"offset": {at}, "text": {text}{when}{end}')
        self._offsets[source] = offset
