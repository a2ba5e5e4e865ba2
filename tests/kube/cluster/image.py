"""The one image of the cluster, made by hand: there is no registry to pull from."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.kube.cluster.config import IMAGE

_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
    "etc/group": "root:x:0:\nuser:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_FOLDERS = {"etc": 0o755, "home/user": 0o755, "root": 0o700, "tmp": 0o1777, "usr": 0o755}


def _add(tar: tarfile.TarFile, name: str, data: bytes = b"", mode: int = 0o644, **more: Any) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    for key, value in more.items():
        setattr(entry, key, value)
    tar.addfile(entry, io.BytesIO(data))


def _layer(pause: Path) -> bytes:
    """Empty folders to mount into, the users, and the program of a sandbox."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, mode in _FOLDERS.items():
            _add(tar, name, mode=mode, type=tarfile.DIRTYPE)
        for name, target in _LINKS.items():
            _add(tar, name, mode=0o777, type=tarfile.SYMTYPE, linkname=target)
        for name, text in _FILES.items():
            _add(tar, name, text.encode())
        _add(tar, "pause", pause.read_bytes(), 0o755)
    return made.getvalue()


def write(path: Path, pause: Path) -> None:
    """Write the image as an OCI layout that ``ctr images import`` reads."""
    blobs: dict[str, bytes] = {}

    def blob(kind: str, data: bytes, **more: object) -> dict[str, object]:
        name = hashlib.sha256(data).hexdigest()
        blobs[name] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{name}", "size": len(data), **more}

    layer = blob("layer.v1.tar", _layer(pause))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"], "Cmd": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "config": blob("config.v1+json", json.dumps(config).encode()),
        "layers": [layer],
    }
    named = {"io.containerd.image.name": IMAGE, "org.opencontainers.image.ref.name": IMAGE}
    entry = blob("manifest.v1+json", json.dumps(manifest).encode(), annotations=named)
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode())
        for name, data in blobs.items():
            _add(tar, f"blobs/sha256/{name}", data)
