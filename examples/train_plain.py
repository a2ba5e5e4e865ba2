#!/usr/bin/env python3
"""Looks like training, needs nothing but Python. For trying out launches.

    cockpit run hostfile --launcher command -- train_plain.py --steps 100 --slow 3@10:0.5

Ranks do not talk to each other, unless ``--together`` says that they meet in each step, as in training.
The flags below ``--lines`` make it a nuisance on purpose: torrents of output, junk that terminals choke on,
a process that will not end, one that gets away.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import faults
from meeting import Meeting

JUNK_EVERY = 50
"""One line in so many is junk, with ``--junk``."""

HOSTILE = (
    b"\x1b[2J\x1b[H\x1b[31mclears the screen",
    b"\x1b]0;sets the title\x07",
    b"\x1b]52;c;c2V0cyB0aGUgY2xpcGJvYXJk\x07",
    b"\x1b[?1049h\x1b[?1000h\x1b[?25lturns modes on",
    b"\x1bP+q544e\x1b\\asks the terminal",
    b"\x9b31m\x9d0;the same in 8 bit\x9c",
    b"\x1b[6n\x1b[c",
    b"\x1b]8;;http://example.invalid\x1b\\a link",
    b"an escape sequence that never ends \x1b]0;",
    "turns the text round \u202eabc\u202d, hides \u200b\u2060 some".encode(),
    b"[bold red]markup[/bad] [/] \\[x]",
    b"bell \x07 back \x08\x08 form feed \x0c nul \x00 vertical \x0b delete \x7f",
    b"half a character \xe2\x82",
    b"carriage return and line feed\r",
    b"",
)


def lines(count: int, rank: int, seed: int, junk: bool) -> Iterator[bytes]:
    """Yield ``count`` numbered lines and, between them, junk; always the same for the same arguments.

    :return: bytes that each end with a line feed; numbered lines are ``rank R line N``, N from 1
    """
    dice = random.Random(f"{seed}/{rank}")
    for number in range(1, count + 1):
        yield b"rank %d line %d\n" % (rank, number)
        if not junk:
            continue
        if number in (count // 3, 2 * count // 3):
            yield dice.randbytes(500_000).hex().encode() + b"\n"
        if number % JUNK_EVERY == 0:
            kind = dice.randrange(3)
            if kind == 0:
                yield dice.randbytes(200) + b"\n"
            elif kind == 1:
                yield dice.choice(HOSTILE) + b"\n"
            else:
                yield b"".join(b"\r%3d%%|%-20s|" % (5 * i, b"#" * i) for i in range(21)) + b"\n"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = faults.parser("Pretend to train.", step_time=0.05)
    parser.add_argument(
        "--together", action="store_true", help="ranks wait for each other in each step, over TCP"
    )
    nuisance = parser.add_argument_group("being a nuisance")
    nuisance.add_argument(
        "--lines", type=int, default=0, metavar="N", help="first print N lines as fast as possible"
    )
    nuisance.add_argument(
        "--junk",
        action="store_true",
        help="among them binary junk, escape sequences, progress bars and two lines of 1 MB",
    )
    nuisance.add_argument("--ignore-term", action="store_true", help="ignore SIGTERM")
    nuisance.add_argument(
        "--child", action="store_true", help="leave a child behind, in a session of its own"
    )
    return parser.parse_args()


def main() -> None:
    """Run all steps of this rank."""
    args = arguments()
    rank = faults.env_int("RANK", 0)
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if args.child:
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(3600)"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        faults.say(f"left child {child.pid}")
    sys.stdout.buffer.writelines(lines(args.lines, rank, args.seed, args.junk))
    sys.stdout.flush()

    meeting = Meeting() if args.together else None
    dice = random.Random(f"{args.seed}/{rank}")
    for step in range(1, args.steps + 1):
        begin = time.perf_counter()
        faults.read(args, rank, step)
        faults.forward(args, rank, step)
        faults.backward(args)
        if meeting is not None:
            meeting.barrier()
        loss = 1.9 + 8.8 * step**-0.4 + dice.uniform(-0.02, 0.02)
        lr = 1e-3 * (1 - step / (args.steps + 1))
        took = time.perf_counter() - begin
        faults.say(f"step {step}/{args.steps} loss {loss:.4f} lr {lr:.1e} {1000 * took:.0f} ms/step")
    faults.say("done")


if __name__ == "__main__":
    main()
