"""Lines of projects whose numbers have no names, or misleading ones, as data: a row is a pattern.

Its groups are the fields of a reading, and these: ``epochs`` (how many there will be), ``rate`` (steps per
second), ``ms`` (milliseconds of a step), ``milli_lr`` (a thousandth of it is the learning rate). Patterns are
for lines as they are read: in small letters, without colours and drawings.
"""

from __future__ import annotations

import re
from functools import cache

ROWS = (
    # Lightning, callbacks/progress/rich_progress.py
    (
        b"epoch ",
        rb"epoch (?P<epoch>\d+)/\d+ .{0,400}?"
        rb" (?P<step>\d+)/(?P<total>\d+) [\d:]+\s+(?:[-\d:]+ )?(?P<rate>[\d.]+)it/s"
        rb"(?:.{0,300}? train_loss(?:_step)?: (?P<loss>\S+))?",
    ),
    # Marian, src/training/scheduler.h
    (
        b" : sen. ",
        rb"\bep\. (?P<epoch>\d+) : up\. (?P<step>\d+) : sen\. [\d,]+ : cost (?P<loss>\S+)"
        rb"(?:.{0,300} : (?P<tokens_s>[\d.]+) words/s)?(?:.{0,300} : l\.r\. (?P<lr>\S+))?",
    ),
    # tinygrad, examples/mlperf/model_train.py
    (
        b" ms run,",
        rb"^\s*(?P<step>\d+)\s+(?P<ms>[\d.]+) ms run,.{0,300} (?P<loss>\S+) loss,"
        rb"(?:.{0,300} (?P<lr>\S+) lr\b)?",
    ),
    # RETURNN, returnn/torch/engine.py
    (
        b" train, step ",
        rb"\bep (?P<epoch>\d+) train, step (?P<step>\d+), (?:.{0,300} (?P<step_s>[\d.]+) sec/step)?",
    ),
    # JEPA, app/vjepa/train.py
    (
        b"] loss: ",
        rb"\[(?P<epoch>\d+),\s*(?P<step>\d+)\] loss: (?P<loss>\S+) (?:.{0,300}\[iter: (?P<ms>[\d.]+) ms\])?",
    ),
    # WeNet, wenet/utils/train_utils.py
    (b"train ", rb"\btrain .{0,300}\bbatch (?P<epoch>\d+)/(?P<step>\d+) loss "),
    # prime-rl, src/prime_rl/trainer/rl/train.py
    (
        b"s | loss",
        rb"\bstep (?P<step>\d+) \|\s+(?:time: )?(?P<step_s>[\d.]+)s \| loss:? (?P<loss>\S+)",
    ),
    # nanoGPT's kin
    (
        b" | loss ",
        rb"(?:^|:)\s*(?P<step>\d+) \| loss (?P<loss>[^\s|]+) \| lr (?P<lr>[^\s|]+)(?: \| (?P<ms>[\d.]+)ms)?",
    ),
    # LitGPT, litgpt/pretrain.py: its step is the optimizer's
    (
        b", iter time: ",
        rb"\biter (?P<step>\d+) step \d+: loss (?P<loss>[\d.a-z]+), iter time: (?P<ms>[\d.]+)ms",
    ),
    # RLlib, python/ray/tune/logger pretty_print: a block of YAML
    (b"total_loss: ", rb"^\s{4,}total_loss: (?P<loss>\S+)$"),
    (b"cur_lr: ", rb"^\s{4,}cur_lr: (?P<lr>\S+)$"),
    # garage and its kin: a block with tabs
    (b"iteration:", rb"^\s*iteration: {0,9}\t {0,9}(?P<step>\d+)\s*$"),
    # verl, trainer/ppo/ray_trainer.py and trainer/fsdp_sft_trainer.py; the order of its fields varies
    (
        b"step:",
        rb"\bstep:(?P<step>\d+) - (?=.*\bactor/pg_loss:(?P<loss>[^\s(]+))(?=.*\bactor/lr:(?P<lr>\S+)|)"
        rb"(?=.*\bperf/throughput:(?P<tokens_s>[\d.]+)|)(?=.*\btiming_s/step:(?P<step_s>[\d.]+)|)",
    ),
    (
        b" - train/lr(1e-3):",
        rb"\bstep:(?P<step>\d+) - train/loss:(?P<loss>\S+) - train/lr\(1e-3\):(?P<milli_lr>\S+)"
        rb"(?: - train/time\(s\):(?P<step_s>\S+))?",
    ),
    # TensorFlow, basic_session_run_hooks.py
    (b"global_step/sec: ", rb"\bglobal_step/sec: (?P<rate>[\d.]+)$"),
    # Lingua, apps/main/train.py
    (
        b"step: ",
        rb"\bstep: (?P<step>\d+) .{0,300}\bwps: .{0,300}\biter:\s+(?P<step_s>[\d.]+)\s+data:",
    ),
    # PaddleClas, ppcls/engine/train/utils.py
    (b"batch_cost:", rb"\blr\(\w+\): (?P<lr>[^\s,]+), .{0,300}\bbatch_cost:"),
    # rl_games, common/a2c_common.py
    (b"fps step: ", rb"^fps step: .{0,300} epoch: (?P<epoch>\d+)/(?P<epochs>\d+) frames:"),
    # MXNet, python/mxnet/callback.py
    (
        b" samples/sec",
        rb"\bepoch\[(?P<epoch>\d+)\] batch \[[\d-]+\]\s+speed: (?P<samples_s>[\d.]+) samples/sec",
    ),
    # Catalyst, callbacks/misc.py
    (b" * epoch (train):", rb"(?<!\d)(?P<epoch>\d+)/(?P<epochs>\d+) \* epoch \(train\):"),
    # Cosmos, callbacks/iter_speed.py
    (
        b" seconds per iteration | loss: ",
        rb"\] (?P<step>\d+) : iter_speed (?P<step_s>[\d.]+) seconds per iteration \| loss: (?P<loss>\S+)",
    ),
    # big_vision, train.py
    (b"note: steps:", rb"\bnote: steps:(?P<step>\d+)/(?P<total>\d+) \[[\d.]+%\]"),
    # AReaL, utils/stats_logger.py
    (
        b" train step ",
        rb"\bepoch (?P<epoch>\d+)/(?P<epochs>\d+) step \d+/\d+ train step (?P<step>\d+)/(?P<total>\d+) done",
    ),
    # Ultralytics, engine/trainer.py
    (b"%|", rb"^\s*(?P<epoch>\d+)/(?P<epochs>\d+)\s.{0,300}%\|.{0,300} \["),
)
"""Each with a text that is in every line it matches: most lines have none of them."""

_FACTORS = {"ms": ("step_s", 1e-3), "milli_lr": ("lr", 1e-3)}


@cache
def _compiled(row: bytes) -> re.Pattern[bytes]:
    """Compiled once it is needed: all of them together take as long as a hundred modules."""
    return re.compile(row)


def row_of(line: bytes) -> dict[str, tuple[int, float]] | None:
    """What a project's own pattern says about a line: where each field's number begins, and its factor."""
    patterns = (_compiled(row) for text, row in ROWS if text in line)
    found = next(filter(None, (pattern.search(line) for pattern in patterns)), None)
    if found is None:
        return None
    fields = {}
    for name, number in found.groupdict().items():
        if number is not None:
            field, factor = _FACTORS.get(name, (name, 1.0))
            fields[field] = found.start(name), factor
    return fields
