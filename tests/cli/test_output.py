"""Every verb, on a real terminal, against hostile nodes, names, files and faults: nothing drives it."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cockpit.cli import output
from cockpit.core.text import columns
from cockpit.errors import CockpitError, Exit, ManyErrors
from tests import rewritten
from tests.terminal import on_terminal

CLI = sorted((Path(__file__).parents[2] / "cockpit/cli").glob("*.py"))

MARK = "EVIL"
"""In all hostile text, to know that a verb has shown some."""
EVIL = (
    f"{MARK} \x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J\x1b[H\x1bPq\x1b\\\x1b]8;;http://x\x1b\\link"
    "\x9b31m\x08\x7f\r\ncockpit: all is well\u202egnp.exe\u200b\u2028e" + "\u0301" * 40
)
SURROGATES = f"{MARK} \ud800 \udcff \udfff\ud800\udc9b"
LOG = (
    EVIL.encode("utf-8") + b"\n" + bytes(range(256)) + b"\n" + b"\x1b[31mred " + EVIL.encode("utf-8") + b"\n"
)

OWN = re.compile(rb"\x1b\[[0-9;:]*m|\r\x1b\[K|\r\n")
"""Colours, the line of progress, and the end of a line as a terminal gets it."""
CALL = re.compile(rb"\x07\x1b\]9;([^\x07\x1b]*)\x1b\\")
"""A call: the bell and a notification, whose text is looked at like any other."""


def intruders(shown: bytes) -> list[str]:
    """What a terminal got beside text and our own sequences."""
    try:
        text = OWN.sub(b"", CALL.sub(rb"\1", shown)).decode()
    except UnicodeDecodeError as error:
        return [str(error)]
    odd = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    found = [f"U+{ord(char):04X}" for char in sorted(odd)]
    found += re.findall("\u0301{9,}", text)
    # No line is one of ours that a node made up.
    return found + [line for line in text.splitlines() if line.startswith("cockpit: all is well")]


@dataclass
class World:
    """A state folder with runs, and nodes on this machine that may lie."""

    folder: Path
    quick: tuple[str, ...]
    """Starts a cockpit that has imported itself."""
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = {f"XDG_{name}_HOME": str(self.folder / name) for name in ("STATE", "CONFIG", "CACHE", "DATA")}
        kept = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "COVERAGE_PROCESS_START")
            if name in os.environ
        }
        self.env = {**kept, **state, "TERM": "xterm", "LANG": "C.UTF-8", "TMPDIR": str(self.folder)}
        self.python = rewritten.python(self.folder)
        (self.folder / "hostfile").write_text("gpu01 slots=1\ngpu02 slots=1\n")

    def cockpit(self, *words: str, changes: Mapping[str, Any] | None = None, patch: str = "") -> list[str]:
        """The words that start cockpit, and the variables for it in :attr:`env`."""
        self.env.pop(rewritten.CHANGES, None)
        if changes is not None:
            self.env.update(rewritten.answers(self.folder / "answers", changes))
        program = f"import sys; {patch or 'pass'}\nfrom cockpit.cli.main import main; sys.exit(main())"
        return [sys.executable, "-c", program, *words]

    def shows(self, *words: str, patch: str = "", **more: Any) -> tuple[int, bytes]:
        """Run it on a terminal.

        :param patch: what is done to it before; then a whole interpreter starts and ends
        """
        command = self.cockpit(*words, patch=patch, **more)
        return on_terminal(command if patch else [*self.quick, *words], self.env, self.folder)

    def launch(self, name: str, script: str) -> list[str]:
        """The words of a run of a shell script on both nodes."""
        program = self.folder / f"{name}.sh"
        program.write_text("#!/bin/bash\n" + script)
        program.chmod(0o700)
        words = [
            "run",
            "hostfile",
            "--transport",
            "local",
            "--python",
            str(self.python),
            "--launcher",
            "command",
        ]
        words += ["--name", name, "--node-dir", str(self.folder), "--plain", "--master-addr", "127.0.0.1"]
        return [*words, "--failure-wait", "0", "--", str(program)]


RECORD = """
cat {log}
if [ "$NODE_RANK" = 0 ]; then cat {notes} >>"$COCKPIT_DIR"/events.jsonl; fi
touch {log}-$COCKPIT_RUN-$NODE_RANK
until [ -e {log}-$COCKPIT_RUN-0 ] && [ -e {log}-$COCKPIT_RUN-1 ]; do sleep 0.05; done
"""
"""What ranks do; each waits for the other, which would not begin any more once this one has failed."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, quick_cockpit: tuple[str, ...]) -> Iterator[World]:
    """Two runs whose record and output are hostile: one that ended, and one that goes on."""
    made = World(tmp_path_factory.mktemp("world"), quick_cockpit)
    (made.folder / "log").write_bytes(LOG)
    facts: list[dict[str, Any]] = [
        {"e": "note", "text": EVIL},
        {"e": "note", "text": SURROGATES},
        {"e": "stage", "stage": EVIL[:90]},
        {"e": "report", "name": MARK + "\x1b[2J.nsys-rep", "state": EVIL[:90], "text": EVIL, "size": 1},
        {"e": "survivors", "procs": [{"name": EVIL[:90], "pid": 1, "ticks": 1, "state": EVIL[:90]}]},
    ]
    lines = "".join(json.dumps({"t": 1.0, **fact}) + "\n" for fact in facts)
    (made.folder / "notes").write_text(lines)
    script = RECORD.format(log=made.folder / "log", notes=made.folder / "notes")
    for name, end in (("ended", "exit 3"), ("alive", "exec sleep 600")):
        words = made.launch(name, script + end)
        if name == "alive":
            words.insert(1, "--headless")
            with subprocess.Popen(
                made.cockpit(*words),
                env=made.env,
                cwd=made.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                assert process.stdout
                while MARK.encode() not in process.stdout.readline():
                    assert process.poll() is None
                process.send_signal(signal.SIGHUP)
                process.stdout.read()
        else:
            subprocess.run(
                [*made.quick, *words], env=made.env, cwd=made.folder, check=False, capture_output=True
            )
        manifest = made.folder / "STATE/cockpit/runs" / name / "manifest.json"
        found = json.loads(manifest.read_text())
        found["program"] = [EVIL, SURROGATES]
        manifest.write_text(json.dumps(found))
    yield made
    made.shows("stop", "alive", "--now")
    shutil.rmtree(made.folder, ignore_errors=True)


ERROR = {"error": [MARK + "\x1b]0;x\x07", EVIL, EVIL]}
ODD = {"error": ["x", SURROGATES, SURROGATES]}
DOWN = dict.fromkeys(("facts", "status", "runs", "seek", "stop", "reports", "stacks", "spy", "follow"), ERROR)
OTHERS = [{"user": EVIL[:200], "pid": 5, "count": 1, "command": EVIL}]
STUCK = [{"pid": 6, "name": EVIL[:200], "state": EVIL[:90]}]
REFUSE = [{"rank": rank, "step": 7, "age_s": 0.1, "step_s": 0.1, "why": EVIL} for rank in (0, 1)]
FILES = [{"name": f"{MARK}\x1b]0;x\x07{end}", "size": 1, "mtime": 1.0} for end in (".nsys-rep", ".txt")]

CASES: dict[str, tuple[list[str], dict[str, Any] | None, set[int]]] = {
    "ps": (["ps"], None, {0}),
    "ps, nodes that refuse": (["ps"], {"status": ERROR}, {0}),
    "ps, surrogates": (["ps", "alive"], {"status": ODD}, {0}),
    "ps of a run": (["ps", "ended", "--no-connect"], None, {0}),
    "ps of a live run": (["ps", "alive"], None, {0}),
    "ps as JSON": (["ps", "ended", "--json", "--no-connect"], None, {0}),
    "ps of other nodes": (["ps", "--hostfile", "hostfile", "--transport", "local"], DOWN, {0}),
    "attach": (["attach", "ended", "--plain"], None, {1}),
    "attach as JSON": (["attach", "ended", "--json"], None, {1}),
    "attach, nodes that refuse": (["attach", "alive", "--plain", "--give-up", "0"], {"follow": ERROR}, {3}),
    "logs": (["logs", "ended"], None, {0}),
    "logs as JSON": (["logs", "ended", "--json"], None, {0}),
    "logs of a node that is down": (["logs", "alive"], {"follow": ERROR}, {0}),
    "stacks of a run": (["stacks", "alive"], DOWN, {3}),
    "stacks of a job": (["stacks", "hostfile", "--transport", "local"], {"seek": ERROR}, {3}),
    "stacks, other users": (
        ["stacks", "hostfile", "--transport", "local"],
        {"seek": {"answer": {"ranks": [], "others": OTHERS, "stuck": STUCK}}},
        {3},
    ),
    "profile, nodes that refuse": (["profile", "alive"], DOWN, {3}),
    "profile, ranks that refuse": (["profile", "alive"], {"window": {"answer": {"ranks": REFUSE}}}, {2}),
    "collect": (["collect", "ended"], {"reports": {"answer": {"files": FILES}}}, {3}),
    "collect, nodes that refuse": (["collect", "ended", "--json"], DOWN, {3}),
    "stop, nodes that refuse": (["stop", "alive"], DOWN, {3}),
    "a run that is refused": (["run"], {"facts": ERROR}, {3}),
    "a run on odd nodes": (["run"], {"facts": ODD}, {3}),
    "a run on nodes with odd GPUs": (
        ["run", "-w"],
        {"facts": {"merge": {"gpus": {"count": 0, "why": EVIL[:200]}}}},
        {3},
    ),
}

QUIET = {"attach", "attach as JSON"}
"""What shows nothing hostile, as nothing happens any more."""


@pytest.mark.few(4)
@pytest.mark.parametrize("case", CASES)
def test_no_verb_lets_a_node_drive_the_terminal(world: World, case: str) -> None:
    words, changes, codes = CASES[case]
    if words[0] == "run":
        nodes = words[1:] and ["-w", "gpu[01-02]"]
        words = world.launch("refused", "exit 0")
        words[1:2] = nodes or words[1:2]
    if words[:2] == ["stacks", "hostfile"]:
        words = [*words, "--python", str(world.python)]
    code, shown = world.shows(*words, changes=changes)
    assert intruders(shown) == [], shown
    assert b"Traceback" not in shown
    assert b"internal error" not in shown, shown
    assert MARK.encode() in shown or case in QUIET, shown
    assert code in codes, shown


def test_a_run_shows_what_ranks_print_and_nodes_record(world: World) -> None:
    script = RECORD.format(log=world.folder / "log", notes=world.folder / "notes")
    code, shown = world.shows(*world.launch("watched", script + "sleep 1; exit 3"))
    assert intruders(shown) == [], shown
    assert b"Traceback" not in shown
    assert shown.count(MARK.encode()) > 3
    assert b"\x1b[31mred" in shown, "sane colours of ranks pass"
    assert code == 1, shown


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "verb",
    [
        "run",
        "logs",
        "plan",
        "ps",
        "attach",
        "metrics",
        "stacks",
        "profile",
        "stop",
        "collect",
        "demo",
        "where",
    ],
)
def test_help_and_wrong_words(world: World, verb: str) -> None:
    for asked in ((verb, "--help"), (verb, "--help-all"), ("help", verb)):
        code, shown = world.shows(*asked)
        assert (code, intruders(shown)) == (0, [])
    for words in ([verb, f"--{EVIL}"], [verb, EVIL, EVIL, "--", EVIL], [EVIL, verb]):
        code, shown = world.shows(*words)
        assert (code, intruders(shown)) == (2, []), shown
        assert MARK.encode() in shown, shown
        assert b"Traceback" not in shown


