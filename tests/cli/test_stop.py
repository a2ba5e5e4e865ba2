"""``cockpit stop`` waits for nodes that are silent for a while, not for those that stay so."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from cockpit.base.answers import StopAnswer
from cockpit.base.verbs import Stop
from cockpit.cli.verbs import stop
from cockpit.core.run.model import RunModel
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import Manifest, NodeEntry
from cockpit.errors import Exit
from cockpit.transport.base import LinkError, Reach
from tests.happened import happened

MANIFEST = Manifest(
    run="r", created=0.0, nodes=[NodeEntry("n", "/tmp/r", [0])], launcher="", program=[], cwd="", pythons=[]
)


@pytest.mark.parametrize(("silent", "code"), [((True, False), Exit.OK), ((True, True), Exit.NODE_UNFIT)])
def test_a_node_that_is_silent_once(
    silent: tuple[bool, ...], code: Exit, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = iter(silent)

    async def asked(*_: Any) -> Any:
        return {"n": StopAnswer(True)}, {}

    async def now(*_: Any, **__: Any) -> Any:
        model = RunModel.of([happened(time.time(), "planned", "", {"nodes": {"n": (0,)}})])
        if next(lost):
            return model, {"n": LinkError("no answer within 15 s", where="n")}
        model.apply(happened(time.time(), "ended", "n", {}))
        return model, {}

    monkeypatch.setattr(stop, "ask_all", asked)
    monkeypatch.setattr(stop, "model_now", now)
    monkeypatch.setattr(stop, "AGAIN_S", 0.0)
    pool = LinkPool([], Reach("local", {}))
    wish = Stop("", "asked", "me", True, None)
    assert asyncio.run(stop._stop(MANIFEST, pool, wish, as_json=False)) is code
    assert next(lost, None) is None
