"""Facts have types: no verdict, state or exit code depends on how a sentence of ours is worded."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.core.stacks.verdict import KINDS
from tests import reworded

REPO = Path(__file__).parents[1]
JUDGES = (
    "tests/core/test_verdict.py",
    "tests/core/test_verdict_facts.py",
    "tests/core/test_model.py",
    "tests/core/test_failure.py",
    "tests/engine/test_evidence_gathered.py",
)

READ_OTHERS = frozenset(
    {
        # What torch, NCCL, python, ssh, SLURM, kubectl, the kernel, people and their programs write.
        "kube/kubectl_errors",
        *("base/recorder/reading", "base/secret", "base/shell", "cli/parsing", "config", "core/doctor/deep"),
        *("core/doctor/nccl_words", "core/nccl/lines", "core/run/notices/checkpoint_words"),
        *(
            "core/nccl_tests/reading",
            "core/explain/judging",
            "core/explain/launchers",
            "core/explain/witnesses",
            "engine/run/board",
        ),
        *("engine/run/foreign", "node/checkup/gpus", "node/checkup/machine", "node/facts"),
        *("node/measure/samples", "node/probe/hooks", "node/recorder/ras", "node/recorder/ras_text"),
        *("node/recorder/server", "node/memory_limits", "node/stacks/infer_ranks", "node/stacks/permission"),
        *("node/stacks/pyspy", "node/stacks/pyspy_output", "node/stacks/pyspy_process"),
        *("node/stacks/pythons", "node/stacks/find_ranks", "node/stacks/workers", "plans/nodes/slurm"),
        *("plans/python", "slurm", "transport/adopt", "transport/openssh_asking"),
        *(
            "transport/openssh_masters",
            "transport/openssh_words",
            "transport/srun_end",
            "transport/sshfaults",
        ),
        # Names of disks in an answer, keys, and the prompt of a search: no sentences.
        *(
            "core/doctor/differences",
            "core/doctor/machine_faults",
            "core/run/event_table",
            "tui/command_screen",
        ),
        # Sentences of older files, from before there were facts; lines that we wrote into a log.
        *("engine/stacks/places", "engine/records/folder"),
        # How a sentence goes on, by how it begins.
        *(
            "core/stacks/rules/no_collective",
            "core/stacks/rules/all_waiting",
            "core/stacks/sentences",
            "core/text",
        ),
        "transport/login_prompts",
    }
)
"""Modules that compare text with several words, or look for them; those of ``core/logs`` do nothing else."""

_READS = frozenset(
    [
        "startswith",
        "endswith",
        "partition",
        "rpartition",
        "split",
        "find",
        "index",
        "removeprefix",
        "removesuffix",
        "match",
        "search",
        "fullmatch",
        "compile",
        "count",
        "replace",
        "rfind",
    ]
)


def read_words(tree: ast.AST) -> Iterator[str]:
    """The texts that a module compares others with, or looks for in them."""
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            found = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            found = node.args
        for each in found:
            for one in each.elts if isinstance(each, ast.Tuple | ast.List | ast.Set) else [each]:
                if isinstance(one, ast.Constant) and isinstance(one.value, str | bytes):
                    yield one.value if isinstance(one.value, str) else one.value.decode("latin-1")


@pytest.mark.slow
def test_only_texts_of_others_are_read() -> None:
    top = REPO / "cockpit"
    found = set()
    for path in top.rglob("*.py"):
        name = path.relative_to(top).with_suffix("").as_posix()
        words = read_words(ast.parse(path.read_text(encoding="utf-8")))
        if not name.startswith("core/logs/") and any(re.search(r"[a-z]{2,} [a-z]", each) for each in words):
            found.add(name)
    assert found - READ_OTHERS == set()


def test_what_is_reworded_is_what_is_made_and_not_what_is_read() -> None:
    made = """
def said(code): return f"was ended by {code}"
def reads(text): return text.startswith("was ended by ") or "was ended" in text
WORDS = {"over": "all of them are over"}
"""
    tree = ast.fix_missing_locations(reworded._Rewords().visit(ast.parse(made)))
    space: dict[str, object] = {}
    exec(compile(tree, "made", "exec"), space)
    said, reads = space["said"], space["reads"]
    assert callable(said)
    assert callable(reads)
    assert said(3) == "saw dedne yb 3"
    assert not reads(said(3))
    assert reads("was ended by 3")
    assert space["WORDS"] == {"over": "lla fo meht era revo"}


def judged(file: Path, how: str) -> tuple[list[str], str]:
    """What the rules find in what was kept, line by line."""
    words = [sys.executable, "-m", "tests.reworded", how, str(file)]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests of rules and of runs let them judge."""
    file = tmp_path_factory.mktemp("kept") / "kept"
    words = [sys.executable, "-m", "tests.reworded", "keep", str(file), *JUDGES]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    return file


@pytest.mark.slow
def test_other_sentences_change_no_verdict_state_or_exit_code(kept: Path) -> None:
    plain, _ = judged(kept, "plain")
    changed, said = judged(kept, "changed")
    assert "sknar" in said  # they were other ones
    assert changed == plain
    found = {line[0] for line in map(json.loads, plain) if line and isinstance(line[0], str)}
    assert KINDS.keys() - found <= {"slow"}
