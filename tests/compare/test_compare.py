"""``cockpit compare``: known differences of two runs are found, and nothing else is claimed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import replace

import pytest

from cockpit.cli.main import main
from cockpit.config import Quotas
from cockpit.core.compare.model import Comparison
from cockpit.core.compare.words import MD_LINES, as_lines, as_markdown
from cockpit.core.ranks import nodes_text
from cockpit.core.text import columns
from cockpit.engine.alike import last_good
from cockpit.engine.compare.gather import comparison_of
from cockpit.engine.launch.code import DIFF
from cockpit.engine.launch.code import FILE as CODE
from cockpit.engine.profile.known import store_of
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError, Exit
from tests.cli.schemas import fits
from tests.compare.pairs import FAILED, HEALTHY, run, usual
from tests.core.profiled import Work, collection
from tests.report.made import HOSTILE, NODES, STEPS, TOKEN, TREE, made

CHANGED = ("train.py", "--compile", "--lr", "0.2")
OTHER = "90c1d3e5aaaa" + "1" * 28
PARTS_AT = 21


def compared(before: RunFolder, after: RunFolder) -> Comparison:
    return asyncio.run(comparison_of(before, after))


def pair() -> tuple[RunFolder, RunFolder]:
    """One that worked, and one of the day after that did not."""
    after = run(
        FAILED,
        days=1,
        healthy=False,
        program=CHANGED,
        slower=1.3,
        commit=OTHER,
        facts={"torch": "2.3.1", "driver": "535.1.2"},
        env={"NCCL_IB_DISABLE": "1"},
        loss=lambda step: usual(step) + (0.4 if step >= PARTS_AT else 0.0),
    )
    return run(HEALTHY), after


def told(made: Comparison) -> dict[str, tuple[str | None, str | None]]:
    return {one.name: (one.before, one.after) for one in made.differences}


def test_what_differs_and_no_more() -> None:
    """Neither what is other in each run, such as its name and port, nor what a folder does not have."""
    found = compared(*pair())
    assert told(found) == {
        "--compile": (None, ""),
        "--lr": ("0.1", "0.2"),
        "git": ("4f2a90c1d3e5", "90c1d3e5aaaa"),
        "torch": ("2.4.0", "2.3.1"),
        "NVIDIA driver": ("550.54.15", "535.1.2"),
        "NCCL_IB_DISABLE": (None, "1"),
    }
    kinds = [one.kind for one in found.differences]
    assert kinds == ["argument", "argument", "code", "version", "driver", "variable"]
    assert next(one.see for one in found.differences if one.kind == "code") == (
        "git -C /home/ada diff 4f2a90c1d3e5 90c1d3e5aaaa"
    )
    assert found.unrecorded == ()


def test_two_runs_of_one_command_on_one_machine_do_not_differ() -> None:
    found = compared(run(HEALTHY), run(FAILED, days=1))
    assert found.differences == ()
    assert found.said[0] == "no recorded differences"
    assert found.loss is not None
    assert (found.loss.alike_to, found.loss.apart) == (STEPS, None)
    assert not any(one.beyond for one in found.pace)


def test_the_pace_and_where_it_goes() -> None:
    """Known by how the folders were made: each step takes 1.3 times as long."""
    pace = {one.name: one for one in compared(*pair()).pace}
    for name in ("step, mean", "step, median", "input", "backward"):
        assert pace[name].ratio == pytest.approx(1.3, rel=0.01), name
        assert pace[name].beyond, name
    assert pace["work"].ratio == 1.0
    assert pace["work"].beyond is False


def test_where_losses_part() -> None:
    loss = compared(*pair()).loss
    assert loss is not None
    assert loss.alike_to == PARTS_AT - 1
    assert loss.parted == PARTS_AT
    assert loss.rows[-1].after - loss.rows[-1].before == pytest.approx(0.4)


def test_losses_that_only_jitter_do_not_part() -> None:
    jitter = lambda step: usual(step) + 0.012 * (step * 104_729 % 11 - 5) / 5  # noqa: E731
    loss = compared(run(HEALTHY), run(FAILED, days=1, loss=jitter)).loss
    assert loss is not None
    assert loss.alike_to in (None, *range(5))
    assert loss.parted is None


def test_more_ranks_are_compared_by_what_goes_through() -> None:
    """Twice as many tokens a step: the same loss after half of the steps is the same training."""
    before = run(HEALTHY, tokens=1000.0)
    after = run(
        FAILED,
        days=1,
        tokens=2000.0,
        program=("train.py", "--lr", "0.1", "--batch-size=64"),
        loss=lambda step: usual(2 * step),
    )
    found = compared(before, after)
    assert found.amount.unit == "tokens"
    assert found.amount.after == pytest.approx(2 * found.amount.before, rel=0.02)
    assert found.loss is not None
    assert found.loss.by == "tokens"
    assert found.loss.parted is None
    assert any("--batch-size not set → 64" in text for text in found.said)


def test_if_the_log_does_not_say_how_much_that_is_said() -> None:
    found = compared(
        run(HEALTHY), run(FAILED, days=1, program=("train.py", "--lr", "0.1", "--batch-size=64"))
    )
    assert found.amount.same is None
    told = found.as_json()["amount"]
    assert (told["before"], told["after"], told["same"]) == (None, None, None)
    assert any("a step may not be as much in both" in text for text in found.said)


def test_what_is_not_on_record_is_said() -> None:
    before, after = run(HEALTHY), run(FAILED, days=1)
    (before.path / "code.json").unlink()
    found = compared(before, after)
    assert "git" not in told(found)
    assert [(one.name, one.runs) for one in found.unrecorded] == [("git", (HEALTHY,))]
    assert any("not recorded (before): git" in line for line in as_lines(found, 80))


def test_what_changed_since_it_last_worked(capsys: pytest.CaptureFixture[str]) -> None:
    """The newest one before it of the same command that ended well, whatever its options."""
    good, failed = pair()
    run("another-script", days=0.5, program=("eval.py",))
    run("failed-too", days=0.6, healthy=False)
    run("later", days=2)
    found = last_good(failed)
    assert found is not None
    assert found.name == good.name
    assert main(["compare", FAILED]) == Exit.OK
    shown = capsys.readouterr()
    assert HEALTHY in shown.err
    assert "0.1 → 0.2" in shown.out
    assert last_good(good) is None
    assert main(["compare", HEALTHY]) == CockpitError("").code
    assert "no earlier successful run of the same command" in capsys.readouterr().err


def test_the_report_names_the_last_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    pair()
    line = f"last good run of this command: {HEALTHY}; cockpit compare {HEALTHY} {FAILED}"
    for words in (["report", FAILED], ["explain", FAILED], ["report", FAILED, "--md"]):
        main(words)
        assert line in re.sub(r"\\", "", capsys.readouterr().out), words
    assert main(["report", HEALTHY]) == Exit.OK
    assert "last good run" not in capsys.readouterr().out


def test_text_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = pair()
    after = run("long", days=3, program=("train.py", "--data", "/scratch/" + "a" * 300, "--lr", "界" * 90))
    for width in (80, 100):
        for one in (after, RunFolder.find(FAILED)):
            assert all(columns(line) <= width for line in as_lines(compared(before, one), width))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["compare", HEALTHY, "long"]) == Exit.OK
    assert all(columns(line) <= 100 for line in capsys.readouterr().out.splitlines())


def test_markdown_is_short() -> None:
    found = compared(*pair())
    lines = as_markdown(found)
    assert len(lines) <= MD_LINES
    assert any("--lr: 0.1 → 0.2" in line for line in lines)
    assert len(as_markdown(replace(found, differences=found.differences * 50))) <= MD_LINES


def test_json_fits_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    pair()
    run("nothing", days=4, steps=0)
    for words in ([HEALTHY, FAILED], [FAILED, "nothing"]):
        assert main(["compare", *words, "--json"]) == Exit.OK
        fits("compare", json.loads(capsys.readouterr().out, parse_constant=pytest.fail))


def test_profiles_by_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Of one run, of two, the one before, and in the comparison of the runs."""
    before, after = pair()
    for folder, numbers in ((before, (1,)), (after, (1, 2))):
        for number in numbers:
            store = store_of(folder)
            assert store.begin(Quotas()) == number
            work = Work(forward=80 * number)
            made_up = collection(4, lambda _, __, work=work: work)  # type: ignore[misc]
            store.save(replace(made_up, number=number, run=folder.name))
    for words in (
        [f"{FAILED}#1", f"{FAILED}#2"],
        [f"{FAILED}#1", "#2"],
        [f"{FAILED}#2"],
        [f"{HEALTHY}#1", f"{FAILED}#2"],
    ):
        assert main(["compare", *words, "--json"]) == Exit.OK, words
        found = json.loads(capsys.readouterr().out)
        fits("compare-profiles", found)
        step = next(part for part in found["parts"] if part["name"] == "step")
        assert step["after"] - step["before"] == pytest.approx(0.08), words
    assert main(["compare", HEALTHY, FAILED]) == Exit.OK
    assert "a step of the median rank" in capsys.readouterr().out
    for words, said in (([f"{FAILED}#1"], "no profile before it"), ([f"{FAILED}#9"], "no profile 9")):
        assert main(["compare", *words]) == CockpitError("").code
        assert said in capsys.readouterr().err


