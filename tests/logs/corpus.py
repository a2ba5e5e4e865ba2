r"""Samples of what training programs print, and what is to be read in them.

A sample is a TOML file ``tests/logs/KIND/NAME.toml``::

    project = "Hugging Face transformers"           # whose format it is
    source = "src/transformers/trainer_callback.py"  # where in that project it is printed
    text = '''…'''                                    # as a rank's log has it; \r and \u001b in a "…" string
    [expect]
    …                                                 # what the kind's tests say of it

The texts are written for these tests, after the formats of the projects; none is copied from anybody's log.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent

KINDS = ("progress", "failures", "levels", "healthy")


@dataclass(frozen=True)
class Sample:
    """One text and what is to be read in it.

    :param name: of its file
    :param project: whose format it is
    :param source: where that project prints it
    :param text: bytes as in a log
    :param expect: what its kind says of it
    """

    name: str
    project: str
    source: str
    text: bytes
    expect: dict[str, Any]


def samples(kind: str) -> list[Sample]:
    """All samples of a kind, by name."""
    return [_read(path) for path in sorted((FOLDER / kind).glob("*.toml"))]


def _read(path: Path) -> Sample:
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return Sample(path.stem, told["project"], told["source"], told["text"].encode(), told.get("expect", {}))


def chunks(text: bytes, seed: int) -> Iterator[bytes]:
    """A text in pieces of any size, also in the middle of lines and of characters."""
    chance = random.Random(seed)
    at = 0
    while at < len(text):
        size = chance.choice((1, 3, 17, 80, 300, 5000))
        yield text[at : at + size]
        at += size


PREFIXES: dict[str, str] = {
    "torchrun": "[default{local}]:",
    "torch": "[rank{rank}]: ",
    "torchrun, a job": "i-0a1b.trainer/0 [default{local}]:[rank{rank}]: ",
    "mpirun": "[1,{rank}]<stdout>:",
    "mpirun with times": "Fri Nov 20 03:14:0{local} 2026[1,{rank}]<stderr>:",
    "srun -l": "{rank}: ",
    "pdsh": "gpu0{node}: ",
    "kubectl": "[pod/trainer-{node}/pytorch] ",
    "time stamps": "2026-11-20T03:14:0{local}.123456Z ",
}
"""What launchers and loggers put before each line, by who does it."""


def prefixed(text: bytes, prefix: str, rank: int = 3) -> bytes:
    r"""Each line with a launcher's prefix; the states of a bar, which end with ``\r``, get one for the line."""
    told = prefix.format(rank=rank, local=rank % 8, node=rank // 8 + 1).encode()
    return b"\n".join(told + line if line else line for line in text.split(b"\n"))


def variants(
    text: bytes, *, per_prefix: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, bytes]]:
    """The text itself and prefixed by each launcher, each with what it is called."""
    yield "plain", text
    for name, prefix in PREFIXES.items():
        if per_prefix(name):
            yield name, prefixed(text, prefix)
