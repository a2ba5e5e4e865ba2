"""Golden runs in the tree and in use: placeholders, filling in, and what verbs show of them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from cockpit.node import procfs

HERE = Path(__file__).parent
FORMATS = sorted(path for path in HERE.glob("format*") if path.is_dir())
"""What was recorded, one folder a format of run folders."""

NODES = ("gpu01", "gpu02")
WHO = "golden"
"""The person who records and asks."""
SCENARIOS = ("healthy", "failed", "stopped", "left", "lost", "profiled")

COCKPIT: tuple[str, ...] = (sys.executable, "-m", "cockpit")
"""What starts a verb."""

AS_IT_IS = {".pyz", ".nsys-rep"}
_OF_THE_MOMENT = {"link_since", "offset_s", "rtt_s", "sample", "gpus", "sampled_at", "t"}
"""Fields that say when or how quickly was asked, not what of."""

Shown = dict[str, Any]


def facts(top: Path, run: str) -> dict[bytes, bytes]:
    """What differs from use to use, with what stands for it in the tree.

    :param top: folder of everything; the nodes' run folders are in ``top/nodes``
    :param run: name of the run
    """
    host = socket.gethostname().encode()
    return {
        os.fsencode(top): b"@TOP@",
        run.encode(): b"@RUN@",
        procfs.boot_id().encode(): b"@BOOT@",
        # With what is around them: a short host name or a uid alone could be part of anything.
        b'"host": "%s"' % host: b'"host": "@HOST@"',
        b'"by": "%s@%s"' % (WHO.encode(), host): b'"by": "@WHO@"',
        b'"uid": %d,' % os.geteuid(): b'"uid": @UID@,',
        b"/cockpit-%d/" % os.geteuid(): b"/cockpit-@UID@/",
    }


def generalise(data: bytes, top: Path, run: str) -> bytes:
    """``data`` with placeholders."""
    for fact, placeholder in facts(top, run).items():
        data = data.replace(fact, placeholder)
    return data


def fill(recorded: Path, scenario: str, top: Path) -> str:
    """Put a golden run where the verbs find it: ``top`` becomes as it was for the cockpit that made it.

    :param recorded: one of :data:`FORMATS`
    :return: the run's name: another one each time, for a stop ends whatever carries it
    """
    run = f"golden-{uuid4().hex}"
    _copy(recorded / "work", top / "work", top, run)
    python(top)
    _copy(recorded / scenario / "local", local_folder(top, run), top, run)
    for node in NODES:
        folder = node_folder(top, run, node)
        _copy(recorded / scenario / "nodes" / node, folder, top, run)
        (folder / "reports").mkdir(mode=0o700, exist_ok=True)  # git keeps no empty folder
        (folder / "node.pyz").write_bytes((recorded / "node.pyz").read_bytes())
    return run


def python(top: Path) -> Path:
    """The ranks' python, by the same path in all golden runs."""
    path = top / "bin/python3"
    path.parent.mkdir()
    path.symlink_to(os.path.realpath(sys.executable))
    return path


def local_folder(top: Path, run: str) -> Path:
    """A run's folder on this machine."""
    return top / "state/cockpit/runs" / run


def node_folder(top: Path, run: str, node: str) -> Path:
    """A run's folder on a node."""
    return top / f"nodes/cockpit-{os.geteuid()}" / run / node


def _copy(source: Path, target: Path, top: Path, run: str) -> None:
    for path in (target, *target.parents):
        if path == top:
            break
        if path != target:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    for path in target.rglob("*"):
        name = path.name.replace("@RUN@", run)
        path = path.rename(path.with_name(name)) if name != path.name else path
        if path.is_file() and path.suffix not in AS_IT_IS:
            data = path.read_bytes()
            for fact, placeholder in facts(top, run).items():
                data = data.replace(placeholder, fact)
            path.write_bytes(data)


def environment(top: Path) -> dict[str, str]:
    """For a cockpit that knows the runs below ``top`` and nothing of this shell's jobs."""
    root = Path(__file__).parents[2]
    wanted = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON"))}
    wanted.update({f"XDG_{name}_HOME": str(top / name.lower()) for name in ("STATE", "CONFIG", "CACHE")})
    return {**wanted, "PYTHONPATH": str(root), "TMPDIR": str(top), "NO_COLOR": "1", "LOGNAME": WHO}


def cockpit(top: Path, *words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a verb of this tree as a person does."""
    done = subprocess.run(
        [*COCKPIT, *words],
        cwd=top / "work",
        env=environment(top),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def shown(top: Path, run: str) -> Shown:
    """What the verbs show of a run, in the order in which a person would ask; no times in it.

    ``before`` and ``after`` are the states as ``ps`` has them, before and after an ``attach``, which also
    fetches what was not fetched.
    """
    answers: Shown = {"before": states(top, run)}
    attached = cockpit(top, "attach", run, "--json")
    answers["attach"] = {"exit": attached.returncode, "over": _objects(attached.stdout)[-1]}
    answers["after"] = states(top, run)
    logs = cockpit(top, "logs", run, "--json")
    answers["logs"] = {"exit": logs.returncode, "texts": _texts(logs.stdout)}
    for words in (("stop", run, "--json"), ("collect", run, "--json"), ("stacks", run, "--json")):
        answer = cockpit(top, *words)
        answers[words[0]] = {"exit": answer.returncode, "said": _objects(answer.stdout)}
    timeless: Shown = json.loads(generalise(json.dumps(_timeless(answers)).encode(), top, run))
    return timeless


def states(top: Path, run: str) -> Shown:
    """The run's line in the list of runs, and all that is shown of it."""
    rows = [row for row in json.loads(cockpit(top, "ps", "--json").stdout) if row["run"] == run]
    return {"row": rows[0], "run": json.loads(cockpit(top, "ps", run, "--json").stdout)}


def _objects(text: str) -> list[Any]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        if "reports" in one:
            one["reports"].sort(key=lambda report: report["node"])  # else in the order of arrival
    return found


def _texts(text: str) -> dict[str, str]:
    """The lines of each source; how sources are interleaved depends on the machine."""
    found: dict[str, str] = {}
    for line in _objects(text):
        source = f"{line['node']}:{line['rank']}"
        found[source] = found.get(source, "") + line["text"] + ("" if line.get("cut") else "\n")
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _timeless(part) for name, part in value.items() if name not in _OF_THE_MOMENT}
    return [_timeless(part) for part in value] if isinstance(value, list) else value


def differences(recorded: Any, now: Any, where: str = "") -> list[str]:
    """Where what is shown now is not what was recorded; fields that are new now are none."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        gone = [f"{where}.{name}: not shown any more" for name in recorded if name not in now]
        both = [name for name in recorded if name in now]
        return gone + [
            line for name in both for line in differences(recorded[name], now[name], f"{where}.{name}")
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        pairs = enumerate(zip(recorded, now, strict=True))
        return [line for number, (old, new) in pairs for line in differences(old, new, f"{where}[{number}]")]
    return [] if recorded == now else [f"{where}: was {recorded!r}, is {now!r}"]
