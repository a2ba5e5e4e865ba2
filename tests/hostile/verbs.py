"""Whole verbs against a hostile node: each ends as it may, prints nothing odd, writes nowhere else, and what
it shows of the healthy node beside it is true."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from cockpit.base.evidence_file import NAME as EVIDENCE_NAME
from cockpit.base.record import ENV_RUN, EVENTS, EVIDENCE, INDEX, LAUNCHER_LOG, rank_log
from cockpit.core.ranks import read_ranks
from tests.hostile import quick
from tests.hostile.frames import Outcome
from tests.hostile.mutations import MUTATIONS
from tests.hostile.peer import Plan
from tests.hostile.profiles import keep_damaged
from tests.hostile.quick import BAD
from tests.hostile.values import odd_characters
from tests.hostile.world import GOOD, RANKS, World

DISK = "disk"
"""Not frames are rewritten but files of the run folder on the node."""
COLUMNS = (*MUTATIONS, DISK)
MEMORY = 300 << 20
LEAVE_S = 25.0
"""When a verb that watches gets a SIGINT: a node that says that it goes on may be watched for ever."""
LEAVE_LIVE_S = 8.0
"""The same, of a run that does go on."""
LEAVE_SUMS_S = 50.0
"""The same, of nodes that start process after process, niced, to sum reports up."""
KILL_S = 75.0
"""When a verb hangs."""
ROOM = 64 << 20
"""Bytes that a case may leave here."""

WATCHES = ("run", "attach", "stop", "logs", "metrics", "profile", "nsys")
"""The app is not among them: it looks for a time of its own and leaves, so one that does not hangs."""
CODES = {
    "run": {0, 1, 3},
    "attach": {0, 1, 3},
    "ps": {0},
    "doctor": {0, 1, 3},
    "stop": {0, 1, 3},
    "clean": {0},
    "collect": {0, 3},
    "stacks": {0, 1, 3},
    "profile": {0, 2, 3},
    "nsys": {0, 2, 3},
    "logs": {0},
    "metrics": {0},
    "app": {0},
}
"""Exit codes of each verb (docs/exit-codes.md), without those of wrong words and of a full disk here."""
VERBS = tuple(CODES)
_TROUBLE = re.compile(
    r"Traceback \(most|internal error|never retrieved|never awaited|Exception ignored|Fatal Python"
)
_OURS = re.compile(
    r"state/cockpit/runs/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/(manifest\.json|environ\.json|un(seen|worked)\.json"
    r"|(journal|measured|now|pace)\.jsonl|lock(\.attending)?"
    r"|(reports|files)/(manifest\.json|000[01]-(bad|good)/[\w./-]+)|stacks/[\w.-]+/[\w.-]+"
    r"|profiles/[1-9]/(collection\.json|rank-[0-3]\.(json\.gz|folded))"
    rf"|{EVIDENCE}/000[01]-(bad|good)/{EVIDENCE_NAME})"
    r"|state/cockpit/packages/[0-9a-f]{16}\.json"
    r"|state/cockpit/copied\.txt"  # the app has keys that copy
    r"|tmp/cockpit-\d+/bin/py-spy-[0-9a-f]+"  # on the node, which said that it has none
    r"|tmp/[a-z0-9_]{8}"  # by it Python looks whether it can write there; an agent was killed meanwhile
)
"""What a verb may leave: paths in the folder of a case."""
PROGRAM = f"""
import os, sys, time
sys.path.insert(0, {str(quick.REPO)!r})
rank = os.environ["RANK"]
for step in range(300):
    print(f"step {{step}} of rank {{rank}}", flush=step % 50 == 0)
if sys.argv[1] and os.environ["COCKPIT_NODE"] == "{BAD}":
    from pathlib import Path
    from random import Random
    from tests.hostile.world import damage
    damage(Path(os.environ["COCKPIT_DIR"]), Random(sys.argv[1]))
