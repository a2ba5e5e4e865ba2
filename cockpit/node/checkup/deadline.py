"""Questions that may never be answered, asked side by side and given up after a while."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Callable, Deque, Dict, Iterable, Tuple, TypeVar

T = TypeVar("T")

Silent = Dict[str, str]
"""What gave no answer, and why."""


def within(
    limit_s: float, questions: Iterable[str], ask: Callable[[str], T], *, threads: int
) -> Tuple[Dict[str, T], Silent]:
    """The answers that came within ``limit_s`` seconds; for each other question, why there is none.

    A thread in a system call that hangs cannot be ended: it is left to the end of this process.
    """
    todo: Deque[str] = deque(dict.fromkeys(questions))
    everything = list(todo)
    found: Dict[str, T] = {}
    failed: Silent = {}

    def work() -> None:
        while True:
            try:
                question = todo.popleft()
            except IndexError:
                return
            try:
                found[question] = ask(question)
            except OSError as error:
                failed[question] = os.strerror(error.errno) if error.errno else str(error)
            except Exception as error:
                failed[question] = "%s: %s" % (type(error).__name__, error)

    end = time.monotonic() + limit_s
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(everything)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, end - time.monotonic()))
    todo.clear()
    # Copies: a thread that was given up may return at any time.
    answers, reasons = dict(found), dict(failed)
    late = "no answer within %g s" % limit_s
    return answers, {name: reasons.get(name, late) for name in everything if name not in answers}
