"""``cockpit`` alone: the home screen on a terminal, what is chosen there is carried out; else the help."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from cockpit.cli import home, terminal
from cockpit.cli.main import main, usage
from cockpit.errors import CockpitError
from cockpit.tui.home.app import HomeApp
from cockpit.tui.home.requested_verb import Wish


def test_without_a_terminal_it_prints_the_help_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.strip() == usage().strip()


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> list[Wish]:
    """What is chosen, one after the other; then it is left. Without any terminal."""
    chosen: list[Wish] = []
    shown: list[tuple[str, str]] = []

    async def run_async(app: HomeApp) -> int:
        shown.append((app.chosen, app._said))
        app.wish = chosen.pop(0) if chosen else None
        app.chosen = "otter" if app.wish else ""
        return 0

    monkeypatch.setattr(HomeApp, "run_async", run_async)
    monkeypatch.setattr(terminal, "of_app", lambda app: nullcontext())
    monkeypatch.setattr(terminal, "wanted", lambda **_: True)
    monkeypatch.setattr(home, "SHOWN", shown, raising=False)
    return chosen


def shown() -> list[tuple[str, str]]:
    """The run that the cursor was on, and what was said, of each time that it was opened."""
    return home.SHOWN  # type: ignore[attr-defined,no-any-return]


def test_what_is_chosen_is_carried_out_and_then_it_comes_back(wishes: list[Wish]) -> None:
    done: list[list[str]] = []
    wishes += [Wish(["attach", "otter"]), Wish(["demo", "--fault", "hang"])]
    assert home.main(lambda words: done.append(words) or 130) == 0  # type: ignore[func-returns-value]
    assert done == [["attach", "otter"], ["demo", "--fault", "hang"]]
    assert shown() == [("", ""), ("otter", ""), ("otter", "")]


def test_what_is_printed_can_be_read_before_it_comes_back(
    wishes: list[Wish], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def noted(word: str) -> str:
        order.append(word)
        return word

    monkeypatch.setattr("builtins.input", noted)
    wishes += [Wish(["clean", "otter"], prints=True), Wish(["attach", "otter"])]
    assert home.main(lambda words: len(noted(words[0]))) == 0
    assert order == ["clean", "enter: back to the list of runs ", "attach"]


def test_folder_and_variables_are_those_of_the_run_for_one_verb(
    wishes: list[Wish], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    here, seen = os.getcwd(), []

    def verb(words: list[str]) -> int:
        seen.append((os.getcwd(), os.environ["NCCL_DEBUG"], os.environ["HF_TOKEN"]))
        return 0

    wishes += [Wish(["run", "hosts"], str(tmp_path), {"NCCL_DEBUG": "INFO", "HF_TOKEN": "hunter2"})]
    home.main(verb)
    assert seen == [(str(tmp_path), "INFO", "hunter2")]
    assert (os.getcwd(), os.environ["NCCL_DEBUG"]) == (here, "WARN")
    assert "HF_TOKEN" not in os.environ


def test_a_folder_that_is_gone_is_said_and_nothing_is_started(wishes: list[Wish], tmp_path: Path) -> None:
    wishes += [Wish(["run", "hosts"], str(tmp_path / "gone"))]
    home.main(lambda words: pytest.fail("it was started"))
    assert "cannot change to the run's working directory" in shown()[1][1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CockpitError("no route to host", where="gpu07"), "gpu07: no route to host"),
        (SystemExit(2), "cockpit attach: failed to start"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_what_went_wrong_is_said_when_it_comes_back(
    error: BaseException, said: str, wishes: list[Wish]
) -> None:
    def verb(words: list[str]) -> int:
        raise error

    wishes += [Wish(["attach", "otter"])]
    assert home.main(verb) == 0
    assert shown()[1] == ("otter", said)