"""
Tree = dict[str, str]


@dataclass
class Case:
    """One verb against one kind of rewriting.

    :param top: its folder: ``home``, ``tmp``, ``cwd`` and ``state`` are what the verb gets, ``io`` is ours
    """

    verb: str
    mutation: str
    seed: str
    top: Path
    world: World
    words: list[str] = field(default_factory=list)
    plan: Plan = field(default_factory=lambda: Plan("", ""))
    before: Tree = field(default_factory=dict)
    pid: int = 0
    started: float = 0.0
    left: bool = False
    killed: bool = False
    hostile: bool = False
    """Whether anything hostile came at all; known at the end."""

    @property
    def name(self) -> str:
        """For a person who wants to see it again."""
        return f"{self.verb} {self.mutation} {self.seed}"

    @property
    def run(self) -> str:
        """The run it is about."""
        if self.verb == "run":
            return f"{self.world.over}-{self.seed}"
        return self.world.live if self.goes_on else self.world.over

    @property
    def goes_on(self) -> bool:
        """Whether it is about the run that goes on: only that has measurements and stacks."""
        watched = self.verb in ("attach", "app") and self.mutation != DISK
        if self.verb == "profile":
            return self.mutation != DISK
        return self.verb == "stacks" or (watched and random.Random(f"{self.seed}.run").random() < 0.15)

    @property
    def nodes(self) -> Path:
        """Where the nodes keep run folders that this case made."""
        return self.top / "nodes"

    def known(self) -> Path:
        """The run's folder here."""
        return self.top / "state" / "cockpit" / "runs" / self.run

    @property
    def leave_s(self) -> float:
        """When it gets a SIGINT if it has not ended."""
        if self.verb == "nsys":
            return LEAVE_SUMS_S
        return LEAVE_LIVE_S if self.goes_on and self.verb == "attach" else LEAVE_S

    # Before

    def prepare(self) -> None:
        """Make the folders and choose the words."""
        rng = random.Random(self.seed)
        for name in ("home", "tmp", "cwd", "state", "nodes", "io"):
            (self.top / name).mkdir(parents=True)
        (self.top / "home" / ".profile").write_text("true\n")
        (self.top / "cwd" / "train.py").write_text(PROGRAM)
        (self.top / "cwd" / "hostfile").write_text(self.world.hostfile.read_text())
        self.words = _WORDS[self.verb](self, rng)
        verbs: tuple[str, ...] = ()
        if rng.random() < 0.1:
            verbs = ("hello",)
        elif rng.random() < 0.1:
            verbs = ("ping",)
        elif self.goes_on and self.verb not in _ASKED_LIVE:
            asked = ("follow", "samples", "samples", "past")
            verbs = (rng.choice((*asked, "window", "profile") if self.verb == "app" else asked),)
        elif self.verb in _ASKED and rng.random() < 0.8:
            verbs = tuple(rng.choice(_ASKED[self.verb]).split())
        skip = rng.choice((0, 0, 0, 1, 2)) if verbs and verbs[0] in ("follow", "samples") else 0
        mutation = "" if self.mutation == DISK else self.mutation
        self.plan = Plan(mutation, self.seed, verbs, skip, report=str(self.top / "io" / "rewritten"))
        if self.verb != "run" and "--hostfile" not in self.words:
            here = self.world.state(self.run, self.top / "state")
            if self.mutation == DISK:
                self.world.damage(self.run, here, self.nodes, rng)
            if self.mutation == DISK and self.verb in ("profile", "app"):
                keep_damaged(here / "profiles", rng)
        self.before = tree(self.top)

    def start(self) -> None:
        """Start the verb, in a child that is a copy of this process."""
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                code = self._child()
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException:
                traceback.print_exc()
                code = 1
            gc.collect()  # tasks that were left say so
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _child(self) -> int:
        os.setsid()
        for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, "out", -1), (2, "err", -1)):
            path = os.path.join(self.top, "io", name) if flags < 0 else name
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if flags < 0 else flags, 0o600)
            os.dup2(opened, number)
            os.close(opened)
        for number, stream in enumerate(("stdin", "stdout", "stderr")):
            setattr(sys, stream, os.fdopen(number, "w" if number else "r", closefd=False))
        os.chdir(self.top / "cwd")
        for name in ("STATE", "CONFIG", "DATA", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = str(self.top / name.lower())
        os.environ |= {"HOME": str(self.top / "home"), "TMPDIR": str(self.top / "tmp")}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        quick.install(self.plan)
        if self.verb == "app":
            from tests.hostile.flight import main as fly

            return fly(self.run, self.seed)
        from cockpit.cli.main import main

        return main(self.words)

    # After

    def read(self, name: str) -> bytes:
        """What the verb printed: ``out`` or ``err``; or which frames were rewritten."""
        try:
            return (self.top / "io" / name).read_bytes()
        except FileNotFoundError:
            return b""

    def faults(self, status: int, peak: int) -> Iterator[str]:
        """Everything that is not as it must be.

        :param status: as ``wait`` tells it
        :param peak: memory, bytes
        """
        code = os.waitstatus_to_exitcode(status)
        out, err = self.read("out"), self.read("err")
        if self.killed:
            yield f"did not end within {KILL_S:g} s"
        elif code not in CODES[self.verb] and not (self.left and code == 130):
            yield f"ended with {code}"
        if code in (2, 3) and not out + err:
            yield f"{code} without a word"
        if peak > MEMORY:
            yield f"took {peak >> 20} MB"
        for name, data in (("stdout", out), ("stderr", err)):
            yield from (f"{name}: {fault}" for fault in odd_text(data))
        yield from self._strays()
        if not self.killed:
            yield from _healthy(self, code, out)

    def _strays(self) -> Iterator[str]:
        after = tree(self.top)
        for path, digest in self.before.items():
            if path.startswith("nodes/"):
                continue  # its own run folder on the hostile node
            if path not in after:
                yield f"removed {path}"
            elif after[path] != digest:
                yield f"changed {path}"
        spooled = self._spooled()
        for path in sorted(after.keys() - self.before.keys() - spooled):
            if not (path.startswith("nodes/") or _OURS.fullmatch(path)):
                yield f"made {path}"
        size = sum(file.stat().st_size for file in self.top.joinpath("state").rglob("*") if file.is_file())
        if size > ROOM:
            yield f"left {size >> 20} MB here"

    def _spooled(self) -> set[str]:
        """Files of nodes that may be here: by the manifests, each its own.

        With a hostfile, ``ps`` keeps what it finds of any run that has ended, or whose node says so.
        """
        return {
            str((manifest.parent / "spool" / f"{index:04d}-{node['name']}" / file).relative_to(self.top))
            for manifest in self.known().parent.glob("*/manifest.json")
            for index, node in enumerate(json.loads(manifest.read_text())["nodes"])
            for file in (EVENTS, *INDEX, LAUNCHER_LOG, *map(rank_log, node["ranks"]))
        }


def end_all(run: str) -> None:
    """End what is left of a run: its hostile node may have made its own supervisor hang."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(ENV_RUN) == run:
                process.kill()


def odd_text(data: bytes) -> Iterator[str]:
    """Tracebacks, and characters that are no text."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        yield f"not UTF-8: {data[error.start - 20 : error.end + 20]!r}"
        return
    if found := _TROUBLE.search(text):
        yield text[max(0, found.start() - 200) :][-1500:]
    if odd := odd_characters(text):
        yield f"prints {odd}: {_around(text)!r}"


def _around(text: str) -> str:
    at = next(number for number, char in enumerate(text) if odd_characters(char))
    return text[max(0, at - 40) : at + 40]


def tree(top: Path) -> Tree:
    """Every file in a folder but ``io``, with what tells whether it changed."""
    found: Tree = {}
    for folder, folders, names in os.walk(top):
        if Path(folder) == top:
            folders.remove("io")
        for name in names:
            path = Path(folder, name)
            found[str(path.relative_to(top))] = _digest(path)
        for name in folders:
            if (path := Path(folder, name)).is_symlink():
                found[str(path.relative_to(top))] = "link"
    return found


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return "odd"
    if (size := path.stat().st_size) > ROOM:
        return f"{size} bytes"  # nearly all of it a hole
    return hashlib.sha1(path.read_bytes()).hexdigest()


# Words


def _run(case: Case, rng: random.Random) -> list[str]:
    hostfile = case.top / "cwd" / "hostfile"
    hosts = [f"{BAD} slots=1\n", f"{GOOD} slots=1\n"]
    hostfile.write_text("".join(hosts if rng.random() < 0.6 else reversed(hosts)))
    words = ["run", str(hostfile), "--name", case.run, "--transport", "local", "--launcher", "command"]
    words += ["--node-dir", str(case.nodes), "--python", sys.executable, "--grace", "1", "--give-up", "1"]
    words += ["--failure-wait", "0", rng.choice(("--headless", "--json", "--plain"))]
    return [*words, "--", sys.executable, "train.py", case.seed if case.mutation == DISK else ""]


def _attach(case: Case, rng: random.Random) -> list[str]:
    return ["attach", case.run, "--give-up", "1", rng.choice(("--headless", "--json", "--plain"))]


def _ps(case: Case, rng: random.Random) -> list[str]:
    hostfile = ["--hostfile", "hostfile", "--transport", "local", "--node-dir", str(case.world.base)]
    asked: tuple[list[str], ...] = ([], [case.run], [case.run, "--json"], ["--json"])
    return ["ps", *rng.choice(asked if case.mutation == DISK else (*asked, hostfile, hostfile))]


def _doctor(case: Case, rng: random.Random) -> list[str]:
    words = ["doctor", "hostfile", "--transport", "local", "--node-dir", str(case.nodes)]
    words += ["--python", sys.executable, "--launcher", "command", *rng.choice(([], ["--json"], ["--json"]))]
    return [*words, "--", sys.executable, "train.py"]


def _stop(case: Case, rng: random.Random) -> list[str]:
    return ["stop", case.run, *rng.choice(([], ["--json"], ["--json"], ["--now"]))]


_FILES = ("/etc/passwd", "no-such-*")


def _collect(case: Case, rng: random.Random) -> list[str]:
    return ["collect", case.run, *rng.choice(([], ["--json"], [*_FILES, "--json"]))]


def _stacks(case: Case, rng: random.Random) -> list[str]:
    form = rng.choice(([], ["--json"], ["--json"], ["--html", "-"], ["--folded", "-"], ["--threads", "all"]))
    return ["stacks", case.run, "--samples", "1", "--timeout", "2", *form]


def _profile(case: Case, rng: random.Random) -> list[str]:
    if case.mutation == DISK:
        shown = (["--json"], ["--md"], ["--fetch"], ["--fetch", "--json"], ["--folded", "-"], ["--html", "-"])
        return ["profile", "show", case.run, *rng.choice(([], *shown))]
    taken: tuple[list[str], ...] = (
        [],
        ["--json"],
        ["--json"],
        ["--fetch", "--json"],
        ["--kind", "cpu", "--seconds", "1", "--json"],
    )
    return ["profile", case.run, *rng.choice(taken), *rng.choice(([], ["--ranks", "0,2-3"]))]


def _nsys(case: Case, rng: random.Random) -> list[str]:
    return [
        "profile",
        "show",
        case.run,
        "--nsys",
        *rng.choice(([], ["--json"], ["--json"], ["--md"], ["--spread"])),
    ]


def _logs(case: Case, rng: random.Random) -> list[str]:
    some = (["-f"], ["--json"], ["--tail", "5"], ["--grep", "loss"], ["--since", "10m"], ["--node", GOOD])
    return ["logs", case.run, *rng.choice(([], *some))]


def _metrics(case: Case, rng: random.Random) -> list[str]:
    return ["metrics", case.run, *rng.choice(([], ["--csv"], ["--json"]))]


def _clean(case: Case, rng: random.Random) -> list[str]:
    """Lists alone: the run folders are those of all cases."""
    return ["clean", case.run, *rng.choice(([], ["--older-than", "0s"], ["--unended"]))]


_WORDS: dict[str, Callable[[Case, random.Random], list[str]]] = {
    "run": _run,
    "attach": _attach,
    "ps": _ps,
    "doctor": _doctor,
    "stop": _stop,
    "clean": _clean,
    "collect": _collect,
    "stacks": _stacks,
    "profile": _profile,
    "nsys": _nsys,
    "logs": _logs,
    "metrics": _metrics,
    "app": lambda case, rng: [],
}
_ASKED = {
    "doctor": ("facts", "checkup", "checkup", "seek", "resolve", "meet", "reach"),
    "run": ("facts", "resolve", "port", "launch", "follow"),
    "attach": ("follow", "past"),
    "logs": ("follow",),
    "ps": ("status", "samples", "past"),
    "metrics": ("follow", "status", "past"),
    "clean": ("folders", "folders", "reports", "status"),
    "app": ("follow", "past"),
    "stacks": ("stacks", "stacks calls", "stacks calls", "recorder"),
    "profile": ("window", "profile", "profile", "profile", "samples", "environ", "seek", "spy"),
    "nsys": ("reports", "sumup", "sumup", "sumup"),
}
_ASKED_LIVE = ("stacks", "profile")


# What must be true of the healthy node


def _healthy(case: Case, code: int, out: bytes) -> Iterator[str]:
    if case.verb in ("run", "attach", "logs", "app"):
        yield from _same_logs(case, whole=not case.left and not out.startswith(b"left"))
    elif case.verb == "collect":
        yield from () if _FILES[0] in case.words else _same_reports(case)
    elif case.verb == "profile":
        yield from () if case.mutation == DISK else _same_profiles(case, code, out)
    elif case.verb == "nsys" and "--json" in case.words and not case.left:
        taken = json.loads(out)["taken"]
        for rank in RANKS[GOOD]:
            one = taken[str(rank)]
            if one["state"] != "done":
                yield f"{GOOD}'s rank {rank} is not summed up: {one['why']!r}"
    elif "--json" in case.words and not case.left:
        try:
            yield from _told(case, json.loads(out))
        except (KeyError, ValueError) as error:
            yield f"tells nothing of {GOOD}: {error!r}: {out[:300]!r}"


def _same_logs(case: Case, *, whole: bool) -> Iterator[str]:
    spools = sorted(case.known().glob(f"spool/*-{GOOD}"))
    if not spools and case.verb == "run":
        return  # nothing was launched
    there = case.world.node(case.run, GOOD)
    if case.verb == "run":
        there = next(case.nodes.glob(f"*/{case.run}/{GOOD}"), case.nodes)
    for path in sorted(there.glob("*.log")):
        wanted = path.read_bytes()
        here = spools[0] / path.name if spools else Path("/nowhere")
        found = here.read_bytes() if here.is_file() else b""
        if path.name != "supervisor.log" and not (found == wanted if whole else wanted.startswith(found)):
            yield f"{GOOD}'s {path.name}: {len(found)} bytes here, {len(wanted)} there, not the same"


def _same_reports(case: Case) -> Iterator[str]:
    there = case.world.node(case.world.over, GOOD) / "reports"
    for path in sorted(there.iterdir()):
        here = case.known() / "reports" / f"0001-{GOOD}" / path.name
        if not here.is_file() or here.read_bytes() != path.read_bytes():
            yield f"{GOOD}'s {path.name} was not collected"


def _same_profiles(case: Case, code: int, out: bytes) -> Iterator[str]:
    """Ranks of the healthy node are there, whatever the other says; another case may have them just now, by
    a hook or a py-spy."""
    busy = "another profile of it is "
    if code == 2:
        if not ("window" in case.read("rewritten").decode() or busy in case.read("err").decode()):
            yield f"nothing is profiled: {case.read('err')[-300:]!r}"
    elif "--json" in case.words:
        taken = json.loads(out)["taken"]
        for rank in RANKS[GOOD]:
            one = taken[str(rank)]
            held = busy in one["why"] or "suspend process" in one["why"]
            held = held or (case.left and one["state"] == "cancelled")
            if one["state"] != "done" and not held:
                yield f"{GOOD}'s rank {rank} is told to be {one['state']!r}: {one['why']!r}"


def _told(case: Case, told: Any) -> Iterator[str]:
    mine = RANKS[GOOD]
    if case.verb == "stop":
        shown = [told["ranks"][str(rank)] for rank in mine]
    elif case.verb == "ps" and isinstance(told, dict):
        shown = [rank["text"] for rank in told["ranks"] if rank["rank"] in mine]
    elif case.verb == "stacks":
        shown = ["exited 0" if str(rank) not in told["missing"] else "no stack" for rank in mine]
        if unheard := set(mine) - read_ranks(told["collectives"]["heard"] or "0"):
            yield f"the recorders of {GOOD}'s ranks {unheard} are told to be silent"
    elif case.verb == "doctor":
        wrong = [each for each in told["findings"] if each["severity"] == "error" and GOOD in each["nodes"]]
        if GOOD not in told["nodes"] or any(each["id"] != "unreached" for each in wrong):
            yield f"{GOOD} is told to be unfit: {wrong}"
        return
    else:
        return
    if shown != ["exited 0"] * len(mine):
        yield f"{GOOD}'s ranks are told to be {shown}"


# The campaign


@dataclass
class Verbs(Outcome):
    """What came of whole verbs."""

    left: int = 0
    """Cases that watched until they were told to leave."""
    peak: int = 0
    """Most memory of any, bytes."""
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)


