"""What tracked files differed from the commit by as a run was started: by file, and of two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FILES = 6
"""Files that are named."""
MOST = 1000
"""Lines of a file's part that are compared."""
CHANGED = " with changes "
"""Between a commit and the hash of what tracked files differ from it by."""
AS_COMMITTED = "as committed"

_BEGIN, _HUNK = "diff --git ", "@@"


def by_file(diff: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The lines that git says of each file, without hashes; what comes before the first file is left out."""
    found: dict[str, list[str]] = {}
    part: list[str] = []
    for line in diff:
        if line.startswith(_BEGIN):
            part = found.setdefault(_name(line.removeprefix(_BEGIN)), [])
        elif not line.startswith("index "):
            part.append(line)
    return {name: tuple(lines) for name, lines in found.items()}


def _name(both: str) -> str:
    """``src/train.py`` of ``a/src/train.py b/src/train.py``; of a renamed file both names."""
    half = len(both) // 2
    return both[2:half] if both[2:half] == both[half + 3 :] else both


def files_text(files: Mapping[str, Sequence[str]]) -> str:
    """``train.py +3 -1, conf.yaml +1 -0``: lines that are new, and gone; of no files :data:`AS_COMMITTED`."""
    shown = [f"{name} {_count(lines)}" for name, lines in list(files.items())[:FILES]]
    more = [f"{len(files) - FILES:,} more"] if len(files) > FILES else []
    return ", ".join([*shown, *more]) or AS_COMMITTED


def _count(lines: Sequence[str]) -> str:
    hunks = next((at for at, line in enumerate(lines) if line.startswith(_HUNK)), len(lines))
    first = [line[:1] for line in lines[hunks:]]
    return f"+{first.count('+')} -{first.count('-')}"


def unlike(
    before: Sequence[str], after: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """What both say of the files of which they do not say the same."""
    was, now = by_file(before), by_file(after)
    names = [name for name in {**now, **was} if was.get(name) != now.get(name)]
    first, second = ({name: side[name] for name in names if name in side} for side in (was, now))
    return first, second


def between(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """The difference of two differences, file by file; a line with ``+-`` is one that only the second one
    removes.
    """
    from difflib import unified_diff  # a launch, which imports this too, has no use for it

    was, now = unlike(before, after)
    lines: list[str] = []
    for name in {**now, **was}:
        sides = was.get(name, ())[:MOST], now.get(name, ())[:MOST]
        lines += unified_diff(*sides, f"before: {name}", f"after: {name}", n=1, lineterm="")
    return tuple(lines)
