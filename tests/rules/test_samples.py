"""Samples of rules are whole, and each id of the failure catalogue has enough of them on both sides."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.rules.split import HERE, blocks, open_ones, split

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDERS = ("samples", "held_out")
FILES = sorted(file for folder in FOLDERS for file in (HERE / folder).glob("*.toml"))
IDS = {"P": 16, "L": 25, "R": 17, "H": 30, "Z": 9, "S": 9, "N": 13, "Q": 7, "G": 10}
"""How many ids each section of the failure catalogue has."""
ENDS = {"SIGKILL", "SIGBUS", "SIGSEGV", "SIGABRT", "SIGILL", "SIGFPE", "SIGHUP", "SIGTERM", "exit 1", "hang"}


def samples(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(file.read_text())["sample"]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_each_sample_is_whole(file: Path) -> None:
    for sample in samples(file):
        assert set(sample) - {"end", "oom_kills"} == {"id", "fires", "version", "source", "text"}, sample
        section, number = sample["id"][0], int(sample["id"][1:])
        assert 1 <= number <= IDS[section], sample["id"]
        assert isinstance(sample["fires"], bool)
        assert sample["version"].strip()
        assert sample["source"].strip()
        assert 1 <= len(sample["text"].strip("\n").split("\n")) <= 15, sample
        assert sample.get("end", "exit 1") in ENDS, sample
        assert sample.get("oom_kills", 0) >= 0


def test_each_id_has_two_that_fire_and_two_near_misses_of_which_each_side_has_one() -> None:
    count = {folder: Counter[tuple[str, bool]]() for folder in FOLDERS}
    for file in FILES:
        count[file.parent.name].update((sample["id"], sample["fires"]) for sample in samples(file))
    both = sum(count.values(), Counter[tuple[str, bool]]())
    ids = {one for one, _ in both}
    assert ids
    few = {(one, fires) for one in ids for fires in (True, False) if both[one, fires] < 2}
    assert not few
    one_sided = {group for group in both for folder in FOLDERS if not count[folder][group]}
    assert not one_sided


def test_no_text_is_there_twice_for_an_id() -> None:
    texts = Counter((sample["id"], sample["text"].strip()) for file in FILES for sample in samples(file))
    assert not [key for key, times in texts.items() if times > 1]


def test_what_has_its_place_keeps_it(tmp_path: Path) -> None:
    for folder in FOLDERS:
        shutil.copytree(HERE / folder, tmp_path / folder)
    shutil.copy(HERE / "open.txt", tmp_path)
    before = {file.relative_to(HERE): file.read_text() for file in FILES}
    assert split(tmp_path) == 0
    assert {file: (tmp_path / file).read_text() for file in before} == before


def test_new_samples_are_set_aside_by_halves(tmp_path: Path) -> None:
    written = "".join(
        f'[[sample]]\nid = "H01"\nfires = true\nversion = "v"\nsource = "s"\ntext = "line {number}"\n\n'
        for number in range(4)
    )
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    source, target = (tmp_path / folder / "area.toml" for folder in FOLDERS)
    source.write_text("# Head.\n\n" + written)
    assert split(tmp_path) == 2
    first = {block.digest for block in blocks(target)[1]}
    stayed = {block.digest for block in blocks(source)[1]}
    assert stayed == open_ones(tmp_path / "open.txt")
    assert source.read_text().startswith("# Head.\n\n[[sample]]\n")
    source.write_text(source.read_text() + "\n" + written.replace("line", "row"))
    assert split(tmp_path) == 2
    assert first < {block.digest for block in blocks(target)[1]}
    assert stayed < {block.digest for block in blocks(source)[1]}
