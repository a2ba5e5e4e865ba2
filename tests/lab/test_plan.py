"""What `cockpit plan` prints does, pasted on each node, what `cockpit run` does."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cockpits import ENV, Cockpits
from tests.needs import require_module
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PROBE = """\
import glob, json, os, sys
folder, secret = os.environ["PLAN_OUT"], os.environ["PLAN_API_KEY"].encode()
def words(path):
    try:
        return open(path, "rb").read()
    except OSError:
        return b""
seen = [path for path in glob.glob("/proc/[0-9]*/cmdline") if secret in words(path)]
with open("%s/rank-%s.json" % (folder, os.environ["RANK"]), "w") as file:
    json.dump({"argv": sys.argv, "cwd": os.getcwd(), "env": dict(os.environ), "seen": seen}, file)
"""

VALUES = {
    "PLAN_SPACES": "  two  words ",
    "PLAN_DOLLAR": "$HOME `id` $(id) ${PATH} \\$",
    "PLAN_QUOTES": "it's \"quoted\" ''' !! !x",
    "PLAN_LINES": "first\nsecond\n\nEND\n",
    "PLAN_BACKSLASH": "\\ \\n \\\\ \\",
    "PLAN_UNICODE": "é ☃ 𝄞 \u202e",
    "PLAN_CONTROLS": "tab\there \x1b[31m \r \x01",
    "PLAN_EMPTY": "",
    "PLAN_WINS": "asked for",
    "NCCL_SENT_ANYWAY": "a=b;c&d|e",
}
SECRET = "sk-1234 'and' $more"
SETUP = "export PLAN_SETUP='by the setup'; export PLAN_WINS='by the setup' # a comment"
ARGS = [
    "two words",
    "",
    "$HOME",
    'it\'s "quoted"',
    "!!",
    "line\nfeed",
    "back\\slash\\",
    "é☃",
    "*",
    "~",
    "-x",
    "--learning-rate=1e-3",
    "--flag",
    "--",
    "a;b&c|d<e>f",
    "#no comment",
]
ASIDE = re.compile(
    r"COCKPIT_.*|SSH_.*|SHLVL|_|OLDPWD|MASTER_PORT"
    # torchrun makes a folder with a name of its own each time.
    r"|TORCHELASTIC_ERROR_FILE"
    # Functions, such as `module`: a wrapper's /bin/sh drops them where it is dash.
    r"|BASH_FUNC_.*"
)


def dumps(folder: Path) -> dict[str, dict[str, Any]]:
    """What each rank found, by file name; the files are gone then."""
    found = {}
    for path in sorted(folder.iterdir()):
        dump = json.loads(path.read_text())
        dump["env"] = {name: value for name, value in dump["env"].items() if not ASIDE.fullmatch(name)}
        found[path.name] = dump
        path.unlink()
    return found


def paste(cockpits: Cockpits, script: str, node: str) -> subprocess.CompletedProcess[str]:
    """Give the script to an interactive shell on the node, with the environment that a login has there."""
    return cockpits.lab.run(["ssh", node, "bash -i"], input=script, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("launcher", "module"),
    [
        ("command", ""),
        # What their ranks get of both is the same on one machine, too: tests/plans/test_script.py.
        pytest.param("torchrun", "torch", marks=[pytest.mark.launch, pytest.mark.campaign]),
        pytest.param("deepspeed", "deepspeed", marks=[pytest.mark.launch, pytest.mark.campaign]),
    ],
)
def test_a_pasted_plan_is_the_run(cockpits: Cockpits, launcher: str, module: str) -> None:
    if module:
        require_module(module)
    lab = cockpits.lab
    work, out = lab.home() / f"a 'work' folder {launcher}", lab.home() / f"dumps-{launcher}"
    lab.write(None, work / "probe script.py", PROBE)
    lab.run(["mkdir", out], check=True)
    options = ["--launcher", launcher, "--cwd", str(work), "--setup", SETUP, "--python", lab.python]
    env = {**VALUES, "PLAN_API_KEY": SECRET, "PLAN_OUT": str(out)}
    options += ["--master-port", "29517"]
    options += [word for name in env if name.startswith("PLAN") for word in ("--env", name)]
    program = ["probe script.py", *ARGS]

    done = cockpits.run(*options, program=program, env=env, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    ran = dumps(out)
    assert list(ran) == [f"rank-{rank}.json" for rank in range(4)]
    for dump in ran.values():
        assert dump["cwd"] == str(work)
        assert [word for word in dump["argv"][1:] if not word.startswith("--local_rank=")] == program[1:]
        assert dump["env"]["PLAN_SETUP"] == "by the setup"
        assert {name: dump["env"][name] for name in env} == env
        assert dump["seen"] == []
    kept = [*cockpits.folder.rglob("*"), *(p for n in lab.nodes for p in cockpits.node_folder(n).rglob("*"))]
    assert len(kept) > 30
    assert not [path for path in kept if path.is_file() and b"sk-1234" in path.read_bytes()]

    words = cockpits.words(*options, program=program)
    scripts = {}
    for node in lab.nodes:
        planned = lab.run(
            ["cockpit", "plan", *words[2 : -len(program) - 1], "--node", node, "--", *program],
            env={**ENV, **env},
        )
        assert planned.returncode == 0, planned.stderr
        assert "sk-1234" not in planned.stdout + planned.stderr
        scripts[node] = planned.stdout
    secrets = Path(re.findall(r"secrets are in (\S+) \(0600\)", planned.stderr)[0])
    assert str(secrets) in scripts["node1"]
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    with ThreadPoolExecutor() as pool:
        pasted = list(pool.map(lambda node: paste(cockpits, scripts[node], node), lab.nodes))
    said = "\n".join(each.stderr for each in pasted)
    assert [each.returncode for each in pasted] == [0, 0], said
    assert dumps(out) == ran, said
    for node in lab.nodes:
        assert not list(lab.node_path(node, "/tmp").glob("cockpit-plan.*"))
