"""What a node says in a pod, where other things help than on a machine of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from cockpit.base.shared_fields import Target
from cockpit.node import procfs
from cockpit.node.jobs import outputs
from cockpit.node.stacks import permission


@pytest.mark.parametrize("inside", [True, False])
def test_what_lets_py_spy_trace(monkeypatch: pytest.MonkeyPatch, *, inside: bool) -> None:
    monkeypatch.setattr(permission, "_may_trace", lambda: False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if inside:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    _, hint = permission.refusal(os.getpid(), os.geteuid())
    assert ("securityContext" in hint) == inside


def test_a_process_of_somebody_else_needs_no_security_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "securityContext" not in permission.refusal(os.getpid(), 1001)[1]


@pytest.fixture
def unread() -> Iterator[int]:
    """A process whose output goes to a pipe that is read elsewhere, as that of a container does."""
    theirs, ours = os.pipe()
    process = subprocess.Popen(["sleep", "infinity"], stdout=ours, stderr=ours, start_new_session=True)
    os.close(theirs)
    os.close(ours)
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("inside", "said"), [(True, "kubectl logs"), (False, "no process of this user reads")]
)
def test_where_the_output_of_a_container_is(
    unread: int, monkeypatch: pytest.MonkeyPatch, said: str, *, inside: bool
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if inside:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    search = outputs._Search()
    search.rank(Target(0, unread, procfs.ticks(unread) or 0))
    assert said in search.told()["why"][0]
