"""Bundles: what is in one opens elsewhere, without secrets; hostile ones write nothing but files of a run."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.base.gate import Malformed
from cockpit.base.times import line
from cockpit.cli.main import main
from cockpit.config import Config, Quotas
from cockpit.core.report.page import as_page
from cockpit.core.report.sieve import Sieve
from cockpit.engine.launch.code import DIFF
from cockpit.engine.launch.environments import FILE as ENVIRON
from cockpit.engine.logs.spooled import time_index
from cockpit.engine.records import bundles, ustar
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.report.bundle import pack
from cockpit.engine.report.gather import report_of
from cockpit.engine.report.log_end import LogEnd
from cockpit.engine.run.foreign import session_of
from cockpit.errors import CockpitError, Exit
from cockpit.tui.app import CockpitApp
from cockpit.tui.run.purpose import Joining
from cockpit.tui.run.screen import RunScreen
from tests.report.made import RUN, TOKEN, TREE, made
from tests.tui.scenes import text_of, until


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """That of a run that is not known here any more."""
    folder = made()
    target = tmp_path / "otter.tar.gz"
    pack(folder, str(target))
    folder.discard()
    return target


def read(text: bytes, at: int, length: int) -> bytes:
    return text[at : at + length]


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        return {name: file.read() for name, file in files.items() if file is not None}


def packed(path: Path, *some: tuple[str, bytes], head: bool = True, kind: bytes = tarfile.REGTYPE) -> Path:
    """An archive of these files; the last one of a kind."""
    told = {"format": 1, "version": "0.1.0", "run": RUN, "made": 1.0}
    first = [(bundles.HEAD, json.dumps(told).encode())] if head else []
    with tarfile.open(path, "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in (*first, *some):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name == some[-1][0] and kind != tarfile.REGTYPE:
                info.type, info.linkname, info.size = kind, "/etc/passwd", 0
            archive.addfile(info, io.BytesIO(data))
    return path


def test_the_report_is_the_same_elsewhere(tmp_path: Path) -> None:
    folder = made()
    (folder.path / DIFF).write_text(TREE)
    (folder.path / ENVIRON).write_text(json.dumps({"nodes": {"gpu01": {"NCCL_ALGO": "Ring"}, "gpu02": {}}}))
    here = asyncio.run(report_of(folder))
    target = tmp_path / "otter.tar.gz"
    pack(folder, str(target))
    folder.discard()
    there = asyncio.run(report_of(RunFolder.find(str(target))))
    assert there.state == here.state
    assert there.why == here.why
    assert there.course == here.course
    assert there.curves == here.curves
    assert there.what.versions == here.what.versions
    assert there.what.environ == here.what.environ != ()
    assert there.what.diff == here.what.diff == tuple(TREE.splitlines())
    assert [moment.text for moment in there.events] == [moment.text for moment in here.events]
    assert [tail.lines for tail in there.tails] == [tail.lines for tail in here.tails]
    assert list_runs() == []


def test_secrets_are_not_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in arguments, environment, the first line of a log, locals of a frame; by form and by value."""
    monkeypatch.setenv("MY_PASSWORD", "correct-horse-battery")
    folder = made(hostile="correct-horse-battery")
    stacks = folder.path / "stacks" / "20261121-040500"
    stacks.mkdir(parents=True)
    (stacks / "rank-0.json").write_text(json.dumps({"locals": [{"api_key": "'9f8e7d6c5b4a'", "n": "3"}]}))
    (stacks / "snapshot.json").write_text("{}")
    files = Sieve(["correct-horse-battery"])
    from cockpit.engine.report.bundle import _copies

    _copies(stacks, tmp_path / "copy", files)
    assert "9f8e7d6c" not in (tmp_path / "copy" / "rank-0.json").read_text()
    key = f"-----BEGIN PRIVATE KEY-----\n+{'MIIEvQIBADANBgkqh' * 4}\n+-----END PRIVATE KEY-----"
    (folder.path / DIFF).write_text(
        f"{TREE}+    token = '{TOKEN}'\n+{key}\n+    sign_in('correct-horse-battery')\n"
    )
    environ = {
        "HF_AUTH": TOKEN[3:],
        "NCCL_NOTE": "correct-horse-battery",
        "WANDB_URL": f"https://a:{TOKEN}@w/",
    }
    (folder.path / ENVIRON).write_text(json.dumps({"nodes": {"gpu01": {**environ, "NCCL_ALGO": "Ring"}}}))
    taken = pack(folder, str(tmp_path / "b.tar.gz"))
    found = members(tmp_path / "b.tar.gz")
    whole = b"\n".join(found.values())
    assert TOKEN[3:].encode() not in whole
    assert json.loads(found[ENVIRON])["nodes"]["gpu01"].keys() == {*environ, "NCCL_ALGO"}
    assert b"correct-horse" not in whole
    assert b"MIIEv" not in whole
    assert found[DIFF].startswith(TREE.encode())
    assert json.loads(found[bundles.HEAD])["taken"] == taken >= 3


