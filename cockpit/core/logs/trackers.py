"""Where else a training can be watched: the addresses that W&B and TensorBoard print into its log."""

from __future__ import annotations

import re
from typing import NamedTuple

HEAD = 128 << 10
"""Bytes at the beginning of a log that are searched first: both print their address when they start."""

HINTS = (b"View run", b"TensorBoard ")
"""What a line with an address contains one of; quick to look for."""

LONGEST = 500
"""Characters of an address; a longer one is none."""

_STYLE = re.compile(rb"\x1b\[[\d;:?]*[A-Za-z]")
# wandb/sdk/wandb_run.py and tensorboard/program.py; what follows a ? may be a key to the account. W&B prints
# "wandb: … View run NAME at: ADDRESS": its words are found one by one, so that no text is looked at twice.
_WORDS = re.compile(
    rb"\n|(?P<by>wandb: )|\b(?P<view>View run )|\bat:? {1,8}(?P<wandb>https?://[!-~]+)"
    rb"|TensorBoard \d[\w.+]{0,30} at (?P<tensorboard>https?://[!-~]+)"
)
_APART = 300
"""Bytes between two of these words, at most."""

_ADDRESS = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d+)?(/[\w.~%+/-]*)?", re.ASCII)

MOST = 16
"""Pages of a run that are kept: a program may print any number of addresses."""

NAMES = {"wandb": "W&B", "tensorboard": "TensorBoard"}


class Tracker(NamedTuple):
    """A page about the training.

    :param name: ``W&B`` or ``TensorBoard``
    :param url: harmless ASCII, ``http`` or ``https``; without user, password and query
    """

    name: str
    url: str


def trackers(data: bytes) -> list[Tracker]:
    """The pages that these bytes of a log name, in the order in which they do; each once."""
    if not any(hint in data for hint in HINTS):
        return []
    found: dict[Tracker, None] = {}
    by = view = -1  # where the last words of W&B end that an address may belong to
    for printed in _WORDS.finditer(_STYLE.sub(b"", data)):
        kind, at = printed.lastgroup or "", printed.start()
        if kind == "by":
            by = printed.end()
        elif kind == "view":
            view = printed.end() if 0 <= by >= at - _APART else -1
        elif not kind:
            by = view = -1
        if kind not in NAMES or (kind == "wandb" and not 0 <= view >= at - _APART):
            continue
        url = re.split("[?#]", printed[kind].decode())[0].rstrip(".,;)")
        if len(url) <= LONGEST and _ADDRESS.fullmatch(url):
            found[Tracker(NAMES[kind], url)] = None
    return list(found)
