"""What counts as a secret: values of variables, recognised by their names; and what looks like one."""

from __future__ import annotations

import re
from typing import Iterable, List, Mapping

# TOKENIZERS_PARALLELISM and GIT_AUTHOR_NAME are not secrets; PWD and OLDPWD are folders, MYSQL_PWD is not.
_SECRET = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSWD|PASSWORD|PASSPHRASE|_PASS\b|_PWD\b|CREDENTIAL|COOKIE|AUTH(?!OR)",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a variable of this name is treated as a secret."""
    return _SECRET.search(name) is not None


def hidden(value: str) -> str:
    """What is shown for a secret: ``(secret, N characters)``."""
    return "(secret, %d characters)" % len(value)


GONE = "(secret)"
"""What stands for a secret in a text."""

SHORT = 6
"""A shorter value is no secret wherever it is: it would be found in half of all texts."""

A_LINE = 16
"""A shorter line of a value, such as a key's file or JSON, may be any word."""

_PIECE = r"[^\s,;&\"'<>]{1,512}"
# Names of parameters that sign a request; as variables they are no secrets.
_SIGNS = re.compile(r"(?:^|-)SIG(?:NATURE)?$", re.IGNORECASE)
_NUMBER = re.compile(r"[-+.\d]{1,12}[a-zA-Z]?$")
_NAMED = re.compile(
    r"(?<![\w.-])([A-Za-z_][\w.-]{0,63})([\"']?\s{0,3}[=:]\s{0,3})"
    rf"(\"[^\"]{{0,512}}\"|'[^']{{0,512}}'|(?!//){_PIECE})"
)
_OPTION = re.compile(rf"(?<![\w-])(--?[A-Za-z_][\w-]{{0,63}}\s{{1,3}})(?!-)({_PIECE})")
_SHAPED = re.compile(
    r"(?<=://)[^/\s@\"']+(?=@)"
    rf"|(?<=bearer )\s*{_PIECE}|(?<=basic )\s*{_PIECE}"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-|sk-|rk_|pypi-)[\w-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|\b[0-9a-f]{40}\b",
    re.IGNORECASE,
)


def without(text: str, known: Iterable[str] = ()) -> str:
    """A text without what looks like a secret: in an address, a header, an assignment, an option, or by its
    shape.

    What it cannot know is a secret that has no name and no shape.

    :param known: values that are secrets wherever they are
    """
    for value in known:
        if len(value) >= SHORT:
            text = text.replace(value, GONE)
    text = _SHAPED.sub(GONE, text)
    text = _OPTION.sub(lambda found: found[1] + GONE if _names_secret(found[1], found[2]) else found[0], text)
    return _without_named(text)


def values(environ: Mapping[str, str]) -> List[str]:
    """The values of all variables that are secrets, and the lines of such a value, the longest first."""
    whole = {value for name, value in environ.items() if is_secret(name)}
    lines = {line.strip() for value in whole for line in value.splitlines()}
    return sorted(whole | {line for line in lines if len(line) >= A_LINE}, key=len, reverse=True)


def _without_named(text: str) -> str:
    kept: List[str] = []
    at = 0
    while True:
        match = _NAMED.search(text, at)
        if match is None:
            return "".join([*kept, text[at:]])
        # The value of one that is no secret may name one itself.
        end = match.start(3)
        kept.append(text[at:end])
        if _names_secret(match[1], match[3]):
            kept.append(GONE)
            end = match.end()
        at = end


def _names_secret(name: str, value: str) -> bool:
    # An error is named after what it is about: KeyError, AuthenticationError.
    if name.endswith(("Error", "Exception", "Interrupt")) or _NUMBER.match(value.strip("\"'")):
        return False
    return is_secret(name) or _SIGNS.search(name) is not None
