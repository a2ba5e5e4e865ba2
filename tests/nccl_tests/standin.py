"""What programs of nccl-tests print, line by line after the ``printf`` statements of five tagged versions.

No GPU is at hand: numbers are invented, their forms are not. Which statements, by file and line of that tag
(https://github.com/NVIDIA/nccl-tests):

======  ==========================================================================================
2.10.1  ``src/all_reduce.cu:11-19``; ``src/common.cu:659-668``, ``:948-964``, ``:1038``, ``:1119-1121``
2.13.8  ``src/common.cu:548-557``, ``:602``, ``:875-895``, ``:978-982``, ``:1055-1057``
2.17.3  ``src/util.cu:422``, ``:452-480``, ``:505-512``, ``:537-557``, ``:611-615``, ``:632-635``
2.18.5  ``src/util.cu:450``, ``:480-514``, ``:539-548``, ``:573-593``, ``:650-655``, ``:671-674``
2.19.6  ``src/util.cu:457``, ``:487-510``, ``:568``, ``:609``, ``:623-640``, ``:667-687``, ``:744-762``,
        ``:777-780``
======  ==========================================================================================

As a program it takes a name, and the options ``-b -e -f -g -I -S -c -J`` of the real ones. The environment
says the rest: ``STANDIN_VERSION``, ``STANDIN_HOSTS`` (one rank each), ``STANDIN_SCALE`` (of bandwidth),
``STANDIN_WRONG``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

VERSIONS = ("2.10.1", "2.13.8", "2.17.3", "2.18.5", "2.19.6")
STAMP = "2026-11-20 03:14:05"
Cells = list[str]


@dataclass
class Printed:
    """What was printed, and the truth of it: of each line the words of its halves."""

    lines: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    halves: list[tuple[Cells, Cells]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(f"{line}\n" for line in self.lines)


def _before_2_17(us: float) -> str:
    """A time: ``sprintf`` with no, one or two decimals from 10000 and 100 us down."""
    return f"{us:7.0f}" if us >= 10_000 else f"{us:7.1f}" if us >= 100 else f"{us:7.2f}"


def _since_2_17(at: int, value: float, width: int) -> str:
    """``getFloatStr``: as many decimals as there is room for, then an exponent."""
    if VERSIONS[at] != "2.19.6":
        # By digits before the point, counted before rounding: 999.999 is a column too wide.
        digits = next(count for count in range(20) if value < 10**count)
        spare = width - digits
        form = (
            "2f" if spare > 2 else "1f" if spare > 1 else "0f" if spare > -1 else "1e" if width >= 7 else "0e"
        )
        return f"{value:{width}.{form}}"
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def printed(
    version: str = "2.19.6",
    *,
    sizes: Sequence[int] = (8, 1 << 20, 1 << 30),
    hosts: Sequence[str] = ("gpu01", "gpu02"),
    iterations: bool = False,
    stamps: bool = False,
    check: bool = True,
    wrong: int = 0,
    scale: float = 1.0,
    test: str = "all_reduce_perf",
    json_file: str = "",
) -> Printed:
    """One table; the last size has the wrong values."""
    at = VERSIONS.index(version)
    old, util, named = at == 0, at >= 2, at >= 3
    done = Printed()
    say = done.lines.append
    if json_file:
        say(f"# Writing JSON output to {json_file}")
    if named:
        say(f"# nccl-tests version {version} nccl-headers=22809 nccl-library=22809")
    if util:
        say(f"# Collective test starting: {test}")
    graph = "" if old else " graph: 0"
    agg = "" if old else " agg iters: 1"
    unalign = " unalign: 0" if named else ""
    say(
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 5 "
        f"iters: 20{agg} validation: {int(check)}{graph}{unalign}{' ' if old else ''}"
    )
    if iterations:
        say("# Per-Iteration Report: CUDA event timing; i_* uses max over process rows ")
    say("#")
    say("# Using devices")
    for rank, host in enumerate(hosts):
        if old:
            say(f"#   Rank {rank:2d} Pid {4000 + rank:6d} on {host:>10} device  0 [0x1b] NVIDIA A100")
        elif at == 1:
            say(f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device  0 [0x1b] NVIDIA A100")
        else:
            known = f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device  0"
            say(f"{known} [0000:1b:00] NVIDIA H100")
    say("#")
    _header(done, at, iterations=iterations, stamps=stamps)
    total = 0.0
    for size in sizes:
        done.sizes.append(size)
        lead = f"{size:12d}  {size // 4:12d}  {'float':>8}  {'sum':>6}"
        halves = []
        for place in (0, 1):
            us = 21.37 + size / (240e3 * scale) + 0.41 * place
            algbw = size / us / 1e3
            busbw = algbw * 2 * (len(hosts) - 1) / len(hosts)
            total += busbw
            bad = wrong if size == sizes[-1] and not place else 0
            halves.append(_half(at, us, algbw, busbw, bad, check=check))
            if iterations:
                halves[-1] += [
                    _since_2_17(at, value, 7) for value in (us * 0.93, us * 1.7, us * 1.52, 6.125 + place)
                ]
        stamp = f"{STAMP:>21}" if stamps else ""
        root = "" if old else f"  {-1:6d}"
        say(lead + root + "".join(f"  {word}" for half in halves for word in half) + stamp)
        done.halves.append(([word.strip() for word in halves[0]], [word.strip() for word in halves[1]]))
    average = total / 2 / len(sizes)
    label = f"{'Out of bounds values':<20}" if named else "Out of bounds values"
    say(f"# {label} : {1 if wrong else 0} {'FAILED' if wrong else 'OK'}")
    say(f"# {'Avg bus bandwidth':<20} : {average:g} ")
    say("#")
    if util:
        say(f"# Collective test concluded: {test}")
    say("")
    return done


def _half(at: int, us: float, algbw: float, busbw: float, bad: int, *, check: bool) -> Cells:
    if at < 2:
        last = "  N/A" if not check else f"{1e-07 * (1 + bad):5.0e}" if at == 0 else f"{float(bad):5g}"
        return [_before_2_17(us), f"{algbw:6.2f}", f"{busbw:6.2f}", last]
    last = "   N/A" if not check else f"{float(bad):6g}"
    return [_since_2_17(at, us, 7), _since_2_17(at, algbw, 6), _since_2_17(at, busbw, 6), last]


def _header(done: Printed, at: int, *, iterations: bool, stamps: bool) -> None:
    say = done.lines.append
    if at == 0:
        half = ("{:>7}  {:>6}  {:>6}  {:>5}",) * 2
        lead = "# {:>10}  {:>12}  {:>8}  {:>6}  "
        say(f"{lead.format('', '', '', '')}          out-of-place                       in-place          ")
        say(
            (lead + "  ".join(half)).format(
                "size", "count", "type", "redop", *("time", "algbw", "busbw", "error") * 2
            )
        )
        say(
            (lead + "  ".join(half)).format(
                "(B)", "(elements)", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2
            )
        )
        return
    lead = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  "
    names: tuple[str, ...] = ("time", "algbw", "busbw", "#wrong")
    units: tuple[str, ...] = ("(us)", "(GB/s)", "(GB/s)", "")
    # Before 2.17 one space less precedes #wrong in the header alone.
    form = "{:>7}  {:>6}  {:>6} {:>6}" if at == 1 else "{:>7}  {:>6}  {:>6}  {:>6}"
    if iterations:
        form += "  {:>7}" * 4
        names += ("i_min", "i_max", "i_p99", "i_cv%")
        units += ("(us)", "(us)", "(us)", "(%)")
    stamp, unit = ("timestamp", "%Y-%m-%d %H:%M:%S") if stamps else ("", "")
    tail = "" if at < 3 else f" {stamp:>{19 if stamps else 0}}"
    after = "" if at < 3 else f" {unit:>{19 if stamps else 0}}"
    say("#")
    more = " (+ per-iteration)" if iterations else ""
    say(f"{lead.format('', '', '', '', '')}         out-of-place{more}                       in-place{more}")
    say((lead + f"{form}  {form}").format("size", "count", "type", "redop", "root", *names * 2) + tail)
    say((lead + f"{form}  {form}").format("(B)", "(elements)", "", "", "", *units * 2) + after)


def main() -> None:
    """Print one table, and write the ``-J`` file, with the environment in it as the real one does."""
    words = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))
    least, most, factor = (
        _bytes(words.get(name, default)) for name, default in (("-b", "8"), ("-e", "64M"), ("-f", "2"))
    )
    sizes = [least]
    while sizes[-1] * factor <= most:
        sizes.append(sizes[-1] * factor)
    host = os.environ.get("NODE_NAME", "localhost")
    hosts = os.environ.get("STANDIN_HOSTS", "").split() or [host] * int(words.get("-g", "1"))
    done = printed(
        os.environ.get("STANDIN_VERSION", VERSIONS[-1]),
        sizes=sizes,
        hosts=hosts,
        iterations=words.get("-I") == "1",
        stamps=words.get("-S") == "1",
        check=words.get("-c") != "0",
        wrong=int(os.environ.get("STANDIN_WRONG", "0")),
        scale=float(os.environ.get("STANDIN_SCALE", "1")),
        test=os.path.basename(sys.argv[1]),
        json_file=words.get("-J", ""),
    )
    if "-J" in words:
        env = [f"{name}={value}" for name, value in os.environ.items()]
        with open(words["-J"], "w") as file:
            json.dump(
                {"version": 3, "args": sys.argv[1:], "env": env, "nccl_version": 22809, "results": []}, file
            )
    sys.stdout.write(done.text)


def _bytes(text: str) -> int:
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


if __name__ == "__main__":
    main()
