"""Secrets in texts: what is cut, what is left alone, and that no text takes long."""

from __future__ import annotations

import pytest

from cockpit.base.secret import GONE, values, without

TOKEN = "f00b4r" * 7


@pytest.mark.parametrize(
    "text",
    [
        f"WANDB_API_KEY={TOKEN}",
        f"export HF_TOKEN='{TOKEN}'",
        f'{{"password": "{TOKEN} {TOKEN}"}}',
        f"Authorization: Bearer {TOKEN}",
        f"authorization: Basic {TOKEN}==",
        f"GET https://ada:{TOKEN}@example.org/x",
        f"error: unrecognized arguments: --hf-token {TOKEN}",
        f"argv: train.py --api_key  {TOKEN} --steps 5",
        f"https://example.org/x?a=1&token={TOKEN}&b=2",
        f"https://s3.example.org/x?X-Amz-Signature={TOKEN}",
        f"reason: url=https://example.org?api_key={TOKEN}",
        f"401 for hf_{TOKEN}",
        f"login with ghp_{TOKEN} failed",
        f"eyJhbGciOiJI.{TOKEN}.sig",
        "wandb: 0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_what_looks_like_a_secret_is_cut(text: str) -> None:
    cut = without(text)
    assert TOKEN not in cut
    assert GONE in cut


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'model.layers.0.weight'",
        "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB",
        "step 4 loss 0.7 tokens: 33104 tokens/s 33.1k",
        "train.py: error: argument --max-tokens: not allowed with --key-bits 512",
        "train.py --tokenizer gpt2 --steps 5 --auth --author ada",
        "AuthenticationError: 401 Unauthorized",
        "rank 13 has not reached all_reduce #4211",
        "cockpit logs otter --rank 13: its log",
        "https://example.org/x?a=1",
        "data.py:118 read_shard",
    ],
)
def test_what_a_person_needs_stays(text: str) -> None:
    assert without(text) == text


def test_values_of_the_environment_are_cut_wherever_they_are() -> None:
    known = values({"MY_TOKEN": "correct horse", "PIN_KEY": "1", "HOME": "/home/ada"})
    assert (
        without("the horse is correct horse at /home/ada 1", known) == f"the horse is {GONE} at /home/ada 1"
    )


def test_each_line_of_a_value_is_cut() -> None:
    known = values({"DEPLOY_KEY": f"-----BEGIN\n  {TOKEN}\nshort\n"})
    assert without(f"cannot parse {TOKEN}: short", known) == f"cannot parse {GONE}: short"


@pytest.mark.parametrize(
    "text",
    [
        "--key " * 2000,
        "--key  " + "-" * 9000,
        "a:" * 5000,
        'a="' * 5000,
        "a" * 10_000,
        "://" * 5000,
        "bearer " * 2000,
    ],
)
def test_no_text_is_too_deep(text: str) -> None:
    assert len(without(text)) <= 2 * len(text)
