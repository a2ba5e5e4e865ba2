"""Make a run folder on a node, if the file system there is fit for one, and start its supervisor."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import marshal
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from typing import Any, Callable, Dict, List

from cockpit.base import openfiles, owners, record
from cockpit.base.shell import quote_posix
from cockpit.node import safefiles, usermask
from cockpit.node.run import held, stopping
from cockpit.node.run.place import RunFolderError, make, runs_programs
from cockpit.node.safefiles import write_new

_OURS = (
    record.ENV_RUN,
    record.ENV_NODE,
    record.ENV_DIR,
    record.ENV_SUPERVISOR,
    record.ENV_UMASK,
    record.ENV_RANK,
    record.ENV_PROBE,
    record.ENV_RINGS,
    record.ENV_HOLD,
)


class StartError(OSError):
    """The supervisor did not start; the text is one sentence and what the supervisor said."""


def start(spec: Dict[str, Any], python: str, pyz_bytes: bytes, timeout_s: float = 20.0) -> Dict[str, Any]:
    """Make the run folder, start the supervisor detached, wait until it wrote its first event.

    If anything fails, nothing stays behind, neither files nor processes.

    :param spec: the launch spec; its ``env`` goes through a pipe, never to disk
    :param python: absolute path of the interpreter for supervisor and wrappers (3.8 or newer)
    :param pyz_bytes: the node code, a zip with a ``__main__``
    :param timeout_s: how long the supervisor may take to say that it started
    :return: ``{pid, ticks, boot_id, dir}`` of the supervisor
    :raises RunFolderError: the folder exists, belongs to somebody else, or programs cannot be run from it
    :raises StartError: the supervisor did not start in time
    """
    folder = str(spec["dir"])
    run_folder = os.path.dirname(folder)
    base = os.path.dirname(run_folder)
    if not os.path.isabs(folder) or os.path.normpath(folder) != folder:
        raise RunFolderError("not an absolute path of a run folder: %r" % folder)
    groups = [spec[owners.SETTING]] if spec.get(owners.SETTING) else []
    make(base, groups)
    runs_programs(base, base)
    make(run_folder, groups)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        what = "run folder %s exists already" % folder
        raise RunFolderError(what, "start the run under another name") from None
    started: Dict[str, Any] = {}
    try:
        os.mkdir(os.path.join(folder, record.REPORTS), 0o700)
        file = io.BytesIO(pyz_bytes)
        with zipfile.ZipFile(file, "a") as code:
            if spec.get("probe", "off") != "off":
                _add_probe(folder, code)
            if python == sys.executable:
                _add_byte_code(code)
        write_new(os.path.join(folder, record.NODE_PYZ), file.getvalue())
        pyz = os.path.join(folder, record.NODE_PYZ)
        script = '#!/bin/sh\nexec %s -I -S %s wrap "$@"\n' % (quote_posix(python), quote_posix(pyz))
        write_new(os.path.join(folder, record.RANKWRAP), os.fsencode(script), 0o700)
        words = [python, "-I", "-S", pyz, "supervise", folder]
        started = (_hold if spec.get("held") else _spawn)(spec, words, folder, timeout_s)
        return started
    finally:
        if not started:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # other nodes' folders are in it
                os.rmdir(run_folder)


def _add_probe(folder: str, code: zipfile.ZipFile) -> None:
    """As sources: the ranks' Python may be another one than ours."""
    for name in (record.PROBE, record.PROBE_PYTHON):
        os.mkdir(os.path.join(folder, name), 0o700)
    for name in record.PROBE_SOURCES:
        path = os.path.join(folder, record.PROBE_PYTHON, name)
        write_new(path, code.read("cockpit/node/probe/" + name))


_STARTS_WITH = ("__main__", "cockpit/node/run/supervisor", "cockpit/node/run/wrapper")
"""Modules of the code that a run starts with; so is what they import."""