@pytest.mark.slow
def test_files_and_folders_of_this_machine(world: World) -> None:
    evil = world.folder / (EVIL[:90].replace("/", "_"))
    evil.mkdir(exist_ok=True)
    code, shown = on_terminal(
        world.cockpit("where"), {**world.env, "XDG_STATE_HOME": str(evil)}, world.folder
    )
    assert (code, intruders(shown)) == (0, []), shown
    hostfile = evil / "hostfile"
    hostfile.write_bytes(LOG)
    code, shown = world.shows("plan", str(hostfile), "--", "x")
    assert (code, intruders(shown)) == (2, []), shown
    (world.folder / "odd.env").write_bytes(b"A=" + EVIL.split("\r")[0].encode() + b"\xff\nB_TOKEN=x\x1b[2J\n")
    words = [
        "--launcher",
        "command",
        "--python",
        "/x/python",
        "--env-file",
        "odd.env",
        "--setup",
        f"echo '{EVIL}'",
    ]
    for form in ([], ["--show-secrets"], ["--json"]):
        code, shown = world.shows("plan", "hostfile", "--name", "planned", *words, *form, "--", EVIL)
        assert (code, intruders(shown)) == (0, []), shown
    for words in (["stacks", str(evil)], ["stacks", str(hostfile)], ["attach", str(hostfile)]):
        code, shown = world.shows(*words)
        assert (code, intruders(shown)) == (2, []), shown


