"""One case, started and watched by a real cockpit; what it says once the fault is there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cockpit.core.ranks import ranks_text
from tests.faultpool import unasked
from tests.faultpool.cases import Case
from tests.faultpool.script import script
from tests.waiting import PATIENCE_S, until

START_S = 240
"""Longest wait for a launch and the fault in it, on a busy machine."""
STILL_S = 2.0
"""Ranks that have told of no step for so long are taken to have come where they will stay."""
ENDED_S = 2.5
"""After a rank's end, for what follows from that."""
SLOW_STEPS = 2
"""So many steps a slow rank has made before it is looked at."""
STOP_S = 60

LEAVING = threading.Event()
"""Set when somebody wants to leave: no run is waited for any more."""


class Trouble(Exception):
    """The case was not as it is meant to be: nothing can be said about the verdict."""


class Run:
    """A run of a case.

    :param cockpit: the words that start a cockpit
    :param probe: ``on`` or ``off``
    """

    def __init__(self, case: Case, probe: str, cockpit: tuple[str, ...]) -> None:
        self.case = case
        self.name = f"{case.name}-{probe}-{os.getpid()}"
        self._probe = probe
        self._cockpit = cockpit
        self.folder = Path(tempfile.mkdtemp(prefix="faultpool-"))
        self._marks = self.folder / "marks"
        for name in ("work", "marks", "nodes", "home"):
            (self.folder / name).mkdir()
        (self.folder / "work" / "train.py").write_text(script(case, str(self._marks)))
        names = ["localhost", "127.0.0.2"][: case.nodes]
        hosts = [f"{name} slots={case.kind.world // case.nodes}\n" for name in names]
        (self.folder / "hosts").write_text("".join(hosts))
        home = {f"XDG_{kind}_HOME": str(self.folder / "home" / kind) for kind in ("STATE", "CONFIG", "CACHE")}
        self._env = {
            **os.environ,
            **home,
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self) -> subprocess.Popen[bytes]:
        """Launch it, and watch it without a screen."""
        case, work = self.case, self.folder / "work"
        where = ["--cwd", str(work), "--node-dir", str(self.folder / "nodes"), "--name", self.name]
        how = ["--transport", "local", "--no-preflight", "--grace", "2", "--probe", self._probe]
        how += ["--hang-after", str(unasked.HANG_AFTER_S)] if unasked.watches(self._cockpit) else []
        how += ["--launcher", case.launcher, "--python", sys.executable, "--master-addr", "127.0.0.1"]
        program = [sys.executable] if case.launcher == "command" else []
        words = [
            "run",
            "--headless",
            *how,
            *where,
            str(self.folder / "hosts"),
            "--",
            *program,
            str(work / "train.py"),
        ]
        with (self.folder / "said").open("wb") as said:
            return self._start(words, said)

    def _start(self, words: Sequence[str], out: object) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            [*self._cockpit, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=self._env,
        )

    def come(self, watcher: subprocess.Popen[bytes]) -> None:
        """Wait until what is to happen has happened.

        :raises Trouble: it does not
        """
        concerned = self.case.ranks
        try:
            until(
                lambda: (
                    self._marked("on") >= set(concerned) or watcher.poll() is not None or LEAVING.is_set()
                ),
                "the fault",
                timeout=START_S,
            )
        except AssertionError:
            raise Trouble(f"the fault did not come: {self.said()}") from None
        if LEAVING.is_set():
            raise Trouble("interrupted")
        if not self._marked("on") >= set(concerned):
            raise Trouble(f"it ended before the fault: {self.said()}")
        kind = self.case.kind
        if kind.state == "ended":
            with contextlib.suppress(AssertionError):
                until(lambda: [*self.folder.glob("nodes/*/*/*/rank-*.exit.json")], timeout=STOP_S)
            time.sleep(ENDED_S)
        elif kind.state == "hung":
            self._still()
            if not kind.leave and (
                ended := [path.name for path in self.folder.glob("nodes/*/*/*/rank-*.exit.json")]
            ):
                raise Trouble(f"it ended, and was to hang: {ended}: {self.said()}")
        elif kind.every:
            begun = self._steps()
            with contextlib.suppress(AssertionError):
                until(lambda: min(self._steps()) >= min(begun) + SLOW_STEPS)
        else:
            time.sleep(STILL_S)

    def _still(self) -> None:
        """Wait until no rank makes another step; one that goes on alone is waited for no longer than that."""
        last, since = self._steps(), time.monotonic()
        end = since + 5 * STILL_S
        while time.monotonic() < min(since + STILL_S, end):
            time.sleep(0.05)
            if (steps := self._steps()) != last:
                last, since = steps, time.monotonic()

    def _marked(self, name: str) -> set[int]:
        return {int(path.suffix[1:]) for path in self._marks.glob(f"{name}.*")}

    def _steps(self) -> list[int]:
        """The step that each rank is at; -1: at none."""
        found = []
        for rank in range(self.case.kind.world):
            try:
                text = (self._marks / f"step.{rank}").read_text()
            except FileNotFoundError:
                text = ""
            found.append(int(text or -1))
        return found

    def stacks(self) -> dict[str, Any]:
        """What cockpit says when it is asked; of a run that is over, how it ended.

        :raises Trouble: nothing
        """
        done = subprocess.run(
            [*self._cockpit, "stacks", self.name, "--json"],
            stdin=subprocess.DEVNULL, capture_output=True, env=self._env, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        said = done.stderr.decode()
        if not done.stdout and "the run has ended" in said:
            found = unasked.of_end(self._cockpit, self.name, self._env)
            return {"verdict": found or {**unasked.NOTHING, "id": "over", "what": said}, "classes": []}
        try:
            told: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise Trouble(f"stacks: {said[-300:]}") from None
        return told

    def unasked(self) -> tuple[dict[str, Any] | None, float | None]:
        """What cockpit says by itself, and how many seconds after the last step; None: it does not watch."""
        state, watched = self.case.kind.state, unasked.watches(self._cockpit)
        run = Path(self._env["XDG_STATE_HOME"], "cockpit", "runs", self.name)
        if state == "ended" and (found := unasked.of_end(self._cockpit, self.name, self._env)):
            return {**unasked.NOTHING, **found}, None
        if not watched:
            return None, None
        if not self.case.fault:
            return unasked.of_spared(run), None
        return unasked.of_hang(run, first=self.case.site == "start")

    def said(self) -> str:
        """The end of what was printed."""
        logs = [self.folder / "said", *sorted(self.folder.glob("nodes/*/*/*/rank-*.log"))]
        tails = [path.read_text(errors="replace")[-200:] for path in logs if path.exists()]
        return " | ".join(" ".join(tail.split()) for tail in tails)

    def stop(self, watcher: subprocess.Popen[bytes]) -> list[str]:
        """End it and all that belongs to it; what was left after cockpit had stopped it."""
        with (self.folder / "stopped").open("wb") as out:
            stopping = self._start(["stop", self.name, "--now"], out)
            with contextlib.suppress(subprocess.TimeoutExpired):
                stopping.wait(STOP_S)
            stopping.kill()
            stopping.wait()
        watcher.kill()
        watcher.wait()
        left = dict(self._processes())
        for _ in range(20):
            for pid in dict(self._processes()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not dict(self._processes()):
                break
            time.sleep(0.1)
        return list(left.values())

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Processes of this run, by the tag in their environment."""
        tag = f"COCKPIT_RUN={self.name}\0".encode()
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if tag in Path(entry.path, "environ").read_bytes():
                        words = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ")
                        yield int(entry.name), words.decode(errors="replace")[:100]

    def remove(self) -> None:
        """Remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def tried(case: Case, probe: str, cockpit: tuple[str, ...], keep: bool = False) -> dict[str, Any]:
    """Run a case once: facts about what was said, or ``trouble``.

    :param keep: leave its files
    """
    began = time.monotonic()
    run = Run(case, probe, cockpit)
    facts: dict[str, Any] = {"name": case.name, "probe": probe, "trouble": "", "s": None, "unattended": None}
    watcher = run.start()
    try:
        run.come(watcher)
        facts["seconds_to_fault"] = round(time.monotonic() - began, 1)
        told = run.stacks()
        facts["s"] = _kept(told["verdict"])
        found, facts["told_after_s"] = run.unasked()
        facts["unattended"] = found and _kept(found)
        facts["why"] = "" if found else unasked.WHY
        facts["classes"] = [[one["ranks"], one["doing"], one["movement"]] for one in told["classes"]]
    except (Trouble, OSError, LookupError, ValueError) as error:
        facts["trouble"] = str(error) if isinstance(error, Trouble) else repr(error)
    except subprocess.TimeoutExpired as error:
        facts["trouble"] = f"{error.cmd[-3:]} took longer than {error.timeout:.0f} s"
    finally:
        facts["left"] = run.stop(watcher)
        if not keep:
            run.remove()
    facts["seconds"] = round(time.monotonic() - began, 1)
    facts["load"] = round(os.getloadavg()[0], 1)
    return facts


def _kept(verdict: dict[str, Any]) -> dict[str, Any]:
    names = ["id", "what", "ranks", "where", "certainty", "severity", "detail", "evidence", "proof", "stuck"]
    kept = {name: verdict.get(name, "") for name in names}
    if not isinstance(kept["ranks"], str):  # an event has a list of them
        kept["ranks"] = ranks_text(kept["ranks"])
    return kept
