"""The last look for secrets before something leaves this machine; what is taken out is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from cockpit.base import secret

T = TypeVar("T")


class Sieve:
    """Takes secrets out of texts by :func:`cockpit.base.secret.without`, and counts them.

    :param known: values that are secrets wherever they are, see :func:`cockpit.base.secret.values`
    :param form: what else is done to a text, such as making it harmless
    """

    def __init__(self, known: Iterable[str] = (), form: Callable[[str], str] = str) -> None:
        self._known = tuple(known)
        self._form = form
        self.taken = 0
        """How many have been taken out."""

    def text(self, text: str) -> str:
        """A text without secrets."""
        return self._form(self._without(text))

    def lines(self, text: str) -> list[str]:
        """The lines of a text without secrets; one of these may have several lines."""
        return (
            [self._form(line) for line in self._without(text).removesuffix("\n").split("\n")] if text else []
        )

    def _without(self, text: str) -> str:
        clean = secret.without(text, self._known)
        if clean != text:
            self.taken += max(1, clean.count(secret.GONE) - text.count(secret.GONE))
        return clean

    def words(self, words: Iterable[str]) -> tuple[str, ...]:
        """A command line without secrets: an option may say that the next word is one."""
        taken: list[str] = []
        clean = secret.command(tuple(words), self._known, taken)
        found = [each for each in taken if each != secret.GONE]
        self.taken += len(found)
        # A rank may print what it was given.
        given = {form for each in found for form in secret.values({"SECRET": each})}
        self._known = tuple(sorted({*self._known, *given}, key=len, reverse=True))
        return tuple(clean)

    def variable(self, name: str, value: str) -> str:
        """The value of a variable without secrets."""
        if secret.is_hidden(value):
            return value
        clean = secret.variable(name, value, self._known)
        self.taken += clean != value
        return clean

    def all_in(self, value: T) -> T:
        """Data without secrets: every text in it, however deep, passes :meth:`text`."""
        return self._clean(value)  # type: ignore[no-any-return]

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple):
            parts = [self._clean(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, list):
            return [self._clean(each) for each in value]
        if isinstance(value, Mapping):
            return {name: self._named(name, each) for name, each in value.items()}
        if is_dataclass(value) and not isinstance(value, type):
            changed = {each.name: self._clean(getattr(value, each.name)) for each in fields(value)}
            return replace(value, **changed)
        return value

    def _named(self, name: Any, value: Any) -> Any:
        """What is in a mapping: local variables of frames are there by their names."""
        if name == "locals" and isinstance(value, list | tuple):
            return [self._locals(each) if isinstance(each, Mapping) else self._clean(each) for each in value]
        return self._clean(value)

    def _locals(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._local(name, text) for name, text in frame.items()}

    def _local(self, name: str, text: Any) -> Any:
        if not isinstance(text, str) or secret.is_hidden(text):
            return self._clean(text)
        clean = secret.local(name, text, self._known)
        self.taken += clean != text
        return clean