def test_raw_bytes_are_not_for_a_terminal(world: World) -> None:
    code, shown = world.shows("logs", "ended", "--rank", "0", "--raw")
    assert (code, intruders(shown)) == (2, [])
    assert b"--raw: a log may contain terminal escapes" in shown
    words = world.cockpit("logs", "ended", "--rank", "0", "--raw")
    piped = subprocess.run(words, env=world.env, cwd=world.folder, capture_output=True, check=True)
    assert piped.stdout == LOG


@pytest.mark.few(1)
@pytest.mark.parametrize("case", ["ps of a run", "a run that is refused"])
def test_without_the_sanitiser_the_terminal_is_driven(world: World, case: str) -> None:
    words, changes, _ = CASES[case]
    words = world.launch("refused", "exit 0") if words == ["run"] else words
    patch = "import cockpit.core.text as t; t._clean = lambda text, colour: text"
    _, shown = world.shows(*words, changes=changes, patch=patch)
    assert intruders(shown)


FAULT = """from cockpit.cli.verbs import where as verb
import asyncio, os, threading
def main(words):
    {}
verb.main = main"""


def test_a_fault_of_ours_is_a_line_and_a_file(world: World) -> None:
    fault = FAULT.format(f"secret = 'hush'; raise ValueError({EVIL!r})")
    code, shown = world.shows("where", patch=fault)
    assert (code, intruders(shown)) == (Exit.INTERNAL, []), shown
    assert b"Traceback" not in shown
    assert b"cockpit: internal error: ValueError: EVIL" in shown
    found = re.search(rb"To report it: (\S+)", shown)
    assert found
    path = Path(found[1].decode())
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Traceback (most recent call last)" in text
    assert "hush" not in text.replace(fault, "")
    assert not [line for line in text.split("\n") if intruders(line.replace("cockpit:", "").encode())]
    world.env["COCKPIT_TRACEBACK"] = "1"
    try:
        code, shown = world.shows("where", patch=fault)
    finally:
        del world.env["COCKPIT_TRACEBACK"]
    assert code == 1
    assert b"Traceback" in shown


