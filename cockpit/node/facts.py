"""What a launch needs to know about a node before it starts there."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import glob
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
from typing import Any, Dict, List, Optional, Tuple

from cockpit.base import record, verbs
from cockpit.base.gate import SIZE
from cockpit.base.shared_fields import PACKAGES_TOLD
from cockpit.node import private_folder, procfs, space, usermask
from cockpit.node.calls import Call, NodeError
from cockpit.node.run.place import trouble

# Runs in the user's python, of any version, under the user's setup; imports neither torch nor deepspeed, and
# nothing that costs more than the look itself: importlib.metadata takes 40 ms, json and shutil 10 ms each.
_PROBE = """
import os, sys
def gpus(visible):
    import ctypes
    name = "CUDA_VISIBLE_DEVICES"
    if visible is not None:
        os.environ[name] = visible
    count, why = ctypes.c_int(0), ""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
        if code:
            said = ctypes.c_char_p()
            cuda.cuGetErrorString(code, ctypes.byref(said))
            why = "CUDA error %d: %s" % (code, (said.value or b"").decode("ascii", "replace"))
    except Exception as error:
        why = str(error)
    return {"count": 0 if why else count.value, "visible": os.environ.get(name), "why": why}
def plain(name):
    return name.lower().replace("_", "-").replace(".", "-")
installed = {}
for place in sys.path:
    try:
        names = os.listdir(place or ".")
    except OSError:
        continue
    for name in names:
        stem, dot, kind = name.rpartition(".")
        if kind in ("dist-info", "egg-info"):
            installed.setdefault(plain(stem.split("-")[0]), os.path.join(place, name))
def version(name):
    where = installed.get(plain(name), "")
    for path in (where + "/METADATA", where + "/PKG-INFO", where):
        try:
            with open(path, "rb") as lines:
                for line in lines:
                    if line.startswith(b"Version:"):
                        return line[8:].decode("utf-8", "replace").strip()
        except OSError:
            pass
def folder(name):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if spec:
            # A folder of that name without __init__.py, as one of configurations, is no package.
            return list(spec.submodule_search_locations or [None])[0] if spec.origin else None
def known(name):
    found = version(name)
    if not found:
        try:
            from importlib.metadata import version as slowly
            found = slowly(name)
        except Exception:
            found = "unknown"
    return found
