"""What ranks were started with: asked once beside a launch, checked, kept, and shown by the report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpit import paths
from cockpit.base import verbs
from cockpit.base.answers import EnvironAnswer, PackagesAnswer
from cockpit.base.gate import read
from cockpit.core.report import words
from cockpit.core.variables import differs_anyway, matter
from cockpit.engine.launch import environments
from cockpit.engine.launch.environments import digest_of, keep_beside, kept_environments, packages
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.gather import report_of
from cockpit.errors import CockpitError
from tests.cli.verbs import Verbs
from tests.report.made import NODES, made

LISTS = {
    "gpu01": ["numpy-2.1.0.dist-info", "torch-2.4.0.dist-info"],
    "gpu02": ["numpy-2.0.0.dist-info", "six.egg-info", "torch-2.4.0.dist-info"],
}


class Nodes:
    """Nodes that say what a test wants, through the gate."""

    def __init__(self, environs: Mapping[str, Any], lists: Mapping[str, list[str]]) -> None:
        self._environs, self._lists = environs, lists
        self.asked: list[tuple[str, object]] = []

    async def lend(self, node: str, *, patient: bool = False) -> Any:
        async def call(request: object) -> Any:
            self.asked.append((node, request))
            if isinstance(request, verbs.Packages):
                return read(PackagesAnswer, {"names": self._lists[node]})
            if isinstance(self._environs[node], CockpitError):
                raise self._environs[node]
            return read(EnvironAnswer, {"environ": self._environs[node]})

        return SimpleNamespace(call=call)


def of_two(nodes: Nodes, *, hashes: Mapping[str, str] | None = None) -> RunFolder:
    """A run on two nodes that have been asked."""
    folder = made()
    digests = {node: digest_of(names) for node, names in LISTS.items()} if hashes is None else hashes
    entries = [
        replace(entry, facts={**entry.facts, "installed_hash": digests[entry.name]})
        for entry in folder.manifest.nodes
    ]
    manifest = replace(folder.manifest, nodes=entries)
    (folder.path / "manifest.json").write_text(json.dumps(asdict(manifest)))
    folder = RunFolder(folder.path)
    session = SimpleNamespace(folder=folder, manifest=folder.manifest, model=folder.model(), pool=nodes)
    asyncio.run(keep_beside(cast(Any, session)))
    return folder


ENVIRONS = {
    "gpu01": {
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "8",
        "RANK": "0",
        "EDITOR": "vi",
        "HF_HOME": "/hf",
    },
    "gpu02": {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "1", "RANK": "2", "EDITOR": "nano"},
}


def test_what_differs_between_nodes_is_in_the_report() -> None:
    nodes = Nodes(ENVIRONS, LISTS)
    folder = of_two(nodes)
    report = asyncio.run(report_of(folder))
    *differ, last = report.what.environ
    told = {words.value_line(value) for value in differ}
    assert told == {"OMP_NUM_THREADS: 8 on gpu01, 1 on gpu02", "HF_HOME: /hf on gpu01, none on gpu02"}
    assert words.value_line(last) == "NCCL_DEBUG: INFO"
    told = {words.value_line(value) for value in report.what.packages}
    assert told == {"numpy: 2.1.0 on gpu01, 2.0.0 on gpu02", "six: none on gpu01, without a version on gpu02"}
    text = "\n".join(words.as_lines(report))
    assert "numpy: 2.1.0 on gpu01" in text
    assert "EDITOR" not in (folder.path / environments.FILE).read_text()


def test_a_list_is_asked_for_once() -> None:
    nodes = Nodes(ENVIRONS, LISTS)
    of_two(nodes).discard()
    of_two(nodes)
    asked = [request for _, request in nodes.asked if isinstance(request, verbs.Packages)]
    assert len(asked) == 2
    assert packages(digest_of(LISTS["gpu01"])) == LISTS["gpu01"]


def test_a_list_that_is_not_of_its_hash_is_not_kept() -> None:
    other = {"gpu01": ["evil-1.0.dist-info"], "gpu02": []}
    folder = of_two(Nodes(ENVIRONS, other))
    assert packages(digest_of(LISTS["gpu01"])) == []
    assert not paths.packages().exists()
    assert asyncio.run(report_of(folder)).what.packages == ()
    assert list(of_two_hashes_that_are_none()) == []


def of_two_hashes_that_are_none() -> list[object]:
    """What nodes are asked whose hash is a path."""
    nodes = Nodes(ENVIRONS, LISTS)
    made_before = paths.runs() / "20261121-040441-otter"
    RunFolder(made_before).discard()
    of_two(nodes, hashes={"gpu01": "../../../etc/x", "gpu02": ""})
    return [request for _, request in nodes.asked if isinstance(request, verbs.Packages)]


def test_a_node_that_does_not_answer_costs_only_what_it_knows() -> None:
    folder = of_two(Nodes({**ENVIRONS, "gpu02": CockpitError("no answer")}, LISTS))
    assert set(kept_environments(folder)) == {"gpu01"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": 5}', '{"nodes": {"a": {"b": 5}}}'])
def test_damage_is_nothing(text: str) -> None:
    folder = made()
    (folder.path / environments.FILE).write_text(text)
    assert kept_environments(folder) == {}
    assert asyncio.run(report_of(folder)).what.environ == ()


def test_which_matter() -> None:
    assert [name for name in ("NCCL_DEBUG", "LOCAL_RANK", "PATH", "WORLD_SIZE", "PRANK") if matter(name)] == [
        "NCCL_DEBUG",
        "LOCAL_RANK",
        "WORLD_SIZE",
    ]
    assert differs_anyway("LOCAL_RANK")
    assert differs_anyway("COCKPIT_DIR")
    assert not differs_anyway("NCCL_DEBUG")
    assert len(NODES) == 2


@pytest.mark.slow
def test_a_real_run(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    world = Verbs(tmp_path / "state", tmp_path / "work", quick_cockpit)
    script = f"while [ ! -e {world.runs}/real/environ.json ]; do sleep 0.1; done\n"
    done = world.call(
        *world.words("real", script), env={"NCCL_IB_HCA": "mlx5_0", "MY_TOKEN": "s3cr3t-s3cr3t"}
    )
    assert done.code == 0, done.both
    told = json.loads(world.call("report", "real", "--json").out)
    known = {each["name"]: each["values"][0]["value"] for each in told["environ"]}
    assert known["NCCL_IB_HCA"] == "mlx5_0"
    assert "s3cr3t" not in json.dumps(told)
