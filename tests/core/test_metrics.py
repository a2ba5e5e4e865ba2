"""What is read out of the lines of real training programs.

Each sample is a line's format as the named source prints it, shortened.
"""

from __future__ import annotations

import math
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.logs.metrics import POINTS, RANK_POINTS, SERIES, Metrics, read_line
from cockpit.core.logs.progress.rank import REST, STALE, WINDOW
from cockpit.core.logs.progress.reading import Reading

EXAMPLE = "step 5/20 loss 0.1234 lr 1.0e-03 118 ms/step"

# (where it is from, line, numbers)
SAMPLES: list[tuple[str, str, dict[str, Any]]] = [
    ("our examples", EXAMPLE, {"step": 5, "total": 20, "loss": 0.1234, "lr": 0.001, "step_s": 0.118}),
    (
        "DeepSpeed, runtime/engine.py _report_progress (issue 1825)",
        "[2022-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step=40, skipped=2,"
        " lr=[5e-05, 5e-05], mom=[[0.9, 0.999], [0.9, 0.999]]",
        {"step": 40, "lr": 5e-05},
    ),
    (
        "DeepSpeed, utils/timer.py (issue 3742)",
        "[2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=68/global_step=34,"
        " RunningAvgSamplesPerSec=7.86, CurrSamplesPerSec=8.009, MemAllocated=59.65GB",
        {"step": 34, "epoch": 0.0, "samples_s": 8.009},
    ),
    (
        "DeepSpeed before 0.8, utils/timer.py (issue 1825)",
        "[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.48, MemAllocated=0.26GB",
        {"samples_s": 83.48},
    ),
    (
        "DeepSpeed, runtime/pipe/engine.py",
        "steps: 10 loss: 0.7012 iter time (s): 0.123 samples/sec: 260.163",
        {"step": 10, "loss": 0.7012, "step_s": 0.123, "samples_s": 260.163},
    ),
    (
        "GPT-NeoX on DeepSpeed (DeepSpeed issue 3742)",
        " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 |"
        " learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 |"
        " number of nan iterations:   0 |",
        {"step": 34, "total": 10000, "loss": 11.18665, "lr": 2.111e-6, "samples_s": 7.799, "step_s": 4.1031},
    ),
    (
        "Megatron-LM (issue 756)",
        " [2024-04-06 03:02:12] iteration       71/     100 | consumed samples:         9088 |"
        " elapsed time per iteration (ms): 5361.6 | throughput per GPU (TFLOP/s/GPU): 243.6 |"
        " learning rate: 1.420000E-05 | global batch size:   128 | lm loss: 1.818812E+00 |"
        " load_balancing_loss: 1.013377E+00 | loss scale: 1.0 |",
        {"step": 71, "total": 100, "loss": 1.818812, "lr": 1.42e-5, "step_s": 5.3616},
    ),
    (
        "NeMo 2 (bionemo-recipes 740)",
        "Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 |"
        " global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106",
        {"step": 120, "total": 149, "epoch": 0.0, "loss": 1.233, "lr": 3e-5, "step_s": 0.03146},
    ),
    (
        "HF Trainer, printed dictionary (DAMO-NLP-SG/VideoLLaMA2 issue 157)",
        "{'loss': 1.5214, 'grad_norm': 82.9394, 'learning_rate': 1.4285e-06, 'epoch': 0.01}",
        {"loss": 1.5214, "lr": 1.4285e-6, "epoch": 0.01},
    ),
    (
        "HF Trainer 5, where the values are text",
        "{'loss': '1.521', 'grad_norm': '82.94', 'learning_rate': '1.429e-06', 'epoch': '0.01'}",
        {"loss": 1.521, "lr": 1.429e-6, "epoch": 0.01},
    ),
    (
        "HF TFTrainer (transformers 9613)",
        "[INFO|trainer_tf.py:398] 2021-01-15 10:28:50,371 >> {'loss': 0.6347228,"
        " 'learning_rate': 4.891304e-05, 'epoch': 0.086956, 'step': 10}",
        {"step": 10, "loss": 0.6347228, "lr": 4.891304e-5, "epoch": 0.086956},
    ),
    (
        "tqdm, as the HF Trainer draws it (transformers issue 14531)",
        "  8%|████      | 1999/24128 [1:52:09<20:27:23,  3.33s/it]",
        {"step": 1999, "total": 24128, "step_s": 3.33, "eta_s": 73643.0},
    ),
    (
        "the same with the logger's line behind it",
        "  8%|████      | 1999/24128 [1:52:09<20:27:23,  3.33s/it][2021-11-26 03:07:16,494] [INFO]"
        " [logging.py:69:log_dist] [Rank 0] step=2000, skipped=1995, lr=[0.001, 0.001], mom=[0.0, 0.0]",
        {"step": 1999, "total": 24128, "step_s": 3.33, "lr": 0.001, "eta_s": 73643.0},
    ),
    (
        "Lightning 1 (issue 4225)",
        "Epoch 0:  22%|██▏       | 4/18 [00:17<01:02,  4.47s/it, loss=9.926, v_num=193315]",
        {"step": 4, "total": 18, "epoch": 0.0, "loss": 9.926, "step_s": 4.47, "eta_s": 62.0},
    ),
    (
        "Lightning 2 (anemoi-core issue 614; the postfix is callbacks/progress/tqdm_progress.py)",
        "Epoch 3:   2%|▏         | 3744/150000 [3:12:36<125:24:04,  0.32it/s, v_num=35a4,"
        " train_loss_step=0.123]",
        {"step": 3744, "total": 150000, "epoch": 3.0, "loss": 0.123, "step_s": 3.125, "eta_s": 451444.0},
    ),
    (
        "NeMo 1 on Lightning (NeMo-Framework-Launcher issue 55)",
        "Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=,"
        " reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]",
        {"step": 795, "total": 77225, "epoch": 0.0, "loss": 3.1, "step_s": 41.36, "eta_s": 3160908.0},
    ),
    (
        "Lightning's first state",
        "Epoch 0:   0%|          | 0/18 [00:00<?, ?it/s]",
        {"step": 0, "total": 18, "epoch": 0.0},
    ),
    (
        "tqdm without a total",
        "Training: 120it [00:10, 12.50it/s, loss=0.3]",
        {"step": 120, "loss": 0.3, "step_s": 0.08},
    ),
    (
        "torchtitan (issue 3393)",
        "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: 14  loss:  3.24405  grad_norm:  0.8319"
        "  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%",
        {"step": 14, "loss": 3.24405, "tokens_s": 7282.0},
    ),
    (
        "torchtitan with colours",
        "\x1b[31mstep: 14\x1b[32m  loss:  3.24405\x1b[0m",
        {"step": 14, "loss": 3.24405},
    ),
    (
        "fairseq (issue 2338)",
        "2020-07-17 06:48:46 | INFO | train_inner | epoch 001:    100 / 167138 loss=15.073,"
        " ppl=34470.4, wps=4004.3, wpb=980.3, num_updates=100, lr=1e-06, loss_scale=128, wall=83",
        {"step": 100, "total": 167138, "epoch": 1.0, "loss": 15.073, "lr": 1e-6, "tokens_s": 4004.3},
    ),
    ("nanoGPT, train.py", "step 250: train loss 2.3, val loss 2.4", {"step": 250, "loss": 2.3}),
    (
        "tokens before their unit",
        "Epoch 3 | 1,234.5 tokens/s | loss .5",
        {"epoch": 3.0, "loss": 0.5, "tokens_s": 1234.5},
    ),
    ("milliseconds", "step 3 step_time 118 ms loss -inf", {"step": 3, "step_s": 0.118, "loss": -math.inf}),
]


