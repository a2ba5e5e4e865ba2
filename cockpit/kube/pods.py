"""Pods as the API server shows them, which of them fill which places, and why one is not running.

A place is what a pod is for: worker 3, whichever pod is worker 3 at this moment. A pod that is replaced has
another name in a Job, but the same index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from posixpath import normpath

from cockpit.base.gate import (
    PATH,
    RANKS_A_NODE,
    Definition,
    FieldKind,
    ListOf,
    Malformed,
    MapOf,
    Of,
    Text,
    Whole,
    bound,
    maybe,
    parsed,
    read,
)
from cockpit.errors import CockpitError, Exit
from cockpit.kube.kinds import Kind

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
NAME = Text(253, rf"{_LABEL}(?:\.{_LABEL})*")
"""Of a pod, as the API server allows it."""
CONTAINER = Text(63, _LABEL)

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation that says which container ``kubectl exec`` takes."""

GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""Resources that are whole GPUs."""

_PODS = 10_000
_MOST = 1 << 62
_PARTS = 1000
_REASON = Text(200, cut=True)
_MESSAGE = Text(400, cut=True)
_KEYED = MapOf(Text(400), Text(1 << 18), 10_000)
_DIGITS = re.compile(r"([0-9]{1,18})")
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?(?:[eE][0-9]{1,2})?)(m|k|[MGTPE]|[KMGTPE]i)?", re.ASCII)
_TIMES = {
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
}


class _Quantity(FieldKind):
    """An amount of a resource, as Kubernetes writes it: ``8``, ``"8"``, ``500m``, ``1.5Gi``, ``2e9``. Of a
    fraction, and of what makes no sense, the whole part: nobody has half a GPU or byte."""

    def read(self, value: object) -> int:
        """See :meth:`cockpit.base.gate.FieldKind.read`."""
        found = _QUANTITY.fullmatch(str(value)) if isinstance(value, int | str) else None
        return min(int(Fraction(found[1]) * _TIMES.get(found[2], 1)), _MOST) if found else 0


class _Mount(Definition):
    name: str = bound(Text(253), "")
    mountPath: str = bound(PATH)


class _EmptyDir(Definition):
    sizeLimit: int | None = maybe(_Quantity())


class _Volume(Definition):
    name: str = bound(Text(253), "")
    emptyDir: _EmptyDir | None = maybe(Of(_EmptyDir))


class _Resources(Definition):
    limits: Mapping[str, int] | None = maybe(MapOf(Text(400), _Quantity(), _PARTS))


class _Container(Definition):
    name: str = bound(CONTAINER)
    resources: _Resources | None = maybe(Of(_Resources))
    volumeMounts: Sequence[_Mount] | None = maybe(ListOf(Of(_Mount), _PARTS))


class _Owner(Definition):
    kind: str = bound(Text(253), "")
    name: str = bound(Text(253), "")


class _Meta(Definition):
    name: str = bound(NAME)
    uid: str = bound(Text(100), "")
    labels: Mapping[str, str] | None = maybe(_KEYED)
    annotations: Mapping[str, str] | None = maybe(_KEYED)
    ownerReferences: Sequence[_Owner] | None = maybe(ListOf(Of(_Owner), _PARTS))
    creationTimestamp: str | None = maybe(Text(40))
    deletionTimestamp: str | None = maybe(Text(40))


class _Spec(Definition):
    containers: Sequence[_Container] = bound(ListOf(Of(_Container), _PARTS))
    volumes: Sequence[_Volume] | None = maybe(ListOf(Of(_Volume), _PARTS))
    nodeName: str | None = maybe(Text(253))


class _Waiting(Definition):
    reason: str | None = maybe(_REASON)
    message: str | None = maybe(_MESSAGE)

    def __str__(self) -> str:
        return _joined(self.reason, self.message)


class _Terminated(Definition):
    reason: str | None = maybe(_REASON)
    message: str | None = maybe(_MESSAGE)
    exitCode: int = bound(Whole(-(1 << 31), 1 << 31), 0)

    def __str__(self) -> str:
        return f"{_joined(self.reason, self.message) or 'ended'} (exit code {self.exitCode})"


class _State(Definition):
    waiting: _Waiting | None = maybe(Of(_Waiting))
    terminated: _Terminated | None = maybe(Of(_Terminated))


class _ContainerStatus(Definition):
    name: str = bound(CONTAINER)
    state: _State | None = maybe(Of(_State))
    lastState: _State | None = maybe(Of(_State))
    restartCount: int = bound(Whole(0, 1 << 40), 0)


class _Condition(Definition):
    type: str = bound(Text(400))
    status: str = bound(Text(40), "")
    reason: str | None = maybe(_REASON)
    message: str | None = maybe(_MESSAGE)


class _Status(Definition):
    phase: str = bound(Text(40), "")
    reason: str | None = maybe(_REASON)
    message: str | None = maybe(_MESSAGE)
    conditions: Sequence[_Condition] | None = maybe(ListOf(Of(_Condition), _PARTS))
    containerStatuses: Sequence[_ContainerStatus] | None = maybe(ListOf(Of(_ContainerStatus), _PARTS))
    initContainerStatuses: Sequence[_ContainerStatus] | None = maybe(ListOf(Of(_ContainerStatus), _PARTS))


class Pod(Definition):
    """A pod, of which only what is used here is read."""

    metadata: _Meta = bound(Of(_Meta))
    spec: _Spec = bound(Of(_Spec))
    status: _Status = bound(Of(_Status))

    @property
    def name(self) -> str:
        """Its own, by which kubectl knows it."""
        return self.metadata.name

    @property
    def ended(self) -> bool:
        """Whether no container of it will ever run again."""
        return self.status.phase in ("Failed", "Succeeded")

    @property
    def leaving(self) -> bool:
        """Whether something may still run in it, though nobody can be sure."""
        deleting = self.metadata.deletionTimestamp is not None
        return self.status.phase == "Unknown" or (deleting and not self.ended)

    def container(self, wanted: str, usual: str = "") -> str:
        """The container that is meant.

        :param wanted: the one that a person names; empty: none
        :param usual: the one in which its kind of job trains
        :raises CockpitError: it has none of that name
        """
        names = [each.name for each in self.spec.containers]
        if wanted and wanted not in names:
            what = f"pod {self.name} has no container {wanted}"
            raise CockpitError(what, hint=f"it has {', '.join(names)}", code=Exit.NODE_UNFIT)
        default = (self.metadata.annotations or {}).get(DEFAULT_CONTAINER, "")
        return next((name for name in (wanted, usual, default) if name in names), names[0] if names else "")

    def gpus(self, container: str) -> int:
        """GPUs of a container; 0: it asks for none."""
        found = self._spec_of(container)
        limits = (found and found.resources and found.resources.limits) or {}
        asked = sum(limits.get(name, 0) for name in GPUS)
        return asked if asked <= RANKS_A_NODE else 0

    def volumes(self, container: str) -> dict[str, int]:
        """A container's ``emptyDir`` volumes by path: bytes of which more evict the pod; 0: no limit."""
        limits = {
            each.name: each.emptyDir.sizeLimit or 0 for each in self.spec.volumes or () if each.emptyDir
        }
        found = self._spec_of(container)
        mounts = (found and found.volumeMounts) or ()
        return {normpath(each.mountPath): limits[each.name] for each in mounts if each.name in limits}

    def restarts(self, container: str) -> int:
        """How often a container was started again."""
        found = self._status_of(container)
        return found.restartCount if found else 0

    def why_not(self, container: str) -> str:
        """Why nothing runs in a container; empty: it does."""
        status = self.status
        if self.ended:
            own = self._status_of(container)
            last = own and own.state and own.state.terminated
            why = _joined(status.reason, status.message) or str(last or "") or self._disrupted()
            return f"has ended: {status.phase}" + (f": {why}" if why else "")
        if self.metadata.deletionTimestamp:
            why = self._disrupted()
            return "is being deleted" + (f": {why}" if why else "")
        if status.phase == "Running":
            return self._why_not_container(container)
        if status.phase == "Unknown":
            return f"cannot be reached: node {self.spec.nodeName or '?'} does not answer the API server"
        why = self._why_pending()
        return f"is {status.phase or 'not running'}" + (f": {why}" if why else "")

    def last_end(self, container: str) -> str:
        """How a container ended that runs again; empty: it is not known."""
        own = self._status_of(container)
        return str((own and own.lastState and own.lastState.terminated) or "")

    def _spec_of(self, container: str) -> _Container | None:
        return next((each for each in self.spec.containers if each.name == container), None)

    def _status_of(self, container: str) -> _ContainerStatus | None:
        statuses = self.status.containerStatuses or ()
        return next((each for each in statuses if each.name == container), None)

    def _why_not_container(self, container: str) -> str:
        own = self._status_of(container)
        state = own.state if own else None
        if state and state.terminated:
            return f"has no container {container} any more: {state.terminated}"
        if state and state.waiting:
            last = self.last_end(container)
            return f"waits with container {container}: {state.waiting}" + (
                f"; before: {last}" if last else ""
            )
        return ""

    def _why_pending(self) -> str:
        for condition in self.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return _joined(condition.reason, condition.message)
        for first, statuses in (
            (True, self.status.initContainerStatuses),
            (False, self.status.containerStatuses),
        ):
            word = "init container" if first else "container"
            for each in statuses or ():
                state = each.state or _State()
                if state.waiting and state.waiting.reason not in (None, "PodInitializing"):
                    return f"{word} {each.name}: {state.waiting}"
                if first and not state.waiting and not state.terminated:
                    return f"init container {each.name} is running"
        return _joined(self.status.reason, self.status.message)

    def _disrupted(self) -> str:
        """Who ends it; empty: Kubernetes before 1.26, or a person."""
        for condition in self.status.conditions or ():
            if condition.type == "DisruptionTarget" and condition.status == "True":
                return _joined(condition.reason, condition.message)
        return ""