@pytest.mark.parametrize("text", [None, "", "{", '{"nodes": {"gpu01": {"NCCL_ALGO": 5}}}', '{"nodes": []}'])
def test_a_bundle_without_variables_or_with_damaged_ones_opens(
    text: str | None, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: data for name, data in members(bundle).items() if name not in (bundles.HEAD, ENVIRON)}
    if text is not None:
        files[ENVIRON] = text.encode()
    packed(bundle, *files.items())
    assert asyncio.run(report_of(RunFolder.find(str(bundle)))).what.environ == ()
    assert main(["attach", str(bundle), "--headless"]) == Exit.RANK_FAILED
    assert "rank 3" in capsys.readouterr().err


def test_variables_of_a_bundle_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = made()
    (sent.path / ENVIRON).write_text(json.dumps({"nodes": {"gpu01": {"NCCL_ALGO": "Ring", "OMP_X": "x"}}}))
    pack(sent, str(tmp_path / "b.tar.gz"))
    sent.discard()
    here = made("another")
    assert main(["compare", str(tmp_path / "b.tar.gz"), here.name, "--json"]) == Exit.OK
    told = {one["name"] for one in json.loads(capsys.readouterr().out)["differences"]}
    assert "NCCL_ALGO" not in told  # of one run it is not known
    (here.path / ENVIRON).write_text(json.dumps({"nodes": {"gpu01": {"NCCL_ALGO": "Tree", "OMP_X": "x"}}}))
    assert main(["compare", str(tmp_path / "b.tar.gz"), here.name, "--json"]) == Exit.OK
    both = {one["name"]: one for one in json.loads(capsys.readouterr().out)["differences"]}
    assert (both["NCCL_ALGO"]["before"], both["NCCL_ALGO"]["after"]) == ("Ring", "Tree")
    assert both.keys() & {"OMP_X", "NCCL_DEBUG", "HF_TOKEN"} == set()


def test_how_nodes_are_reached_is_not_in_it(bundle: Path) -> None:
    manifest = json.loads(members(bundle)["manifest.json"])
    assert (manifest["transport_options"], manifest["pythons"]) == ({}, [])
    assert b"/.ssh" not in b"".join(members(bundle).values())
    folder = RunFolder.find(str(bundle))
    assert folder.manifest.closed == bundles.CLOSED


def test_of_long_logs_the_end_is_there_with_its_times(tmp_path: Path) -> None:
    folder = made()
    node = folder.manifest.nodes[0]
    spool = folder.spool_dir(node)
    lines = [b"step %d loss %.4f %s\n" % (step, 9 / step, b"." * 90) for step in range(1, 30_000)]
    size, rows = 0, b""
    for number, each in enumerate(lines):
        size += len(each)
        if number % 100 == 0:
            rows += line(1e9 + number, {"rank-0.log": size})
    (spool / "rank-0.log").write_bytes(b"".join(lines))
    (spool / "times.jsonl").write_bytes(rows)
    pack(folder, str(tmp_path / "b.tar.gz"), 1 << 20)
    there = RunFolder.find(str(tmp_path / "b.tar.gz"))
    data = (there.spool_dir(there.manifest.nodes[0]) / "rank-0.log").read_bytes()
    assert (1 << 20) - 200 <= len(data) <= 1 << 20
    assert b"".join(lines).endswith(data)
    assert data.startswith(b"step ")
    for at, sizes in time_index(there, there.manifest.nodes[0]):
        number = round(at - 1e9)
        before = data[: sizes["rank-0.log"]]
        assert not before or before.endswith(lines[number])


def test_offsets_are_right_after_a_secret() -> None:
    text = b"a line\n" * 20_000 + f"token={TOKEN}\n".encode() + b"after it\n" * 20_000
    end = LogEnd(partial(read, text), len(text))
    sieve = Sieve()
    clean = b"".join(end.parts(len(text), sieve))
    assert sieve.taken == 1
    assert TOKEN.encode() not in clean
    assert end.now(len(text)) == len(clean)
    assert clean[: end.now(7 * 100)] == b"a line\n" * 100
    last = len(text) - 9 * 100
    assert clean[end.now(last) :] == b"after it\n" * 100


