"""A ``kubectl`` for tests: pods are process namespaces of this machine, answers are files.

A pod's processes see only each other and end with its first one, as those of a container do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.needs import lacking, require
from tests.waiting import until

SCRIPT = """#!{python} -IS
import json, os, sys
home = {home!r}
def path(*names): return os.path.join(home, *names)
def fail(text):
    sys.stderr.write(text + "\\n")
    sys.exit(1)
words = sys.argv[1:]
with open(path("calls"), "a") as file:
    file.write(json.dumps(words) + "\\n")
while words[:1] in (["--context"], ["-n"]):
    words = words[2:]
if os.path.exists(path("down")):
    fail(open(path("down")).read())
def load(name):
    file = path(name)
    return json.load(open(file)) if os.path.exists(file) else None
if words[0] == "get":
    raw = path("raw")
    if os.path.exists(raw):
        sys.stdout.write(open(raw).read())
        sys.exit(0)
    names = os.listdir(path("pods"))
    if words[1] == "pod":
        found = load("pods/" + words[2])
        print(json.dumps(found)) if found else fail(
            'Error from server (NotFound): pods "%s" not found' % words[2])
    elif words[1] == "pods":
        wanted = dict(pair.split("=") for pair in words[2].partition("=")[2].split(","))
        pods = [load("pods/" + name) for name in sorted(names)]
        pods = [pod for pod in pods if wanted.items() <= pod["metadata"].get("labels", {{}}).items()]
        print(json.dumps({{"kind": "List", "items": pods}}))
    else:
        found = load("objects/%s-%s" % (words[1], words[2]))
        print(json.dumps(found)) if found else fail(
            'Error from server (NotFound): %ss.apps "%s" not found' % (words[1], words[2]))
elif words[0] == "logs":
    if os.path.exists(path("nologs")):
        fail(open(path("nologs")).read())
    import time
    number, rest = 0, b""
    with open(path("logs", words[1]), "rb") as file:
        while True:
            data = rest + file.read()
            *whole, rest = data.split(b"\\n")
            for line in whole:
                sys.stdout.buffer.write(b"2026-11-29T09:00:00.%09dZ %s\\n" % (number, line))
                number += 1
            sys.stdout.flush()
            if "--follow" not in words or not os.path.exists(path("pids", words[1])):
                break
            time.sleep(0.05)
