"""Rules on millions of healthy lines, all of them silent: ``python -m tests.rules.calm MILLIONS``.

The lines are those of healthy logs and of healthy consoles, again and again with other digits and prefixes.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from cockpit.core.rules.table import table
from tests.logs.corpus import samples, variants


def healthy(millions: float, seed: int = 7) -> Iterator[bytes]:
    """Blocks of such lines, about so many in all."""
    chance = random.Random(seed)
    text = b"\n".join(
        sample.text.rstrip(b"\n") for kind in ("healthy", "progress") for sample in samples(kind)
    )
    texts = [variant for _, variant in variants(text)]
    left = millions * 1e6
    while left > 0:
        digits = bytes(chance.sample(b"0123456789", 10))
        block = chance.choice(texts).translate(bytes.maketrans(b"0123456789", digits))
        left -= block.count(b"\n") + 1
        yield block


def fired(blocks: Iterator[bytes]) -> tuple[int, Counter[tuple[str, str]]]:
    """How many lines there were, and which rules fired, with their severity."""
    rules, lines, found = table(), 0, Counter[tuple[str, str]]()
    for block in blocks:
        lines += block.count(b"\n") + 1
        at = 0
        while (hint := rules.hint(block, at)) is not None:
            start = block.rfind(b"\n", 0, hint.start()) + 1
            end = block.find(b"\n", hint.start())
            at = len(block) if end < 0 else end + 1
            found.update((row.severity, row.id) for row in rules.found_in(block[start:at].rstrip(b"\n")))
    return lines, found


def main(millions: str) -> int:
    """Print what fired; 1 if that could have explained a failure."""
    began = time.process_time()
    lines, found = fired(healthy(float(millions)))
    print(f"{lines:,} lines in {time.process_time() - began:.0f} s of CPU")
    for (severity, id), count in found.most_common():
        print(f"{severity:8} {id:30} {count:,}")
    return int(any(severity == "error" for severity, _ in found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
