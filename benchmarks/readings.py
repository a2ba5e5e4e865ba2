"""How right the numbers are that are read of training's logs, and how quickly they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.table import Level, Result
from cockpit.core.logs.metrics import Metrics
from cockpit.core.logs.progress.reading import Reading
from tests.logs.corpus import PREFIXES, samples
from tests.logs.readings import MODES, Score, fed, score

ROUNDS = 7
MIX, MIX_BYTES = "reading all formats in turn", 1_000_000
CHUNK = 6000
"""Bytes: what a rank prints in a tenth of a second at 1,000 lines/s."""


def run() -> Result:
    """Measure; needs nothing."""
    training, healthy = samples("progress"), samples("healthy")
    modes = {"plain": ["plain"], "chunked": ["chunked"], "prefixed": list(PREFIXES)}
    scores = {name: [score(training, mode, seed=7) for mode in each] for name, each in modes.items()}
    false = sum(len(each.false) for found in scores.values() for each in found)
    quiet = [sample for sample in healthy if not sample.expect.get("numbers")]
    loud = sum(fed(sample, mode, 7).latest != Reading() for sample in quiet for mode in MODES)
    levels = [
        Level(f"{name}, not read", [100 * _missed(found, name) for found in scores.values()], "%", 10.0)
        for name in scores["plain"][0].asked
    ]
    levels += [
        Level("false numbers", [float(false)], "numbers", 0.0),
        Level("healthy logs in which a number was read", [float(loud)], "logs", 0.0),
        *(Level(what, rates, "MB/s") for what, rates in _speeds()),
    ]
    return Result(
        "readings",
        f"numbers read of {len(training)} formats of progress and of {len(quiet)} healthy logs without any",
        {"cockpit": f"Metrics.feed; where it is timed, in pieces of {CHUNK:,} bytes"},
        levels=levels,
        notes=[
            "Each field counts once for each sample that tells it; losses are all those of a log.",
            "Three values: of whole logs, of logs cut at random places, and cut behind the prefixes of "
            f"{len(PREFIXES)} launchers.",
            f"The aim for {MIX} is 20 MB/s. Most lines tell something there, and each is read on its own, by "
            "four expressions; to reach it, only the last of the lines of a piece that look alike would have "
            "to be read, but for their losses.",
        ],
    )


def _missed(scores: list[Score], name: str) -> float:
    """The part of a field's values that was not read rightly."""
    return 1 - sum(each.right[name] for each in scores) / sum(each.asked[name] for each in scores)


def _speeds() -> Iterator[tuple[str, list[float]]]:
    for what, data in _logs().items():
        rates = []
        for _ in range(ROUNDS):
            metrics = Metrics()
            began = time.process_time()
            for at in range(0, len(data), CHUNK):
                metrics.feed(0, data[at : at + CHUNK], at / 1e5)
            rates.append(len(data) / 1e6 / (time.process_time() - began))
        yield what, rates


def _logs() -> dict[str, bytes]:
    steps = range(3000)
    plain = (
        f"step {step}/5000 loss {2 + step % 7 / 100:.4f} lr 1.00e-03 step_time 0.118\n" for step in steps
    )
    other = (f"[2026-11-20 03:14:{step % 60:02}] [INFO] [pool.py:{step}] block {step}\n" for step in steps)
    bars = "".join(_trainer(step) for step in steps)
    return {
        "reading lines of which none tells a number": "".join(other).encode(),
        "reading lines of which each tells a loss": "".join(plain).encode(),
        "reading the HF Trainer's bar and dictionaries": bars.encode(),
        MIX: _in_turn(),
    }


def _in_turn() -> bytes:
    """The samples of all formats, one after the other, several times."""
    once = b"".join(sample.text.rstrip(b"\n") + b"\n" for sample in samples("progress"))
    return once * (MIX_BYTES // len(once))


def _trainer(step: int) -> str:
    bar = f"\r  {step // 50}%|█████     | {step}/5000 [00:{step % 60:02}<12:10,  3.33it/s]"
    told = f"\n{{'loss': {2 - step / 9000:.4f}, 'learning_rate': 4.5e-05, 'epoch': {step / 1000}}}\n"
    return bar + (told if step % 5 == 0 else "")
