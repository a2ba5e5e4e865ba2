"""Which pods are meant: ``KIND/NAME[:CONTAINER]``, or a label selector."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cockpit.base.gate import Malformed
from cockpit.errors import CockpitError, Exit, near
from cockpit.kube.kinds import BY_WORD, KINDS, LABELS, Kind
from cockpit.kube.kubectl_queries import Absent, Cluster, ask
from cockpit.kube.pods import CONTAINER, NAME, Pod, in_places, read_owner, read_pods

FORM = "write KIND/NAME, like job/train, or a label selector, like app=train"

_SELECTOR = re.compile(r"[A-Za-z0-9][\w./=!, ()-]*\Z", re.ASCII)
_NAMED = re.compile(r"([A-Za-z][A-Za-z0-9.-]*)/([^/=!,() ]+)\Z")


def checked(name: str, what: str = "pod") -> str:
    """The name of a pod or of a container.

    :raises CockpitError: it cannot be one
    """
    try:
        return str((NAME if what == "pod" else CONTAINER).read(name))
    except Malformed:
        raise CockpitError(
            f"no {what} has such a name: {name[:80]!a}", where="pod/NAME[:CONTAINER]"
        ) from None


@dataclass(frozen=True)
class Selection:
    """Pods that a person means.

    :param word: as it was typed, without the container
    :param kind: what makes them
    :param name: of what makes them; empty: ``word`` is a selector
    :param wanted: the container that was named; empty: none
    """

    cluster: Cluster
    word: str
    kind: Kind
    name: str
    wanted: str = ""

    @classmethod
    def of(cls, cluster: Cluster, text: str) -> Selection:
        """The one that a person types.

        :raises CockpitError: it is none
        """
        word, colon, container = text.partition(":")
        if colon:
            checked(container, "container")
        named = _NAMED.match(word)
        if named is None:
            if not _SELECTOR.match(word) or not re.search(r"[=!(]", word):
                raise CockpitError(f"not a selector of pods: {text[:80]!a}", where="--k8s", hint=FORM)
            return cls(cluster, word, LABELS, "", container)
        kind = BY_WORD.get(named[1].lower())
        if kind is None:
            if named[1].lower() in ("pod", "pods", "po"):
                raise CockpitError("pods are named one by one with -w", where="--k8s", hint=f"-w {word}")
            meant = near(named[1].lower(), BY_WORD)
            known = ", ".join(each.words[0] for each in KINDS)
            hint = f"did you mean: {meant}" if meant else f"known are {known}; or give a label selector"
            raise CockpitError(f"unknown kind: {named[1][:80]!a}", where="--k8s", hint=hint)
        return cls(cluster, word, kind, checked(named[2]), container)

    def places(self, since: float = 0.0) -> dict[str, Pod]:
        """The pods by the place that each fills, in order; asked of the API server, which takes a while.

        :param since: see :func:`cockpit.kube.kubectl_queries.ask`
        :raises CockpitError: there are none, or kubectl has no answer
        """
        words = ("get", "pods", f"--selector={self._selector()}", "-o", "json")
        pods = read_pods(ask(self.cluster, words, self.word, since), self.word)
        if self.name and not self.kind.selector:  # its labels may be on pods of others
            owned = ((pod, pod.metadata.ownerReferences or ()) for pod in pods)
            pods = tuple(pod for pod, owners in owned if any(each.name == self.name for each in owners))
        if not pods:
            where = f" in namespace {self.cluster.namespace}" if self.cluster.namespace else ""
            hint = f"see: {' '.join(self.cluster.words)} get pods --show-labels"
            raise Absent(f"no pods{where}", where=self.word, hint=hint)
        return in_places(pods, self.kind)

    def container(self, pod: Pod) -> str:
        """The container that is meant in a pod.

        :raises CockpitError: it has none of that name
        """
        return pod.container(self.wanted, self.kind.container)

    def _selector(self) -> str:
        if not self.name:
            return self.word
        if self.kind.selector:
            return self.kind.selector.format(self.name)
        words = ("get", self.kind.words[0], self.name, "-o", "json")
        selector = read_owner(ask(self.cluster, words, self.word), self.word).selector
        if not selector:
            raise CockpitError("selects no pods by labels", where=self.word, code=Exit.NODE_UNFIT)
        return selector
