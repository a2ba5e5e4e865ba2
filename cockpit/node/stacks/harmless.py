"""Texts of other programs, without the secrets that can be recognised as such."""

from __future__ import annotations

import re

_WORD = r"(?:token(?!iz)|key|secret|passw(?:or)?d|passphrase|authorization|credential|cookie)\w*"
_LITERAL = re.compile(r"""(%s["']?\]?\s*[:=]\s*\w?)(["'])(?:(?!\2).)*(?:\2|$)""" % _WORD, re.IGNORECASE)
_PAIR = re.compile(
    r"((?:token|api[_-]?key|secret|passw(?:or)?d|passphrase|authorization)(?:=|:\s*))"
    r"(?:(?:bearer|basic)\s+)?(?!\(secret)[^\s;&,\"')\]}]+",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)[^/?#\s@\"']*@")
_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}"
    r"|xox[baprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]+)"
)


def harmless(text: str) -> str:
    """A text without the passwords, keys and tokens that can be recognised as such."""
    text = _LITERAL.sub(r"\1(secret)", text)
    text = _PAIR.sub(r"\1(secret)", text)
    return _KNOWN.sub("(secret)", _USER.sub("(secret)@", text))