def test_strings_of_others_are_harmless_and_secrets_are_not_in_it() -> None:
    evil = f"\x1b]0;owned\x07{HOSTILE}\u202e`rm`|x|"
    before = run(HEALTHY, program=("train.py", "--tag", evil, "--hub-token", TOKEN), env={"EVIL": evil})
    after = run(
        FAILED,
        days=1,
        healthy=False,
        program=("train.py", "--tag", evil + "2", "--hub-token", TOKEN + "x"),
        facts={"torch": evil, "packages": {evil: evil, "numpy": "2.1.1"}},
        env={"EVIL": evil[::-1], "API_KEY": TOKEN},
    )
    found = compared(before, after)
    text = "\n".join([*as_lines(found, 80), *as_markdown(found)])
    assert not [line for line in text.split("\n") if not line.isprintable()]
    assert TOKEN not in text + json.dumps(found.as_json())
    rows = [line for line in as_markdown(found) if "<script" in line and "\\<script" not in line]
    assert all(line.startswith("`") for line in rows)


@pytest.mark.parametrize(
    "file", ["journal.jsonl", "pace.jsonl", "code.json", "spool/0001-gpu02/events.jsonl"]
)
def test_damage_costs_what_is_damaged(file: str) -> None:
    before, after = pair()
    with open(before.path / file, "ab") as target:
        target.write(b'{"t": 1, "e": "ran\xff\n[1,2\n\x00\n')
    found = compared(before, after)
    assert told(found)["--lr"] == ("0.1", "0.2")
    assert found.before.state == "ended"


