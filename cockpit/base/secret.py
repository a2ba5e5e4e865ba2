"""What counts as a secret: variables recognised by their names, whose values are never shown."""

from __future__ import annotations

import re

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