@pytest.mark.parametrize(
    "line",
    [
        "[INFO] [runner.py:630:main] cmd = python -m deepspeed.launch train.py --steps 600 --lr 1e-4",
        "+ python train.py --epochs 3 --steps=600 --loss 3",
    ],
)
def test_options_of_a_command_are_no_progress(line: str) -> None:
    metrics = Metrics()
    metrics.feed(0, line.encode() + b"\n", 1.0)
    assert metrics.said(0) == {}


@pytest.mark.parametrize(("line", "numbers"), [sample[1:] for sample in SAMPLES], ids=[s[0] for s in SAMPLES])
def test_real_lines(line: str, numbers: dict[str, Any]) -> None:
    reading = read_line(line.encode())
    assert reading is not None
    assert reading.said() == pytest.approx(numbers)


@pytest.mark.parametrize(("line", "numbers"), [sample[1:] for sample in SAMPLES], ids=[s[0] for s in SAMPLES])
def test_the_same_lines_in_a_log(line: str, numbers: dict[str, Any]) -> None:
    metrics = Metrics()
    assert metrics.feed(0, f"a line\n{line}\nanother\n".encode(), 1.0)
    assert metrics.latest.said() == pytest.approx(numbers)
    assert metrics.latest_of(0) == metrics.latest


