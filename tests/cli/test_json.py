"""The schemas in ``docs/json``: each ``--json`` has one, which fits real answers and refuses others."""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cockpit.cli.main import VERBS, main
from cockpit.errors import Exit
from tests.cli.schemas import PRINTED_IN, fits, validator
from tests.json_schemas import FOLDER, SCHEMAS, schema
from tests.waiting import PATIENCE_S

ALSO = {
    "ps": {"ps", "ps-run", "ps-nccl"},
    "stacks": {"stacks", "stacks-list"},
    "explain": {"explain", "explain-rules"},
    "compare": {"compare", "compare-profiles"},
    "attach": {"run"},
    "demo": {"run"},
}
"""Verbs with more than one form, or with that of another verb."""


def takes_json(verb: str) -> bool:
    parser: argparse.ArgumentParser = importlib.import_module(f"cockpit.cli.verbs.{verb}").parser()
    return re.search(r"^ +(-\w, )?--json\b", parser.format_help(), re.M) is not None


def test_every_verb_that_prints_json_has_a_schema() -> None:
    wanted = set().union(*(ALSO.get(verb, {verb}) for verb in VERBS if takes_json(verb)))
    assert set(SCHEMAS) == wanted == {path.stem for path in FOLDER.glob("*.json")}
    assert set(PRINTED_IN.values()) == wanted - {"run", "logs", "metrics"}  # which print lines


def test_each_is_in_the_table() -> None:
    page = (FOLDER / "README.md").read_text()
    assert [name for name in SCHEMAS if f"]({name}.json)" not in page] == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_files_are_what_the_tests_have(name: str) -> None:
    assert json.loads((FOLDER / f"{name}.json").read_text()) == schema(name), "make docs"
    jsonschema.Draft202012Validator.check_schema(schema(name))


def undescribed(node: Any, at: str = "") -> list[str]:
    """Fields that nothing is said of."""
    if isinstance(node, list):
        return [each for one in node for each in undescribed(one, at)]
    if not isinstance(node, dict):
        return []
    fields = node["properties"].items() if isinstance(node.get("properties"), dict) else ()
    found = [f"{at}.{field}" for field, one in fields if not one.get("description")]
    return found + [each for key, one in node.items() for each in undescribed(one, f"{at}.{key}")]


def test_every_field_has_a_description() -> None:
    first, *events, last = SCHEMAS["run"]["anyOf"]
    assert undescribed({**SCHEMAS, "run": [first, last]}) == []
    # An event's own description says what its fields are.
    assert [one for one in events if not one["description"]] == []


def test_a_run_prints_events(tmp_path: Path, quick_cockpit: tuple[str, ...]) -> None:
    line = [*quick_cockpit, "run", "-w", "localhost:1", "--launcher", "command", "--json"]
    line += ["--node-dir", str(tmp_path), "--", sys.executable, "-c", "print('hello')"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == Exit.OK, done.stderr
    told = [json.loads(each) for each in done.stdout.splitlines()]
    for each in told:
        fits("run", each)
        if each["event"] == "log":
            fits("logs", each)
    assert {"log", "over", "rank_started", "rank_exited"} <= {each["event"] for each in told}


@pytest.mark.parametrize("words", [["where"], ["config"], ["ps", "--no-connect"]])
def test_what_needs_no_run_fits(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--json"]) == Exit.OK
    fits(words[0], json.loads(capsys.readouterr().out))


def sample(said: Any) -> Any:
    """An answer that fits a schema."""
    if "const" in said or "enum" in said:
        return said["const"] if "const" in said else said["enum"][0]
    if "anyOf" in said:
        return sample(said["anyOf"][0])
    kinds = said.get("type", "null")
    kind = kinds if isinstance(kinds, str) else kinds[0]
    if kind == "object":
        return {name: sample(said["properties"][name]) for name in said.get("required", ())}
    if kind == "array":
        return [sample(said["items"])] if "items" in said else []
    return {"string": "x", "integer": 1, "number": 0.5, "boolean": True, "null": None}[kind]


@pytest.mark.parametrize("name", sorted(set(SCHEMAS) - {"where", "config"}))
def test_a_field_that_is_gone_or_new_is_seen(name: str) -> None:
    good = sample(schema(name))
    fits(name, good)

    def bad(change: Any) -> bool:
        told = copy.deepcopy(good)
        change(told[0] if isinstance(told, list) else told)
        return not validator(name).is_valid(told)

    required = good[0] if isinstance(good, list) else good
    for field in required:
        assert bad(lambda told, field=field: told.pop(field)), field
        assert bad(lambda told, field=field: told.update({field: {"a": [object]}})) or field in told_freely(
            name
        )
    assert bad(lambda told: told.update(surprise=1))


def told_freely(name: str) -> set[str]:
    """Fields whose form a schema leaves open."""
    top = schema(name).get("items", schema(name))
    top = top.get("anyOf", [top])[0]
    return {
        field
        for field, said in top["properties"].items()
        if said.get("type") in (None, "object", ["object", "null"])
    }
