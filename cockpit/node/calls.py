"""One request of a cockpit to this agent, and the errors that travel back as sentences."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Type, TypeVar

from cockpit.base.frames import Header
from cockpit.base.gate import Malformed, read

T = TypeVar("T")

Send = Callable[[Header, bytes], None]

at_end: List[Callable[[], None]] = []
"""Called before this agent ends because nobody is listening any more; not if it is killed."""


class NodeError(Exception):
    """A request cannot be met; what a person needs to know travels back as a sentence.

    :param kind: a word that code on the other side may switch on
    :param what: the sentence
    :param hint: what to type or change next
    """

    def __init__(self, kind: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.hint = hint


class Call:
    """A request being served, in its own thread."""

    def __init__(self, header: Header, payload: bytes, send: Send) -> None:
        self.header = header
        self.payload = payload
        self._send = send
        self._changed = threading.Condition()
        self._cancelled = False
        self._credit = 0

    @property
    def cancelled(self) -> bool:
        """Whether the other side no longer wants the answer."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop as soon as possible."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

    def add_credit(self, size: int) -> None:
        """Allow ``size`` more bytes of payload: credit from the request, or given later."""
        with self._changed:
            self._credit += size
            self._changed.notify_all()

    def take_credit(self, timeout_s: float) -> int:
        """Bytes of payload that may be sent now; waits up to ``timeout_s`` for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._cancelled or self._credit > 0, timeout_s)
            return 0 if self._cancelled else self._credit

    def pause(self, seconds: float) -> bool:
        """Wait; return whether the call is still wanted."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._cancelled, seconds)

    def item(self, item: Dict[str, Any], payload: bytes = b"") -> None:
        """Send one part of the answer; its payload uses up credit."""
        with self._changed:
            self._credit -= len(payload)
        self._send({"id": self.header["id"], "item": item}, payload)

    def asked(self, definition: Type[T]) -> T:
        """The request, checked by its definition in :mod:`cockpit.base.verbs`.

        :raises NodeError: it is not that
        """
        try:
            return read(definition, self.header)
        except Malformed as error:
            raise NodeError("protocol", "not a request that can be met: %s" % error) from None