@pytest.mark.parametrize(
    "line",
    [
        "step 2 of the installation",
        "Epoch 3",
        " validation loss at iteration 1000 | lm loss value: 2.5E+00 | lm loss PPL: 1.2E+01 |",  # Megatron-LM
        "[logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 652.41 | step: 1172",  # DeepSpeed
        "{'eval_loss': 0.5, 'eval_runtime': 3.0, 'eval_samples_per_second': 100.0, 'epoch': 1.0}",  # HF
        "{'train_runtime': 100.1, 'train_samples_per_second': 10.0, 'train_loss': 0.4, 'epoch': 3.0}",  # HF
        "Validation DataLoader 1: 100% 1000/1000 [00:18<00:00, 55.55it/s]",  # the same in a notebook's style
        "Validation DataLoader 0:  71%|███| 112/157 [00:04<00:01, 28.44it/s]",  # Lightning issue 14094
        "Sanity Checking DataLoader 0:  50%|███| 1/2 [00:04<00:01, 28.44it/s]",  # Lightning
        "Loading checkpoint shards: 100%|███| 2/2 [01:21<00:00, 40.80s/it]",  # DeepSpeed issue 4153
        "Map: 100%|███| 3668/3668 [00:00<00:00, 12345.67 examples/s]",  # datasets
        "model.safetensors:  10%|█| 10/100 [00:01<00:09, 10.0MB/s]",  # huggingface_hub
        "loss: 0.5%",
        "lossy 5 compression, loss5",
        "val/loss: 0.3 test loss 0.4 router_loss=0.1",
        "",
    ],
)
def test_other_lines_tell_nothing(line: str) -> None:
    assert read_line(line.encode()) is None
    assert not Metrics().feed(0, line.encode() + b"\n", 1.0)


@pytest.mark.parametrize(
    "line",
    [
        b"loss " * 5000,
        b"loss=" + b"9" * 20000,
        b"loss 1 step=" + b"9" * 400 + b"/" + b"9" * 400,
        b"loss=1,,,2 lr=.e5 step=--3",
        b"lr=0." + b"\xff" * 300,
        b"\x1b[" * 5000 + b"loss=1",
        b"1/2 [" * 5000 + b"it/s",
        b"a_" * 5000 + b"loss=1",
    ],
)
def test_junk_does_no_harm(line: bytes) -> None:
    read_line(line)
    metrics = Metrics()
    metrics.feed(0, line + b"\n", 1.0)
    assert metrics.latest.step is None


def line(step: int, loss: float = 0.5) -> bytes:
    return b"step %d/1000 loss %.3f lr 1.00e-03 step_time 0.118\n" % (step, loss)


@pytest.mark.parametrize("size", [1, 2, 7, 30, 64])
def test_chunks_may_end_anywhere(size: int) -> None:
    data = b"".join(line(step, step / 100) for step in range(1, 8))
    metrics = Metrics()
    for at in range(0, len(data), size):
        metrics.feed(0, data[at : at + size], float(at))
        assert metrics.latest.loss in (None, *(step / 100 for step in range(1, 8)))
    assert metrics.latest == Reading(step=7, total=1000, loss=0.07, lr=0.001, step_s=0.118)


