"""The one door to stdout and stderr: whatever a verb prints passes here and is made harmless.

Node names, notes, file names, errors of other machines: callers need not know where the parts of a text came
from. A line is one line: a newline in it is shown escaped, unless the text is given as lines. What
belongs to cockpit alone, colours and the progress line, is added here or by
:class:`cockpit.cli.printer.Printer`, which sanitises what ranks print line by line.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cockpit.core.calls.alert import alert
from cockpit.core.cutting import cut_middle
from cockpit.core.text import ASCII_SIGNS, clip, columns, one_line
from cockpit.errors import CockpitError, ManyErrors, os_error

if TYPE_CHECKING:
    from cockpit.core.calls.calls import Call

SAY_LIMIT = 2000
"""Characters of one line of narration."""

LINES_LIMIT = 40
"""Lines of one error."""

GAP = 2
"""Columns between two cells of a table."""

LAST_CELL = 20
"""Columns that a truncated last cell may take, however narrow the terminal is."""


def out(text: str = "") -> None:
    """One line on stdout.

    :raises CockpitError: it cannot be written (a full disk)
    """
    _write(sys.stdout, one_line(text) + "\n")


def out_lines(lines: Iterable[str]) -> None:
    """Several lines on stdout at once: a closed pipe (`| head`) is noticed here, not at exit.

    :raises CockpitError: they cannot be written
    """
    _write(sys.stdout, "".join(one_line(line) + "\n" for line in lines))


def table(rows: Sequence[Sequence[str]], *, cut: bool = False) -> None:
    """Rows of cells on stdout, in columns.

    :param cut: on a terminal the last cell of a row loses its middle if it is too long for the line
    :raises CockpitError: they cannot be written
    """
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*shown, strict=True)]
    if cut and sys.stdout.isatty():
        left = shutil.get_terminal_size().columns - sum(width + GAP for width in widths[:-1])
        sign = "…" if shows_unicode() else "~"
        shown = [[*row[:-1], cut_middle(row[-1], max(LAST_CELL, left), sign)] for row in shown]
    out_lines((" " * GAP).join(map(_padded, row, widths)).rstrip() for row in shown)


def out_json(value: object, *, indent: int | None = None) -> None:
    """An object on stdout, in ASCII; what JSON does not know becomes a string.

    :raises CockpitError: it cannot be written
    """
    _write(sys.stdout, json.dumps(value, indent=indent, default=str) + "\n")


def raw(data: bytes) -> None:
    """Bytes on stdout, as they are; never on a terminal.

    :raises CockpitError: stdout is a terminal, or they cannot be written
    """
    if sys.stdout.isatty():
        hint = "send it to a file or a program: > FILE, or | less"
        raise CockpitError("a log may contain terminal escapes", where="--raw", hint=hint)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable("stdout", error) from None


def to_file(target: str, text: str) -> None:
    """Write text to a file as it is; for programs, so nothing in it is made harmless.

    :raises CockpitError: it cannot be written; a file that was there stays as it was
    """
    try:
        _write_whole(Path(target), text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _unwritable(target, error) from None
    say(f"written: {target}")


def _write_whole(path: Path, data: bytes) -> None:
    if path.is_symlink() or (path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))):
        path.write_bytes(data)  # such as /dev/stdout
        return
    from cockpit.engine.files import put  # few verbs write any

    umask = os.umask(0o077)
    os.umask(umask)
    put(path, data, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~umask)


def say(text: str) -> None:
    """One line of narration on stderr."""
    _write(sys.stderr, f"cockpit: {one_line(text, limit=SAY_LIMIT)}\n")


def complain(error: CockpitError) -> None:
    """Errors on stderr, one line each; continuation lines are indented below."""
    if isinstance(error, ManyErrors):
        for each in error.errors:
            complain(each)
        return
    # The place and the hint are one line each, whatever is in them; what happened may quote more lines.
    first, *more = error.what.split("\n")
    say(str(CockpitError(first, where=error.where, hint=error.hint)))
    for line in more[:LINES_LIMIT]:
        say(f"    {line}")
    if len(more) > LINES_LIMIT:
        say(f"    … {len(more) - LINES_LIMIT:,} more lines")


def prompt(*lines: str) -> None:
    """A question on stderr; the cursor stays after its last line."""
    _write(sys.stderr, "\n".join(map(one_line, lines)))


def confirmed(question: str) -> bool:
    """Whether a person at the terminal says yes; False also where there is no terminal."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    prompt(f"{question} [y] yes · [Enter] no? ")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def draw(text: str, width: int) -> None:
    """The last line of the terminal on stderr, redrawn; what does not fit is cut off."""
    _write(sys.stderr, f"\r\x1b[K{clip(_showable(one_line(text), sys.stderr), width)}")


def ring(call: Call, bell: bool = True) -> None:
    """Let the terminal on stderr call somebody, if it is one.

    :param bell: whether it is to, by the settings
    """
    if bell and sys.stderr.isatty():
        _write(sys.stderr, alert(call, os.environ))


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - columns(cell))


def _write(stream: TextIO, text: str) -> None:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(_showable(text, stream).encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stdout:
            raise
        raise _unwritable("stdout", error) from None


def _showable(text: str, stream: TextIO) -> str:
    return text if text.isascii() or shows_unicode(stream) else text.translate(ASCII_SIGNS)


def _unwritable(where: str, error: OSError) -> CockpitError:
    return os_error("cannot write", where, error, hint="give another file" * (error.errno == errno.EROFS))


def shows_unicode(stream: TextIO | None = None) -> bool:
    """Whether a stream accepts more than ASCII, and the locale has more: of ``LC_ALL=C``, Python takes UTF-8.

    :param stream: None: stdout
    """
    import locale  # costs a start that has nothing to ask it

    encoding: Any = getattr(stream or sys.stdout, "encoding", None)
    charsets = [str(encoding or "")]
    if hasattr(locale, "nl_langinfo"):
        charsets.append(locale.nl_langinfo(locale.CODESET))
    return all(charset.lower().startswith("utf") for charset in charsets)


class StatusLine:
    """The last line of stderr, redrawn each time; nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        """Whether stderr is a terminal on which a line can be redrawn."""
        self._drawn = False

    def show(self, text: str) -> None:
        """Show this instead of the previous text; cut off if it does not fit the line."""
        if self.on:
            # One column less: a full line makes the cursor wrap, and the next text would not overwrite it.
            self._drawn = True
            draw(text, shutil.get_terminal_size().columns - 1)

    def clear(self) -> None:
        """Remove it."""
        if self._drawn:
            self._drawn = False
            draw("", 0)

    def forget(self) -> None:
        """Something else is on its line, and has removed it."""
        self._drawn = False
