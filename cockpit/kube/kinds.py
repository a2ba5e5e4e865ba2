"""Every kind of job whose pods are known: to add one, add it here."""

from __future__ import annotations

from dataclasses import dataclass

_COMPLETION = "batch.kubernetes.io/job-completion-index"
_REPLICA = "training.kubeflow.org/replica-index"


@dataclass(frozen=True)
class Kind:
    """What makes pods.

    :param words: what a person may call it, the first as kubectl prints it
    :param selector: of its pods, with ``{}`` for its name; empty: it says so itself
    :param index: labels, or annotations, by which its pods are ordered; the last one is a number that the
        name of a pod has
    :param container: the one in which it trains; empty: the pod's first
    :param ordinal: whether the names of its pods end with their number, and are used again
    :param source: where that is documented
    """

    words: tuple[str, ...] = ()
    selector: str = ""
    index: tuple[str, ...] = ()
    container: str = ""
    ordinal: bool = False
    source: str = ""


LABELS = Kind(index=(_COMPLETION,))
"""Pods of which only a selector is known."""

KINDS = (
    Kind(
        ("job", "jobs", "job.batch", "jobs.batch"),
        "job-name={}",  # since 1.27 batch.kubernetes.io/job-name too
        (_COMPLETION,),
        source="https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode",
    ),
    Kind(
        ("statefulset", "sts", "statefulsets", "statefulset.apps", "statefulsets.apps"),
        ordinal=True,
        source="https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#pod-identity",
    ),
    Kind(
        ("jobset", "jobsets", "jobset.jobset.x-k8s.io", "jobsets.jobset.x-k8s.io"),
        "jobset.sigs.k8s.io/jobset-name={}",
        ("jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index", _COMPLETION),
        source="https://jobset.sigs.k8s.io/docs/concepts/",
    ),
    Kind(
        ("pytorchjob", "pytorchjobs", "pytorchjob.kubeflow.org", "pytorchjobs.kubeflow.org"),
        "training.kubeflow.org/job-name={}",
        ("training.kubeflow.org/replica-type", _REPLICA),
        "pytorch",
        ordinal=True,
        source="https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/",
    ),
    Kind(
        ("mpijob", "mpijobs", "mpijob.kubeflow.org", "mpijobs.kubeflow.org"),
        "training.kubeflow.org/job-name={},training.kubeflow.org/job-role=worker",
        (_REPLICA,),
        ordinal=True,
        source="https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go",
    ),
    Kind(
        ("trainjob", "trainjobs", "trainjob.trainer.kubeflow.org", "trainjobs.trainer.kubeflow.org"),
        # Its JobSet has its name; what prepares models and data trains nothing.
        "jobset.sigs.k8s.io/jobset-name={},jobset.sigs.k8s.io/replicatedjob-name=node",
        ("jobset.sigs.k8s.io/job-index", _COMPLETION),
        "node",
        source="https://www.kubeflow.org/docs/components/trainer/operator-guides/job-template/",
    ),
    Kind(
        ("raycluster", "rayclusters", "raycluster.ray.io", "rayclusters.ray.io"),
        "ray.io/cluster={}",
        source="https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/config.html",
    ),
    Kind(
        ("vcjob", "vj", "vcjobs", "job.batch.volcano.sh", "jobs.batch.volcano.sh"),
        "volcano.sh/job-name={}",
        ("volcano.sh/task-spec", "volcano.sh/task-index"),
        ordinal=True,
        source="https://volcano.sh/en/docs/vcjob/",
    ),
)
"""Job and StatefulSet are tried on a real cluster, all others with pods as their operators label them."""

BY_WORD = {word: kind for kind in KINDS for word in kind.words}
