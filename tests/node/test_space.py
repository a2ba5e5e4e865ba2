"""Room to write: the file system's, and what the limit of a volume leaves of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cockpit.base import record
from cockpit.node import space

MIB = 1 << 20


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a limit of 10 MiB, of which 4 are used."""
    made = tmp_path / "volume"
    (made / "sub").mkdir(parents=True)
    (made / "sub/data").write_bytes(bytes(4 * MIB))
    monkeypatch.setenv(record.ENV_VOLUMES, json.dumps({str(made): 10 * MIB}))
    monkeypatch.setattr(space, "_SERVES_S", 0.0)
    monkeypatch.setattr(space, "_SHARE", 1e9)
    space._added.clear()
    return made


def test_a_volume_has_what_its_limit_leaves(volume: Path) -> None:
    left, whole = space.measured(str(volume / "sub"))
    assert (left // MIB, whole) == (5, 10 * MIB)  # a folder takes some too
    (volume / "more").write_bytes(bytes(20 * MIB))
    assert space.free(str(volume)) == 0
    (volume / "more").unlink()
    assert space.free(str(volume)) // MIB == 5


def test_other_folders_have_what_their_file_system_has(volume: Path) -> None:
    disk = os.statvfs(volume)
    for other in (volume.parent, volume.parent / "volume2"):
        other.mkdir(exist_ok=True)
        assert space.measured(str(other))[1] == disk.f_blocks * disk.f_frsize


def test_a_link_into_a_volume_is_in_it_and_one_out_of_it_is_not(volume: Path) -> None:
    (volume.parent / "in").symlink_to(volume)
    assert space.measured(str(volume.parent / "in"))[1] == 10 * MIB
    (volume / "out").symlink_to("/")
    assert space.free(str(volume)) // MIB == 5, "what it leads to is not added up"
    assert space.measured(str(volume / "out"))[1] > 10 * MIB


def test_a_sum_serves_for_a_while(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who adds up thousands of files again and again takes the processor from a rank."""
    monkeypatch.setattr(space, "_SHARE", 1e-9)
    before = space.free(str(volume))
    (volume / "more").write_bytes(bytes(MIB))
    assert space.free(str(volume)) == before


def test_no_more_than_so_many_files_are_added_up(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "_FILES", 3)
    for number in range(9):
        (volume / f"f{number}").write_bytes(bytes(MIB))
    assert space.free(str(volume)) >= 6 * MIB


@pytest.mark.parametrize(
    "said",
    [
        "",
        "no JSON",
        "[]",
        '{"/": "1"}',
        '{"relative": 1}',
        '{"/": -1}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_a_variable_that_makes_no_sense_limits_nothing(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(record.ENV_VOLUMES, said)
    disk = os.statvfs(tmp_path)
    assert space.measured(str(tmp_path))[1] == disk.f_blocks * disk.f_frsize


def test_what_is_not_there_cannot_be_measured(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        space.free(str(tmp_path / "nope"))