STEPS = b"".join(
    each
    for step in range(1, 6)
    for each in (
        line(step, step / 100),
        f"\r {step}0%|█| {step}/1000 [00:0{step}<00:09,  2.00s/it]".encode(),
        b"\nglossary\r\n",
    )
)


@given(st.lists(st.integers(0, len(STEPS)), max_size=20))
def test_cuts_anywhere_give_the_same_newest_numbers(cuts: list[int]) -> None:
    metrics = Metrics()
    edges = sorted([0, *cuts, len(STEPS)])
    for at, end in pairwise(edges):
        metrics.feed(0, STEPS[at:end], 1.0)
    latest = metrics.latest
    assert (latest.step, latest.loss, latest.lr, latest.step_s) == (5, 0.05, 0.001, 2.0)


def test_thousands_of_ranks_take_little_memory() -> None:
    metrics = Metrics()
    tracemalloc.start()
    try:
        for rank in range(64):
            for step in range(200):
                metrics.feed(rank, line(step, step / 100) + b"x" * (REST + 9 * step), float(step))
        each = tracemalloc.get_traced_memory()[0] / 64
    finally:
        tracemalloc.stop()
    assert each < 16 << 10


def test_bars_are_read_without_waiting_for_the_next_state() -> None:
    metrics = Metrics()
    assert metrics.feed(0, "\r 10%|█   | 1/10 [00:01<00:09,  2.00s/it]".encode(), 1.0)
    assert metrics.latest.step == 1
    assert metrics.feed(0, "\r 20%|██  | 2/10 [00:02<0".encode(), 2.0) is False
    assert metrics.feed(0, b"0:08,  2.00s/it]", 2.1)
    assert metrics.latest == Reading(step=2, total=10, step_s=2.0, eta_s=8.0)
    assert metrics.feed(0, b"\n", 2.2) is False
    assert [value for _, value in metrics.series("step_s")] == [2.0, 2.0]


def test_numbers_of_several_lines_are_put_together() -> None:
    """What DeepSpeed prints for one step, and the script's own line."""
    metrics = Metrics()
    step = b"[Rank 0] step=%d, skipped=0, lr=[%.3f], mom=[[0.9, 0.999]]\n"
    timer = b"epoch=0/micro_step=%d/global_step=%d, RunningAvgSamplesPerSec=7.8, CurrSamplesPerSec=%d\n"
    own = b"iteration %d done, loss = %d\n"
    data = b"".join(step % (n, n / 100) + timer % (n, n, n * 10) + own % (n, n) for n in (1, 2, 3))
    metrics.feed(0, data, 1.0)
    assert metrics.latest == Reading(step=3, epoch=0.0, loss=3.0, lr=0.03, samples_s=30.0)


def test_time_of_a_step_is_measured_where_nobody_says_it() -> None:
    metrics = Metrics()
    metrics.feed(0, b"step 10 loss 1\n", 100.0)
    assert metrics.latest.step_s is None
    metrics.feed(0, b"step 11 loss 1\nstep 14 loss 1\n", 102.0)
    assert metrics.latest.step_s == 0.5
    assert metrics.series("step_s") == [(102.0, 0.5)]
    metrics.feed(0, b"step 1 loss 1\n", 200.0)  # it began again
    metrics.feed(0, b"step 2 loss 1\n", 203.0)
    assert metrics.latest_of(0).step_s == 3.0


def test_time_left_is_reckoned_from_steps_left_and_their_usual_time() -> None:
    metrics = Metrics()
    assert metrics.time_left(0.0) is None
    for at in range(10):
        # One step of five is slow.
        metrics.feed(3, b"step %d/100 loss 1 step_time %d\n" % (at, 9 if at == 5 else 2), 2.0 * at)
    assert metrics.time_left(18.0) == 91 * 2
    assert metrics.time_left(19.0) == metrics.time_left_of(3, 19.0) == 91 * 2 - 1
    assert metrics.time_left_of(0, 19.0) is None


