"""Pods as nodes, each by a ``kubectl exec`` of this person's: nothing is installed in the cluster.

A supervisor outlives the exec that started it, but not its container. When a link is lost, the API server
is asked once what has become of the pod: that says more than the end of a pipe.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.base import record
from cockpit.base.shell import join, quote_posix
from cockpit.errors import CockpitError
from cockpit.kube.kubectl_errors import meaning
from cockpit.kube.kubectl_queries import Absent, Cluster, Unanswered, ask
from cockpit.kube.pods import Pod, read_pods
from cockpit.kube.selection import Selection, checked
from cockpit.transport.base import ConnectStage, LinkError, Pipe, Reclaimed, Tail
from cockpit.transport.child import ChildTransport

_pods: dict[tuple[Cluster, str, str], tuple[str, str]] = {}
"""The pod that was last known to fill a place, and its container, by cluster, selection and node, for as long
as we live."""


def typed(options: Mapping[str, str], node: str) -> tuple[str, ...]:
    """What a person types before a command to run it in a pod."""
    cluster = Cluster.of(options)
    place, _, container = node.partition(":")
    pod, _ = _pods.get((cluster, options.get("pods", ""), node), (place, ""))
    return (*cluster.words, "exec", pod, *(("-c", container) if container else ()), "--")


def output(options: Mapping[str, str], node: str) -> tuple[str, ...]:
    """The command that prints the output of a container we have, or had, a link to; empty: no such link."""
    cluster = Cluster.of(options)
    pod, container = _pods.get((cluster, options.get("pods", ""), node), ("", ""))
    words = (*cluster.words, "logs", pod, "-c", container, "--timestamps", "--follow")
    return words if pod else ()


@dataclass(frozen=True)
class _PodSeen:
    """The pod that fills a place, as the API server showed it."""

    pod: Pod
    container: str

    @property
    def life(self) -> tuple[str, int]:
        """What is another one once nothing of before can be running."""
        return self.pod.metadata.uid, self.pod.restarts(self.container)


class _Exec(ChildTransport):
    """See :class:`cockpit.transport.base.Transport`.

    :param known: the pod to which each node has led so far
    """

    def __init__(self, node: str, options: Mapping[str, str], known: dict[str, _PodSeen]) -> None:
        super().__init__("kubectl", node, ())
        self._known = known
        self._cluster = Cluster.of(options)
        self._word = options.get("pods", "")
        self._place, _, self._wanted = node.partition(":")
        checked(self._place)
        if self._wanted:
            checked(self._wanted, "container")

    async def open(self, command: str) -> Pipe:
        self.progress.reach(ConnectStage.DIALING)
        seen = await self._look()
        if why := seen.pod.why_not(seen.container):
            raise self._idle(seen, why)
        before, self._known[self._node] = self._known.get(self._node), seen
        if (other := self._other(before, seen)) is not None:
            raise other  # once: whoever comes back knows
        _pods[self._cluster, self._word, self._node] = seen.pod.name, seen.container
        self._words = (
            *(*self._cluster.words, "exec", "-i", seen.pod.name, "-c", seen.container),
            *("--", "/bin/sh", "-c"),
        )
        self.progress.reach(ConnectStage.SHELL)
        said = Tail()
        if volumes := seen.pod.volumes(seen.container):
            told = quote_posix(json.dumps(volumes))
            command = f"export {record.ENV_VOLUMES}={told}; {command}"
        return await self._start(command, said, lambda _: self._broken(seen, said))

    async def _broken(self, before: _PodSeen, said: Tail) -> LinkError | None:
        """Why the pipe ended; None: the command did, in a container that runs on."""
        meant = meaning(said.text())
        error = None
        if meant is not None:
            error = LinkError(meant.what, where=self._node, hint=meant.hint, retry=meant.retry)
            if not meant.pod:
                return error
        try:
            seen = await self._look(since=time.monotonic())
        except Reclaimed as absent:
            return absent
        except LinkError as unknown:
            return error or unknown
        if why := seen.pod.why_not(seen.container):
            return self._idle(seen, why)
        self._known[self._node] = seen
        return self._other(before, seen) or error

    def _other(self, before: _PodSeen | None, seen: _PodSeen) -> Reclaimed | None:
        """Why nothing of before runs; None: it may. The server hears of a container's end later than we."""
        if before is None or before.life == seen.life:
            return None
        if seen.pod.metadata.uid != before.pod.metadata.uid:
            same = seen.pod.name == before.pod.name
            by = "another of its name" if same else seen.pod.name
            return self._reclaimed(f"pod {before.pod.name} is gone: {by} has its place", seen.pod)
        last = seen.pod.last_end(seen.container)
        what = f"container {seen.container} was started again" + (f": {last}" if last else "")
        return self._reclaimed(what, seen.pod)

    async def _look(self, since: float = 0.0) -> _PodSeen:
        """The pod that fills the place.

        :raises Reclaimed: there is none
        :raises LinkError: kubectl does not say
        """
        try:
            return await asyncio.to_thread(self._seen, since)
        except Absent as error:
            raise Reclaimed(error.what, where=self._node, hint=error.hint, retry=False) from None
        except CockpitError as error:
            retry = isinstance(error, Unanswered) and error.retry
            raise LinkError(error.what, where=self._node, hint=error.hint, retry=retry) from None

    def _seen(self, since: float) -> _PodSeen:
        if not self._word:
            words = ("get", "pod", self._place, "-o", "json")
            pods = read_pods(ask(self._cluster, words, self._node, since), self._node)
            pod = next((each for each in pods if each.name == self._place), None)
            if pod is None:
                raise CockpitError("kubectl printed another pod", where=self._node)
            return _PodSeen(pod, pod.container(self._wanted))
        selection = Selection.of(self._cluster, self._word)
        pod = selection.places(since).get(self._place)
        if pod is None:
            hint = f"see: {join((*self._cluster.words, 'get', 'pods'))}"
            raise Absent(f"no pod of {self._word} has its place", where=self._node, hint=hint)
        return _PodSeen(pod, pod.container(self._wanted) if self._wanted else selection.container(pod))

    def _idle(self, seen: _PodSeen, why: str) -> LinkError:
        """A pod in which nothing runs, or soon nothing will."""
        what = f"pod {seen.pod.name} {why}"
        if seen.pod.leaving:
            return LinkError(what, where=self._node, hint=self._describe(seen.pod))
        return self._reclaimed(what, seen.pod)

    def _reclaimed(self, what: str, pod: Pod) -> Reclaimed:
        return Reclaimed(what, where=self._node, hint=self._describe(pod), retry=False)

    def _describe(self, pod: Pod) -> str:
        return f"see: {join((*self._cluster.words, 'describe', 'pod', pod.name))}"


class KubectlWays:
    """See :class:`cockpit.transport.base.Ways`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._known: dict[str, _PodSeen] = {}

    async def to(self, node: str) -> _Exec:
        """See :meth:`cockpit.transport.base.Ways.to`.

        :raises LinkError: no pod has such a name
        """
        try:
            return _Exec(node, self._options, self._known)
        except CockpitError as error:
            raise LinkError(error.what, where=node, hint=error.hint, retry=False) from None

    async def close(self) -> None:
        """There is nothing that they share."""
