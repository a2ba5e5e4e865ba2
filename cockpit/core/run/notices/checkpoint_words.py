"""Lines of logs that say that a checkpoint is, or was, saved, and how long that took."""

from __future__ import annotations

import re

HINTS = (b"heckpoint", b"CHECKPOINT", b"ckpt", b"_states", b"state_dict", b"safetensors", b"aving ", b"aved ")
"""What such a line contains; quick to look for."""

_SAVES = re.compile(
    rb"(?i)\b(?:sav(?:e|es|ed|ing)|stor(?:ed|ing)|writ(?:es?|ing|ten)|wrote|dump(?:s|ed|ing))\b"
)
_NAMES = re.compile(
    rb"(?i)checkpoint|ckpt|(?:model|optim)_states|state_dict|safetensors"
    rb"|\bsav(?:ed|ing) (?:the |best |final )?model\b|\bsav(?:ed|ing) (?:the |current )?state\b"
)
_DOES = re.compile(rb"(?i)\bcheckpointing (?:at|after|model|state|to)\b")
_OTHERS = re.compile(
    rb"(?i)\b(?:(?:re)?load(?:s|ed|ing)?|(?<!will )resum(?:e|es|ed|ing)|restor(?:e|es|ed|ing)|every"
    rb"|intervals?|skip(?:s|ped|ping)?|fail(?:s|ed|ing|ures?)?|errors?"
    rb"|(?:activation|gradient)s?[ -]checkpoint\w*|will(?! resume)|not?|disabl(?:e|ed|ing)|frequency)\b"
)
"""Of settings, of loading, of what went wrong."""
_TOOK = re.compile(
    rb"(?i)\b(?:took|in|elapsed|duration|time)(?: time)?[ :=]{1,3}(\d{1,7}(?:\.\d{1,9})?)\s?"
    rb"(ms|s|sec|secs|seconds?|mins?|minutes?)\b"
)


def names_one(line: bytes) -> bool:
    """Whether a line says that a checkpoint is, or was, saved."""
    if not _NAMES.search(line):
        return False
    # Words of a path, such as a user's name, say nothing about what is done.
    plain = b" ".join(word for word in line.split() if b"/" not in word)
    return bool(_SAVES.search(plain) or _DOES.search(plain)) and not _OTHERS.search(plain)


def took(line: bytes) -> float | None:
    """Seconds that the checkpoint took, according to a line that names one; None: it does not say."""
    times = [float(number) * _unit(unit) for number, unit in _TOOK.findall(line)]
    return max(times, default=None)


def _unit(unit: bytes) -> float:
    if unit.lower() == b"ms":
        return 0.001
    return 60.0 if unit[:1] in b"mM" else 1.0
