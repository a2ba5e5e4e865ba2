"""The pods of a job of Kubernetes, or of a label selector, as nodes: asked of ``kubectl``."""

from __future__ import annotations

from cockpit.core.ranks import MAX_HOSTS
from cockpit.errors import CockpitError, ManyErrors
from cockpit.kube.kubectl_queries import Cluster
from cockpit.kube.selection import Selection
from cockpit.plans.nodes.hostfile import MAX_SLOTS, Host


def read(word: str, *where: str) -> tuple[Host, ...]:
    """The places of pods, with a slot for each GPU of the container; without any they stay open.

    Pods that do not run are among them: the link to each says why.

    :param word: ``KIND/NAME[:CONTAINER]``, or a label selector
    :param where: ``-n NAMESPACE``, ``--context CONTEXT``
    :raises CockpitError: there are none, or kubectl has no answer
    """
    said = dict(zip(where[::2], where[1::2], strict=True))
    cluster = Cluster(said.get("--context", ""), said.get("-n", ""))
    selection = Selection.of(cluster, word)
    found = selection.places()
    if len(found) > MAX_HOSTS:
        raise CockpitError(f"more than {MAX_HOSTS} pods", where=word, hint="select fewer")
    if all(pod.ended for pod in found.values()):
        raise ManyErrors(
            [CockpitError(pod.why_not(selection.container(pod)), where=place) for place, pod in found.items()]
        )
    return tuple(
        Host(place, tuple(range(min(pod.gpus(selection.container(pod)), MAX_SLOTS))))
        for place, pod in found.items()
    )