def test_a_key_of_many_lines_is_cut_whole() -> None:
    key = b"-----BEGIN PRIVATE KEY-----\n" + b"MIIEvQIBADANBgkqh\n" * 400 + b"-----END PRIVATE KEY-----\n"
    text = b"x" * 79 + b"\n"
    text = text * 800 + key + text * 10
    for shift in range(0, 80 * 30, 480):
        end = LogEnd(partial(read, text[shift:]), len(text) - shift)
        assert b"MIIEv" not in b"".join(end.parts(len(text), Sieve()))


def test_a_run_that_goes_on_is_packed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(over=False)
    pack(folder, str(tmp_path / "b.tar.gz"))
    there = RunFolder.find(str(tmp_path / "b.tar.gz"))
    assert there.model().done
    assert not there.model().failures()
    assert main(["ps", str(tmp_path / "b.tar.gz")]) == Exit.OK
    assert "it was still running when it was packed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["report"], ["explain"], ["logs"], ["ps"], ["metrics"], ["attach", "--headless"]]
)
def test_verbs_take_a_bundle(words: list[str], bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([words[0], str(bundle), *words[1:]])
    assert code == (Exit.RANK_FAILED if words[0] in ("explain", "attach") else Exit.OK)
    told = capsys.readouterr()
    shown = "rank 3" if words[0] != "logs" else "logging in with (secret)"
    assert shown in told.out + told.err


def test_its_nodes_are_never_contacted(bundle: Path) -> None:
    async def lent() -> None:
        session = session_of(RunFolder.find(str(bundle)), writer=False)
        try:
            with pytest.raises(CockpitError, match="opened from a bundle"):
                await session.pool.lend("gpu01")
        finally:
            await session.close()

    asyncio.run(lent())
    assert main(["stop", str(bundle)]) != Exit.OK


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "spool/../../evil", "spool/n/.ssh", "stacks/a/b/c", "notes.txt", "spool/n/a\nb"],
)
def test_no_file_is_written_elsewhere(name: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "b.tar.gz", (name, b"x"), ("manifest.json", b"{}"))
    with pytest.raises(CockpitError, match="may not be in a bundle"):
        RunFolder.find(str(path))
    assert list(paths.bundles().iterdir()) == []


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.DIRTYPE,
        tarfile.XHDTYPE,
        b"L",
    ],
)
def test_links_and_other_kinds_are_refused(kind: bytes, tmp_path: Path) -> None:
    path = packed(tmp_path / "b.tar.gz", ("spool/n/rank-0.log", b""), kind=kind)
    with pytest.raises(CockpitError, match="may not be in a bundle"):
        RunFolder.find(str(path))


def _twice(path: Path) -> None:
    packed(path, ("manifest.json", b"{}"), ("manifest.json", b"{}"))


def _without_manifest(path: Path) -> None:
    packed(path, ("journal.jsonl", b""))


def _newer(path: Path) -> None:
    told = {"format": 99, "version": "9.0", "run": RUN, "made": 1.0}
    packed(path, (bundles.HEAD, json.dumps(told).encode()), ("manifest.json", b"{}"), head=False)


def _named_badly(path: Path) -> None:
    told = {"format": 1, "version": "0.1.0", "run": "../../x", "made": 1.0}
    packed(path, (bundles.HEAD, json.dumps(told).encode()), ("manifest.json", b"{}"), head=False)


def _cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def _flipped(path: Path) -> None:
    data = bytearray(gzip.decompress(path.read_bytes()))
    data[data.index(b"step 30")] ^= 1
    whole = gzip.compress(bytes(data))
    path.write_bytes(whole[:-8] + b"\0\0\0\0" + whole[-4:])


@pytest.mark.parametrize("damage", [_twice, _without_manifest, _newer, _named_badly, _cut_off, _flipped])
def test_a_damaged_one_is_refused(damage: Callable[[Path], None], bundle: Path) -> None:
    damage(bundle)
    with pytest.raises(CockpitError, match=r"is damaged, or not a bundle: .|newer") as refused:
        RunFolder.find(str(bundle))
    assert str(bundle) in str(refused.value)
    assert not any(paths.bundles().iterdir())


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "ALL_BYTES", 1 << 20)
    some = [(f"spool/n/rank-{rank}.log", bytes(400_000)) for rank in range(4)]
    path = packed(tmp_path / "b.tar.gz", ("manifest.json", b"{}"), *some)
    assert os.path.getsize(path) < 10_000
    with pytest.raises(CockpitError, match="duplicate entry, or bundle too large"):
        RunFolder.find(str(path))


