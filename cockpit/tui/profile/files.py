"""Pane 4: the files of a profile, where they are, and what opens them. Nothing is uploaded."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len

from cockpit.base.shell import join
from cockpit.core.cutting import cut_middle, cut_sentence
from cockpit.core.masks import ranks_of
from cockpit.core.profile.words import NSYS, VIEWER
from cockpit.core.text import one_line
from cockpit.engine.collect import report_path
from cockpit.engine.records.folder import RunFolder
from cockpit.tui.panes.list_pane import ListPane
from cockpit.tui.panes.text_pane import Line, Piece
from cockpit.tui.profile.view_model import Sight

TRACES = "Perfetto"
MADE = (
    ("browser", "--html", "html", "a flame graph of all ranks"),
    ("speedscope", "--speedscope", "json", "one timeline per rank"),
    ("others", "--folded", "folded", "folded stacks"),
)
"""Of stacks: what opens the file, the option that makes it, its suffix, and what one sees."""


class File(NamedTuple):
    """A file, or one that a command makes.

    :param program: what opens it
    :param size: bytes; 0: not known
    :param path: where it is here; empty: it is not
    :param command: makes, or fetches and makes it; empty: it is a trace as its node wrote it
    :param what: what one sees in it
    :param remote: its name in the reports folder of its node
    :param node: that
    """

    program: str
    name: str
    size: int
    path: str
    command: str
    what: str
    remote: str = ""
    node: str = ""

    @property
    def words(self) -> str:
        """What to copy: how it is made, or where it is."""
        return self.command or self.path


def files_of(sight: Sight, folder: RunFolder) -> list[File]:
    """Those of a profile, the slow ranks' first."""
    one, run = sight.collection, folder.name
    show = ["cockpit", "profile", "show", run, str(one.number)]
    found: list[File] = []
    for program, option, suffix, what in MADE if sight.sampled else ():
        name = f"profile-{one.number}.{suffix}"
        found.append(File(program, name, 0, "", join([*show, option, name]), what))
    rows = sight.reading.files
    if one.kind == "torch" and rows:
        name = f"profile-{one.number}.tar"
        words = join([*show, "--fetch", "--perfetto", name])
        whole = sum(row.size for row in rows)
        found.append(File(TRACES, name, whole, "", words, "all ranks on one timeline"))
    slow = set(ranks_of(sight.finding.ranks))
    typical = {kind.typical for kind in sight.reading.kinds}
    for row in sorted(rows, key=lambda row: (row.rank not in slow, row.rank not in typical, row.rank)):
        result = one.results[row.rank]
        path = report_path(folder, result.node, result.file)
        here = str(path) if path is not None and path.is_file() else ""
        what = "the slow one" if row.rank in slow else "a typical one" if row.rank in typical else ""
        about = (
            f"rank {row.rank}{', ' * bool(what)}{what}"
            if f".rank-{row.rank}." in row.name
            else "all ranks of its node"
        )
        program = {"torch": TRACES, "nsys": NSYS}.get(one.kind, "others")
        name = row.name.removeprefix(f"{run}.")
        found.append(File(program, name, row.size, here, "", about, result.file, row.node))
    return found


def how_to_open(file: File, fetch: str) -> str:
    """What to do with it, in a sentence.

    :param fetch: the key that fetches
    """
    if file.command:
        opens = f"; then open it at {VIEWER}, where nothing is uploaded" if file.program == TRACES else ""
        return f"type: {file.command}{opens}"
    if not file.path:
        return f"{file.name} is on {file.node}: {fetch} fetches it"
    if file.program == TRACES:
        return f"open {file.path} at {VIEWER}: nothing is uploaded"
    if file.program == NSYS:
        return f"open {file.path} with {NSYS}: it holds the run's whole environment, secrets included"
    return f"it is at {file.path}"


class FileList(ListPane[File]):
    """The files, and what opens them."""

    def key_of(self, item: File) -> Hashable:
        """What it is called, and where it came from."""
        return item.name, item.node

    def drawn_from(self, item: File, before: File | None, width: int) -> tuple[object, ...]:
        """Also whether it is the first."""
        return item, before is None, width, self._home

    fetch_key = ""
    """Of the command that fetches."""
    _home = ""

    def show(self, files: Sequence[File], sizes: dict[str, str]) -> None:
        """Draw these.

        :param sizes: of each, by name, for people
        """
        self._sizes = sizes
        self._home = str(Path.home())
        self.show_items(files)

    def item_lines(self, item: File, before: File | None, width: int) -> Iterator[Line]:
        """The row; above the first one what the columns are."""
        name = max(16, min(34, width * 3 // 10))
        about = 26 if width >= 100 else 0
        room = max(8, width - 12 - name - 11 - about - 4 * bool(about))
        if before is None:
            head = f"{'with':<12}{'file':<{name}}{'size':>9}  {'type':<{room}}"
            yield Line((Piece(head + ("    what you see" if about else ""), "head"),), heading=True)
        size = self._sizes.get(item.name, "")
        # An address in the home folder, as a shell takes it too.
        path = (
            item.path.replace(self._home + "/", "~/", 1)
            if item.path.startswith(self._home + "/")
            else item.path
        )
        words = item.command or path or f"{self.fetch_key} fetches it from {one_line(item.node, limit=200)}"
        words = cut_middle(words, room)
        shown = cut_sentence(item.name, name - 2)
        pieces = [
            Piece(f"{item.program:<12}"),
            Piece(shown + " " * (name - cell_len(shown)), "label"),
            Piece(f"{size:>9}  ", "label"),
            Piece(words + " " * (room - cell_len(words)), "" if item.words else "label"),
        ]
        if about:
            pieces.append(Piece(f"    {cut_sentence(item.what, about)}", "label"))
        yield Line(tuple(pieces))

    def copy_text(self) -> str:
        """How the file under the cursor is made, or where it is."""
        return self.current.words if self.current is not None else ""
