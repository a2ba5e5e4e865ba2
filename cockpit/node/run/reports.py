"""A profiler's reports of a run: how large they are, and turning what nsys left behind into a report.

A distribution's nsys package may not have the importer where nsys looks for it: then nsys leaves a
``.qdstrm``, some 70 times larger than the report, which ``QdstrmImporter`` turns into a report.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from typing import Callable, Dict, List, Tuple

from cockpit.base import record
from cockpit.base.shell import join
from cockpit.node import safefiles
from cockpit.node.run import tools
from cockpit.node.run.ranks import Emit


def size_so_far(folder: str, since: float, temporary: str = "") -> int:
    """Bytes of reports in a folder, finished or not.

    nsys first writes into the temporary folder; files of ours that changed after ``since`` (unix seconds)
    count, whether they are of this run or not.

    :param temporary: that folder; empty: as usual
    """
    total = 0
    paths = glob.glob(os.path.join(glob.escape(folder), "*"))
    temporary = glob.escape(temporary or tempfile.gettempdir())
    for path in paths + glob.glob(os.path.join(temporary, "nsys-report-*")):
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if status.st_uid == os.geteuid() and status.st_mtime >= since:
            total += status.st_size
    return total


def importers(nsys: str) -> List[str]:
    """Importers that belong to ``nsys`` or are installed in a usual place, the best first."""
    found = []
    real = os.path.realpath(shutil.which(nsys) or nsys)
    home = glob.escape(os.path.dirname(os.path.dirname(real)))
    for place in (
        home,
        "/usr/lib/nsight-systems",
        "/usr/lib/*/nsight-systems",
        "/opt/nvidia/nsight-systems/*",
    ):
        found += sorted(glob.glob(os.path.join(place, "host-linux-*", "QdstrmImporter")), reverse=True)
    return [path for path in found if os.access(path, os.X_OK)]


def finish(
    folder: str,
    profile: Dict[str, str],
    why_missing: str,
    emit: Emit,
    *,
    timeout_s: float,
    cancelled: Callable[[], bool],
) -> None:
    """Report every profile found in the run folder after the launcher ended, importing what nsys did not.

    :param profile: the profiler that was used, by its name
    :param why_missing: what to say when there is no report at all; empty: nothing
    :param timeout_s: seconds one import may take
    :param cancelled: called while an import runs; true ends it
    """
    where = os.path.join(folder, record.REPORTS)
    if profile.get("ready"):
        from cockpit.node.run import nsys_session  # not for every supervisor

        nsys_session.settle(folder, timeout_s, cancelled)
    # A program that trains may have put anything else there.
    names = sorted(
        name for name in os.listdir(where) if safefiles.size(os.path.join(where, name)) is not None
    )
    done = [name for name in names if name.endswith(".nsys-rep")]
    raw = [
        name for name in names if name.endswith(".qdstrm") and name[: -len("qdstrm")] + "nsys-rep" not in done
    ]
    for name in done + raw:
        # nsys ignores the umask.
        os.chmod(os.path.join(where, name), 0o600)
    for name in done:
        emit("report", name=name, size=os.path.getsize(os.path.join(where, name)), state="ready", text="")
    for name in raw:
        _import(os.path.join(where, name), profile["nsys"], emit, timeout_s, cancelled)
    if why_missing and not done and not raw:
        emit("report", name="", size=0, state="missing", text=why_missing)


def _import(source: str, nsys: str, emit: Emit, timeout_s: float, cancelled: Callable[[], bool]) -> None:
    size = os.path.getsize(source)
    if importers(nsys):
        emit("report", name=os.path.basename(source), size=size, state="writing", text="importing it")
    path, trouble = imported(source, nsys, timeout_s, cancelled)
    state = "qdstrm" if trouble else "imported"
    emit("report", name=os.path.basename(path), size=os.path.getsize(path), state=state, text=trouble)


def imported(source: str, nsys: str, timeout_s: float, cancelled: Callable[[], bool]) -> Tuple[str, str]:
    """Make a report of what nsys did not import: the path of what there is now, and why it is no report."""
    target = source[: -len("qdstrm")] + "nsys-rep"
    found = importers(nsys)
    command = [found[0] if found else "QdstrmImporter", "-i", source, "-o", target]
    trouble = "no QdstrmImporter was found next to nsys"
    if found:
        trouble = _run(command, timeout_s, cancelled)
    if not trouble and os.path.exists(target):
        os.chmod(target, 0o600)
        os.unlink(source)
        return target, ""
    if os.path.exists(target):
        os.unlink(target)  # cut short: nobody must mistake it for the report
    return source, "%s; type: %s" % (trouble or "the importer wrote nothing", join(command))


def _run(command: List[str], timeout_s: float, cancelled: Callable[[], bool]) -> str:
    """Run an importer to its end; return what went wrong, or nothing."""
    try:
        ended = tools.run(command, timeout_s, cancelled, errors=True)
    except OSError as error:
        return "cannot run %s: %s" % (command[0], error.strerror)
    if ended.status is None:
        return "the import was stopped" if cancelled() else "the import took over %g s" % timeout_s
    if ended.status == 0:
        return ""
    said = (ended.lines or ["no output"])[-1]
    return "the importer failed with status %d: %s" % (ended.status, said[:100])