@pytest.mark.parametrize(
    "body",
    [
        "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); return 0",
        "raise asyncio.CancelledError('x')",
        "raise RecursionError('x')",
        "asyncio.run(run()); return 0",
    ],
)
def test_nothing_else_prints_a_traceback(world: World, body: str) -> None:
    lost = "\nasync def run():\n    asyncio.ensure_future(fail()); await asyncio.sleep(0)"
    lost += "\n    import gc; gc.collect()\nasync def fail():\n    raise ValueError('lost')"
    code, shown = world.shows("where", patch=FAULT.format(body) + lost)
    assert code in (Exit.OK, Exit.INTERNAL)
    assert b"internal error" in shown
    assert b"Traceback" not in shown
    assert intruders(shown) == []


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS", "EACCES"])
def test_a_disk_that_takes_nothing_is_code_2(world: World, number: str) -> None:
    fault = f"import errno; raise OSError(errno.{number}, 'x', {EVIL!r})"
    code, shown = world.shows("where", patch=FAULT.format(fault))
    assert (code, intruders(shown)) == (2, []), shown
    assert b"Traceback" not in shown
    assert b"internal error" not in shown
    assert len(shown.splitlines()) == 1


def test_only_so_many_tracebacks_are_kept(world: World) -> None:
    body = "import cockpit.cli.mishaps as m; [m.saved(ValueError(n)) for n in range(30)]; return 0"
    assert world.shows("where", patch=FAULT.format(body))[0] == 0
    assert len(list((world.folder / "STATE/cockpit/errors").iterdir())) == 20