def test_time_left_as_the_program_says_it_runs_down() -> None:
    metrics = Metrics()
    metrics.feed(0, b"step 10/100 loss 1 eta: 1:00:00\n", 100.0)
    assert metrics.time_left(110.0) == 3590
    metrics.feed(0, b"step 11/100 loss 1 step_time 7\n", 107.0)  # which says it no longer
    assert metrics.time_left(107.0) == 89 * 7


@pytest.mark.parametrize("gap", [1.0, 100.0])
def test_time_left_is_not_known_once_no_step_comes(gap: float) -> None:
    metrics = Metrics()
    for step in (1, 2):
        metrics.feed(0, b"step %d/1000 loss 1\n" % step, gap * step)
    assert metrics.time_left(2 * gap + 50) is not None
    assert metrics.time_left(2 * gap + max(STALE, 3 * gap) + 1) is None
    metrics.feed(0, b"step 3/1000 loss 1\n", 1000.0)
    assert metrics.time_left(1000.0) is not None


@pytest.mark.parametrize("line", ["step 100/100 loss 1 step_time 3", "step 5 loss 1 step_time 3", "loss 2"])
def test_time_left_is_not_known_without_steps_left(line: str) -> None:
    metrics = Metrics()
    metrics.feed(0, line.encode() + b"\n", 1.0)
    assert metrics.time_left(1.0) is None


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("eta: 0:12:34", 754),
        ("eta: 1 day, 2:03:04", 93784),
        ("ETA: 12s", 12),
        ("ETA 1h 12m", 4320),
        ("ETA: 2 days, 3h", 183600),
        ("eta: 05:10", 310),
        ("'remaining_time': '15h 30m 2s'", 55802),
        ("remaining time: 2 days, 3:10:02", 184202),
        ("time left: 3.5 min", 210),
        ("eta (min): 12.5", 750),
        ("eta_seconds=12.5", 12.5),
        ("eta: unknown", None),
        ("eta: 1e9", None),
        ("eta 0.1", None),
        ("beta: 0:12:34", None),
        ("remaining: 12", None),
    ],
)
def test_how_time_left_is_said(said: str, seconds: float | None) -> None:
    reading = read_line(f"step 340/5004 loss 2.3 {said} mem 12".encode())
    assert reading is not None
    assert reading.eta_s == seconds


def test_an_evaluation_between_steps_is_not_the_progress() -> None:
    metrics = Metrics()
    metrics.feed(0, "\r 8%|█| 1999/24128 [1:52:09<20:27:23,  3.33s/it]".encode(), 1.0)
    assert not metrics.feed(0, "\n 50%|█| 5/10 [00:05<00:05,  1.00s/it]".encode(), 2.0)
    assert metrics.latest.step == 1999
    assert metrics.feed(0, "\r 8%|█| 2000/24128 [1:52:13<20:27:23,  3.33s/it]".encode(), 3.0)
    assert metrics.latest.step == 2000
    # The bar of the next epoch is a new one, though it is shorter.
    metrics.feed(0, "\r100%|█| 24128/24128 [9:52:13<00:00,  3.33s/it]\n".encode(), 4.0)
    metrics.feed(0, "\r 10%|█| 100/1000 [00:13<20:23,  3.33s/it]".encode(), 5.0)
    assert (metrics.latest.step, metrics.latest.total) == (100, 1000)


def test_a_total_goes_with_its_step() -> None:
    metrics = Metrics()
    metrics.feed(0, line(5), 1.0)
    metrics.feed(0, b"step 6 loss 1\n", 2.0)
    assert (metrics.latest.step, metrics.latest.total) == (6, 1000)
    metrics.feed(0, b"step 2000 loss 1\n", 3.0)
    assert (metrics.latest.step, metrics.latest.total) == (2000, None)


