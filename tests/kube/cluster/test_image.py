"""The image made by hand is one that a container runtime takes: each blob is what its name says."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.kube.cluster import image
from tests.kube.cluster.config import IMAGE


def test_each_part_is_named_by_its_sum_and_the_layer_has_the_sandboxs_program(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"a program")
    image.write(tmp_path / "image.tar", program)
    with tarfile.open(tmp_path / "image.tar") as tar:
        found = {name: reader.read() for name in tar.getnames() if (reader := tar.extractfile(name))}
    blobs = {name.rpartition("/")[2]: data for name, data in found.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(data).hexdigest() == name for name, data in blobs.items())

    def blob(entry: dict[str, Any]) -> bytes:
        data = blobs[entry["digest"].removeprefix("sha256:")]
        assert len(data) == entry["size"]
        return data

    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == IMAGE
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as tar:
        pause, shell = tar.getmember("pause"), tar.getmember("bin")
        assert tar.extractfile("pause").read() == b"a program"  # type: ignore[union-attr]
    assert pause.mode == 0o755
    assert (shell.issym(), shell.linkname) == (True, "usr/bin")