else:
    at = words.index("--")
    name = next(word for word in words[1:] if word[:1] != "-")
    refused = path("refused", name)
    if os.path.exists(refused):
        fail(open(refused).read())
    pid = os.path.exists(path("pids", name)) and open(path("pids", name)).read()
    if not pid:
        fail('error: unable to upgrade connection: container not found ("main")')
    os.environ["TMPDIR"] = path("tmp", name)
    os.environ["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
    os.execvp("nsenter", ["nsenter", "-t", pid, "-U", "-p", "-m", "--preserve-credentials", *words[at + 1 :]])
"""


def shown(name: str, **more: Any) -> dict[str, Any]:
    """A pod as a 1.32 server shows it, running.

    :param more: ``labels``, ``annotations``, ``owner`` (kind and name), ``containers`` (names), ``gpus``,
        ``uid``, ``phase``, ``created``, ``volumes`` (limits by path), and other parts of its status
    """
    limited = list(more.pop("volumes", {}).items())
    mounts = [{"name": f"v{n}", "mountPath": path} for n, (path, _) in enumerate(limited)]
    empty = [
        {"name": f"v{n}", "emptyDir": {"sizeLimit": size} if size else {}}
        for n, (_, size) in enumerate(limited)
    ]
    containers = more.pop("containers", ["main"])
    limits = {"nvidia.com/gpu": str(more.pop("gpus"))} if "gpus" in more else {"cpu": "500m"}
    owner = more.pop("owner", None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": more.pop("uid", f"uid-of-{name}"),
            "labels": more.pop("labels", {}),
            "annotations": more.pop("annotations", {}),
            "creationTimestamp": more.pop("created", "2026-11-29T09:00:00Z"),
            **({"ownerReferences": [{"kind": owner[0], "name": owner[1]}]} if owner else {}),
            **({"deletionTimestamp": more.pop("deleted")} if "deleted" in more else {}),
        },
        "spec": {
            "nodeName": "node1",
            "containers": [
                {"name": each, "resources": {"limits": limits}, "volumeMounts": mounts} for each in containers
            ],
            "volumes": [*empty, {"name": "other", "hostPath": {"path": "/data"}}],
        },
        "status": {
            "phase": more.pop("phase", "Running"),
            "containerStatuses": [
                {"name": each, "restartCount": 0, "state": {"running": {"startedAt": "2026-11-29T09:00:01Z"}}}
                for each in containers
            ],
            **more,
        },
    }


class Stub:
    """The cluster behind that kubectl.

    :param home: a new folder of its own
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._living: dict[str, subprocess.Popen[bytes]] = {}
        self._copiers: list[subprocess.Popen[bytes]] = []
        """They write what containers do to files, as a runtime does."""
        for name in ("bin", "pods", "objects", "pids", "logs", "refused", "tmp"):
            (home / name).mkdir(parents=True)
        script = home / "bin" / "kubectl"
        script.write_text(SCRIPT.format(python=sys.executable, home=str(home)))
        script.chmod(0o755)

    @property
    def path(self) -> str:
        """For ``PATH``: this kubectl before any other."""
        return f"{self.home / 'bin'}{os.pathsep}{os.environ['PATH']}"

    @property
    def calls(self) -> list[list[str]]:
        """What it was asked so far."""
        file = self.home / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def show(self, pod: dict[str, Any]) -> None:
        """Let the API server know a pod, or know it otherwise."""
        file = self.home / "pods" / pod["metadata"]["name"]
        beside = file.parent.parent / "next"
        beside.write_text(json.dumps(pod))
        beside.replace(file)

    def own(self, kind: str, name: str, labels: dict[str, str]) -> None:
        """Let it know what makes pods."""
        found = {"kind": kind, "spec": {"selector": {"matchLabels": labels}}}
        (self.home / "objects" / f"{kind}-{name}").write_text(json.dumps(found))

    def say(self, name: str, text: str) -> None:
        """Let it answer with these words: ``down`` (whatever it is asked), ``raw`` (stdout of a get),
        ``nologs``, or ``refused/POD`` (an exec); empty: no longer."""
        file = self.home / name
        if text:
            file.write_text(text)
        else:
            file.unlink()

    def start(self, pod: dict[str, Any], command: str = "exec sleep infinity") -> None:
        """Run a pod: its first process is a shell with this command."""
        name = pod["metadata"]["name"]
        require("nsenter")
        (self.home / "tmp" / name).mkdir(exist_ok=True)
        words = [require("unshare"), "-Urpf", "--mount-proc", "--kill-child", "/bin/sh", "-c", command]
        with (self.home / "logs" / name).open("wb") as out:
            copier = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out, start_new_session=True)
        assert copier.stdin
        with copier.stdin as pipe:
            started = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._copiers.append(copier)
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        inside = until(lambda: started.poll() is not None or children.read_text().split(), "a namespace")
        if not isinstance(inside, list):
            lacking("this user may not make namespaces")
        until(lambda: os.path.exists(f"/proc/{inside[0]}/ns/pid"))
        own = os.readlink("/proc/self/ns/mnt")
        until(lambda: os.readlink(f"/proc/{inside[0]}/ns/mnt") != own and _is_shell(inside[0]), "its /proc")
        self._living[name] = started
        (self.home / "pids" / name).write_text(inside[0])
        self.show(pod)

    def end(self, name: str, **status: Any) -> None:
        """End all processes of a pod; the API server shows it with this status, or not at all."""
        started = self._living.pop(name, None)
        pids = self.home / "pids" / name
        if started is not None:
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(int(pids.read_text()), signal.SIGKILL)
            started.wait()
            pids.unlink()
        file = self.home / "pods" / name
        if not status:
            file.unlink()
        else:
            pod = json.loads(file.read_text())
            pod["status"].update(status)
            self.show(pod)

    def close(self) -> None:
        """End all pods."""
        for name in list(self._living):
            self.end(name)
        for copier in self._copiers:
            copier.kill()
            copier.wait()
        shutil.rmtree(self.home / "tmp", ignore_errors=True)


def _is_shell(pid: str) -> bool:
    """Whether unshare has become what it was to run."""
    return not os.readlink(f"/proc/{pid}/exe").endswith("/unshare")
