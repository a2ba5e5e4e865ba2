"""``--probe`` of ``run`` and ``plan``: the words, the settings, and where it ends up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.cli import launch_options
from cockpit.cli.verbs import plan
from cockpit.errors import Exit


@pytest.mark.parametrize(
    ("settings", "words", "expected"),
    [
        ("", [], "auto"),
        ("", ["--probe", "off"], "off"),
        ("probe = false", [], "off"),
        ("probe = true", [], "on"),
        ('probe = "auto"', [], "auto"),
        ("probe = false", ["--probe", "on"], "on"),
    ],
)
def test_the_words_come_before_the_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settings: str,
    words: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cockpit.toml").write_text(settings + "\n")
    given = ["-w", "gpu[1-2]:1", "--python", "/usr/bin/python3", *words, "--", "train.py"]
    made = launch_options.parser("run", "", "")
    assert launch_options.parse(made, given).job.probe == expected
    assert plan.main([*given[:-2], "--json", "--", "train.py"]) == Exit.OK
    shown = json.loads(capsys.readouterr().out)
    plans = shown if isinstance(shown, list) else shown["plans"]
    assert [each["probe"] for each in plans] == [expected] * 2


def test_another_word_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch_options.parser("run", "", "").parse_args(["--probe", "maybe", "h"])
    assert "auto" in capsys.readouterr().err
