"""Sets half of the samples of rules aside, so that rules are judged by texts that nobody saw who wrote them.

``python -m tests.rules.split`` moves samples from ``samples/`` to ``held_out/``. Which, depends on a hash of
their id and text alone; what has its place keeps it, so that it may be called after each new sample.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SEED = 20261128
HERE = Path(__file__).parent
NOTE = "# Set aside before the rules were written: whoever writes rules does not read it. See ../split.py.\n"


@dataclass(frozen=True)
class Block:
    """A sample as it stands in its file."""

    area: str
    id: str
    fires: bool
    written: str
    digest: str
    """Of its id, its text and the seed."""


def digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, (SEED, *parts))).encode()).hexdigest()[:16]


def blocks(file: Path) -> tuple[str, list[Block]]:
    """What stands before the first sample, and the samples."""
    head, *written = re.split(r"^(?=\[\[sample]]$)", file.read_text(), flags=re.MULTILINE)
    found = []
    for block in written:
        (sample,) = tomllib.loads(block)["sample"]
        found.append(
            Block(file.stem, sample["id"], sample["fires"], block, digest(sample["id"], sample["text"]))
        )
    return head, found


def chosen(new: Iterable[Block], placed: int, held: int) -> set[str]:
    """Digests of the new samples of one group that are set aside.

    :param placed: samples of the group that have their place
    :param held: those of them that are set aside
    """
    waiting = sorted(new, key=lambda block: block.digest)
    if not waiting:
        return set()
    total = placed + len(waiting)
    odd = total % 2 and int(digest(waiting[0].id, waiting[0].fires), 16) % 2
    return {block.digest for block in waiting[: max(0, total // 2 + odd - held)]}


def write(file: Path, head: str, of: Iterable[Block]) -> None:
    file.write_text(head + "\n".join(block.written.rstrip("\n") + "\n" for block in of))


def open_ones(ledger: Path) -> set[str]:
    return set(ledger.read_text().split()) if ledger.exists() else set()


def groups(of: Iterable[Block]) -> Iterator[tuple[tuple[str, bool], list[Block]]]:
    by: defaultdict[tuple[str, bool], list[Block]] = defaultdict(list)
    for block in of:
        by[block.id, block.fires].append(block)
    yield from sorted(by.items())


def split(folder: Path) -> int:
    """Moves what has no place yet, and says how many."""
    ledger = folder / "open.txt"
    seen = open_ones(ledger)
    sources = {file: blocks(file) for file in sorted((folder / "samples").glob("*.toml"))}
    aside = [block for file in sorted((folder / "held_out").glob("*.toml")) for block in blocks(file)[1]]
    here = [block for _, found in sources.values() for block in found]
    held = {key: len(found) for key, found in groups(aside)}
    moving: set[str] = set()
    for key, found in groups(here):
        new = [block for block in found if block.digest not in seen]
        moving |= chosen(new, len(found) - len(new) + held.get(key, 0), held.get(key, 0))
    for file, (head, found) in sources.items():
        moved = [block for block in found if block.digest in moving]
        if moved:
            target = folder / "held_out" / file.name
            old = blocks(target)[1] if target.exists() else []
            write(target, NOTE + "\n", [*old, *moved])
            write(file, head, [block for block in found if block.digest not in moving])
    # What stayed was seen by whoever writes rules: it is not set aside later.
    kept = {block.digest for block in here} - moving
    ledger.write_text("".join(f"{one}\n" for one in sorted(kept)))
    return len(moving)


if __name__ == "__main__":
    print(f"{split(HERE)} samples set aside")
