"""The file of settings: its schema, a first one, and changes that leave the rest of it alone."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cockpit import config, config_file, paths
from cockpit.checked import mistakes
from cockpit.cli.main import main
from cockpit.config_file import remember
from cockpit.errors import CockpitError, Exit
from cockpit.tui.commands import EVERY


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work where there are no settings of a project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COCKPIT_READ_ONLY", raising=False)


# The schema

COMMANDS = {command.id: command.title for command in EVERY}


def test_every_setting_is_described() -> None:
    schema = config_file.schema(COMMANDS)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"cockpit/settings/{config_file.VERSION}"
    names = set()
    for name, one in schema["properties"].items():
        inner = one.get("properties", {}) if name != "keys" else {}
        names |= {name, *(f"{name}.{each}" for each in inner)}
    assert names == set(config_file.ABOUT)


values = st.one_of(
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.0, 0.5, 99.9, 100, 101, 1e9, 1 << 62, (1 << 62) - 1, -1.0]),
    st.sampled_from(["", "auto", "note", "stop", "dark", "x,ctrl+x"]),
    st.lists(st.integers(), max_size=1),
)
names = st.sampled_from([name for name in config_file.ABOUT if "." not in name])
tables = st.sampled_from(["notices", "watch", "evidence", "quotas", "keys"])
inner = st.sampled_from([*(name.partition(".")[2] for name in config_file.ABOUT if "." in name), "stop"])


SETTINGS = config.settings_table()
SCHEMA = jsonschema.Draft202012Validator(config_file.schema({"stop": "", "look": ""}))
"""Both made once: that takes longer than what is tried with them."""


@pytest.mark.slow
@given(
    st.dictionaries(names, values, max_size=2),
    st.dictionaries(tables, st.dictionaries(inner, values), max_size=2),
)
@example({}, {"watch": {"stop_after": 0.0}})
@example({}, {"watch": {"hang_after": 0.0}})
@example({"theme": 1}, {"quotas": {"spool_bytes": 1.0}})
@settings(max_examples=300, deadline=None)
def test_the_schema_and_the_loader_agree(plain: dict[str, Any], nested: dict[str, Any]) -> None:
    data = {**plain, **nested}
    loads = not list(mistakes(data, SETTINGS, "config.toml", config.SEE))
    errors = list(SCHEMA.iter_errors(data))
    # JSON has one kind of number: 1.0 is a whole one there.
    whole = [
        each for each in nested.get("quotas", {}).values() if isinstance(each, float) and each.is_integer()
    ]
    assert loads == (not errors) or whole, (data, errors)


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--schema"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == config_file.schema(COMMANDS)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('theme = "solarized"\n', Exit.OK, "no theme 'solarized'; known are "),
        ('\ntheme = "lihgt"\n', Exit.OK, "cockpit.toml:2: no theme 'lihgt'; did you mean 'light'?"),
        ('[keys]\nstpo = "X"\n', Exit.USAGE, "no command 'stpo'; did you mean 'stop'?"),
        ('[keys]\nstop = "nosuchkey"\n', Exit.USAGE, "no key 'nosuchkey', for 'stop'"),
        ('theme = "light"\n[keys]\nstop = "X"\n', Exit.OK, ""),
    ],
)
def test_what_the_app_would_not_take_is_said(
    text: str, code: Exit, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cockpit.toml").write_text(text)
    assert main(["config", "--json"]) == code
    told = capsys.readouterr()
    assert said in told.err
    assert ("no " in told.err) == bool(said)
    assert (json.loads(told.out)["watch.look"] is True) if code == Exit.OK else not told.out


# A first file


def test_a_first_file_has_every_setting_as_a_comment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--init"]) == Exit.OK
    path = paths.config()
    assert capsys.readouterr().out == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config.load() == config.Config()
    text = path.read_text()
    uncommented = "\n".join(
        line if line.startswith("# ") else line.removeprefix("#") for line in text.splitlines()
    )
    path.write_text(uncommented)
    assert config.load() == config.Config()
    assert sum(" = " in line for line in uncommented.splitlines() if line[:1] != "#") == sum(
        1 for _ in config_file.in_effect(config.Config())
    )


def test_a_file_that_exists_is_never_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    path = paths.config()
    path.parent.mkdir(parents=True)
    path.write_text("wrap = true\n")
    assert main(["config", "--init"]) == Exit.USAGE
    assert capsys.readouterr().err.startswith(f"cockpit: {path}: exists already; edit it")
    path.unlink()
    path.symlink_to("/dev/null")
    assert main(["config", "--init"]) == Exit.USAGE
    assert path.is_symlink()


def test_a_folder_that_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    paths.config().parent.parent.mkdir(parents=True, exist_ok=True)
    paths.config().parent.write_text("a file")
    assert main(["config", "--init"]) == Exit.USAGE
    assert "cannot be written" in capsys.readouterr().err


# The settings in effect


def test_the_settings_in_effect_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    paths.config().parent.mkdir(parents=True)
    paths.config().write_text('theme = "light"\n[keys]\nstop = "X"\n')
    Path("cockpit.toml").write_text("wrap = true\n")
    assert main(["config", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["theme"], found["wrap"], found["keys.stop"], found["watch.hang_after"]) == (
        "light",
        True,
        "X",
        30.0,
    )
    assert main(["config"]) == Exit.OK
    assert '"light"' in capsys.readouterr().out


# Changes

LOOK = {"theme": "light", "timestamps": False, "wrap": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'wrap = true\ntimestamps = false\ntheme = "light"\n'),
        (
            'theme = "dark"  # at night\n\n[watch]\nlook = true\n',
            'wrap = true\ntimestamps = false\ntheme = "light"  # at night\n\n[watch]\nlook = true\n',
        ),
        (
            "# mine\n#theme = \"dark\"\nbell = false\n[keys]\nwrap = 'v'\n",
            "wrap = true\ntimestamps = false\n# mine\ntheme = \"light\"\nbell = false\n[keys]\nwrap = 'v'\n",
        ),
    ],
)
def test_a_change_leaves_all_else_as_it_is(before: str, after: str) -> None:
    path = paths.config()
    path.parent.mkdir(parents=True)
    path.write_text(before)
    path.chmod(0o640)
    remember(path, LOOK)
    assert path.read_text() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    remember(path, LOOK)
    assert path.read_text() == after
    assert os.listdir(path.parent) == [path.name]


def test_a_first_change_makes_the_file() -> None:
    remember(paths.config(), LOOK)
    assert stat.S_IMODE(paths.config().stat().st_mode) == 0o600
    assert (config.load().theme, config.load().timestamps, config.load().wrap) == ("light", False, True)


def test_a_link_stays_one() -> None:
    paths.config().parent.mkdir(parents=True)
    kept = Path("dotfiles.toml").resolve()
    kept.write_text("bell = false\n")
    paths.config().symlink_to(kept)
    remember(paths.config(), {"theme": "light"})
    assert paths.config().is_symlink()
    assert kept.read_text() == 'theme = "light"\nbell = false\n'


@pytest.mark.parametrize(
    "text",
    ['theme = """dark\n"""\n', '"theme" = "dark"\n', "x = 1\n", "[", "\0"],
)
def test_a_file_that_is_wrong_or_odd_is_left_alone(text: str) -> None:
    path = paths.config()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CockpitError):
        remember(path, {"theme": "light"})
    assert path.read_text() == text


@pytest.mark.slow
@given(
    lines=st.lists(
        st.sampled_from(
            [
                'theme = "dark"',
                "#theme = 1",
                "# theme",
                "wrap = true",
                "",
                "[keys]",
                "[watch]",
                'stop = "#"',
                "bell=false # x = 1",
            ]
        ),
        max_size=8,
    )
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_file_a_change_changes_that_alone_or_nothing(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("\n".join(lines))
    try:
        before = config.read(path, config.SEE, lambda: SETTINGS)
    except CockpitError:
        return
    comments = [line for line in lines if line == "# theme"]
    try:
        remember(path, {"theme": "light", "wrap": False})
    except CockpitError:
        assert path.read_text() == "\n".join(lines)
        return
    assert config.read(path, config.SEE, lambda: SETTINGS) == {**before, "theme": "light", "wrap": False}
    assert path.read_text().splitlines().count("# theme") == len(comments)
