"""Pods as an API server shows them: what they are for, why one does not run, and what is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cockpit.errors import CockpitError
from cockpit.kube.kinds import BY_WORD, KINDS, LABELS, Kind
from cockpit.kube.pods import Pod, in_places, read_pods
from tests.kube.stub import shown

INDEX = "batch.kubernetes.io/job-completion-index"


def pods(*each: dict[str, Any]) -> tuple[Pod, ...]:
    """These, as kubectl prints a list of them."""
    return read_pods(json.dumps({"kind": "List", "items": each}).encode(), "job/x")


def pod(**more: Any) -> Pod:
    """One, as kubectl prints it."""
    return read_pods(json.dumps(shown("train-0", **more)).encode(), "pod/train-0")[0]


def places(kind: Kind, *each: dict[str, Any]) -> dict[str, str]:
    """The names of pods by their places."""
    return {place: found.name for place, found in in_places(pods(*each), kind).items()}


def indexed(index: int, tail: str, **more: Any) -> dict[str, Any]:
    """A pod of an Indexed Job; 1.28 has the label, 1.21 the annotation only."""
    return shown(f"train-{index}-{tail}", **{"labels": {INDEX: str(index)}, **more})


def test_pods_of_a_job_are_in_the_order_of_their_index() -> None:
    found = places(BY_WORD["job"], indexed(10, "aaaaa"), indexed(2, "zzzzz"), indexed(0, "mmmmm"))
    assert list(found.items()) == [
        ("train-0", "train-0-mmmmm"),
        ("train-2", "train-2-zzzzz"),
        ("train-10", "train-10-aaaaa"),
    ]


def test_an_old_server_says_the_index_in_an_annotation() -> None:
    old = shown("train-3-abcde", annotations={INDEX: "3"})
    assert places(BY_WORD["job"], old) == {"train-3": "train-3-abcde"}


def test_a_pod_that_is_replaced_keeps_its_place() -> None:
    failed = indexed(1, "aaaaa", phase="Failed", created="2026-11-29T09:00:00Z")
    leaving = indexed(1, "ccccc", deleted="2026-11-29T09:02:00Z", created="2026-11-29T09:03:00Z")
    running = indexed(1, "bbbbb", created="2026-11-29T09:01:00Z")
    for several in ((failed, leaving, running), (running, failed, leaving)):
        assert places(BY_WORD["job"], *several) == {"train-1": "train-1-bbbbb"}
    assert places(BY_WORD["job"], failed) == {"train-1": "train-1-aaaaa"}, "its end is to be told"


def test_without_an_index_what_has_ended_was_followed_by_another() -> None:
    ended, running = shown("train-aaaaa", phase="Failed"), shown("train-bbbbb")
    assert places(BY_WORD["job"], ended, running) == {"train-bbbbb": "train-bbbbb"}
    assert places(BY_WORD["job"], ended) == {"train-aaaaa": "train-aaaaa"}


def test_an_index_that_the_name_does_not_have_makes_no_place() -> None:
    assert places(LABELS, shown("other-abcde", labels={INDEX: "7"})) == {"other-abcde": "other-abcde"}


def test_a_statefulset_counts() -> None:
    found = places(BY_WORD["sts"], shown("idle-10"), shown("idle-9"), shown("idle-0", phase="Failed"))
    assert list(found) == ["idle-0", "idle-9", "idle-10"]


@pytest.mark.parametrize(
    ("kind", "each", "order"),
    [
        (
            "jobset",
            [
                ("js-workers-1-0-abcde", {"replicatedjob-name": "workers", "job-index": "1", "": "0"}),
                ("js-workers-0-1-abcde", {"replicatedjob-name": "workers", "job-index": "0", "": "1"}),
                ("js-leader-0-0-abcde", {"replicatedjob-name": "leader", "job-index": "0", "": "0"}),
            ],
            ["js-leader-0-0", "js-workers-0-1", "js-workers-1-0"],
        ),
        (
            "pytorchjob",
            [
                ("bert-worker-1", {"replica-type": "worker", "replica-index": "1"}),
                ("bert-worker-0", {"replica-type": "worker", "replica-index": "0"}),
                ("bert-master-0", {"replica-type": "master", "replica-index": "0"}),
            ],
            ["bert-master-0", "bert-worker-0", "bert-worker-1"],
        ),
        (
            "mpijob",
            [("hvd-worker-10", {"replica-index": "10"}), ("hvd-worker-2", {"replica-index": "2"})],
            ["hvd-worker-2", "hvd-worker-10"],
        ),
        (
            "trainjob",
            [
                ("llm-node-0-1-abcde", {"job-index": "0", "": "1"}),
                ("llm-node-0-0-abcde", {"job-index": "0", "": "0"}),
            ],
            ["llm-node-0-0", "llm-node-0-1"],
        ),
        (
            "raycluster",
            [("ray-workers-worker-zz9xx", {}), ("ray-head-abcde", {})],
            ["ray-head-abcde", "ray-workers-worker-zz9xx"],
        ),
        (
            "vcjob",
            [
                ("vc-worker-1", {"task-spec": "worker", "task-index": "1"}),
                ("vc-master-0", {"task-spec": "master", "task-index": "0"}),
            ],
            ["vc-master-0", "vc-worker-1"],
        ),
    ],
)
def test_pods_of_operators_are_ordered_by_their_labels(
    kind: str, each: list[tuple[str, dict[str, str]]], order: list[str]
) -> None:
    known = {name.rpartition("/")[2]: name for name in BY_WORD[kind].index}
    known[""] = INDEX
    made = [shown(name, labels={known[one]: value for one, value in labels.items()}) for name, labels in each]
    assert list(places(BY_WORD[kind], *made)) == order


def test_each_kind_says_where_its_labels_are_documented() -> None:
    for kind in KINDS:
        assert kind.source.startswith("https://")
        assert kind.ordinal or kind.selector


def test_the_container_that_is_meant() -> None:
    several = pod(containers=["istio", "pytorch", "side"])
    assert several.container("") == "istio"
    assert several.container("", "pytorch") == "pytorch"
    assert several.container("side", "pytorch") == "side"
    with pytest.raises(CockpitError, match="no container nope") as refused:
        several.container("nope")
    assert refused.value.hint == "it has istio, pytorch, side"
    default = {"kubectl.kubernetes.io/default-container": "side"}
    assert pod(containers=["istio", "side"], annotations=default).container("") == "side"


def test_gpus_of_the_container_are_slots() -> None:
    assert pod(gpus=8).gpus("main") == 8
    assert pod().gpus("main") == 0
    assert pod(gpus=10**6).gpus("main") == 0
    assert pod(gpus=8).gpus("nope") == 0


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        ("200Mi", 200 << 20),
        ("1.5Gi", 3 << 29),
        ("2e9", 2 * 10**9),
        ("500m", None),
        (1000, 1000),
        ("1E", 10**18),
        (None, None),
        ("9" * 18 + "Ei", 1 << 62),
        ("1Gi; rm -rf /", None),
        (["1Gi"], None),
    ],
)
def test_volumes_of_which_more_would_evict_the_pod(limit: object, size: int | None) -> None:
    found = pod(volumes={"/scratch/": limit, "/free": None}).volumes("main")
    assert found == {"/scratch": size or 0, "/free": 0}
    assert pod(volumes={"/scratch": limit}).volumes("nope") == {}


def waiting(reason: str, message: str = "", last: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The status of a container that waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return [{"name": "main", "restartCount": 3, "state": state, "lastState": last or {}}]


KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        (
            {
                "phase": "Pending",
                "containerStatuses": [],
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                    }
                ],
            },
            "is Pending: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": waiting("ImagePullBackOff", 'Back-off pulling image "x:1"'),
            },
            'is Pending: container main: ImagePullBackOff: Back-off pulling image "x:1"',
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}],
                "containerStatuses": waiting("PodInitializing"),
            },
            "is Pending: init container fetch is running",
        ),
        ({"phase": "Pending", "containerStatuses": None}, "is Pending"),
        (
            {"containerStatuses": waiting("CrashLoopBackOff", "back-off 40s", KILLED)},
            "waits with container main: CrashLoopBackOff: back-off 40s; before: OOMKilled (exit code 137)",
        ),
        (
            {"containerStatuses": [{"name": "main", "state": KILLED}]},
            "has no container main any more: OOMKilled (exit code 137)",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"name": "main", "state": KILLED}]},
            "has ended: Failed: OOMKilled (exit code 137)",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            "has ended: Failed: Evicted: The node was low on resource: memory.",
        ),
        ({"phase": "Unknown"}, "cannot be reached: node node1 does not answer the API server"),
        (
            {
                "deleted": "2026-11-29T09:00:00Z",
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
                ],
            },
            "is being deleted: DeletionByTaintManager",
        ),
        ({"deleted": "2026-11-29T09:00:00Z"}, "is being deleted"),
    ],
)
def test_why_nothing_runs_in_it(more: dict[str, Any], why: str) -> None:
    assert pod(**more).why_not("main") == why


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["metadata"].update(name="../../etc"),
        lambda made: made["metadata"].update(name="a\x1b[2J"),
        lambda made: made["metadata"].update(name="-n"),
        lambda made: made["metadata"].update(labels=[1]),
        lambda made: made["spec"].update(containers="main"),
        lambda made: made["spec"].update(containers=[{"name": "-c"}]),
        lambda made: made["status"].update(phase=7),
        lambda made: made["status"].update(containerStatuses=[{"name": "main", "restartCount": 1e400}]),
        lambda made: made.pop("spec"),
    ],
)
def test_what_is_no_pod_is_not_believed(change: Any) -> None:
    made = shown("train-0")
    change(made)
    with pytest.raises(CockpitError, match="kubectl printed what is no pod"):
        pods(made)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[1]", b"No resources found", b"[" * 100_000, b'{"items": 1}']
)
def test_what_is_no_list_is_not_believed(data: bytes) -> None:
    with pytest.raises(CockpitError, match="kubectl printed what is no pod"):
        read_pods(data, "job/x")


def test_long_words_of_others_are_cut() -> None:
    assert len(pod(phase="Failed", reason="x" * 10**6, message="y" * 10**6).why_not("main")) < 1000