def test_the_lowest_rank_speaks_for_the_run() -> None:
    metrics = Metrics()
    metrics.feed(None, b"loss 9 lr 9 tokens/s: 9\n", 1.0)
    metrics.feed(3, b"step 4 loss 3 lr 3\n", 1.0)
    metrics.feed(1, b"step 4 loss 1\n", 1.1)
    metrics.feed(3, b"step 5 loss 3.5 lr 3.5\n", 1.2)
    assert metrics.latest.said() == pytest.approx(
        {"step": 4, "loss": 1.0, "lr": 3.5, "tokens_s": 9.0, "step_s": 0.2}
    )
    assert metrics.latest_of(3).loss == 3.5
    assert metrics.latest_of(7) == Reading()
    assert [value for _, value in metrics.series("loss")] == [9.0, 3.0, 1.0]
    assert [value for _, value in metrics.series("loss", 3)] == [3.0, 3.5]


def test_a_rank_that_went_silent_speaks_no_longer() -> None:
    metrics = Metrics()
    metrics.feed(0, b"step 0 loss 11\n", 1.0)
    metrics.feed(7, b"step 100 loss 2\n", 2.0)
    assert metrics.latest.loss == 11.0
    metrics.feed(7, b"step 200 loss 1\n", 2.0 + STALE)
    assert (metrics.latest.step, metrics.latest.loss) == (200, 1.0)
    metrics.feed(0, b"step 201 loss 3\n", 3.0 + STALE)
    assert (metrics.latest.step, metrics.latest.loss) == (201, 3.0)


def test_the_same_again_is_not_new() -> None:
    metrics = Metrics()
    assert metrics.feed(0, line(1), 1.0)
    assert not metrics.feed(0, line(1), 2.0)
    assert not metrics.feed(0, b"", 3.0)
    assert metrics.series("loss") == [(1.0, 0.5)]


def test_what_is_not_finite_is_told_but_not_plotted() -> None:
    metrics = Metrics()
    metrics.feed(0, line(1), 1.0)
    metrics.feed(0, b"step 2 loss nan\n", 2.0)
    assert metrics.latest.loss is not None
    assert math.isnan(metrics.latest.loss)
    assert metrics.series("loss") == [(1.0, 0.5)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 511, 512, 513, 5000])
def test_series_are_thinned_evenly_and_end_with_the_newest(count: int) -> None:
    metrics = Metrics()
    for step in range(count):
        metrics.feed(0, line(step, step / 1000), float(step))
    for rank, limit in ((None, POINTS), (0, RANK_POINTS)):
        points = metrics.series("loss", rank)
        assert len(points) == count if count <= limit - 1 else limit // 2 - 1 <= len(points) <= limit
        assert points[0] == (0.0, 0.0)
        assert points[-1] == (count - 1, (count - 1) / 1000)
        gaps = {after[0] - before[0] for before, after in pairwise(points[:-1])}
        assert len(gaps) <= 1
    assert metrics.series("no such thing") == []
    assert all(len(metrics.series(name, 7)) == 0 for name in SERIES)


def test_only_the_end_of_a_big_chunk_is_read() -> None:
    metrics = Metrics()
    filler = b"x" * 99 + b"\n"
    metrics.feed(0, line(1) + filler * (WINDOW // 100 + 1), 1.0)
    assert metrics.latest == Reading()
    # The window begins in the middle of a line: half of a name, or of a number, is none.
    metrics.feed(0, b"val_loss=3\n" + b"x" * (WINDOW - 7) + b"\n", 2.0)
    assert metrics.latest == Reading()
    metrics.feed(0, filler * (WINDOW // 100 + 1) + line(2), 3.0)
    assert metrics.latest.step == 2


def test_an_endless_line_is_not_kept() -> None:
    metrics = Metrics()
    for _ in range(10):
        metrics.feed(0, b"x" * (REST // 2), 1.0)
    assert not metrics.feed(0, b"step=1 loss=1 it/s\n", 2.0)  # the end of that line
    assert metrics.feed(0, b"step=2 loss=2\n", 3.0)
    assert metrics.latest.loss == 2.0


def test_noise_between_does_not_hide_numbers() -> None:
    metrics = Metrics()
    metrics.feed(0, line(1) + b"glossary %d\n" % 1 + b"glossary 2\n" + b"glossary 3\n", 1.0)
    assert metrics.latest.step == 1