class _Pods(Definition):
    items: Sequence[Pod] = bound(ListOf(Of(Pod), _PODS))


class _Selector(Definition):
    matchLabels: Mapping[str, str] | None = maybe(_KEYED)


class _OwnerSpec(Definition):
    selector: _Selector | None = maybe(Of(_Selector))


class OwnerObject(Definition):
    """What makes pods, of which only the labels of its pods are read."""

    spec: _OwnerSpec = bound(Of(_OwnerSpec))

    @property
    def selector(self) -> str:
        """The selector of its pods, as kubectl takes it; empty: it has none."""
        labels = (self.spec.selector and self.spec.selector.matchLabels) or {}
        return ",".join(f"{name}={value}" for name, value in labels.items())


def read_pods(data: bytes, where: str) -> tuple[Pod, ...]:
    """The pods of ``kubectl get pod NAME -o json``, or of a list.

    :raises CockpitError: it is none of these
    """
    try:
        value = parsed(data)
        if isinstance(value, dict) and "items" not in value:
            return (read(Pod, value),)
        return tuple(read(_Pods, value).items)
    except Malformed as error:
        raise _nonsense(str(error), where) from None


def read_owner(data: bytes, where: str) -> OwnerObject:
    """What makes pods, from ``kubectl get KIND NAME -o json``.

    :raises CockpitError: it is none of these
    """
    try:
        return read(OwnerObject, parsed(data))
    except Malformed as error:
        raise _nonsense(str(error), where) from None


