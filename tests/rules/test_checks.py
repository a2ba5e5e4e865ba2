"""What cockpit itself finds in nodes and in runs means what a row of the table says, or is none of these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cockpit.core.doctor import deep
from cockpit.core.doctor.diagnosis import FAULTS
from cockpit.core.doctor.differences import DIFFERENCES
from cockpit.core.finding import Finding, Step
from cockpit.core.nccl.findings import RULES as NCCL
from cockpit.core.rules.explanation import recognised, translated
from cockpit.core.rules.row import Row
from cockpit.core.rules.table import table
from cockpit.core.run.notices.watch import RULES
from cockpit.plans import unfit

SPEED = "slower, no failure: the slowest node sets the pace"
BY_WORDS = "torch's own words say why, by the rows of nccl_words"
TRIAL = "about the torch test itself, and what it left out"
LAUNCH = "an option of this launch, or a package, that its own sentence and step name"

NO_ROW = {
    "refused": "the node says in its own words which of many things is missing, and what to type",
    "not_tried": "nothing is known of the node",
    "no_answer": "which check it was says what to look at",
    "same_machine": "a mistake in this list of nodes, with the names to leave out",
    "differs_kernel": "seldom matters; the step says how to compare",
    "differs_libc": "matters to what is built there only: libstdcxx-too-old, once it fails",
    **dict.fromkeys(("differs_cpu", "differs_cores", "differs_governor", "differs_gpu_clock"), SPEED),
    **dict.fromkeys(("differs_gpu_power", "differs_gpu_persistence", "differs_speed", "differs_rdma"), SPEED),
    "differs_memory": "no failure: the smallest node sets the limit",
    "differs_gpu_memory": "no failure: the smallest GPU sets the limit",
    "differs_gpus": "what is built in; if GPUs are lost, gpu_lost says so",
    "differs_interface": "names may differ; no_interface, once one is chosen that is not there",
    "differs_mtu": "a setting of switches and cards that only their admin can judge",
    "differs_open_files": "higher than what fails: limits_low",
    "differs_processes": "higher than what fails: limits_low",
    "differs_locked_memory": "higher than what fails: locked_memory",
    "differs_cgroup_memory": "a limit that may be meant; memory_low, once it is near",
    "differs_cgroup_pids": "a limit that may be meant",
    "differs_shm": "more than what fails: shm_small",
    "differs_working_directory": "a mount that may be meant; path-missing, once a file is not there",
    "differs_ptrace_scope": "lower than what forbids stacks: no_stacks",
    "differs_perf_event_paranoid": "of profilers of the CPU, which take less then",
    "differs_uid": "only files of a shared home depend on it",
    "memory_short": "an estimate for a model that was named, with the ways that fit",
    **dict.fromkeys(("no_launcher", "no_profiler", "no_switch", "no_folder", "no_room", "no_calls"), LAUNCH),
    **dict.fromkeys((f"deep_{kind}" for kind in deep._SENTENCES), BY_WORDS),
    "deep_no_torch": "the import's own words say why, by all rows",
    **dict.fromkeys(("deep_left_out", "deep_lost", "deep_unfinished", "deep_unmeasured"), TRIAL),
    "deep_interface": "it names the interface that most nodes took",
    "deep_slow": SPEED,
    "loss jump": "a loss that rises is no failure by itself",
    "gpu more": "how many more errors than are told",
    "throughput": SPEED,
    "slow": SPEED,
    "checkpoint": "late or slow, not failed: stacks say where it waits",
    "reach": "whether the node or only our way to it is gone is not known",
    "members": "an option of this launch",
    "gpu_memory_filling": "torch's cache may level off; gpu-oom, once it fails",
}
"""Why there is no row for what is found."""


def found_ids() -> set[str]:
    """The ids of what is found, as rows name them."""
    doctor = {rule.id for rule in (*FAULTS, *DIFFERENCES, *NCCL)}
    launch = {rule.id for rule in unfit.UNFIT}
    source = Path(deep.__file__).read_text(encoding="utf-8")
    trial = {*re.findall(r'"(deep_\w+)"', source), *(f"deep_{kind}" for kind in deep._SENTENCES)}
    notices = {rule.id for rule in RULES} - {"loss", "gpu"}
    parts = {"loss nan", "loss jump", "gpu Xid", "gpu errors", "gpu slowed", "gpu more"}
    memory = {"memory_filling", "gpu_memory_filling", "memory_short"}
    return doctor | launch | trial | notices | parts | memory


def test_what_is_found_has_a_row_or_a_reason_why_not() -> None:
    rows = set(table().by_check)
    plain = rows | {check.partition(" ")[0] for check in rows}
    found = found_ids()
    assert {one for one in found if (one in plain) == (one in NO_ROW)} == set()
    known = {re.sub(r"Xid-\d+", "Xid", check) for check in rows}
    assert {check for check in known if not {check, check.partition(" ")[0]} & found} == set()
    assert set(NO_ROW) <= found


def test_no_check_has_two_rows() -> None:
    assert sum(len(row.checks) for row in table().rows) == len(table().by_check)


@pytest.mark.parametrize("row", [row for row in table().rows if row.checks], ids=lambda row: row.id)
def test_what_is_found_means_what_the_row_says_in_both_languages(row: Row) -> None:
    for check in row.checks:
        id, _, about = check.partition(" ")
        found = recognised(Finding(id, "it is so", steps=(Step("own", "of this node"),)), f"gpu03 {about}")
        assert (found.what, found.rule, found.meaning) == ("it is so", row.id, row.means)
        assert [step.reason for step in found.steps] == ["of this node", *(one.reason for one in row.next)]
        chinese = translated(found, "zh")
        assert chinese.meaning == row.zh
        assert [step.reason for step in chinese.steps] == ["of this node", *(one.zh for one in row.next)]
        assert translated(chinese, "en") == found