def test_where_there_is_no_room_nothing_resumes(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = Quotas(free_bytes=1 << 62, free_percent=100)
    monkeypatch.setattr("cockpit.config.load", lambda: Config(quotas=quotas))
    with pytest.raises(CockpitError, match="are kept free; free some space, and open it again"):
        RunFolder.find(str(bundle))
    assert not [*paths.bundles().iterdir()]


def test_it_is_unpacked_once_and_old_ones_go(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = RunFolder.find(str(bundle)).path
    assert RunFolder.find(str(bundle)).path == first
    monkeypatch.setattr(bundles, "KEPT", 1)
    monkeypatch.setattr(bundles, "KEPT_S", -1.0)
    pack(made("another"), str(bundle))
    second = RunFolder.find(str(bundle)).path
    assert second.name == "another"
    assert [each.name for each in paths.bundles().iterdir()] == [second.parent.name]


def test_other_files_are_no_bundles(tmp_path: Path, bundle: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"step 1 loss 2\n" * 1000))
    (tmp_path / "empty").write_bytes(b"")
    packed(tmp_path / "other.tar.gz", ("code.py", b""), head=False)
    assert bundles.is_bundle(str(bundle))
    os.mkfifo(tmp_path / "fifo.tar.gz")
    for name in ("log.gz", "empty", "other.tar.gz", "missing", ".", "fifo.tar.gz"):
        assert not bundles.is_bundle(str(tmp_path / name))


@pytest.mark.parametrize("length", [1, 99, 100, 101, 150, 200, 254])
def test_headers_are_those_of_tar(length: int) -> None:
    """Python's own reader of archives finds the same in them."""
    name = f"spool/{'n' * min(length, 140)}/{'f' * max(1, min(length - 140, 90))}"
    block = ustar.header(name, 12_345)
    assert len(block) == ustar.BLOCK
    told = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    assert (told.name, told.size, told.mode, told.isreg()) == (name, 12_345, 0o600, True)
    assert ustar.member(block) == (name, 12_345)
    for at in (0, 124, 148, 156, 400):
        bent = bytearray(block)
        bent[at] ^= 4
        with pytest.raises(Malformed):
            ustar.member(bytes(bent))


def test_a_name_that_has_no_room_is_said() -> None:
    for name in ("n" * 101, f"spool/{'n' * 200}/f", "spool/ü"):
        with pytest.raises(Malformed, match="no room"):
            ustar.header(name, 0)
    assert ustar.member(bytes(ustar.BLOCK)) is None


def test_the_app_opens_it(bundle: Path) -> None:
    """At its end, with its log; nothing is asked of anybody."""

    async def watched() -> None:
        app = CockpitApp(Joining(RunFolder.find(str(bundle))), Config(ascii=False), read_only=True)
        async with app.run_test(size=(140, 45)) as pilot:
            await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen")
            await until(pilot, lambda: "rank 3 exited 1" in text_of(app), "its end")
            await until(pilot, lambda: "step 40 loss" in text_of(app), "its log")
            await pilot.press("5")
            await until(pilot, lambda: "agent on gpu01" in text_of(app), "what was run")
            await pilot.press("escape", "q")
            await until(pilot, lambda: app.return_code is not None, "left")

    asyncio.run(watched())


def _bent(path: Path, rng: random.Random) -> None:
    """Change what is in its files, and nothing of their names and sizes."""
    data = bytearray(gzip.decompress(path.read_bytes()))
    places, at = [], 0
    while (found := ustar.member(bytes(data[at : at + ustar.BLOCK]))) is not None:
        places.append((at + ustar.BLOCK, found[1]))
        at += ustar.BLOCK + found[1] + -found[1] % ustar.BLOCK
    for begin, size in rng.sample([place for place in places[1:] if place[1]], 3):
        odd = rng.choice([b"", b"9" * 40, b"-1", b"null", b"\xff\xfe", b"[[[[", b"\n{}\n", b"<b>", b"NaN"])
        spot = begin + rng.randrange(size)
        data[spot : min(begin + size, spot + len(odd))] = odd[: begin + size - spot]
        data[begin + rng.randrange(size)] ^= 1 << rng.randrange(8)
    path.write_bytes(gzip.compress(bytes(data), 1))


@pytest.mark.slow
def test_whatever_its_files_say_there_is_a_report_or_an_error(bundle: Path, tmp_path: Path) -> None:
    rng, whole, reports = random.Random(30), bundle.read_bytes(), 0
    for _ in range(80):
        bundle.write_bytes(whole)
        _bent(bundle, rng)
        with contextlib.suppress(CockpitError):
            found = asyncio.run(report_of(RunFolder.find(str(bundle))))
            as_page(found)
            json.dumps(found.as_json(), allow_nan=False)
            reports += 1
    assert 20 < reports < 80