def _nonsense(what: str, where: str) -> CockpitError:
    return CockpitError(f"kubectl printed what is no pod: {what}", where=where, code=Exit.NODE_UNFIT)


@dataclass(frozen=True)
class _Placed:
    place: str
    order: tuple[object, ...]
    pod: Pod
    indexed: bool


def in_places(pods: Sequence[Pod], kind: Kind) -> dict[str, Pod]:
    """The pods by the place that each fills, in the order of places.

    Of several pods for one place it is the one that runs, or may yet, else the newest. A pod without an
    index is a place of its own; once it has ended it is left out, unless all have: another one took over.
    """
    placed = sorted((_placed(pod, kind) for pod in pods), key=lambda one: one.order)
    living = any(not one.pod.ended for one in placed)
    found: dict[str, _Placed] = {}
    for one in placed:
        if one.pod.ended and not one.indexed and living:
            continue
        other = found.get(one.place)
        if other is None or _rank(other.pod) < _rank(one.pod):
            found[one.place] = one
    return {place: one.pod for place, one in found.items()}


def _rank(pod: Pod) -> tuple[bool, bool, bool, str]:
    runs = pod.status.phase == "Running"
    return not pod.ended, not pod.leaving, runs, pod.metadata.creationTimestamp or ""


def _placed(pod: Pod, kind: Kind) -> _Placed:
    meta = pod.metadata
    known = {**(meta.annotations or {}), **(meta.labels or {})}
    values = [known[name] for name in kind.index if name in known]
    indexed = len(values) == len(kind.index) > 0
    place, index = meta.name, values[-1] if indexed else ""
    if indexed:
        # What makes pods of a Job appends five random characters to the index.
        found = re.fullmatch(rf"(.*-{re.escape(index)})-[a-z0-9]{{5}}", meta.name)
        place = found[1] if found else meta.name
    order = (*(part for value in values for part in _natural(value)), *_natural(meta.name))
    return _Placed(place, order, pod, indexed or (kind.ordinal and place[-1:].isdigit()))


def _natural(text: str) -> Iterator[tuple[int, int, str]]:
    """A text as a key for sorting: ``a-2`` is before ``a-10``."""
    for piece in _DIGITS.split(text):
        yield (0, int(piece), "") if piece.isdigit() else (1, 0, piece)


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)
