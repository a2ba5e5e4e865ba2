"""Numerics: values that are no numbers."""

from __future__ import annotations

from cockpit.core.rules.row import Next, Row


def _nan(name: str) -> str:
    """That a value is no number; each way to write it whole, so that it is rare and quick to look for."""
    between = ("': ", '": ', ": ", ":", "=", " = ", " : ", " ")
    written = (f"{name}{each}{nan}" for each in between for nan in ("nan", "NaN", "NAN"))
    return rf"(?:{'|'.join(written)})\b(?!\.?\w)"


ROWS: tuple[Row, ...] = (
    Row(
        id="nan-stopped",
        signs=(
            r"\b(?:found NaN in local grad norm|found NaN in local forward loss|found Inf in local grad norm)\b",
            r"\bUnexpected result (?:nan|inf|-inf)\b",
            r"\bLoss is (?:[-+]?(?:nan|NaN|inf)\b|tensor\([-+]?(?:nan|inf))",
            r"\b[Ll]oss is [^\n]{1,80}, stopping training\b",
            r"\b[Nn]on-finite loss\b",
            r"\bis non-finite, so it cannot be clipped\b",
            r"\bgrad_scale is too small\b",
            r"\bMinimum loss scale reached\b",
            r"\b[Cc]urrent loss scale already at minimum\b",
            r"\bFunction '\w{1,60}' returned nan values in its\b",
        ),
        means="The training stopped itself, as loss or gradients were NaN or infinite again and again.",
        zh="loss 或梯度反复出现 NaN/Inf，训练自行停止。",
        next=(
            Next(
                "",
                "Find the first step with a NaN; resume before it with a lower learning rate or other data.",
                "找到第一个出现 NaN 的 step，从它之前的 checkpoint 恢复，并降低学习率或换数据。",
            ),
            Next(
                "",
                "Only on one rank or node, again and again: suspect its GPU.",
                "如果总是出在同一个 rank 或节点，多半是它的 GPU 有问题。",
            ),
            Next("", "bf16 instead of fp16 needs no loss scale.", "用 bf16 代替 fp16 就不需要 loss scale。"),
        ),
        source="megatron/core/rerun_state_machine.py, fairseq/optim/dynamic_loss_scaler.py, deepspeed",
    ),
    Row(
        id="loss-nan",
        checks=frozenset({"loss nan"}),
        signs=(
            _nan("loss"),
            _nan("grad_norm"),
            _nan("grad norm"),
        ),
        severity="warning",
        means="The loss or gradients are NaN or infinite; training after that point is lost.",
        zh="loss 或梯度变成了 NaN/Inf，之后的训练都白费了。",
        next=(
            Next(
                "",
                "Resume from before the first NaN with a lower learning rate, or gradient clipping.",
                "从第一个 NaN 之前的 checkpoint 恢复，并降低学习率或加上梯度裁剪。",
            ),
            Next(
                "",
                "Check the batch of that step: empty labels, a division by zero.",
                "检查那个 step 的 batch：有没有空标签、除以零。",
            ),
        ),
        source="transformers/trainer.py logs",
    ),
)