def test_a_damaged_manifest_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    before, _ = pair()
    (before.path / "manifest.json").write_text("{")
    assert main(["compare", HEALTHY, FAILED]) == CockpitError("").code
    assert "manifest cannot be read" in capsys.readouterr().err


def test_a_bundle_beside_a_run(tmp_path: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    """What was packed differs in nothing from what it was packed of."""
    pair()
    bundle = f"{tmp_path}/run.tar.gz"
    assert main(["report", FAILED, "--bundle", bundle]) == Exit.OK
    assert main(["compare", HEALTHY, bundle, "--json"]) == Exit.OK
    by_bundle = json.loads(capsys.readouterr().out)
    assert main(["compare", HEALTHY, FAILED, "--json"]) == Exit.OK
    by_folder = json.loads(capsys.readouterr().out)
    for name in ("differences", "loss", "pace"):
        assert by_bundle[name] == by_folder[name]


def test_other_nodes_of_which_all_say_the_same() -> None:
    """Nodes are one difference, not one for each version."""
    after = run(FAILED, days=1)
    path = after.path / "manifest.json"
    whole = path.read_text()
    for node in NODES:
        whole = whole.replace(f'"{node}"', f'"new{node}"')
    path.write_text(whole)
    for spool in sorted((after.path / "spool").iterdir()):
        spool.rename(spool.with_name(spool.name.replace("gpu", "newgpu")))
    found = compared(run(HEALTHY), RunFolder(after.path))
    assert list(told(found)) == ["nodes"]
    assert told(found)["nodes"][1] == f"{nodes_text(f'new{node}' for node in NODES)} (2 nodes)"


def test_what_cannot_be_compared_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run(HEALTHY)
    made(FAILED)
    for words, said in (
        ([HEALTHY, HEALTHY], "both are the same run"),
        (["nobody"], "no such run"),
        ([f"{HEALTHY}#1", FAILED], "only with a profile"),
        ([f"{HEALTHY}#1"], "there is no profile of it here"),
        (["#1", HEALTHY], "of which run?"),
    ):
        assert main(["compare", *words]) == CockpitError("").code, words
        assert said in capsys.readouterr().err, words


# Working trees


def changed(folder: RunFolder, diff: str, *, kept: bool = True) -> RunFolder:
    """Give it changes to tracked files since its commit."""
    code = json.loads((folder.path / CODE).read_text())
    (folder.path / CODE).write_text(json.dumps(code | {"diff": hashlib.sha256(diff.encode()).hexdigest()}))
    if kept:
        (folder.path / DIFF).write_text(diff)
    return folder


def test_working_trees_that_differ_are_shown() -> None:
    """By the files, and by the lines in which the two diffs differ; never by hashes that always do."""
    other = TREE.replace("+    lr = 0.2", "+    lr = 0.3").replace("9d1e0b7", "77aa001")
    config = "diff --git a/conf.yaml b/conf.yaml\nindex 1..2 100644\n@@ -1 +1 @@\n-a: 1\n+a: 2\n"
    found = compared(changed(run(HEALTHY), config + TREE), changed(run(FAILED, days=1), config + other))
    differences = told(found)
    assert differences.keys() == {"git", "working tree"}
    assert differences["working tree"] == ("train.py +2 -1", "train.py +2 -1")
    assert [line for line in found.tree if line.startswith(("-+ ", "++ "))] == [
        "-+    lr = 0.2",
        "++    lr = 0.3",
    ]
    assert not any("index" in line or "conf" in line for line in found.tree)
    lines = list(as_lines(found, 100))
    assert "working trees (the diff of both diffs):" in lines
    assert "  -+    lr = 0.2" in lines
    assert any("working tree: train.py +2 -1" in line for line in as_markdown(found))
    assert found.as_json()["working_tree"] == list(found.tree)
    assert found.unrecorded == ()


def test_a_clean_working_tree_is_as_committed() -> None:
    found = compared(run(HEALTHY), changed(run(FAILED, days=1), TREE))
    assert told(found)["working tree"] == ("as committed", "train.py +2 -1")
    assert "++    lr = 0.2" in found.tree


def test_the_same_working_tree_is_no_difference() -> None:
    found = compared(changed(run(HEALTHY), TREE), changed(run(FAILED, days=1), TREE))
    assert found.differences == ()
    assert found.tree == ()


def test_a_working_tree_that_was_not_kept_is_not_taken_for_clean() -> None:
    found = compared(changed(run(HEALTHY), "x", kept=False), changed(run(FAILED, days=1), TREE))
    assert told(found).keys() == {"git"}
    assert [(one.name, one.runs) for one in found.unrecorded] == [("working tree (--git-diff)", (HEALTHY,))]
    (RunFolder.find(FAILED).path / DIFF).unlink()
    assert compared(RunFolder.find(HEALTHY), RunFolder.find(FAILED)).unrecorded == ()


def test_large_working_trees_are_compared_within_bounds() -> None:
    was, now = ("".join(f"+{number * times}\n" for number in range(30_000)) for times in (1, 7))
    head = "diff --git a/data.txt b/data.txt\n@@ -0,0 +1 @@\n"
    found = compared(changed(run(HEALTHY), head + was), changed(run(FAILED, days=1), head + now))
    assert 0 < len(found.tree) < 2100
    assert len(list(as_lines(found, 100))) < 150
    assert any(re.search(r"\.\.\. [\d,]+ more lines: --json has them", line) for line in as_lines(found, 100))