def which(name):
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.abspath(os.path.join(place, name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
def tool(name):
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else which(name)
script, visible, packages, names = @ASKED@
facts = {"python": sys.executable, "python_version": sys.version.split()[0],
    "cores": sorted(os.sched_getaffinity(0)),
    "numactl": which("numactl"), "tools": {name: which(name) for name in names},
    "script": not script or os.path.isfile(script), "deepspeed": None, "no_ssh": False, "torch": None,
    "deepspeed_tool": tool("deepspeed"), "torchrun_tool": tool("torchrun"),
    "accelerate": None, "accelerate_tool": tool("accelerate")}
if visible:
    facts["gpus"] = gpus(*visible)
where = folder("deepspeed")
if where:
    facts["deepspeed"] = known("deepspeed")
    try:
        with open(os.path.join(where, "launcher", "runner.py"), "rb") as source:
            facts["no_ssh"] = b"--no_ssh" in source.read()
    except OSError:
        pass
for name in ("torch", "accelerate"):
    if folder(name):
        facts[name] = known(name)
facts["installed"] = sorted(os.path.basename(where) for where in installed.values())
versions = {name: version(name) for name in packages}
facts["packages"] = {name: found for name, found in versions.items() if found}
# Not print: PYTHONIOENCODING may be anything. Not JSON: that would be another import.
os.write(1, ("\\n@MARK@" + ascii(facts) + "\\n").encode())
"""

_BREAKS_PYTHON = ("PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR")
"""Variables that may keep a Python from even starting."""

_SIOCGIFADDR = 0x8915

_HELP_S = 20.0
"""Seconds for a program to print its help."""
_HELP_BYTES = 1 << 20
_MOST_SWITCHES = 1000
_SWITCH = re.compile(r"(?<![\w-])(?:--[a-z][a-z0-9-]{0,70}|-[A-Za-z](?![\w-]))")


def facts(call: Call) -> Dict[str, Any]:
    """Look at the node as the launch will find it: working directory, setup, python, tools.

    Request: ``cwd``, ``setup``, ``python`` (a path, or empty: ``python`` on PATH after the setup), ``tools``
    (places of programs by name, the best first: a name is looked for on PATH, else a pattern of paths),
    ``help`` (one of those, and words that make it print its options),
    ``script`` (a file that must be there, or empty), ``base`` (folder for run folders), ``gpus`` (whether to
    count them, which wakes the driver), ``visible`` (the CUDA_VISIBLE_DEVICES that ranks will get; null: as
    it is there), ``packages`` (distributions whose versions are wanted). The answer is the probe's facts,
    how many distributions there are and a hash of their names and versions, the version of the NVIDIA
    ``driver``, ``tools`` as found, ``free_bytes`` where run folders go and ``folder``: why none can be made
    there.

    :raises NodeError: no such directory, a failing setup, no such python
    """
    asked = call.asked(verbs.Facts)
    cwd, setup, python = asked.cwd, asked.setup, asked.python
    if not os.path.isdir(cwd):
        raise NodeError(
            "cwd", "no directory %s" % cwd, "create it, or run from one that exists on every node"
        )
    if python and not (shutil.which(python) or setup):
        raise NodeError("python", "no python %s" % python, "give one that exists there: --python PATH")
    on_path = [place for places in asked.tools.values() for place in places if "/" not in place]
    wanted = (asked.script, [asked.visible] if asked.gpus else [], asked.packages, on_path)
    probe = _PROBE.replace("@MARK@", record.FACTS).replace("@ASKED@", ascii(wanted))
    found = _probe(cwd, setup, python, probe)
    _hash(found)
    found["driver"] = procfs.nvidia_driver()
    base = asked.base or private_folder.base()
    found["free_bytes"] = _free_bytes(base)
    found["folder"] = trouble(base, [asked.group] if asked.group else [])
    tools = {name: _tool(places, found["tools"]) for name, places in asked.tools.items()}
    found["tools"] = {name: path for name, path in tools.items() if path}
    if asked.help and asked.help[0] in found["tools"]:
        found["switches"] = _switches([found["tools"][asked.help[0]], *asked.help[1:]])
    return found


def _switches(command: List[str]) -> List[str]:
    """The options that a program's help names, in their order; none: it says nothing in time."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        return []
    with process:
        try:
            said, _ = process.communicate(timeout=_HELP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # a script's own children, too
            return []
    found = _SWITCH.findall(said[:_HELP_BYTES].decode("utf-8", "replace"))
    return list(dict.fromkeys(found))[:_MOST_SWITCHES]


def _hash(found: Dict[str, Any]) -> None:
    """How much is installed, and a hash of its names and versions, by which nodes are compared."""
    names = found.pop("installed", [])
    if names:
        import hashlib  # of no use to an agent that is asked for something else

        found["installed"] = len(names)
        digest = found["installed_hash"] = hashlib.sha256(ascii(names).encode()).hexdigest()[:16]
        if len(_installed) >= _LISTS:
            _installed.clear()
        _installed[digest] = names


_LISTS = 8
_installed: Dict[str, List[str]] = {}
"""What was found installed, by its hash: of a few Pythons."""


def packages(call: Call) -> Dict[str, Any]:
    """What was found installed, by its hash; nothing: this agent has not looked at that."""
    names = _installed.get(call.asked(verbs.Packages).digest, [])
    return {"names": names if len(names) <= PACKAGES_TOLD else []}


def prepared(cwd: str, setup: str, python: str, source: str, *words: str) -> List[str]:
    """A command that runs Python source as a launch would find it: its directory, setup, python.

    It ends with 91, 92 or 93 if the directory, the python or the setup is what fails.
    """
    # Without --norc, `bash -c` under sshd reads .bashrc, which the launch script's bash does not.
    bash = shutil.which("bash")
    shell = [bash, "--norc"] if bash else ["/bin/sh"]
    # As in launch.sh: if its last command fails, it has failed.
    mask = usermask.theirs()
    script = "" if mask is None else "umask %03o\n" % mask
    script += 'cd -- "$1" || exit 91\n{\n%s\n} || exit 93\npython=$2\n' % (setup or ":")
    script += '[ -n "$python" ] || python=$(command -v python || command -v python3) || exit 92\n'
    script += (
        'command -v "$python" >/dev/null || exit 92\nprobe=$3\nshift 3\nexec "$python" -c "$probe" "$@"\n'
    )
    return [*shell, "-c", script, "cockpit", cwd, python, source, *words]


def _probe(cwd: str, setup: str, python: str, probe: str) -> Dict[str, Any]:
    done = subprocess.run(
        prepared(cwd, setup, python, probe),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    lines = [
        line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith(record.FACTS)
    ]
    if lines:
        answer: Dict[str, Any] = ast.literal_eval(lines[-1][len(record.FACTS) :])
        return answer
    if done.returncode == 92:
        wanted = python or "python"
        raise NodeError("python", "no %s on PATH" % wanted, "give one that exists there: --python PATH")
    what = "--setup fails: " if done.returncode == 93 else "--setup or python fails: "
    said = _cause(done.stderr.decode(errors="replace")) or "exit %d" % done.returncode
    odd = ["%s=%s" % (name, os.environ[name]) for name in _BREAKS_PYTHON if name in os.environ]
    hint = "try it by hand on that node; its environment has %s" % " ".join(odd) if odd else ""
    raise NodeError("setup", what + said, hint or "try it by hand on that node")


def _cause(said: str) -> str:
    """The line of the output that names the cause: a Python that cannot start prints much after it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or lines[-1:] or [""])[0]


def _free_bytes(folder: str) -> int:
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return SIZE.nearest(space.free(folder))


def _tool(places: Tuple[str, ...], on_path: Dict[str, Optional[str]]) -> Optional[str]:
    for place in places:
        for path in (on_path.get(place) or place, *sorted(glob.glob(place), reverse=True)):
            if "/" in path and os.access(path, os.X_OK):
                return os.path.abspath(path)
    return None


def port(call: Call) -> Dict[str, Any]:
    """A free TCP port of this node: the one asked for in ``port``, or any.

    :raises NodeError: that port is in use, by whom as far as we may see
    """
    wanted = call.asked(verbs.Port).port
    try:
        return {"port": free_port(wanted)}
    except OSError as error:
        hint = "choose another --master-port, or leave it out to have a free one found"
        raise NodeError("port", "port %d: %s%s" % (wanted, error.strerror, _owner(wanted)), hint) from None


def free_port(wanted: int) -> int:
    """A TCP port that can be listened on: this one, or any for 0.

    :raises OSError: it cannot
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As torch's TCPStore does it: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", wanted))
        probe.listen(1)
        return int(probe.getsockname()[1])


def _owner(wanted: int) -> str:
    process = holder(wanted)
    if process is None:
        return " by another user's process"
    return ", held by %s (pid %d)" % (process.name, process.pid)


def holder(wanted: int) -> Optional[procfs.Stat]:
    """The process that has a TCP port; None: it is somebody else's, or gone."""
    held = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            sockets = [words for words in map(str.split, lines) if words[1].endswith(":%04X" % wanted)]
            held |= {"socket:[%s]" % words[9] for words in sockets}
    for path in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path) in held:
                return procfs.stat(int(path.split("/")[2]))
    return None


def resolve(call: Call) -> Dict[str, Any]:
    """The addresses that ``name`` has on this node, and this node's own: ``addresses``, ``own``."""
    # sshd has UNKNOWN there if the connection reached it through a pipe.
    own = [word for word in os.environ.get("SSH_CONNECTION", "").split(" ")[2:3] if _is_ip(word)]
    own += filter(None, (ipv4_of(name) for _, name in socket.if_nameindex()))
    addresses = resolved(call.asked(verbs.Resolve).name)
    return {"addresses": addresses, "own": list(dict.fromkeys(own))}


def resolved(name: str) -> List[str]:
    """The addresses of a name; none if it is not known."""
    try:
        # As bytes: for text, Python loads all that it knows of names in other scripts.
        asked = name.encode("ascii") if name.isascii() else name
        found = socket.getaddrinfo(asked, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return sorted({str(info[4][0]) for info in found})[:256]


def ipv4_of(name: str) -> str:
    """The first IPv4 address of an interface, or nothing."""
    answer = asked_of(name, _SIOCGIFADDR)
    return socket.inet_ntoa(answer[4:8]) if answer else ""


def asked_of(name: str, question: int) -> bytes:
    """What the kernel says of an interface, after its name; nothing if it has no such thing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return fcntl.ioctl(asked, question, struct.pack("40s", os.fsencode(name)))[16:]
        except OSError:
            return b""


def _is_ip(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, text.partition("%")[0])
            return True
    return False