def preload() -> None:
    """Import here what every child needs."""
    for name in ("run", "attach", "ps", "doctor", "stop", "collect", "stacks", "profile", "logs", "metrics"):
        import_module(f"cockpit.cli.verbs.{name}")
    for name in (
        "cockpit.cli.run_details",
        "cockpit.engine.run.join",
        "cockpit.engine.launch.start",
        "cockpit.engine.links.payload",
    ):
        import_module(name)
    import_module("cockpit.engine.links.payload").archive()
    import_module("tests.hostile.flight")


def campaign(
    top: Path,
    wanted: Iterator[tuple[str, str]],
    seed: int,
    *,
    side_by_side: int = 3,
    until: float = float("inf"),
    tell: Callable[[str], None] = lambda text: None,
    keep: bool = False,
) -> Verbs:
    """Run whole verbs, some at a time.

    :param wanted: verbs and mutations
    :param until: monotonic seconds after which none is started
    :param keep: the folders of cases with a fault stay
    """
    preload()
    with quick.warm_peers():
        return _campaign(top, wanted, seed, side_by_side, until, tell, keep)


def _campaign(
    top: Path,
    wanted: Iterator[tuple[str, str]],
    seed: int,
    side_by_side: int,
    until: float,
    tell: Callable[[str], None],
    keep: bool,
) -> Verbs:
    outcome = Verbs()
    made = World(top / "world")
    running: dict[int, Case] = {}
    number = 0
    pending = list(wanted)[::-1]
    again: Counter[tuple[str, str]] = Counter()
    try:
        made.make()
        told = 0
        while pending or running:
            if pending and time.monotonic() > until:
                outcome.blame(f"out of time: {len(pending)} cases were not run")
                pending.clear()
            while pending and len(running) < side_by_side:
                verb, mutation = pending.pop()
                number += 1
                case = Case(verb, mutation, f"{seed}.{number}", top / f"case-{number}", made)
                case.prepare()
                case.start()
                running[case.pid] = case
            for case in _ended(running, outcome, keep=keep):
                what = (case.verb, case.mutation)
                if case.hostile:
                    outcome.counts[what] += 1
                    total = outcome.counts.total()
                    if total % 50 == 0:
                        tell(f"{total} cases, {len(outcome.faults)} faults, {len(pending)} to go")
                elif again[what] < 60:
                    # The peer found nothing to rewrite: it is no case.
                    again[what] += 1
                    pending.append(what)
            for fault in outcome.faults[told:]:
                tell(str(fault))  # at once: a campaign that is cut off has found it all the same
            told = len(outcome.faults)
            time.sleep(0.01)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        made.close()
    strays = [path.name for path in top.iterdir() if not re.fullmatch(r"case-\d+|world", path.name)]
    if strays or os.path.lexists("/tmp/hostile"):
        outcome.blame(f"made outside of every case: {strays or '/tmp/hostile'}")
    return outcome


def _ended(running: dict[int, Case], outcome: Verbs, *, keep: bool) -> list[Case]:
    """Cases that have ended by now, judged."""
    found = []
    for pid, case in list(running.items()):
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if not done:
            age = time.monotonic() - case.started
            if age > KILL_S and not case.killed:
                case.killed = True
                os.kill(pid, signal.SIGKILL)
            elif age > case.leave_s and not case.left and case.verb in WATCHES:
                case.left = True
                os.kill(pid, signal.SIGINT)
            continue
        del running[pid]
        found.append(case)
        peak = usage.ru_maxrss << 10
        outcome.peak = max(outcome.peak, peak)
        outcome.left += case.left
        outcome.codes[case.verb, os.waitstatus_to_exitcode(status)] += 1
        case.hostile = case.mutation == DISK or bool(case.read("rewritten"))
        faults = list(case.faults(status, peak))
        for fault in faults:
            outcome.blame(f"{case.name}: {fault} [{' '.join(case.words)}; {case.read('rewritten')[:100]!r}]")
        if case.verb == "run":
            end_all(case.run)
        if not (faults and keep):
            shutil.rmtree(case.top, ignore_errors=True)
    return found
