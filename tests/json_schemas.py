"""The schemas in ``docs/json``, written by ``make docs``: what ``--json`` of each verb prints.

A field is written as ``type: what it is``. One whose name ends in ``?`` is not always there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from cockpit.base.events import OWN, RECORD, Fact
from cockpit.core.pace.phases import NAMES
from cockpit.core.pace.series import COLUMNS
from cockpit.core.report.goodput import MEANINGS
from cockpit.core.report.goodput import PARTS as SPLIT

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "json"

VERSION = 1
"""Raised when a field goes or gets another meaning; new fields do not raise it."""

Schema = dict[str, Any]
Said = str | Schema


def of(said: Said) -> Schema:
    """The schema of ``type|type: what it is``; one that is a schema already stays."""
    if not isinstance(said, str):
        return said
    types, _, text = said.partition(": ")
    names = types.split("|")
    return {"description": text, "type": names[0] if len(names) == 1 else names}


def obj(text: str, fields: Mapping[str, Said], *, null: bool = False) -> Schema:
    """An object with these fields and no others."""
    return {
        "description": text,
        "type": ["object", "null"] if null else "object",
        "properties": {name.rstrip("?"): of(said) for name, said in fields.items()},
        "required": [name for name in fields if not name.endswith("?")],
        "additionalProperties": False,
    }


def each(text: str, item: Said) -> Schema:
    """A list."""
    return {"description": text, "type": "array", "items": of(item)}


def by(text: str, item: Said) -> Schema:
    """An object whose names are not known before: nodes, or ranks."""
    return {"description": text, "type": "object", "additionalProperties": of(item)}


MEASURE = obj(
    "one",
    {
        "name": "string: what it is",
        "unit": "string: of its values; empty: none",
        "before": "number|null: null: not known",
        "after": "number|null: the same of the other run",
        "spread": "number|null: how much it varies from step to step; null: not known",
        "ratio": "number|null: after by before; null: not known",
        "beyond": "boolean|null: whether they differ beyond normal variation; null: not known",
    },
)

OPERATIONS = each(
    "those first that differ most",
    obj(
        "one",
        {
            "name": "string: what it is",
            "kind": "string: data, compute, communication, copy, python, system, sample, other, frame",
            "before": "number|null: seconds of a step, or of frames the part of the time; null: not there",
            "after": "number|null: the same of the other one",
            "calls_before": "number|null: calls of a step; null: not known",
            "calls_after": "number|null: the same of the other one",
        },
    ),
)

PROFILES = obj(
    "two profiles, the newest ones of one kind",
    {
        "before": "string: what the first one is of",
        "after": "string: what the second one is of",
        "unit": {
            "description": "of operations: seconds of a step, or part of the time",
            "enum": ["s", "share"],
        },
        "parts": each("where a step of the median rank goes", MEASURE),
        "ranks": each("whose operations these are: of each a typical rank", "integer: a rank"),
        "operations": OPERATIONS,
        "sums": OPERATIONS,
        "collectives": OPERATIONS,
        "notes": each("what makes them less comparable", "string: a sentence"),
    },
)

WALL = obj(
    "where the wall time went; null: no step's time is known",
    {
        "wall_s": "number: seconds, all of it",
        "share": "number: of steps that count, 0 to 1",
        "parts": obj("seconds; their sum is wall_s", {name: f"number: {MEANINGS[name]}" for name in SPLIT}),
        "estimated": each("those that rest on log lines, or on what is usual", "string: a part"),
        "lost_steps": "integer|null: steps in lost; null: no checkpoint is known",
    },
    null=True,
)

PARTS: dict[str, Said] = {
    "took_s": "number: seconds of a step",
    "own_s": "number: without waiting for others",
    "data_s": "number: in a data loader",
    "compute_s": "number: in operations",
    "communication_s": "number: in collectives and nothing else, without waiting",
    "wait_s": "number: waiting for others in collectives",
    "idle_s": "number: in nothing of these",
}
"""Of a step that was profiled."""

STEP = obj(
    "one step",
    {
        "command": "string: to type in a shell; empty: none, see reason",
        "reason": "string: what it shows or mends",
        "node": "string: where to type it; empty: here",
        "action": "string: the app's command that does it; empty: none",
    },
)

VALUE = obj(
    "one thing that nodes say",
    {
        "name": "string: what",
        "values": each(
            "the most common first",
            obj("one", {"value": "string: it; empty: none", "nodes": each("who", "string: a node")}),
        ),
    },
)

FINDING: dict[str, Said] = {
    "id": "string: name of the rule or cause; stable",
    "what": "string: what is wrong, in one sentence",
    "ranks": "string: ranks it is about, such as 0-3,7; empty: none in particular",
    "where": "string: file:line function; empty: not known",
    "detail": "string: the line of the log, or more about it",
    "evidence": each("facts it rests on", "string: one fact"),
    "certainty": {"description": "how sure it is", "enum": ["sure", "likely", "unsure"]},
    "steps": each("what to do next, best first", STEP),
    "nodes": each("nodes it is about", "string: a node"),
    "severity": {"description": "how bad it is", "enum": ["error", "warning", "info"]},
    "since": "number|null: unix seconds",
    "proof": "string: the fact because of which ranks cannot go on by themselves; empty: none",
    "rule": "string: id of the rule that explains it; empty: none does",
    "meaning": "string: what that rule says it means, in one sentence",
}

PHASES_SAID = {
    "input": "waiting for data",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "update": "in the optimizer's update",
    "wait": "waiting for other ranks",
    "other": "in none of these",
}

PHASES: dict[str, Any] = {
    "description": "seconds of a step in each phase, the median of its last ones; null: not known",
    "type": ["object", "null"],
    "properties": {f"{name}_s": of(f"number|null: seconds {PHASES_SAID[name]}") for name in NAMES},
}

RANK: dict[str, Said] = {
    "rank": "integer: its number",
    "node": "string: its node",
    "state": "string: waiting, running, exited, killed, lost",
    "code": "integer|null: exit code",
    "signal": "integer|null: number of the signal that killed it",
    "pid": "integer|null: of the training process",
    "ticks": "integer|null: its start, in clock ticks since boot",
    "attempt": "integer: 0, or how often the launcher has restarted it",
    "max_restarts": "integer: how often the launcher may",
    "started_at": "number|null: unix seconds",
    "ended_at": "number|null: unix seconds",
    "recorded": "boolean: whether its end was seen by its parent",
    "oom_kills": "integer|null: processes of its cgroup that the kernel killed for memory",
    "why": "string: why it is lost",
    "sample": {"description": "last measurement of its process", "type": ["object", "null"]},
    "probe": {"description": "whether the probe is loaded, and why not", "type": "object"},
    "text": "string: its state in words",
    "work_why": "string: why its work is not known",
    "step": "integer|null: the step it is in, or has made last",
    "step_age_s": "number|null: seconds since that step ended",
    "step_estimated": "boolean: whether the step is derived, not read",
    "step_source": "string|null: deepspeed, log, recorder, kept",
    "behind_steps": "integer|null: steps behind the front",
    "behind_s": "number|null: seconds behind the front",
    "step_s": "number|null: median seconds a step",
    "work_s": "number|null: median seconds a step without the time it waited for others",
    "enqueue_lag_s": "number|null: how much later than others it enqueues collectives, seconds",
    "cost_s": "number|null: seconds a step that it costs the others",
    "work_age_s": "number|null: age of what its work is known from, seconds",
    "progress": {"description": "what its progress is read from, and how old that is", "type": "object"},
    "phases": PHASES,
    "slow": {
        "description": "how slow it is, if it is: excess (1.0: twice the work), since_step, reason (the phase"
        " that differs by as much, took_s, others_s, others: whose these are, or before: its own then;"
        " null: no phase does)",
        "type": ["object", "null"],
    },
    "late": {
        "description": "how late it joins collectives, if it does: excess, since_step",
        "type": ["object", "null"],
    },
}

NODE: dict[str, Said] = {
    "name": "string: its name",
    "ranks": each("its ranks", "integer: a rank"),
    "link": {"description": "state of the link", "enum": ["connecting", "ok", "stale", "gone"]},
    "link_since": "number: since when, unix seconds",
    "link_why": "string: why it is not ok",
    "offset_s": "number: its clock minus ours, seconds",
    "rtt_s": "number|null: round trip, seconds",
    "launched": "boolean: whether its launcher was started",
    "probe": "string: --probe of the run there",
    "stage": "string: how far a stop is: term, finalising, kill, sweep",
    "launcher_code": "integer|null: exit code of its launcher",
    "launcher_signal": "integer|null: signal that killed it",
    "launcher_ended": "boolean: whether it has ended",
    "stop_requested_at": "number|null: unix seconds",
    "stop_by": "string: who asked for the stop",
    "ended": "boolean: whether nothing of the run is left there",
    "complete": "boolean: whether all its output is here",
    "lost": "string: why its end will never be known",
    "evidence": {"description": "what it saved, each with its time", "type": "array"},
    "reports": {"description": "profiler reports by name", "type": "object"},
    "survivors": {"description": "processes that a stop left", "type": "array"},
    "supervisor_gone": "boolean: whether its supervisor was killed",
    "notes": each("what it reported", "string: a note"),
    "notes_dropped": "integer: notes that were too many",
    "unmeasured": "string: why it is not measured",
    "damaged": "integer: lines of its record that cannot be read",
    "gaps": {"description": "output that is missing here, by log", "type": "object"},
    "sample": {"description": "last measurement of the node", "type": ["object", "null"]},
    "gpus": {"description": "last measurement of its GPUs", "type": "array"},
    "sampled_at": "number|null: unix seconds",
    "filling": {"description": "disks that fill up", "type": "object"},
}

WATCH: dict[str, Said] = {
    "state": {"description": "empty: nobody watches", "enum": ["", "going", "quiet", "stalled", "blind"]},
    "at": "number: when this was so, unix seconds",
    "since": "number: when the last step ended, unix seconds",
    "still_s": "number: seconds without a step",
    "step": "integer|null: the last step of the front",
    "looking": "boolean: whether ranks are being inspected",
    "looks": "integer: how often they were, since then",
    "total": "integer: the same since the run began",
    "looked": "number|null: when they were last, unix seconds",
    "next_at": "number|null: when they will be again, unix seconds",
    "finding": obj("which rank the others wait for", FINDING, null=True),
    "waiting": "string: ranks that wait for others",
    "snapshot": "string: folder of the stacks, below the run's stacks/",
    "why": "string: what is not known, and why",
    "stuck": {"description": "whether it is stuck", "enum": ["", "sure", "likely", "waiting"]},
    "before": {"description": "longest pause that ended by itself: seconds, step", "type": "object"},
    "ending": "boolean: whether its log says that no step follows",
}

VERDICT = obj(
    "which rank, and why",
    {
        **FINDING,
        "kind": "string: as id",
        "headline": "string: as what",
        "next": each("the steps, each in one line", "string: command: reason"),
    },
)

PAGE = obj(
    "a page about the run that its log names",
    {
        "name": "string: W&B, TensorBoard",
        "url": "string: its address",
        "node": "string: a node",
        "rank": "integer|null: a rank",
    },
)

LINE: dict[str, Said] = {
    "file": "string: its file",
    "number": "integer: its number, from 1 on",
    "text": "string: the line",
}

NCCL: dict[str, Said] = {
    "findings": each("what is wrong by that, worst first", obj("a finding", FINDING)),
    "differs": each(
        "what ranks do not say alike",
        obj(
            "one",
            {
                "column": "string: a field of a row, or a variable",
                "values": each(
                    "who says what, most first",
                    obj(
                        "a value",
                        {
                            "value": "string: as text",
                            "ranks": "string: who says it",
                            "nodes": each("their nodes", "string: a node"),
                        },
                    ),
                ),
            },
        ),
    ),
    "rows": each(
        "one a process; empty: not said",
        obj(
            "a row",
            {
                "ranks": "string: its ranks, several of a process with several GPUs",
                "node": "string: its node",
                "gpus": each("numbers of its CUDA devices", "integer: a number"),
                "version": "string: of NCCL or RCCL, with that name",
                "toolkit": "string: what it was built for",
                "driver": "string: the CUDA of the driver",
                "bootstrap": "string: interface that ranks meet over",
                "network": "string: Socket, IB, or a plugin's own name",
                "interfaces": each("of NET/Socket", "string: an interface"),
                "devices": each("of NET/IB", "string: device:port/kind"),
                "plugin": "string: network plugin",
                "provider": "string: of libfabric",
                "gdr": {"description": "GPUDirect RDMA", "enum": ["", "on", "off", "mixed"]},
                "across": each("ways to other nodes", "string: NET/IB/GDRDMA"),
                "inside": each("ways within the node", "string: P2P/CUMEM, SHM"),
                "algorithms": each("what is connected", "string: rings, trees, NVLS"),
                "channels": "integer: of collectives, in the largest communicator",
                "world": "integer: ranks of that",
                "communicators": "integer: how many were made",
                "settings": by("variables that NCCL read", "string: value"),
            },
        ),
    ),
    "left_out": "integer: processes of which nothing is kept",
}

_HALF = {
    "time_us": "number|null: microseconds",
    "algbw": "number|null: GB/s",
    "busbw": "number|null: GB/s",
    "wrong": "number|null: values that are wrong (#wrong)",
    "delta": "number|null: the greatest deviation (error), before 2.13",
    "min_us": "number|null: of all iterations (-I 1)",
    "max_us": "number|null: the same",
    "p99_us": "number|null: the same",
    "cv_percent": "number|null: the same",
}

NCCL_TESTS = obj(
    "a table",
    {
        "test": "string: the program; empty: not known",
        "version": "string: of nccl-tests; empty: it does not say",
        "nccl": "string: number of NCCL's version; empty: it does not say",
        "hosts": each("where it ran, in its words", "string: a host"),
        "ranks": "integer: how many ranks",
        "node": "string: node of the log",
        "file": "string: our copy of the log",
        "line": "integer: of the header in it, from 1",
        "finished": "boolean: whether its summary is there",
        "wrong": "number: wrong values, or failed checks where there is no #wrong",
        "average_busbw": "number|null: GB/s, by its summary",
        "damage": each(
            "what of it cannot be read", obj("one", {"line": "integer: in the log", "what": "string: why"})
        ),
        "rows": each(
            "its lines",
            obj(
                "a line",
                {
                    "size": "integer: bytes of the message",
                    "type": "string: data type",
                    "redop": "string: operation; empty: no such column",
                    "root": "integer|null: root rank, -1: none; null: no such column",
                    "count": "integer: elements",
                    "out_of_place": obj("null: left blank", _HALF, null=True),
                    "in_place": obj("null: left blank", _HALF, null=True),
                    "at": "string: when (-S 1); empty: it does not say",
                    "line": "integer: in the log",
                },
            ),
        ),
        "before": obj(
            "the last run of the same test on the same nodes, at the largest message that both measured",
            {
                "run": "string: its name",
                "t": "number: unix seconds",
                "size": "integer: bytes of the message",
                "busbw": "number: GB/s then",
                "change": "number: fraction that busbw differs by now; negative: less",
            },
            null=True,
        ),
    },
)

WHY = obj(
    "who failed first, or held up the others, as `cockpit explain` judges; null: none found",
    {
        "how": {
            "description": "as first.how of `cockpit explain --json`",
            "enum": ["broke", "left", "absent", "gone", "unknown", "stalled"],
        },
        "what": "string: who it was and how it ended, in one sentence",
        "ranks": "string: its rank, or several such as 0-3,7; empty: not known",
        "nodes": each("its node", "string: a node"),
        "certainty": {"description": "how sure it is", "enum": ["sure", "likely", "unsure"]},
        "cause": "string: why, as it was printed; empty: nothing says",
        "evidence": each("in the user's code, outermost first", "string: file:line function"),
        "lines": each("where it is printed", obj("a line", LINE)),
        "rule": "string: the rule that explains it; empty: none does",
        "meaning": "string: what happened, in one sentence; empty: no rule explains it",
        "steps": each("what to do next, best first", STEP),
        "waited": "string: ranks that failed as a consequence, or waited for it",
        "failed_too": "string: ranks that failed after it",
    },
    null=True,
)

COURSE = obj(
    "how far it came, and how fast",
    {
        "steps": "integer: steps on record",
        "first": "integer|null: the first one's number",
        "last": "integer|null: the last one's",
        "begun_s": "number|null: seconds until the first one was over",
        "mean_s": "number|null: seconds of a step of the median rank, the mean of all; null: the log has one"
        " time for all steps",
        "phases": by("of a step, the mean of what is known", "number: seconds"),
        "exact": "boolean: whether ranks noted the times; false: those of log lines",
    },
)

SIDE = obj(
    "a run in short; `cockpit report RUN --json` has all of it",
    {
        "run": "string: its name",
        "state": "string: how it is, or how it ended, in words",
        "code": "integer|null: exit code of a cockpit that watched it to its end; null: still running",
        "began": "number: unix seconds",
        "ended": "number|null: when its last rank ended, unix seconds; null: still running, or not known",
        "took_s": "number: seconds until then, or until now",
        "ranks": "integer: how many",
        "program": each("the training program", "string: a word"),
        "outcome": each("about its end, the cause first", "string: a sentence"),
        "why": WHY,
        "pace": COURSE,
    },
)

SCHEMAS: dict[str, Schema] = {
    "ps": each(
        "`cockpit ps --json`: runs, newest last",
        obj(
            "a run",
            {
                "run": "string: its name",
                "nodes": each("its nodes", "string: a node"),
                "ranks": "integer: how many ranks it has",
                "running": "integer: how many of them run",
                "state": "string: words; begins with starting, running, failed, ended, stopped, unknown, …",
                "unreachable": each("nodes that gave no answer", "string: a node"),
                "recorded": "boolean: whether this is what was known last, not what its nodes say now",
                "launcher": "string: deepspeed, torchrun, accelerate, command, per-node; or empty",
                "foreign": "boolean: whether something else started it",
                "program": each("its command line", "string: a word"),
                "started": "number: unix seconds",
                "standing": "string: since when no step was made, in words; empty: it makes steps",
                "step": "integer|null: the last step",
                "step_t": "number|null: when it ended, unix seconds",
                "step_s": "number|null: median seconds a step",
                "step_estimated": "boolean: whether the step is derived, not read",
                "starting": "boolean: whether no rank has got to work yet, as far as is known",
                "word": "string: state in one word: starting, running, ending, stalled, failed, stopped,"
                " ended, job over, lost, unknown, not started or damaged",
                "cause": "string: why: the verdict, what ended it; may be empty",
                "how": "string: in a line how it is, or how it ended: verdict, cause, pace, or time and loss",
                "over": "boolean: whether nothing of it is left",
                "ended": "number|null: when its last rank ended, unix seconds",
                "code": "integer|null: exit code of a cockpit that watched it to its end",
                "total": "integer|null: steps it is to make, by its log",
                "loss": "number|null: the last one in its log",
                "command": each("as typed", "string: a word"),
                "cwd": "string: where it was typed",
                "job": "string: the SLURM job it is in; may be empty",
            },
        ),
    ),
    "replay": obj(
        "`cockpit replay RUN --at MOMENT --json`: a run as it was at a moment",
        {
            "run": "string: its name",
            "t": "number: the moment, unix seconds",
            "begin": "number: the first moment of the run, unix seconds",
            "end": "number: the last one that anything is known of, unix seconds",
            "state": "string: in words, as in ps",
            "step": "integer|null: the step of the front",
            "nodes": each("its nodes", obj("a node", NODE)),
            "ranks": each("its ranks", obj("a rank", RANK)),
            "marks": each(
                "what there is to look at, over the whole run",
                obj("one", {"t": "number: unix seconds", "kind": "string: failure, stall or checkpoint"}),
            ),
        },
    ),
    "ps-run": obj(
        "`cockpit ps RUN --json`: a run with its nodes and ranks",
        {
            "run": "string: its name",
            "state": "string: in words, as in ps",
            "step": "integer|null: the step of the front",
            "steps_since_start": "boolean: whether steps are counted since the start of the log",
            "nodes": each("its nodes", obj("a node", NODE)),
            "ranks": each("its ranks", obj("a rank", RANK)),
            "findings": each("what is wrong, worst first", obj("a finding", FINDING)),
            "watch": obj("what whoever watches says of its steps", WATCH),
            "pages": each("pages about it", PAGE),
            "total_steps": "integer|null: steps it is to make",
            "eta_s": "number|null: seconds until it is through",
            "phases": {**PHASES, "description": "of the median rank"},
            "bound": {
                "description": "what steps are bound by: by (input, compute, wait, update), share of a step,"
                " sure (never on GPUs)",
                "type": ["object", "null"],
            },
            "evidence": each(
                "what nodes saved of ranks that stood still or failed",
                obj(
                    "one",
                    {
                        "path": "string: here",
                        "t": "number: unix seconds",
                        "why": "string: by which node, and why",
                        **FINDING,
                    },
                ),
            ),
            "nccl_tests": each("tables that programs of nccl-tests printed", NCCL_TESTS),
            "profiles": each(
                "profiles that were taken of it, oldest first",
                obj(
                    "one",
                    {
                        "t": "number: when it was over, unix seconds",
                        "number": "integer: of the profile",
                        "id": "string: by which nodes know it",
                        "profiler": "string: torch, cpu or nsys",
                        "ranks": each("ranks of which it is here", "integer: a rank"),
                        "missing": each("other ranks that were meant", "integer: a rank"),
                        "first": "integer|null: its first step; null: it was as long as seconds says",
                        "steps": "integer: how many steps",
                        "seconds": "number|null: how long it was; null: whole steps",
                        "cancelled": "string: who ended it early; empty: nobody",
                    },
                ),
            ),
        },
    ),
    "ps-nccl": obj(
        "`cockpit ps RUN --nccl --json`: NCCL settings reported by the ranks",
        {
            "run": "string: its name",
            **NCCL,
            "not_asked": by("nodes that could not be asked, and why", "string: why"),
        },
    ),
    "stacks": obj(
        "`cockpit stacks … --json`: stacks of all ranks, merged",
        {
            "event": {"description": "always the same", "const": "stacks"},
            "job": "string: name of the job",
            "run": "string: name of the run; empty: cockpit did not start it",
            "snapshot": "string: folder where it is saved; empty: it is not",
            "samples": each(
                "the samples",
                obj(
                    "one",
                    {
                        "at": "number: unix seconds",
                        "took_s": "number: seconds",
                        "silent": by("nodes without an answer, and why", "string: why"),
                    },
                ),
            ),
            "verdict": VERDICT,
            "classes": each(
                "ranks with the same stack, largest first",
                obj(
                    "a class",
                    {
                        "ranks": "string: its ranks",
                        "count": "integer: how many",
                        "kind": "string: collective, io, sleep, lock, library, user, …",
                        "doing": "string: in words",
                        "movement": "string: between two samples: frozen, polls, moves; empty: one sample",
                        "state": "string: state of their processes",
                        "source": "string: the line of the program",
                        "stack": each("frames, outermost first", "string: function file:line"),
                    },
                ),
            ),
            "ras": {"description": "what NCCL's RAS says", "type": ["object", "null"]},
            "calls": by(
                "ranks without a stack that note their calls (run --trace-calls)",
                obj(
                    "a rank",
                    {
                        "rank": "integer: which",
                        "pid": "integer: its process",
                        "why": "string: why it notes none, or no more; empty: it does",
                        "calls": each(
                            "the last ones, newest first",
                            obj(
                                "a call",
                                {
                                    "age_s": "number: how long ago it began",
                                    "main": "boolean: in the main thread",
                                    "name": "string: of the function",
                                    "file": "string: where it is",
                                    "line": "integer: its first line",
                                },
                            ),
                        ),
                    },
                ),
            ),
            "missing": by("ranks without a stack, and why", "string: why"),
            "ranks": by(
                "ranks by number",
                obj(
                    "a rank",
                    {
                        "node": "string: its node",
                        "local_rank": "integer|null: on its node",
                        "pid": "integer: of the node",
                        "ns_pid": "integer|null: in its container",
                        "inferred": "string: how its number was inferred; empty: it is known",
                        "state": "string: state of the process, as ps(1) writes it",
                        "way": "string: how py-spy read it",
                        "notes": each("what is special", "string: a note"),
                    },
                ),
            ),
            "collectives": {"description": "what flight recorders say", "type": ["object", "null"]},
        },
    ),
    "doctor": obj(
        "`cockpit doctor … --json`: are the nodes fit?",
        {
            "verdict": "string: in one sentence",
            "nodes": each("nodes that were examined", "string: a node"),
            "findings": each("what is wrong, worst first", obj("a finding", FINDING)),
            "memory?": {
                "description": "with --model: memory needed per GPU, by way of training",
                "type": "array",
            },
            "deep?": {"description": "with --deep: torch between the nodes", "type": "object"},
        },
    ),
    "plan": {
        "description": "`cockpit plan … --json`: what would run",
        "anyOf": [
            obj(
                "the plan of each node",
                {
                    "plans": {
                        "description": "a plan a node: argv, env (secrets left out), files",
                        "type": "array",
                        "items": {"type": "object"},
                    },
                    "not_sent": each("variables of this shell that would not be sent", "string: a variable"),
                },
            ),
            obj(
                "with --sbatch: a batch script",
                {
                    "sbatch": "string: the script",
                    "nodes": "integer: how many",
                    "ranks_per_node": "integer: how many",
                    "words": each("words of the options", "string: a word"),
                },
            ),
        ],
    },
    "collect": obj(
        "`cockpit collect … --json`: what was fetched",
        {
            "event": {"description": "always the same", "const": "collected"},
            "folder": "string: where the files are",
            "reports": each(
                "files",
                obj(
                    "a file",
                    {
                        "node": "string: where it was",
                        "name": "string: its name there",
                        "size": "integer: bytes",
                        "file": "string: below folder",
                        "sha256": "string: of both copies",
                        "state": {
                            "description": "what became of it",
                            "enum": ["waiting", "fetching", "collected", "changed", "failed", "same"],
                        },
                        "why": "string: why it failed",
                        "here": "integer: bytes that are here",
                        "path": "string: of a file that was asked for: its path there",
                        "real": "string: where links lead from there",
                        "place": "string: its folder there, of NCCL's dumps",
                    },
                ),
            ),
            "missing": by("nodes without a report, and why", "string: why"),
            "passed_over": by(
                "files beside the reports that are none, by node",
                {"type": "array", "items": {"type": "string"}},
            ),
            "absent": by(
                "words that stand for no file, by node", {"type": "array", "items": {"type": "string"}}
            ),
            "warning": "string: what reports contain",
        },
    ),
    "profile": obj(
        "`cockpit profile … --json`, `cockpit profile show RUN [N] --json`: what ranks did in the same steps",
        {
            "event": {"description": "always the same", "const": "profile"},
            "profile": "integer: its number",
            "id": "string: by which nodes know it",
            "run": "string: its name; empty: cockpit did not start the job",
            "kind": {"description": "how it was taken", "enum": ["torch", "cpu", "nsys"]},
            "options": each("options of torch's profiler", "string: shapes, stack or memory"),
            "at": "number: when it was ordered, unix seconds",
            "first": "integer|null: its first step; null: it was as long as seconds says",
            "seconds": "number|null: how long it was; null: whole steps",
            "asked": "integer: of how many ranks",
            "steps": each("steps that count", "integer: a step"),
            "left_out": by("other steps, and why they do not count", "string: why"),
            "finding": obj("who is slow, and why", FINDING),
            "step": obj("where a step of the median rank goes", PARTS, null=True),
            "kept_up_s": "number|null: seconds of a step if the slow ranks were like the others",
            "waits_known": "boolean: whether it is known what ranks wait for each other",
            "ranks": by(
                "ranks whose summary is here", obj("a rank", {"node": "string: where it runs", **PARTS})
            ),
            "missing": by(
                "ranks of which nothing is here",
                obj(
                    "a rank",
                    {
                        "node": "string: where it runs",
                        "state": "string: how far it came",
                        "why": "string: why it is missing",
                    },
                ),
            ),
            "kinds": each(
                "ranks that run the same operations",
                obj(
                    "such ranks",
                    {
                        "ranks": "string: which",
                        "typical": "integer: the rank in the middle",
                        **PARTS,
                    },
                ),
            ),
            "operations": obj(
                "top operations of one rank beside the others; null: not known",
                {
                    "rank": "integer: whose they are",
                    "others": "integer: beside how many others",
                    "left_out": "integer: operations that take less",
                    "rows": each(
                        "most time first",
                        obj(
                            "an operation",
                            {
                                "name": "string: as torch calls it",
                                "kind": "string: what it is (data, compute, copy, python, system, other, …)",
                                "own_s": "number: a step, without what it calls",
                                "median_s": "number|null: the same of the median rank",
                                "calls": "number: a step",
                                "median_calls": "number|null: the same of the median rank",
                            },
                        ),
                    ),
                },
                null=True,
            ),
            "collectives": each(
                "by name and size, most time first",
                obj(
                    "calls that are alike",
                    {
                        "name": "string: as torch calls it",
                        "groups": each("groups that call it", "string: a group"),
                        "ranks": "integer: of a group",
                        "seen": "integer: of how many of these there are traces",
                        "bytes": "integer: that go in; 0: not known",
                        "calls": "number: a step",
                        "took_s": "number: a call, without waiting",
                        "spread_s": "number|null: from the first rank's arrival to the last one's",
                        "wait_s": "number|null: a step, the mean over the ranks",
                        "last": by("ranks that arrived last, and how often", "integer: times"),
                        "of": "integer: of how many calls",
                        "bytes_s": "number|null: bandwidth as nccl-tests counts it",
                        "between_nodes": "boolean|null: whether its ranks are on several nodes",
                    },
                ),
            ),
            "arrivals": obj(
                "of the collective in which ranks wait most; null: not known",
                {
                    "collective": "integer: its place in collectives",
                    "after_s": by("seconds after the first rank", "number: seconds"),
                },
                null=True,
            ),
            "files": each(
                "traces on nodes",
                obj(
                    "a trace",
                    {
                        "rank": "integer: whose it is",
                        "node": "string: where it is",
                        "name": "string: in the reports of its node",
                        "size": "integer: bytes",
                    },
                ),
            ),
            "cost": obj(
                "what it cost",
                {
                    "before_s": "number|null: seconds of a step before it, median",
                    "during_s": "number|null: the same in it",
                    "after_s": "number|null: the same after it",
                    "stop_s": "number: how long stopping the profiler paused a rank, at most",
                    "warm_s": "number: the same of its first start, before",
                },
            ),
            "notes": each("what makes the numbers less than they seem", "string: a note"),
            "offsets_s": by("how far each node's clock is ahead of ours", "number: seconds"),
            "clock_s": "number|null: how well the ends of collectives agree on our clock",
            "apart_s": "number|null: seconds from the first rank's begin to the last one's",
            "cancelled": "string: who ended it early; empty: nobody",
            "folder": "string: where it is kept; empty: nowhere",
            "spread": obj(
                "sizes and durations of collectives",
                {
                    "calls": "integer: of all ranks",
                    "unsized": "integer: of these without a size",
                    "outliers_all": "integer: collectives that stick out",
                    "outliers": each(
                        "of these those that stick out most",
                        obj(
                            "a collective, and the rank that was in it longest",
                            {
                                "collective": "string: what it is",
                                "bytes": "integer: size of the message",
                                "step": "integer: in which step",
                                "rank": "integer: who was in it longest",
                                "node": "string: where that rank runs",
                                "took_s": "number: how long",
                                "usual_s": "number: the same of others of its kind and size, median",
                                "last": "integer|null: the rank that came last; null: only one is known",
                                "last_node": "string|null: where that rank runs",
                                "last_after_s": "number|null: how long after the first one",
                            },
                        ),
                    ),
                },
            ),
            "taken": by(
                "every rank that was meant",
                obj(
                    "a rank",
                    {
                        "node": "string: where it runs",
                        "state": "string: done: it is here; else how far it came",
                        "why": "string: why it is missing, or less than it seems",
                        "began": "number|null: when its profile began, unix seconds",
                        "file": "string: name of its trace in the reports of its node; empty: none",
                        "here": "string|null: path of the trace, once it was fetched",
                        "size": "integer: bytes",
                        "sha256": "string: of the trace; empty: not known",
                        "rate": "integer: of cpu: samples a second",
                        "samples": "integer: of cpu: how many",
                        "errors": "integer: of cpu: samples that failed",
                    },
                ),
            ),
            "differ": by(
                "of cpu: ranks that are somewhere for longer than the others",
                each(
                    "most first",
                    obj(
                        "a function",
                        {
                            "frame": "string: name, file and line",
                            "share": "number: part of the rank's time in it, 0 to 1",
                            "others": "number: the mean of the others",
                        },
                    ),
                ),
            ),
        },
    ),
    "stop": obj(
        "`cockpit stop RUN --json`: what became of the ranks",
        {
            "run": "string: its name",
            "ranks": by("how each rank ended, in words", "string: in words"),
            "survivors": by(
                "processes that are left, by node", {"type": "array", "items": {"type": "object"}}
            ),
            "not_asked": each("nodes that could not be asked", "string: a node"),
            "sent?": by("TERM or KILL, by node", "string: a signal"),
        },
    ),
    "metrics": obj(
        "`cockpit metrics RUN --json`: numbers per step",
        {
            "run": "string: its name",
            "state": "string: in words",
            "ranks": "integer: how many",
            "log": {"description": "the log they are read from: node, rank", "type": ["object", "null"]},
            "pages": each("pages about it", PAGE),
            "steps": each(
                "one object a step; null: not known; numbers that are not finite are texts",
                obj(
                    "a step",
                    {
                        **{name: {"description": text} for name, text in COLUMNS.items()},
                        "step": "integer|null: its number",
                        "slow": each(
                            "slow ranks",
                            obj("one", {"rank": "integer: a rank", "excess": "number: 1.0: twice the work"}),
                        ),
                    },
                ),
            ),
        },
    ),
    "stacks-list": each(
        "`cockpit stacks RUN --list --json`: snapshots, oldest first",
        obj(
            "a snapshot",
            {
                "path": "string: its folder; cockpit stacks PATH shows it",
                "t": "number|null: when it was taken, unix seconds",
                "ranks": "integer: how many ranks it has",
                "samples": "integer: how many samples",
                "by_nodes": "string: why nodes saved it; empty: a cockpit took it",
                "verdict": VERDICT,
            },
        ),
    ),
    "compare": obj(
        "`cockpit compare A B --json`: two runs side by side; of two profiles see `profiles` alone",
        {
            "before": SIDE,
            "after": SIDE,
            "said": each("what stands out", "string: a sentence"),
            "differences": each(
                "what differs, the most telling first",
                obj(
                    "one",
                    {
                        "kind": {
                            "description": "what it is about; launch: an option of `cockpit run`",
                            "enum": [
                                "argument",
                                "code",
                                "launcher",
                                "ranks",
                                "nodes",
                                "version",
                                "driver",
                                "variable",
                                "launch",
                                "folder",
                            ],
                        },
                        "name": "string: the option, package, variable, …",
                        "before": "string|null: empty: it has no value; null: it is not there",
                        "after": "string|null: the same of the other run",
                        "see": "string: what to type to see more; empty: nothing",
                    },
                ),
            ),
            "working_tree": each(
                "how changes to tracked files differ, where both are kept", "string: a line"
            ),
            "not_recorded": each(
                "what may differ as well",
                obj(
                    "one",
                    {
                        "name": "string: what it is",
                        "runs": each("of which it is not on record", "string: a run"),
                    },
                ),
            ),
            "amount": obj(
                "how much goes through a step of each",
                {
                    "why": "string: what differs, so that it may not be the same; empty: nothing does",
                    "unit": "string: tokens or samples; empty: the logs do not say",
                    "before": "number|null: of a step; null: not known",
                    "after": "number|null: of a step; null: not known",
                    "same": "boolean|null: whether it is the same; null: not known",
                },
            ),
            "pace": each("numbers of steps", MEASURE),
            "loss": obj(
                "where both have one; null: not both logs do",
                {
                    "by": {"description": "what places are", "enum": ["step", "tokens", "samples"]},
                    "first": "number|null: the first place that both have; null: none",
                    "last": "number|null: the last one",
                    "rows": each(
                        "some places",
                        obj(
                            "one",
                            {
                                "at": "number: the place",
                                "before": "number: the median of a stretch from there on",
                                "after": "number: the same of the other run",
                            },
                        ),
                    ),
                    "noise": "number|null: how much both vary from value to value; null: not known",
                    "alike_to": "number|null: the last step up to which both are identical; null: none",
                    "apart": {
                        "description": "from where to where they differ by more than noise; null: nowhere",
                        "type": ["array", "null"],
                        "items": {"type": "number"},
                    },
                    "parted": "number|null: from where on they differ to the end; null: they do not",
                },
                null=True,
            ),
            "profiles": {**PROFILES, "type": ["object", "null"]},
        },
    ),
    "compare-profiles": PROFILES,
    "report": obj(
        "`cockpit report RUN --json`: what a run was",
        {
            "run": "string: its name",
            "made": "number: when the report was made, unix seconds",
            "version": "string: of cockpit",
            "state": "string: how it is, or how it ended, in words",
            "code": "integer|null: exit code of a cockpit that watched it to its end; null: still running",
            "began": "number: unix seconds",
            "ended": "number|null: when its last rank ended, unix seconds; null: still running, or not known",
            "took_s": "number: seconds until then, or until the report was made",
            "command": each("as it was typed, without secrets", "string: a word"),
            "program": each("the training program", "string: a word"),
            "launcher": "string: its name",
            "cwd": "string: folder it was started in",
            "ranks": "integer: how many",
            "nodes": each(
                "where it ran",
                obj(
                    "a node",
                    {
                        "name": "string: its name",
                        "machine": "string: as it calls itself",
                        "ranks": "string: its ranks",
                        "how": "string: how it ended there, or how its link is",
                    },
                ),
            ),
            "plan": each(
                "what was started",
                obj(
                    "alike nodes",
                    {"argv": each("the launcher", "string: a word"), "nodes": each("them", "string: a node")},
                ),
            ),
            "versions": each("recorded at the start, what differs first", VALUE),
            "env": each("variables that cockpit set, what differs first; secrets are hidden", VALUE),
            "environ": each("those that matter, of each node's first rank, what differs first", VALUE),
            "packages": each("installed packages in which nodes differ", VALUE),
            "diff": each(
                "what tracked files differed from the commit by; empty: none, or not kept", "string: a line"
            ),
            "outcome": each("about its end, the cause first", "string: a sentence"),
            "why": WHY,
            "pace": COURSE,
            "wall": WALL,
            "series": obj(
                "runs that are one series with it: restarts, requeues, resumes; null: it is alone",
                {
                    "runs": each(
                        "the oldest first",
                        obj(
                            "one",
                            {
                                "run": "string: its name",
                                "began": "number: unix seconds",
                                "ended": "number|null: the same; null: still running",
                                "state": "string: how it is, or how it ended",
                                "how": "string: by what it continues the one before; empty: it is the first",
                                "sure": "boolean: whether that is on record",
                                "first": "integer|null: its first step",
                                "last": "integer|null: its last step",
                                "wall": WALL,
                            },
                        ),
                    ),
                    "left_out": "integer: how many more belong to it",
                    "sure": "boolean: whether all of it is on record",
                    "wall": WALL,
                },
                null=True,
            ),
            "curves": each(
                "numbers over the steps",
                obj(
                    "one",
                    {
                        "name": "string: loss, step time, …",
                        "unit": "string: of its values; empty: none",
                        "points": each("step and value, evenly thinned", each("a pair", "number: a value")),
                        "first": "number: first value",
                        "last": "number: last value",
                        "least": "number: least of all",
                        "most": "number: greatest of all",
                        "most_at": "number: at which step",
                        "odd": "integer: how many values were no numbers (NaN)",
                        "odd_from": "number|null: the first step with such a value",
                    },
                ),
            ),
            "events": each(
                "the newest, oldest first",
                obj(
                    "one",
                    {
                        "at": "number: unix seconds",
                        "text": "string: what happened",
                        "level": {"description": "how bad it is", "enum": ["info", "warning", "error"]},
                        "node": "string: its node; empty: the whole run",
                        "rank": "integer|null: its rank",
                    },
                ),
            ),
            "events_left_out": "integer: how many more there were, the oldest",
            "stacks": each(
                "snapshots, the newest last",
                obj(
                    "one",
                    {
                        "name": "string: its folder, below the run's stacks/",
                        "at": "number|null: unix seconds",
                        "by_nodes": "string: why nodes took it; empty: a cockpit did",
                        "found": obj("the verdict", FINDING),
                        "stacks": each("verdict, classes of ranks, tree", "string: a line"),
                    },
                ),
            ),
            "profiles": each(
                "profiles, the newest last",
                obj(
                    "one",
                    {
                        "number": "integer: its number",
                        "at": "number: unix seconds",
                        "title": "string: of which steps and ranks it is",
                        "found": obj("who is slow, and why", FINDING),
                        "lines": each("its tables", "string: a line"),
                    },
                ),
            ),
            "findings": each("what is, or was at its end, wrong", obj("one", FINDING)),
            "last_lines": each(
                "of the ranks that matter",
                obj(
                    "a log",
                    {
                        "rank": "integer|null: whose; null: the launcher's",
                        "node": "string: its node",
                        "why": "string: why it matters",
                        "lines": each("its last ones", "string: a line"),
                        "size": "integer: bytes of the log here",
                    },
                ),
            ),
            "pages": each(
                "of trackers, named in its logs",
                obj("one", {"name": "string: W&B, …", "url": "string: its address"}),
            ),
            "secrets_taken": "integer: secrets that were taken out as the report was made",
            "last_good": "string: of a run that failed, the last successful one of the same command; "
            "empty: none",
        },
    ),
    "explain": obj(
        "`cockpit explain … --json`: who failed first in a console, and why",
        {
            "failed": "boolean: whether a failure was found",
            "run": "string: the run it is about; empty: files",
            "files": each(
                "what was read",
                obj(
                    "a file",
                    {
                        "file": "string: its name; stdin",
                        "lines": "integer: its lines",
                        "bytes": "integer: its bytes, unpacked",
                        "notes": each("what was wrong with it", "string: one thing"),
                    },
                ),
            ),
            "launchers": each("launchers whose lines were found", "string: torchrun, srun, …"),
            "exact": "boolean: whether all lines were counted; false: numbers of speakers are estimates",
            "speakers": each(
                "who printed",
                obj(
                    "a rank, or somebody whose rank no line says",
                    {
                        "rank": "integer|null: its rank; null: not known",
                        "node": "string: its node; empty: not known",
                        "name": "string: how it is known if its rank is not; empty: not at all",
                        "lines": "integer: how many lines",
                        "bytes": "integer: how many bytes",
                        "end": "string: how it ended, as its launcher says; empty: it does not",
                    },
                ),
            ),
            "first": obj(
                "who failed first; null: no failure was found",
                {
                    "how": {
                        "description": "broke: it failed; left: it exited 0 while the others went on; absent:"
                        " the others waited for it; gone: it is gone; unknown: it is one of these; stalled:"
                        " none failed, and the others waited for it",
                        "enum": ["broke", "left", "absent", "gone", "unknown", "stalled"],
                    },
                    "what": "string: who it was and how it ended, in one sentence",
                    "ranks": "string: its rank, or several such as 0-3,7; empty: not known",
                    "names": each("how it is known, if its rank is not", "string: a name"),
                    "nodes": each("its node", "string: a node"),
                    "certainty": {"description": "how sure it is", "enum": ["sure", "likely", "unsure"]},
                    "line": obj("where its launcher says how it ended; null: nowhere", LINE, null=True),
                },
                null=True,
            ),
            "cause": obj(
                "why, as it was printed; null: nothing says",
                {
                    "what": "string: one line",
                    "places": each("in the user's code, outermost first", "string: file:line function"),
                    "lines": each(
                        "where it is printed",
                        obj("a line", LINE),
                    ),
                },
                null=True,
            ),
            "rule": "string: the rule that explains it (docs/failures.md); empty: none does",
            "meaning": "string: what happened, in one sentence; empty: no rule explains it",
            "next": each(
                "what to do, the most likely to help first",
                obj("one", {"command": "string: to type; empty: none", "reason": "string: what it is for"}),
            ),
            "waited": "string: ranks that failed as a consequence, or waited for it, such as 0-3,7",
            "failed_too": "string: ranks that failed after it",
            "findings": each(
                "what else is wrong, by what NCCL says: none of it need be why", obj("a finding", FINDING)
            ),
            "nccl": obj("what NCCL says it uses; null: --nccl was not given", NCCL, null=True),
        },
    ),
    "explain-rules": each(
        "`cockpit explain --rules --json`: the rules",
        obj(
            "a rule",
            {
                "rule": "string: its id; stable",
                "meaning": "string: what happened, in one sentence",
                "source": "string: the thread or source file where it is known from",
            },
        ),
    ),
    "clean": obj(
        "`cockpit clean --json`: what old runs take, and what was removed",
        {
            "runs": each(
                "those that are meant, the oldest first",
                obj(
                    "a run",
                    {
                        "run": "string: its name",
                        "state": "string: running, ended, failed, stopped, unended, damaged",
                        "text": "string: the same in words",
                        "age_s": "number: seconds since it ended, or since something of it was written here",
                        "here": "integer: bytes on this machine",
                        "nodes": by(
                            "its folders on nodes; empty: they were not asked",
                            obj(
                                "a folder",
                                {
                                    "bytes": "integer: what it takes",
                                    "whole": "boolean: whether all of it was counted",
                                    "there": "boolean: whether there is one",
                                    "uncollected": "integer: reports in it that were not collected",
                                    "why": "string: why nothing is known of it; empty: it is",
                                },
                            ),
                        ),
                        "stays": "string: why it stays; empty: it goes",
                        "removed": "boolean: whether it is gone now",
                        "left": by("why something is left, by node; the empty name: here", "string: why"),
                    },
                ),
            ),
            "unknown": each(
                "run folders on nodes whose run is not known here",
                obj(
                    "a folder",
                    {
                        "run": "string: by its record, or by where it is",
                        "node": "string: the node that shows it",
                        "dir": "string: its path there",
                        "owner": "string: the user's name there",
                        "age_s": "number: seconds since something was written in it",
                        "bytes": "integer: what it takes",
                        "whole": "boolean: whether all of it was counted",
                        "running": "boolean: whether anything of it lives there",
                        "stays": "string: why it stays; empty: it goes",
                        "removed": "boolean: whether it is gone now",
                        "left": by("why something is left, by node", "string: why"),
                    },
                ),
            ),
            "unlisted": "integer: more folders on nodes than there is room for",
            "not_asked": by("nodes that did not answer, and why", "string: why"),
            "freed": obj(
                "bytes that were freed",
                {"here": "integer: on this machine", "nodes": "integer: on nodes"},
            ),
        },
    ),
    "where": by("`cockpit where --json`: paths by what is there", "string: a path"),
    "config": by(
        "`cockpit config --json`: settings in effect, by name", {"type": ["string", "number", "boolean"]}
    ),
    "logs": obj(
        "a line of `cockpit logs RUN --json`",
        {
            "event": {"description": "log: a line; gap: bytes that are missing here", "enum": ["log", "gap"]},
            "node": "string: its node",
            "rank?": "integer|null: its rank; null: the launcher's console",
            "offset?": "integer: where the line begins in the log, bytes",
            "text?": "string: the line",
            "t?": "number: when it was there, unix seconds",
            "cut?": "boolean: whether the line goes on in the next object",
            "file?": "string: of a line that NCCL wrote to a file of its own, and of a gap: the file's name",
            **{f"{name}?": {"description": "of a gap"} for name in ("at", "size", "why")},
        },
    ),
}
"""By the name of the file."""

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def types_of(hint: Any) -> list[str]:
    """The types that a field of an event has in JSON, by its annotation."""
    if get_origin(hint) is Union:
        return [name for one in get_args(hint) for name in types_of(one)]
    if get_origin(hint) in (tuple, list):
        return ["array"]
    return [_TYPES.get(hint, "object")]


def event(kind: str, fact: type[Fact]) -> Schema:
    """An event of a run; its description says what its fields are."""
    hints = get_type_hints(fact)
    fields = {one.name: {"type": types_of(hints[one.name])} for one in dataclasses.fields(fact)}
    own = {
        "event": {"const": kind},
        "t": of("number: unix seconds"),
        "node": of("string: a node; empty: of the run"),
    }
    return {
        "description": " ".join((fact.__doc__ or "").split()),
        "type": "object",
        "properties": {**fields, **own},
        "required": ["event", "t", "node"],
        "additionalProperties": False,
    }


SCHEMAS["run"] = {
    "description": "a line of `cockpit run … --json`, or attach: an event (docs/protocol.md)",
    "anyOf": [
        {
            **SCHEMAS["logs"],
            "description": "a line of a log",
            "properties": {
                **SCHEMAS["logs"]["properties"],
                "event": {"description": "a line", "const": "log"},
            },
        },
        *(event(kind, fact) for kind, fact in sorted({**RECORD, **OWN}.items())),
        obj(
            "the last one: the run is over, or the cockpit leaves",
            {
                "event": {"description": "it is the last", "const": "over"},
                "run": "string: its name",
                "exit": "integer: exit code",
                "first_failure": obj(
                    "the rank that failed first; null: none has",
                    {"rank": "integer: its number", "node": "string: its node", "how": "string: exited 1"},
                    null=True,
                ),
                "job_end": "string: why whoever lent the nodes ended the run; empty: they did not",
                "failed?": {"description": "why it failed", **obj("one", FINDING)},
                "gone?": {"description": "where it has gone", **obj("one", FINDING)},
            },
        ),
    ],
}


def schema(name: str) -> Schema:
    """One of them, as it is in its file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"cockpit/{name}/{VERSION}"}
    return {**head, "title": f"cockpit {name}", **SCHEMAS[name]}


def write() -> None:
    """Write all of them, and remove what is none any more."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        if path.stem not in SCHEMAS:
            path.unlink()
    for name in SCHEMAS:
        (FOLDER / f"{name}.json").write_text(json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n")
