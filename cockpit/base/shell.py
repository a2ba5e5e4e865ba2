"""The one place where text becomes shell: words, numbers, comments, and templates that are filled with them.

Whatever goes into a script, or into a command that a person is asked to type, goes through here. Two shells
read the result: bash (scripts, and what people paste) and POSIX ``sh`` (what starts agent and wrapper),
which knows fewer ways to quote.
"""

from __future__ import annotations

import re
from typing import Iterable, Union

# A leading "=" has a meaning in zsh.
_SAFE = re.compile(r"(?!=)[A-Za-z0-9_@%+=:,./-]+\Z")
# Letters that are each drawn as one sign, combine with nothing and do not reverse text.
_CLEAR = re.compile(
    r"[ -~\u00a1-\u00ac\u00ae-\u02ff\u0370-\u0482\u048a-\u052f\u1e00-\u1fff"
    r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]\Z"
)
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}

Value = Union[str, int]
"""What can be put into a script."""


def quote(text: str) -> str:
    """The text as one word of bash, byte for byte, on one line, whatever the text is.

    What a terminal does not show as it is (control characters, signs that combine or reverse the text), and
    ``!``, which an interactive shell expands from its history, is spelled out in ``$'…'``. Bash
    ends such a word at a NUL byte: no word can have one.
    """
    if _SAFE.match(text):
        return text
    if all(map(_clear, text)):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_spell, text)) + "'"


def quote_posix(text: str) -> str:
    """The text as one word of any POSIX shell, byte for byte; it may have newlines in it.

    :raises ValueError: a NUL byte
    """
    if "\0" in text:
        raise ValueError("a NUL byte cannot be part of a word: %r" % text)
    return "'" + text.replace("'", "'\\''") + "'"


def join(words: Iterable[str]) -> str:
    """Words as one command line of bash."""
    return " ".join(map(quote, words))


def comment(text: str) -> str:
    """The text as a one-line comment, in which nothing means anything to the shell that reads it."""
    return "# " + "".join(char if _clear(char) and char not in "`$!\\" else "?" for char in text)


def verbatim(text: str) -> str:
    """Shell text that a person wrote, as it is; an ``eval`` of it if a terminal would not show it so."""
    return text if all(char in "\n!" or _clear(char) for char in text) else "eval " + quote(text)


def fill(template: str, *values: Value, **named: Value) -> str:
    """A piece of shell with values for ``{}`` or ``{name}``: strings quoted, numbers as digits.

    A string may stand where a whole word can, outside of all quotes. Inside of arithmetic, which a shell
    expands once more, write ``{name:d}``, which takes numbers only.

    :raises TypeError: a value that is neither text nor a number
    :raises ValueError: text where a number must be
    """
    return template.format(*map(_value, values), **{name: _value(value) for name, value in named.items()})


def _value(value: Value) -> Value:
    # A bool is an int, but not a number.
    if type(value) is int:
        return value
    if isinstance(value, str):
        return quote(value)
    raise TypeError("neither text nor a whole number: %r" % (value,))


def _clear(char: str) -> bool:
    return char != "!" and _CLEAR.match(char) is not None and char.isprintable()


def _spell(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if _clear(char):
        return char
    try:
        data = char.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, which represents no byte
        data = char.encode("utf-8", "surrogatepass")
    return "".join("\\%03o" % byte for byte in data)
