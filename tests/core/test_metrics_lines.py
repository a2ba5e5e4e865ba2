"""Lines of all sorts, and what is to be read in each alone or in a few of them."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.core.logs.metrics import Metrics, read_line

BAR = "\r {percent:3}%|███       | {step}/1000 [00:{step:02}<16:30,  1.02s/it]"


def fed(*lines: str) -> Metrics:
    metrics = Metrics()
    for line in lines:
        metrics.feed(0, line.encode() + b"\n", 1.0)
    return metrics


def test_every_loss_beside_a_bar_gets_into_the_series() -> None:
    text, losses = "", []
    for step in range(1, 61):
        text += BAR.format(percent=step // 10, step=step)
        if step % 2 == 0:
            losses.append(round(3 - step / 100, 4))
            text += f"\n{{'loss': {losses[-1]}, 'learning_rate': 1e-05, 'epoch': {step / 1000}}}\n"
    for size in (len(text.encode()), 700, 64, 7):
        metrics = Metrics()
        data = text.encode()
        for at in range(0, len(data), size):
            metrics.feed(0, data[at : at + size], 1.0)
        assert [loss for _, loss in metrics.series("loss")] == losses
        assert (metrics.latest.step, metrics.latest.loss) == (60, losses[-1])


def test_every_loss_of_equal_lines_gets_into_the_series() -> None:
    losses = [round(9 - step / 100, 4) for step in range(200)]
    text = "".join(f"iteration {step:5d} of 5000, loss {loss}\n" for step, loss in enumerate(losses))
    metrics = Metrics()
    metrics.feed(0, text.encode(), 1.0)
    assert [loss for _, loss in metrics.series("loss")] == losses
    assert (metrics.latest.step, metrics.latest.total) == (199, 5000)


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        # The unit of a speed is not the name of the next one.
        *(
            (f"step 4500 | loss 2.3 | {speeds}", {"step": 4500, "loss": 2.3, **numbers})
            for speeds, numbers in (
                ("1.25 s/step | 812.7 samples/s", {"step_s": 1.25, "samples_s": 812.7}),
                ("dt 350 ms/step | 41200 tok/s | mfu 41%", {"step_s": 0.35, "tokens_s": 41200}),
                ("0.8 steps/s | 812 img/s", {"step_s": 1.25, "samples_s": 812}),
                ("1.25 s/step 812.7 samples/s", {"step_s": 1.25, "samples_s": 812.7}),
                ("1.25s/step 812 samples/s", {"step_s": 1.25, "samples_s": 812}),
                ("2 it/s, tokens/s 41200", {"step_s": 0.5, "tokens_s": 41200}),
            )
        ),
        (
            "Epoch: [12][340/5004]\tTime 0.3 (0.3)\tLoss 2.3 (2.4)",
            {"step": 340, "total": 5004, "epoch": 12.0},
        ),
        ("Train: 12 [ 340/5004 (  7%)]  Loss: 4.67 (4.7)", {"step": 340, "total": 5004, "epoch": 12.0}),
        ("Epoch(train) [2][340/5004]  lr: 1e-3  loss: 1.2", {"step": 340, "total": 5004, "epoch": 2.0}),
        ("Epoch 1 Batch 3/9 loss 0.5", {"step": 3, "total": 9, "epoch": 1.0}),
        ("340/5004 [===>..........] - ETA: 2:10 - loss: 0.3", {"step": 340, "total": 5004}),
        ("msg=train nupdates=340 loss=2.3", {"step": 340}),
        (
            "step 1207 loss 2.42 lr 9.2e-5 tokens/s 33.1k",
            {"step": 1207, "loss": 2.42, "lr": 9.2e-5, "tokens_s": 33100},
        ),
        ("step 7 lr 1e-4 loss 2.42 samples/s 12.5", {"loss": 2.42, "lr": 1e-4, "samples_s": 12.5}),
        ("step 12.3K/50K loss 2.3", {"step": 12300, "total": 50000}),
        ("step 1.2M loss 2.3 12.4K tok/s", {"step": 1200000, "tokens_s": 12400.0}),
        ("global-step: 340 train-loss: 2.3 learning-rate: 1e-3", {"step": 340, "lr": 0.001, "loss": 2.3}),
        ("'global_step/max_steps': '30/2622', 'loss': 1.6", {"step": 30, "total": 2622}),
        ("optim/LR (group 0)=0.0003 train/CE loss=2.5 [step=3/9]", {"lr": 0.0003, "loss": 2.5, "step": 3}),
        ("step=3 loss=tensor(2.5, device='cuda:0')", {"step": 3, "loss": 2.5}),
        ("step 340 of 5,004: loss 2.3", {"step": 340, "total": 5004}),
        ("STEP 340 LOSS 2.3", {"step": 340, "loss": 2.3}),
        ("total_loss: 1.8  loss_cls: 0.6  iter: 340  lr: 1e-3", {"loss": 1.8, "step": 340}),
        ("step 3 aux_loss 0.1 loss 2.5 kl_loss 0.2", {"loss": 2.5}),
        ("step 3 avg_loss 2.9 loss 2.5", {"loss": 2.5}),
        ("step 3 loss 2.5 time 118.3 ms", {"step_s": 0.1183}),
        ("step 3 loss 2.5 3.2 it/s", {"step_s": 0.3125}),
        ("step 3 loss 2.5 41ms/step", {"step_s": 0.041}),
        ("| epoch 1 | 340/ 2983 batches | ms/batch 12.5 | loss 5.67", {"step_s": 0.0125, "step": 340}),
        ("Train: [12/300][340/1251] loss 4.5 (4.6)", {"epoch": 12.0, "step": 340, "total": 1251}),
        ("Step #340 Loss: 2.5 LR: 0.001", {"step": 340}),
        ("step_time 118 ms loss 2.5 step 3", {"loss": 2.5, "step_s": 0.118}),
        ("2026-11-20T03:14:05.12Z loss: 2.5 step: 3", {"loss": 2.5}),
    ],
)
def test_numbers_of_a_line(line: str, numbers: dict[str, Any]) -> None:
    reading = read_line(line.encode())
    assert reading is not None
    assert {name: getattr(reading, name) for name in numbers} == pytest.approx(numbers)


def test_a_loss_that_is_not_a_number_is_told() -> None:
    reading = read_line(b"step 12 loss=nan.0 lr=1e-4")
    assert reading is not None
    assert reading.loss != reading.loss


@pytest.mark.parametrize(
    "line",
    [
        "response_length/max: 1024.0 step/max: 12 loss/max: 3.0 lr/max: 0.1",
        "loss[1] and lr[0] at step 3",
        "epoch 001 | valid on 'valid' subset | loss 14.1 | num_updates 100",
        "Validation step 3/9: loss=0.4 lr=0.1",
        "Test: [ 10/196]  Time 1.2 (1.2)  Loss 1.2 (1.2)",
        "Epoch(val) [1][100/625]  time: 0.06  loss: 0.5",
        "[eval] step 340 loss 2.3",
        "eval loss at step 340: 2.3",
        "loaded checkpoint (epoch 12, step 340, loss 0.7)",
        "best loss 0.3 at step 340",
        "Namespace(lr=0.1, loss=1.0, step=30, epochs=90)",
        '{"loss": 1.0, "lr": 0.001, "max_steps": 500, "batch_size": 32}',
        "Fetching 4 files:  50%|█████     | 2/4 [00:10<00:10,  5.21s/it]",
        "Processed prompts:  50%|█████     | 128/256 [00:10<00:10,  6.1it/s, est. input: 121.1 toks/s]",
        "rollout:  12%|█▏        | 31/256 [00:41<04:58,  1.33s/it]",
        "100%|██████████| 4/4 [00:01<00:00,  3.2ba/s]",
        "some new thing:  12%|█▏        | 31/256 [00:41<04:58,  1.33s/it]",
        "Epoch:  33%|███▎      | 1/3 [10:12<20:24, 612.12s/it]",
        "step 2/5: packing, 41.2k samples/s",
        "benchmark: step 10/100 lr 0.1 41,200 tokens/s 412 ms/step",
        "Step 3/9 : RUN pip install",
        "Warmup iteration 3: loss 2.1, 411 ms",
        "lr: 0.001",
        "max_steps: 500",
        "loss_scale: 128, lr_warmup_steps: 2000, step: 3",
        "loss 3x larger, lr 2nd, step 3",
    ],
)
def test_other_things_tell_nothing(line: str) -> None:
    assert fed(line).latest == fed().latest


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3", "step"),  # samples
        ("Epoch 3 loss 2.3 time 123.4s", "step_s"),  # of the epoch
        ("step 340 loss 2.3 elapsed 123.4 s", "step_s"),
        ("step 340 loss 2.3 time: 0:12:34", "step_s"),
        ("step 340 loss 2.3 iter_time 0.01 forward_time 0.2", "step_s"),
        ("step 340 loss 2.3 train_time:45678ms", "step_s"),
        ("step 340 loss 2.3 total time 45678 ms", "step_s"),
        ("step 340, lr 0.1, D loss 0.5, G loss 1.2", "loss"),
        ("step 340 lr 0.1 surrogate loss 0.5 value loss 1.2", "loss"),
        ("train loss 340 0.345 step 3 lr 0.1", "loss"),
        ("step 340 loss 2.3 max_lr 0.1 min_lr 0.01", "lr"),
        ("step 340 lr 0.1 val_loss 2.3 kl_loss 0.1", "loss"),
        ("step 340 lr 0.1 loss 0.5%", "loss"),
        ("step 340 loss 2.3 epoch 5%", "epoch"),
        ("step 340 loss 2.3 (3/8 ranks)", "total"),
        ("step 340 loss 2.3 on 11/20/2026", "total"),
        ("step 340/100 loss 2.3", "total"),
        ("loss 2.3 batch 32 lr 0.1", "step"),  # a size
    ],
)
def test_what_a_line_does_not_say(line: str, absent: str) -> None:
    reading = read_line(line.encode())
    assert reading is not None
    assert getattr(reading, absent) is None


def test_a_lone_loss_counts_once_it_changes() -> None:
    setting = fed("loss: 1.0", "loss: 1.0", "lr: 0.1", "lr: 0.2")
    assert setting.latest == fed().latest
    metrics = fed("loss: 2.5", "loss: 2.25", "loss: 2.25", "loss: 2.0")
    assert [loss for _, loss in metrics.series("loss")] == [2.5, 2.25, 2.0]


def test_numbers_below_a_heading_are_of_its_step() -> None:
    metrics = fed("[batch=340/5004]:", "\t Train loss/train/total: 2.5", "\t Train lr-AdamW/group0: 0.001")
    latest = metrics.latest
    assert (latest.step, latest.total, latest.loss, latest.lr) == (340, 5004, 2.5, 0.001)
    assert fed("[batch=340/5004]:").latest == fed().latest
    assert fed("[batch=340/5004]:", *["noise, step 3 of nothing"] * 9, "lr: 0.1").latest.lr == 0.1


def test_an_evaluation_after_the_last_step_does_not_hide_it() -> None:
    metrics = fed(
        BAR.format(percent=99, step=99),
        "{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.99}",
        BAR.format(percent=100, step=100).replace("1000", "1000"),
        "100%|██████████| 20/20 [00:01<00:00, 15.1it/s]",
    )
    assert (metrics.latest.step, metrics.latest.total) == (100, 1000)


def test_losses_below_another_bar_make_it_the_one_of_training() -> None:
    loss = "{{'loss': {}, 'learning_rate': 1e-05, 'epoch': 0.99}}"
    metrics = fed(BAR.format(percent=9, step=90), loss.format(1.5))
    metrics.feed(0, b"  5%|#   | 10/200 [00:10<03:10,  1.00s/it]\n", 2.0)
    assert metrics.latest.total == 1000
    metrics.feed(0, loss.format(1.4).encode() + b"\n", 3.0)
    assert (metrics.latest.step, metrics.latest.total, metrics.latest.loss) == (10, 200, 1.4)


def test_the_ends_of_a_long_line_are_read_and_no_half_of_a_word() -> None:
    filler = " ".join(f"actor/thing_{number}:0.5" for number in range(140))
    metrics = fed(f"step:340 - {filler} - loss:2.5")
    assert (metrics.latest.step, metrics.latest.loss) == (340, 2.5)
    for length in range(1010, 1040):
        line = (
            "step 3 " + "x" * (length - 7) + " val_loss=7.123 " + "y" * 1500 + " val_loss=9.5 " + "z" * length
        )
        assert fed(line).latest.loss is None


HOSTILE = [
    b"[",
    b" ",
    b"9",
    b"1,",
    b"1,111",
    b"1/2 [",
    b"1/2 [1:2<3:4, 5it/s ",
    b"loss ",
    b"loss (",
    b"loss=1 ",
    b"'loss': '",
    b"eta: 1 day, ",
    b"remaining",
    b"- ",
    b"--",
    b"\x1b[1;",
    b"1e",
    b"nan",
    b"((((",
    b"a_b/c-d.",
    b"\xe2\x96\x88",
    b"\x00\xff",
    b"step 3/",
    b"epoch [1][",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("around", [b"%s\n", b"step 3 loss 1 %s\n", b"%s loss 1 step 3 lr 0.1\n"])
def test_a_megabyte_of_anything_does_no_harm(piece: bytes, around: bytes) -> None:
    data = around % (piece * (1_000_000 // len(piece)))
    metrics = Metrics()
    metrics.feed(0, data, 1.0)
    for at in range(0, 60_000, 3000):
        metrics.feed(1, data[at : at + 3000], 1.0)
    read_line(data)
    assert metrics.time_left(1.0) is None or metrics.latest.total
