"""What a configuration means for a host, as the ssh program says: the question (``ssh -G``), its answer."""

from __future__ import annotations


def question(ssh: list[str], host: str, *command: str) -> list[str]:
    """The words that ask it.

    :param ssh: the program and its options
    """
    return [*ssh, "-G", "--", host, *command]


def answer(code: int, out: str, err: str, otherwise: str) -> dict[str, list[str]]:
    """The values of each keyword, which is in lower case, in their order.

    :param otherwise: why there is none, where ssh does not say
    :raises ValueError: ssh does not understand the configuration; says why
    """
    if code:
        raise ValueError(next(iter(err.strip().splitlines()), otherwise))
    found: dict[str, list[str]] = {}
    for line in out.splitlines():
        keyword, _, value = line.partition(" ")
        found.setdefault(keyword.lower(), []).append(value)
    return found