_IMPORTS = re.compile(r"^from (cockpit[.\w]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def _add_byte_code(code: zipfile.ZipFile) -> None:
    """Add what a run starts with as byte code of this Python: compiling costs a wrapper 1 MB and 20 ms.

    The rest, four fifths of it, is compiled by what needs it, if ever: a person waits for the start.
    """
    # Marked as "never compare with the source".
    head = importlib.util.MAGIC_NUMBER + struct.pack("<IQ", 1, 0)
    for name, source in _started_with(code).items():
        compiled = compile(source, name, "exec", dont_inherit=True)
        code.writestr(name + "c", head + marshal.dumps(compiled))


def _started_with(code: zipfile.ZipFile) -> Dict[str, bytes]:
    """Sources of what a run starts with, and of all that their import brings along.

    What a function imports once it is called is not among them.
    """
    names = set(code.namelist())
    found: Dict[str, bytes] = {}
    waiting = list(_STARTS_WITH)
    while waiting:
        path = waiting.pop()
        for name in (path + ".py", path + "/__init__.py"):
            if name in names and name not in found:
                found[name] = code.read(name)
                waiting.append(os.path.dirname(path))
                for package, imported in _IMPORTS.findall(found[name].decode()):
                    base = package.replace(".", "/")
                    waiting += [base, *(base + "/" + word for word in re.findall(r"\w+", imported))]
    return found


def _spawn(spec: Dict[str, Any], words: List[str], folder: str, timeout_s: float) -> Dict[str, Any]:
    """Start the supervisor as a process of its own, detached from the agent."""
    log = os.path.join(folder, record.SUPERVISOR_LOG)
    write_new(log, b"")
    # A cockpit started inside a run must not pass that run's tags on: its sweep would end our supervisor.
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    with open(log, "ab") as output:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    event: Dict[str, Any] = {}
    try:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # its log says more
            openfiles.give_back(process.pid)
            process.communicate(_with_umask(spec), timeout=timeout_s)
        event = _first_event(
            folder, timeout_s, lambda: process.poll() is not None and not _group_lives(process.pid)
        )
        return event
    finally:
        if not event:
            # The supervisor's own process group: the process we started leads it, even after its end.
            if _group_lives(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            stopping.sweep(spec["run"], spec["node"], folder=folder)


def _hold(spec: Dict[str, Any], words: List[str], folder: str, timeout_s: float) -> Dict[str, Any]:
    """Let a step of the SLURM job start the supervisor."""
    write_new(os.path.join(folder, record.SUPERVISOR_LOG), b"")
    held.offer(folder, [*words[:-1], "--held", folder])
    event: Dict[str, Any] = {}
    try:
        if not held.hand_over(folder, _with_umask(spec), timeout_s):
            raise StartError("the step for the supervisor did not start within %g s" % timeout_s)
        event = _first_event(folder, timeout_s, lambda: False)
        return event
    finally:
        if not event:
            stopping.sweep(spec["run"], spec["node"], folder=folder)


def _with_umask(spec: Dict[str, Any]) -> bytes:
    return json.dumps(dict(spec, umask=usermask.theirs())).encode()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _first_event(folder: str, timeout_s: float, ended: Callable[[], bool]) -> Dict[str, Any]:
    """What the supervisor says as it starts.

    :param ended: whether it has ended without that
    :raises StartError: it does not say it in time
    """
    deadline = time.monotonic() + timeout_s
    trouble = ""
    while True:
        # First: it may say it, and be through with a short run, before we look again.
        if ended():
            trouble = "the supervisor ended at once"
        elif time.monotonic() > deadline:
            trouble = "the supervisor did not start within %g s" % timeout_s
        event = _said(folder)
        if event:
            return dict({name: event[name] for name in ("pid", "ticks", "boot_id")}, dir=folder)
        if trouble:
            break
        time.sleep(0.01)
    log = os.path.join(folder, record.SUPERVISOR_LOG)
    at = max(0, (safefiles.size(log) or 0) - 2000)
    said = safefiles.part(log, at, 2000).decode(errors="replace").strip()
    raise StartError("%s: %s" % (trouble, said or "no output"))


def _said(folder: str) -> Dict[str, Any]:
    try:
        line, end, _ = safefiles.part(os.path.join(folder, record.EVENTS), 0, 1 << 16).partition(b"\n")
    except FileNotFoundError:
        return {}
    return safefiles.parse(line) if end else {}
