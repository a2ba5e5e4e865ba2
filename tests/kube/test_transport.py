"""Links to pods over ``kubectl exec``, and what is said when a pod, kubectl or the server fails."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cockpit.base.shell import join
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool, link_state
from cockpit.errors import CockpitError
from cockpit.kube import kubectl_queries
from cockpit.transport.base import LinkError, Reach, Reclaimed
from cockpit.transport.registry import TRANSPORTS
from tests.kube.stub import Stub, shown
from tests.waiting import PATIENCE_S

INDEX = "batch.kubernetes.io/job-completion-index"
KILLED = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
REFUSED = "The connection to the server 10.0.0.1:6443 was refused - did you specify the right host or port?"


@asynccontextmanager
async def pool(**options: str) -> AsyncIterator[LinkPool]:
    """Links to pods, by a Python that is there."""
    made = LinkPool([sys.executable], Reach("kubectl", options))
    try:
        yield made
    finally:
        await made.close()


def opened(node: str, **options: str) -> None:
    """Open a link and close it again.

    :raises LinkError: it cannot be
    """

    async def main() -> None:
        async with pool(**options) as links:
            await links.lend(node)

    asyncio.run(main())


def lost(stub: Stub, change: Callable[[], None], node: str = "train-0", **options: str) -> CockpitError:
    """Why a link is lost once its pod has changed so; all its processes have ended by then."""

    async def main() -> CockpitError:
        async with pool(**options) as links:
            link = await links.lend(node)
            change()
            return await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S)

    return asyncio.run(main())


def cut(link: Link) -> None:
    """End the exec of a link, and the agent with it: what it holds of the pipes as well as kubectl."""
    pid = link.transport._pipes[0].pid  # type: ignore[attr-defined]
    for each in (*Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), pid):
        with suppress(ProcessLookupError):  # one that ended since it was listed
            os.kill(int(each), signal.SIGKILL)


def job(index: int, tail: str = "abcde", **more: Any) -> dict[str, Any]:
    """A pod of an Indexed Job."""
    return shown(f"train-{index}-{tail}", labels={"job-name": "train", INDEX: str(index)}, **more)


def test_an_agent_runs_in_the_container_that_is_meant(stub: Stub) -> None:
    stub.start(shown("train-0", containers=["side", "main"]))
    opened("train-0:main", context="lab", namespace="ml")
    asked = [words for words in stub.calls if "exec" in words]
    assert [words[:9] for words in asked] == [
        ["--context", "lab", "-n", "ml", "exec", "-i", "train-0", "-c", "main"]
    ]


def test_a_place_leads_to_the_pod_that_has_it(stub: Stub) -> None:
    stub.start(job(0, "fghij"))
    opened("train-0", pods="job/train")
    assert [words[2] for words in stub.calls if words[0] == "exec"] == ["train-0-fghij"]
    typed = TRANSPORTS["kubectl"].typed({"pods": "job/train"}, "train-0")
    assert join((*typed, "true")) == "kubectl exec train-0-fghij -- true", "a person can type it"


def test_what_is_typed_into_a_container() -> None:
    typed = TRANSPORTS["kubectl"].typed({"context": "my lab", "namespace": "ml"}, "a-0:main")
    assert join((*typed, "true")) == "kubectl --context 'my lab' -n ml exec a-0 -c main -- true"


@pytest.mark.parametrize("node", ["user@train-0", "[::1]", "train-0:-x", "Train", "train_0"])
def test_what_is_no_pod_reaches_no_kubectl(stub: Stub, node: str) -> None:
    with pytest.raises(LinkError, match="has such a name") as refused:
        opened(node)
    assert not refused.value.retry
    assert stub.calls == []


@pytest.mark.parametrize(
    ("pod", "what"),
    [
        (None, "no pod train-0"),
        (shown("train-0", phase="Pending", reason="Odd"), "pod train-0 is Pending: Odd"),
        (shown("train-0", phase="Failed", reason="Evicted"), "pod train-0 has ended: Failed: Evicted"),
        (shown("train-0", deleted="2026-11-29T09:00:00Z"), "pod train-0 is being deleted"),
        (shown("train-0"), "container main is not running"),
    ],
)
def test_a_pod_that_does_not_run_says_why(stub: Stub, pod: dict[str, Any] | None, what: str) -> None:
    if pod is not None:
        stub.show(pod)
    with pytest.raises(LinkError) as refused:
        opened("train-0")
    assert refused.value.what == what
    assert "kubectl" in refused.value.hint


def test_a_container_that_it_does_not_have(stub: Stub) -> None:
    stub.show(shown("train-0"))
    with pytest.raises(LinkError, match="pod train-0 has no container side") as refused:
        opened("train-0:side")
    assert refused.value.hint == "it has main"


@pytest.mark.parametrize(
    ("said", "what", "retry"),
    [
        (
            'Error from server (Forbidden): pods "train-0" is forbidden: User "ada" cannot create resource '
            '"pods/exec" in API group "" in the namespace "ml"',
            "forbidden: ada may not create pods/exec in namespace ml",
            False,
        ),
        (
            'error: Internal error occurred: OCI runtime exec failed: exec: "/bin/sh": stat /bin/sh: no such '
            "file or directory: unknown",
            "its image has no /bin/sh",
            False,
        ),
        (
            "Error from server: error dialing backend: dial tcp 10.0.0.7:10250: i/o timeout",
            "the kubelet of its node does not answer: dial tcp 10.0.0.7:10250: i/o timeout",
            True,
        ),
    ],
)
def test_an_exec_that_is_refused_says_why(stub: Stub, said: str, what: str, *, retry: bool) -> None:
    stub.show(shown("train-0"))
    stub.say("refused/train-0", said)
    with pytest.raises(LinkError) as refused:
        opened("train-0")
    assert (refused.value.what, refused.value.retry) == (what, retry)


def test_an_image_without_python(stub: Stub) -> None:
    stub.start(shown("train-0"))

    async def main() -> None:
        async with pool() as links:
            links.pythons = ["/no/python3"]
            await links.lend("train-0")

    with pytest.raises(LinkError, match=r"no python found \(tried /no/python3\)"):
        asyncio.run(main())


def test_a_pod_that_is_deleted_is_gone(stub: Stub) -> None:
    stub.start(shown("train-0"))
    error = lost(stub, lambda: stub.end("train-0"))
    assert isinstance(error, Reclaimed), "nothing that was started there can be running"
    assert (error.what, link_state(error)) == ("no pod train-0", "gone")


def test_an_eviction_is_said_in_the_server_s_words(stub: Stub) -> None:
    stub.start(shown("train-0"))
    error = lost(stub, lambda: stub.end("train-0", phase="Failed", reason="Evicted", message="no memory"))
    assert error.what == "pod train-0 has ended: Failed: Evicted: no memory"
    assert error.hint == "see: kubectl describe pod train-0"


def test_a_container_that_was_killed_and_started_again_is_not_the_same(stub: Stub) -> None:
    stub.start(shown("train-0"))
    again = [{"name": "main", "restartCount": 1, "state": {"running": {}}, "lastState": KILLED}]
    error = lost(stub, lambda: stub.end("train-0", containerStatuses=again))
    assert isinstance(error, Reclaimed)
    assert error.what == "container main was started again: OOMKilled (exit code 137)"


def test_an_end_of_which_the_server_hears_late_is_said_at_the_next_connection(stub: Stub) -> None:
    stub.start(shown("train-0"))
    again = [{"name": "main", "restartCount": 1, "state": {"running": {}}, "lastState": KILLED}]

    async def main() -> tuple[CockpitError, CockpitError]:
        async with pool() as links:
            link = await links.lend("train-0")
            cut(link)
            first = await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S)
            stub.show(shown("train-0", containerStatuses=again))
            with pytest.raises(Reclaimed) as late:
                await links.lend("train-0", now=True)
            await links.lend("train-0", now=True)
            return first, late.value

    first, late = asyncio.run(main())
    assert link_state(first) == "stale"
    assert late.what == "container main was started again: OOMKilled (exit code 137)"


def test_a_pod_that_was_replaced_keeps_its_place(stub: Stub) -> None:
    stub.start(job(0, "aaaaa"))
    stub.start(job(0, "bbbbb", uid="later", created="2026-11-29T10:00:00Z", phase="Pending"))

    def replace() -> None:
        stub.end("train-0-aaaaa")
        stub.show(job(0, "bbbbb", uid="later"))

    async def main() -> tuple[CockpitError, Link]:
        async with pool(pods="job/train") as links:
            link = await links.lend("train-0")
            replace()
            error = await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S)
            return error, await links.lend("train-0", now=True)

    error, _ = asyncio.run(main())
    assert error.what == "pod train-0-aaaaa is gone: train-0-bbbbb has its place"
    assert isinstance(error, Reclaimed)
    assert [words[2] for words in stub.calls if words[0] == "exec"] == ["train-0-aaaaa", "train-0-bbbbb"]


def test_an_exec_that_ends_in_a_pod_that_runs_on_is_a_lost_link(stub: Stub) -> None:
    """As with a restart of the API server: its agent is gone, the pod is not."""
    stub.start(shown("train-0"), "trap : TERM; while :; do sleep 0.1; done")

    async def main() -> CockpitError:
        async with pool() as links:
            link = await links.lend("train-0")
            cut(link)
            error = await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S)
            await links.lend("train-0", now=True)
            return error

    error = asyncio.run(main())
    assert link_state(error) == "stale"
    assert not isinstance(error, Reclaimed)


def test_a_server_that_is_away_for_a_while_ends_nothing(stub: Stub) -> None:
    stub.start(shown("train-0"))

    async def main() -> tuple[CockpitError, CockpitError]:
        async with pool() as links:
            link = await links.lend("train-0")
            stub.say("down", REFUSED)
            cut(link)
            first = await asyncio.wait_for(asyncio.shield(link.lost), PATIENCE_S)
            with pytest.raises(LinkError) as again:
                await links.lend("train-0", now=True)
            stub.say("down", "")
            await links.lend("train-0", now=True)
            return first, again.value

    for error in asyncio.run(main()):
        assert error.what == "API server at 10.0.0.1:6443 does not answer: connection refused"
        assert link_state(error) == "stale"


def test_many_pods_that_are_lost_at_once_are_one_question(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl_queries, "PERIOD_S", 2.0)
    for index in range(3):
        stub.start(job(index))

    async def main() -> list[CockpitError]:
        async with pool(pods="job/train") as links:
            every = [await links.lend(f"train-{index}") for index in range(3)]
            before = len(stub.calls)
            for index in range(3):
                stub.end(f"train-{index}-abcde", phase="Failed", reason="Evicted")
            errors = await asyncio.wait_for(
                asyncio.gather(*(asyncio.shield(each.lost) for each in every)), 60
            )
            assert len(stub.calls) - before <= 2
            return errors

    assert all("Evicted" in error.what for error in asyncio.run(main()))


def test_an_answer_about_another_pod_is_not_believed(stub: Stub) -> None:
    stub.say("raw", '{"metadata": {"name": "other"}, "spec": {"containers": [{"name": "a"}]}, "status": {}}')
    with pytest.raises(LinkError, match="kubectl printed another pod"):
        opened("train-0")
