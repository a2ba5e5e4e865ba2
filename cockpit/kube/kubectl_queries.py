"""What ``kubectl`` is asked, by whoever wants to know: one question is asked at most every other second.

All users of a cluster share its API server. What it has just said is not asked again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cockpit.errors import CockpitError, Exit
from cockpit.kube.kubectl_errors import meaning

PERIOD_S = 2.0
"""Least seconds between two calls with the same question, and how long an answer serves whoever asks it."""

ANSWER_S = 20.0
"""Seconds for an answer: a login plugin, a proxy or a busy API server is slow."""

MOST = 64 << 20
"""Bytes of an answer: some thousands of pods."""

_SAID = 1 << 16
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


@dataclass(frozen=True)
class Cluster:
    """Where pods are; what is empty is as the kubeconfig of this person says."""

    context: str = ""
    namespace: str = ""

    def __post_init__(self) -> None:
        """:raises CockpitError: there is no such name."""
        if self.namespace and not _NAMESPACE.match(self.namespace):
            what = f"not a namespace: {self.namespace[:80]!a}"
            raise CockpitError(what, where="--namespace", hint="see: kubectl get namespaces")
        if not self.context.isprintable():
            what = f"not a context: {self.context[:80]!a}"
            raise CockpitError(what, where="--context", hint="see: kubectl config get-contexts")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Cluster:
        """The one that the options of a transport name.

        :raises CockpitError: there is no such name
        """
        return cls(options.get("context", ""), options.get("namespace", ""))

    @property
    def words(self) -> tuple[str, ...]:
        """kubectl with the options that say it."""
        context = ("--context", self.context) if self.context else ()
        return ("kubectl", *context, *(("-n", self.namespace) if self.namespace else ()))


@dataclass(frozen=True)
class _Answer:
    at: float
    status: int
    out: bytes
    said: str


_answers: dict[tuple[str, ...], _Answer] = {}
_turns: dict[tuple[str, ...], threading.Lock] = {}
_turn = threading.Lock()


def ask(cluster: Cluster, words: Sequence[str], where: str, since: float = 0.0) -> bytes:
    """What ``kubectl WORDS`` prints; it waits for its turn: up to :data:`PERIOD_S` after the same question.

    :param where: what an error is about
    :param since: no answer to a question from before (monotonic seconds) will do; 0: a recent one does
    :raises CockpitError: kubectl is not here, or has no answer; ``retry`` says whether it may have one later
    """
    asked = (*cluster.words, *words)
    with _turn:
        turn = _turns.setdefault(asked, threading.Lock())
    with turn:
        last = _answers.get(asked)
        now = time.monotonic()
        if last is not None and last.at < (since or now - PERIOD_S):
            time.sleep(max(0.0, last.at + PERIOD_S - now))
            last = None
        if last is None:
            last = _run(asked, where)
            _keep(asked, last)
    if last.status == 0:
        return last.out
    meant = meaning(last.said)
    if meant is None:
        meant = meaning(f"error: {' '.join(last.said.split())[-300:] or f'kubectl: status {last.status}'}")
    assert meant
    if meant.absent:
        raise Absent(meant.what, where=where, hint=meant.hint)
    raise Unanswered(meant.what, where=where, hint=meant.hint, retry=meant.retry)


def _keep(asked: tuple[str, ...], answer: _Answer) -> None:
    """Keep an answer, and none that serves nobody any more: one may have megabytes."""
    with _turn:
        for other in [each for each, old in _answers.items() if old.at < answer.at - PERIOD_S]:
            del _answers[other]
        _answers[asked] = answer


class Unanswered(CockpitError):
    """kubectl has no answer.

    :param retry: whether it may have one later
    """

    def __init__(self, what: str, *, where: str, hint: str = "", retry: bool = False) -> None:
        super().__init__(what, where=where, hint=hint, code=Exit.NODE_UNFIT)
        self.retry = retry


class Absent(CockpitError):
    """There is no such pod."""

    def __init__(self, what: str, *, where: str, hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, code=Exit.NODE_UNFIT)


def _run(words: Sequence[str], where: str) -> _Answer:
    if shutil.which(words[0]) is None:
        hint = "install it, or run cockpit where it is; pods are reached by it alone"
        raise Unanswered("no kubectl on PATH", where=where, hint=hint)
    at = time.monotonic()
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise Unanswered(f"cannot start kubectl: {error.strerror}", where=where) from None
        late = threading.Timer(ANSWER_S, process.kill)
        late.start()
        assert process.stdout
        try:
            out = process.stdout.read(MOST + 1)
            if len(out) > MOST:
                process.kill()
                raise Unanswered(f"kubectl prints more than {MOST >> 20} MiB", where=where)
            status = process.wait()
        finally:
            late.cancel()
            process.stdout.close()
            process.wait()
        said.seek(0)
        text = said.read(_SAID).decode(errors="replace")
    if status < 0 and time.monotonic() - at >= ANSWER_S:
        hint = f"try: {' '.join(words)}"
        raise Unanswered(f"no answer within {ANSWER_S:g} s", where=where, hint=hint, retry=True)
    return _Answer(at, status, out, text)