def test_full_streams(world: World) -> None:
    for words in (
        ["where"],
        ["where", "--json"],
        ["--help"],
        ["ps", "ended", "--no-connect"],
        ["logs", "ended"],
    ):
        line = 'exec "$@" >/dev/full'
        command = ["/bin/sh", "-c", line, "sh", *world.cockpit(*words)]
        done = subprocess.run(
            command, env=world.env, cwd=world.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, done.stderr
        assert "No space left on device" in done.stderr or "no space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr


@pytest.mark.slow
def test_text_that_stdout_cannot_show(world: World) -> None:
    for encoding in ("ascii", "latin-1"):
        env = {**world.env, "PYTHONIOENCODING": encoding}
        for words in (["ps", "ended", "--no-connect"], ["where"]):
            code, shown = on_terminal(world.cockpit(*words), {**env}, world.folder)
            assert code == 0, shown
            assert b"Traceback" not in shown


# The door itself.


def test_errors_are_lines_and_what_they_quote_is_indented(capsys: pytest.CaptureFixture[str]) -> None:
    first = CockpitError("it said\ncockpit: all is well\n" + "x\n" * 100, where="gpu01")
    output.complain(ManyErrors([first, CockpitError("refused", where="gpu02")]))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["cockpit: gpu01: it said", "cockpit:     cockpit: all is well"]
    assert lines[-1] == "cockpit: gpu02: refused"
    assert "more lines" in lines[-2]
    assert len(lines) < 50


def test_columns_are_those_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([("a", "b"), ("日本", "x"), ("é", "y"), ("e\u0301", "z"), ("\ud800", "w")])
    lines = capsys.readouterr().out.splitlines()
    assert len({columns(line[: line.index(last)]) for line, last in zip(lines, "bxyzw", strict=True)}) == 1


def test_progress_fits_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    output.draw("日本語" + EVIL, 5)
    assert stream.getvalue() == "\r\x1b[K日本"


def own_streams(tree: ast.AST) -> Iterator[str]:
    """Where a module prints or takes a stream to write to it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"line {node.lineno}: print"
        if isinstance(node, ast.Attribute) and node.attr in ("write", "writelines", "buffer"):
            owner = ast.unparse(node.value)
            if re.match(r"sys\.__?std|sys\.std", owner):
                yield f"line {node.lineno}: {owner}.{node.attr}"
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            names = {alias.name for alias in node.names}
            yield from (f"line {node.lineno}: {name}" for name in names & {"stdout", "stderr"})


@pytest.mark.parametrize("path", CLI, ids=lambda path: str(path.name))
def test_there_is_one_door(path: Path) -> None:
    found = list(own_streams(ast.parse(path.read_text())))
    if path.name == "output.py":
        assert found
    else:
        assert found == [], "use cockpit.cli.output"
