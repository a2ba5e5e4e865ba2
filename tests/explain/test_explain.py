"""``cockpit explain``: any console, of any size, hostile ones too."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cockpit import paths
from cockpit.cli.main import main
from cockpit.core.explain.report import Report
from cockpit.core.ranks import ranks_text
from cockpit.core.rules.table import table
from cockpit.core.text import columns
from cockpit.engine.explain import reading, sources
from cockpit.engine.explain.reading import explained
from cockpit.engine.records import bundles
from cockpit.errors import CockpitError, Exit
from cockpit.lang import Phrase
from tests.cli.schemas import fits
from tests.ends.composed import folder_of, plays
from tests.explain.consoles import LAUNCHERS, console
from tests.explain.score import right
from tests.nccl.samples import SOCKET_2_10

LITTLE = 120 << 20
"""Twice what two processes take that keep nothing."""
LITTLE_OF_MANY = 240 << 20
"""With all 75 MB of its console kept it would be 290."""

FAILED = b"""[rank0]: step 1/9 loss 2.0
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ada/train.py", line 8, in main
[rank1]:     step(batch)
[rank1]: ValueError: loss became NaN
"""


def told(*paths: Path | str) -> Report:
    return explained(sources.items([str(path) for path in paths]))


@pytest.mark.few(6)
@pytest.mark.parametrize("world", [1, 64])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_first_failure_is_found_in_consoles_of_every_launcher(
    launcher: str, world: int, tmp_path: Path
) -> None:
    wrong = []
    for seed in range(8):
        one = console(launcher, world, seed)
        first, _, said = right(one, tmp_path)
        if not first:
            wrong.append(f"{one.fault}: rank {one.rank}, told: {said}")
    assert wrong == []


@pytest.mark.few(3, "campaign")
@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_first_failure_is_found_among_1024_ranks(launcher: str, tmp_path: Path) -> None:
    found = [right(console(launcher, 1024, seed), tmp_path)[0] for seed in range(2)]
    assert found == [True] * 2


@pytest.mark.parametrize("seed", range(3))
def test_a_console_reads_the_same_however_it_is_cut(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = console("torchrun", 8, seed, steps=400)
    path = tmp_path / "console.log"
    path.write_bytes(one.text)
    whole = told(path)
    monkeypatch.setattr(reading, "MUCH", 1000)
    halves = told(path)
    monkeypatch.setattr(sources, "BLOCK", 777)
    pieces = told(path)
    assert whole.ranks == halves.ranks == pieces.ranks == (one.rank,)
    assert whole.cause == halves.cause == pieces.cause
    assert {each.rank for each in halves.parties} == {each.rank for each in whole.parties}
    assert sum(each.lines for each in whole.parties) == one.text.count(b"\n")


def test_a_folder_of_logs_is_one_run(tmp_path: Path) -> None:
    for rank in range(3):
        words = b"[2026-11-20 03:00:0%d] step 1 loss 2\n" % rank
        end = b"RuntimeError: Connection reset by peer\n"
        at = b"[2026-11-20 03:00:09] all_reduce failed\n"
        if rank == 2:
            end, at = b"KeyError: 'labels'\n", b"[2026-11-20 03:00:05] reading shard 7\n"
        head = (
            b'Traceback (most recent call last):\n  File "/home/ada/train.py", line 8, in main\n    step()\n'
        )
        (tmp_path / f"rank-{rank}.log").write_bytes(words + at + head + end)
    (tmp_path / "notes.md").write_text("Traceback (most recent call last):\n")
    report = told(tmp_path)
    assert report.ranks == (2,)
    assert report.waited == (0, 1)
    assert report.cause is not None
    assert report.cause.what == "KeyError: 'labels'"
    assert [(Path(line.file).name, line.number) for line in report.cause.lines] == [
        ("rank-2.log", 3),
        ("rank-2.log", 6),
    ]


def test_who_only_saw_another_ones_end_is_not_said_to_have_failed_first(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("step 1 loss 2\nRuntimeError: Connection reset by peer\n")
    (tmp_path / "rank-1.log").write_text("step 1 loss 2\n")
    report = told(tmp_path)
    assert (report.how, report.ranks) == ("unknown", (0,))


def test_what_was_survived_is_no_failure(tmp_path: Path) -> None:
    steps = b"".join(b"[rank1]: step %d/99 loss 2.0\n" % step for step in range(20, 60))
    (tmp_path / "console.log").write_bytes(FAILED + steps)
    assert not told(tmp_path / "console.log").failed


@pytest.mark.parametrize(("text", "code"), [(FAILED, 1), (b"step 1 loss 2.0\n", 0)])
def test_the_exit_code_says_whether_it_failed(
    text: bytes, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(text)
    assert main(["explain", str(path), "--json"]) == code
    printed = json.loads(capsys.readouterr().out)
    fits("explain", printed)
    assert printed["failed"] == bool(code)
    assert main(["explain", str(path)]) == code
    said = capsys.readouterr().out
    if code:
        assert "failed first: rank 1" in said
        assert f"{path}:5: [rank1]: ValueError: loss became NaN" in said
    else:
        assert said.startswith("no failure found")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (Report(how="left", ranks=(3,), nodes=("n1",)), "rank 3（n1）以 0 退出，其他 rank 还在运行"),
        (Report(how="absent", ranks=(3, 4), nodes=("n1", "n2")), "其他 rank 都在等 rank 3-4，但没有等到"),
        (Report(how="unknown", ranks=(0, 1)), "无法判断谁最先失败：rank 0-1 都在等别的 rank"),
        (Report(how="gone", ranks=(0,), nodes=("n1",)), "rank 0（n1）的进程已不在，输出以错误结尾"),
        (Report(how="broke", names=("local rank 3 on n1",)), "local rank 3 on n1"),
        (Report(how="broke", end=Phrase("exited {}", (3,))), "没有标明来源的进程退出码 3"),
    ],
)
def test_who_failed_first_in_chinese(report: Report, said: str) -> None:
    assert report.sentence("zh") == said
    assert report.sentence("en") == report.what


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--rules", "--json"]) == Exit.OK
    fits("explain-rules", json.loads(capsys.readouterr().out))
    assert main(["explain", "--rules", "--lang", "zh"]) == Exit.OK
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["规则", "含义", "来源"]
    starts = {columns(row[: row.index(one.zh)]) for row, one in zip(rows, table().rows, strict=True)}
    assert starts == {columns(head[: head.index("含义")])}


ENDS = {
    "exit": (b"", "rank 1"),
    "kill": (b"srun: error: gpu02: task 1: Killed\n", "rank 1（gpu02）被 SIGKILL 杀死"),
    "code": (b"srun: error: gpu02: task 1: Exited with exit code 3\n", "rank 1（gpu02）退出码 3"),
}


@pytest.mark.parametrize("how", ENDS)
def test_in_chinese_only_what_was_printed_is_not(
    how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end, who = ENDS[how]
    path = tmp_path / "console.log"
    full = b"[rank1]: OSError: [Errno 28] No space left on device\n"
    path.write_bytes(FAILED.replace(b"[rank1]: ValueError: loss became NaN\n", full) + end)
    assert main(["explain", str(path), "--lang", "zh"]) == Exit.RANK_FAILED
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"最先失败：{who}（很可能）"
    printed = (*path.read_text().splitlines(), str(path), *("OSError: [Errno 28] No space left on device",))
    row = table().by_id["disk-full"]
    for text in (*printed, "train.py:8 main", *(one.command for one in row.next), row.zh):
        said = said.replace(text, "")
    said = re.sub(r"rank|inode|SIGKILL|gpu02|kB|srun|launcher", "", said)
    assert re.findall("[A-Za-z]+", said) == []
    assert main(["explain", str(path), "--lang", "zh", "--json"]) == Exit.RANK_FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["first"]["what"].startswith("rank 1")
    assert told["first"]["what"].isascii()
    assert told["first"]["certainty"] == "likely"


@pytest.mark.parametrize("pack", ["gz", "bz2", "xz"])
def test_packed_files_are_unpacked(pack: str, tmp_path: Path) -> None:
    import bz2
    import lzma

    packers: dict[str, Callable[[bytes], bytes]]
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
    squeeze = packers[pack]
    path = tmp_path / f"console.log.{pack}"
    path.write_bytes(squeeze(FAILED[:70]) + squeeze(FAILED[70:]))
    report = told(path)
    assert report.ranks == (1,)
    assert report.files[0][4] == ()


def test_a_cut_off_gzip_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "console.log.gz"
    whole = gzip.compress(FAILED + os.urandom(50_000).hex().encode())
    path.write_bytes(whole[: len(whole) // 2])
    report = told(path)
    assert report.failed
    assert "cut off" in report.files[0][4][0].text()


def test_words_of_a_file_cannot_act_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(FAILED.replace(b"loss became", b"\x1b]0;gotcha\x07\x1b[2J loss \xe2\x80\xae became"))
    main(["explain", str(path)])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\u202e" not in said


def refused(word: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", word]) == Exit.USAGE
    return capsys.readouterr().err


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 500)
    (tmp_path / "bad.log.gz").write_bytes(b"\x1f\x8b" + b"x" * 100)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe.log")
    assert "empty: there is nothing to explain" in refused(str(tmp_path / "empty.log"), capsys)
    assert "not a log: it holds binary data" in refused(str(tmp_path / "binary.log"), capsys)
    assert "damaged gzip file" in refused(str(tmp_path / "bad.log.gz"), capsys)
    assert "no logs in this folder" in refused(str(tmp_path / "folder"), capsys)
    assert "no such file" in refused(str(tmp_path / "none.log"), capsys)
    assert "no such file; no such run" in refused("nosuchrun", capsys)
    with tarfile.open(tmp_path / "cut.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as bundle:
        for name, data in ((bundles.HEAD, b"{}"), ("journal.jsonl", os.urandom(30_000).hex().encode())):
            (tmp_path / "member").write_bytes(data)
            bundle.add(tmp_path / "member", name)
    os.truncate(tmp_path / "cut.tar.gz", 20_000)
    assert "is damaged, or not a bundle" in refused(str(tmp_path / "cut.tar.gz"), capsys)
    (paths.runs() / "20261121-0412-otter").mkdir(parents=True)
    assert "manifest cannot be read" in refused("20261121-0412-otter", capsys)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(FAILED)

    def refuse(item: sources.Item) -> None:
        raise PermissionError(13, "Permission denied", item.path)

    monkeypatch.setattr(sources, "_open", refuse)
    with pytest.raises(CockpitError, match="Permission denied"):
        told(path)


def test_a_run_is_explained_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cockpit import paths

    play = next(one for one in plays(7, 60) if one.family == "ends at once")
    paths.runs().mkdir(parents=True, exist_ok=True)
    folder = folder_of(play, paths.runs() / "20261120-0300-owl")
    assert main(["explain", folder.name, "--json"]) == Exit.RANK_FAILED
    printed = json.loads(capsys.readouterr().out)
    fits("explain", printed)
    assert printed["run"] == folder.name
    assert printed["first"]["ranks"] == ranks_text(play.first)
    line = printed["cause"]["lines"][0]
    assert line["text"] in Path(line["file"]).read_text().splitlines()[line["number"] - 1]
    assert main(["explain", "last"]) == Exit.RANK_FAILED


# What the kernel tells of a process by its usage is at least what the tests had that started it.
MEASURED = """
import re, resource, sys
from cockpit.cli.main import main
code = main(["explain", *sys.argv[1:]])
own = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
print("memory", own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
sys.exit(code)
"""


def measured(*words: str, stdin: bytes | None = None) -> tuple[int, str, int]:
    line = [sys.executable, "-c", MEASURED, *words]
    done = subprocess.run(line, capture_output=True, input=stdin, check=False, timeout=400)
    said, _, memory = done.stdout.decode().rpartition("memory ")
    return done.returncode, said + done.stderr.decode(), int(memory)


def test_stdin_is_read() -> None:
    code, said, _ = measured("-", stdin=FAILED)
    assert code == Exit.RANK_FAILED
    assert "stdin:5: [rank1]: ValueError: loss became NaN" in said


@pytest.mark.slow
def test_one_line_of_200_megabytes_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    with path.open("wb") as file:
        file.write(b"[rank0]: step 1/9 loss 2.0\n" + b"[rank1]: " + b"x" * 200_000)
        file.truncate(200_000_000)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + FAILED)
    code, said, memory = measured(str(path))
    assert code == Exit.RANK_FAILED
    assert f"{path}:7: [rank1]: ValueError: loss became NaN" in said
    assert memory < LITTLE


@pytest.mark.slow
def test_a_bomb_is_left(tmp_path: Path) -> None:
    path = tmp_path / "console.log.gz"
    blank = gzip.compress(b" " * 1_000_000)
    path.write_bytes(gzip.compress(b"step 5/9 loss 3.0\n") + 300 * blank)
    code, said, memory = measured(str(path))
    assert code == Exit.OK
    assert "compressed bytes expand too far for a log" in said
    assert memory < LITTLE


@pytest.mark.slow
def test_many_ranks_and_much_noise_need_little_memory(tmp_path: Path) -> None:
    """Every line is an error of another rank: nothing may be passed over, and little be kept."""
    path = tmp_path / "console.log"
    line = b"[rank%d]: Traceback (most recent call last): RuntimeError: %d %s\n[rank%d]: KeyError: 7\n"
    with path.open("wb") as file:
        for step in range(5):
            file.write(b"".join(line % (rank, step, b"y" * 3800, rank) for rank in range(4096)))
    code, _, memory = measured(str(path))
    assert code == Exit.RANK_FAILED
    assert memory < LITTLE_OF_MANY


def test_what_nccl_says_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "console.log"
    said = b"".join(
        b"gpu0%d:40%d:50 [0] NCCL INFO NET/Socket : Using [0]%s:10.0.0.%d<0>\n" % (at, at, face, at)
        for at, face in ((1, b"eth0"), (2, b"docker0"))
    )
    path.write_bytes(said + FAILED)
    assert main(["explain", str(path), "--nccl", "--json"]) == Exit.RANK_FAILED
    printed = json.loads(capsys.readouterr().out)
    fits("explain", printed)
    assert "docker0" in json.dumps(printed["nccl"])
    (beside,) = printed["findings"]
    assert (beside["id"], beside["rule"], beside["certainty"]) == ("nccl-bridge", "on-bridge", "likely")
    assert printed["rule"] == ""  # why it failed is another question
    assert main(["explain", str(path), "--nccl"]) == Exit.RANK_FAILED
    assert "differs: interfaces" in capsys.readouterr().out
    assert main(["explain", str(path)]) == Exit.RANK_FAILED
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("failed first: rank 1")
    assert f"also seen (likely): {table().by_id['on-bridge'].means}" in rest
    code, out, _ = measured("-", "--nccl", stdin=said + FAILED)
    assert code == Exit.RANK_FAILED
    assert "differs: interfaces" in out


def test_nccls_lines_are_found_however_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "console.log"
    path.write_text(SOCKET_2_10 + "step 1 loss 2.0\n" * 2000)
    whole = told(path)
    assert [row.bootstrap for row in whole.nccl.rows] == ["docker0", "eth0"]
    monkeypatch.setattr(reading, "MUCH", 1000)
    assert told(path).nccl == whole.nccl
    monkeypatch.setattr(sources, "BLOCK", 77)
    assert told(path).nccl == whole.nccl
    monkeypatch.setattr(reading, "NCCL_MOST", 0)
    assert not told(path).nccl
