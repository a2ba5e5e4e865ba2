"""What counts as a secret in a line of source code."""

from __future__ import annotations

import pytest

from cockpit.base.secret import without_secrets


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("loss = step(batch)", "loss = step(batch)"),
        ('login(token="hf_abc")', 'login(token="(secret, 6 characters)")'),
        ("os.environ['WANDB_API_KEY'] = 'x y'", "os.environ['WANDB_API_KEY'] = '(secret, 3 characters)'"),
        ('{"password": "abc", "user": "me"}', '{"password": "(secret, 3 characters)", "user": "me"}'),
        ('send("0123456789abcdefABCDEF")', 'send("(secret, 22 characters)")'),
        ('open("checkpoints/of/the/last/epoch")', 'open("checkpoints/of/the/last/epoch")'),
        ('api_key = "cut off', 'api_key = "(secret, 7 characters)"'),
    ],
)
def test_source_code_without_secrets(line: str, shown: str) -> None:
    assert without_secrets(line) == shown
