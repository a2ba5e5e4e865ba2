"""Which pods are meant: what a person types, and what kubectl is asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cockpit.errors import CockpitError, ManyErrors
from cockpit.kube import kubectl_queries
from cockpit.kube.kubectl_queries import Absent, Cluster, Unanswered, ask
from cockpit.kube.selection import Selection
from cockpit.plans.nodes.sources import nodes_from
from tests.kube.stub import Stub, shown


@pytest.mark.parametrize("word", ["job/train", "jobs/train", "Job/train", "job.batch/train"])
def test_a_job_by_its_name(stub: Stub, word: str) -> None:
    stub.show(shown("train-x", labels={"job-name": "train"}, gpus=4))
    stub.show(shown("other-x", labels={"job-name": "other"}))
    (host,) = nodes_from(["--k8s", word, "-n", "ml", "--context", "lab"])
    assert (host.name, host.slots) == ("train-x", (0, 1, 2, 3))
    asked = ["--context", "lab", "-n", "ml", "get", "pods", "--selector=job-name=train", "-o", "json"]
    assert stub.calls == [asked]


def test_a_selector_and_a_container(stub: Stub) -> None:
    stub.show(shown("a", labels={"app": "x"}, containers=["main", "side"], gpus=2))
    assert nodes_from(["--k8s", "app=x:side"])[0].slots == (0, 1)
    with pytest.raises(CockpitError, match="no container nope"):
        nodes_from(["--k8s", "app=x:nope"])


def test_a_statefulset_says_its_labels_and_has_no_pods_of_others(stub: Stub) -> None:
    stub.own("statefulset", "idle", {"app": "idle"})
    for name, owner in (("idle-1", "idle"), ("idle-0", "idle"), ("debug", "elsewhere")):
        stub.show(shown(name, labels={"app": "idle"}, owner=("StatefulSet", owner)))
    hosts = nodes_from(["--k8s", "sts/idle"])
    assert [host.name for host in hosts] == ["idle-0", "idle-1"]
    assert all(host.open for host in hosts)


def test_pods_can_be_left_out(stub: Stub) -> None:
    for name in ("a-0", "a-1"):
        stub.show(shown(name, labels={"app": "x"}))
    assert [host.name for host in nodes_from(["--k8s", "app=x"], exclude="a-0")] == ["a-1"]


def test_a_job_that_is_over_says_how_each_pod_ended(stub: Stub) -> None:
    stub.show(shown("a", labels={"app": "x"}, phase="Failed", reason="Evicted"))
    stub.show(shown("b", labels={"app": "x"}, phase="Succeeded"))
    with pytest.raises(ManyErrors) as refused:
        nodes_from(["--k8s", "app=x"])
    assert str(refused.value) == "a: has ended: Failed: Evicted\nb: has ended: Succeeded"


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("train", "not a selector"),
        ("-n", "not a selector"),
        ("app=x;rm", "not a selector"),
        ("app=x\n", "not a selector"),
        ("deployment/x", "unknown kind"),
        ("jop/x", "unknown kind"),
        ("job/-x", "no pod has such a name"),
        ("job/x:../y", "no container has such a name"),
        ("app=x:", "no container has such a name"),
    ],
)
def test_what_is_no_selection_reaches_no_kubectl(stub: Stub, word: str, what: str) -> None:
    with pytest.raises(CockpitError, match=what):
        Selection.of(Cluster(), word)
    assert stub.calls == []


def test_a_kind_that_was_mistyped() -> None:
    with pytest.raises(CockpitError) as refused:
        Selection.of(Cluster(), "pytorchjbo/x")
    assert refused.value.hint == "did you mean: pytorchjob"


@pytest.mark.parametrize(("context", "namespace"), [("", "-A"), ("", "a b"), ("\x1b[2J", ""), ("", "a/b")])
def test_names_that_are_none_reach_no_kubectl(context: str, namespace: str) -> None:
    with pytest.raises(CockpitError, match="not a "):
        Cluster(context, namespace)


def test_nothing_is_there(stub: Stub) -> None:
    with pytest.raises(Absent, match="no pods in namespace ml") as refused:
        nodes_from(["--k8s", "job/train", "-n", "ml"])
    assert refused.value.hint == "see: kubectl -n ml get pods --show-labels"
    with pytest.raises(Unanswered, match="no statefulset idle"):
        nodes_from(["--k8s", "sts/idle"])


def test_no_kubectl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(Unanswered, match="no kubectl on PATH") as refused:
        nodes_from(["--k8s", "job/train"])
    assert not refused.value.retry


def test_an_endless_answer_is_not_read_to_its_end(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl_queries, "MOST", 1000)
    stub.say("raw", "x" * 100_000)
    with pytest.raises(Unanswered, match="kubectl prints more than"):
        nodes_from(["--k8s", "job/train"])


def test_a_kubectl_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "kubectl"
    script.write_text("#!/bin/sh\nexec sleep infinity\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(kubectl_queries, "ANSWER_S", 0.2)
    with pytest.raises(Unanswered, match=r"no answer within 0\.2 s") as late:
        ask(Cluster("lab"), ("get", "pods"), "here")
    assert late.value.retry
    assert late.value.hint == "try: kubectl --context lab get pods"


def test_one_question_is_asked_once(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubectl_queries, "PERIOD_S", 600.0)
    stub.show(shown("a", labels={"app": "x"}))
    before = time.monotonic()
    for _ in range(3):
        nodes_from(["--k8s", "app=x"])
        Selection.of(Cluster(), "app=x").places(since=before)
    assert len(stub.calls) == 1


def test_what_was_said_before_does_not_answer_what_is_asked_since(stub: Stub) -> None:
    selection = Selection.of(Cluster(), "app=x")
    stub.show(shown("a", labels={"app": "x"}))
    selection.places()
    stub.show(shown("a", labels={"app": "x"}, phase="Failed"))
    assert selection.places(since=time.monotonic())["a"].ended
