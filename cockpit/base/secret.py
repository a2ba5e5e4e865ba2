"""What counts as a secret: variables recognised by their names, whose values are never shown."""

from __future__ import annotations

import re

# TOKENIZERS_PARALLELISM and GIT_AUTHOR_NAME are not secrets; PWD and OLDPWD are folders, MYSQL_PWD is not.
_SECRET = re.compile(
    r"TOKEN(?!IZ)|KEY|SECRET|PASSWD|PASSWORD|PASSPHRASE|_PASS\b|_PWD\b|CREDENTIAL|COOKIE|AUTH(?!OR)",
    re.IGNORECASE,
)

_ASSIGNED = re.compile(r"""([\w.\-]+)(["']?\]?\s*[=:]\s*(?:[a-zA-Z]{0,2}))(["'])(.*?)(?:\3|$)""")
"""A name, and a text in quotes that it gets."""
_OPAQUE = re.compile(r"""(["'])((?=[^"']*\d)[A-Za-z0-9_\-+/=.]{20,})(?:\1|$)""")
"""A text in quotes that no person has thought up."""


def is_secret(name: str) -> bool:
    """Whether a variable of this name is treated as a secret."""
    return _SECRET.search(name) is not None


def hidden(value: str) -> str:
    """What is shown for a secret: ``(secret, N characters)``."""
    return "(secret, %d characters)" % len(value)


def without_secrets(line: str) -> str:
    """A line of source code without texts that may be secrets, by the name that they get or by their look."""

    def assigned(found: re.Match[str]) -> str:
        name, between, mark, value = found.groups()
        return f"{name}{between}{mark}{hidden(value)}{mark}" if is_secret(name) else found.group()

    def opaque(found: re.Match[str]) -> str:
        return found.group(1) + hidden(found.group(2)) + found.group(1)

    return _OPAQUE.sub(opaque, _ASSIGNED.sub(assigned, line))
