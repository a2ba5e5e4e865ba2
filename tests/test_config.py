"""Settings: what they are without a file, which file wins, and that all that is wrong is said at once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from cockpit import config, paths
from cockpit.cli import terminal
from cockpit.cli.main import main
from cockpit.cli.parsing import Parser
from cockpit.cli.verbs import where
from cockpit.core.watch.options import WatchOptions
from cockpit.errors import CockpitError, Exit

DOCS = Path(__file__).parent.parent / "docs" / "config.md"

Write = Callable[[str], Path]


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the person's own settings."""
    monkeypatch.delenv("COCKPIT_READ_ONLY", raising=False)
    path = paths.config()
    path.parent.mkdir(parents=True)

    def write(text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Work in a folder of its own, and write its settings."""
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(text: str) -> Path:
        path = folder / config.LOCAL
        path.write_text(text, encoding="utf-8")
        return path

    return write


def said() -> list[str]:
    """What is wrong, line by line."""
    with pytest.raises(CockpitError) as caught:
        config.load()
    assert caught.value.code is Exit.USAGE
    return str(caught.value).splitlines()


def test_no_file_is_needed() -> None:
    assert config.load() == config.Config()


def test_a_project_overrides_a_person_key_by_key(mine: Write, local: Write) -> None:
    path = mine('theme = "light"\nwrap = true\n[keys]\nstop = "X"\nhelp = "h"\n')
    local('theme = "nörd"\nascii = true\n[keys]\nstop = "S,ctrl+s"\n')
    assert config.load() == config.Config(
        theme="nörd",
        ascii=True,
        wrap=True,
        keys={"stop": "S,ctrl+s", "help": "h"},
        where=f"{path} and {config.LOCAL}",
    )


def test_a_language_that_there_is_no_text_in_is_refused(local: Write) -> None:
    local('lang = "de"\n')
    (line,) = said()
    assert """key 'lang': must be "en", "zh", or "" for that of the locale, not 'de'""" in line


def test_only_the_file_with_keys_is_named_for_them(mine: Write, local: Write) -> None:
    mine("wrap = true\n")
    local('[keys]\nstop = "S"\n')
    assert config.load().where == config.LOCAL


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_environment_forbids_changes(
    value: str, expected: bool, local: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    local("read_only = false\n")
    monkeypatch.setenv("COCKPIT_READ_ONLY", value)
    assert config.load().read_only is expected


def test_all_that_is_wrong_in_both_files_is_said_at_once(mine: Write, local: Write) -> None:
    path = mine('them = "dark"\nwrap = "yes"\ncolours = 1\n')
    local('theme = 3\nascii = "no"\n[keys]\nstop = 1\nhelp = "h"\nlog = true\n')
    keys = ", ".join(field.name for field in fields(config.Config) if field.name != "where")
    assert said() == [
        f"{path}: key 'them': unknown; did you mean 'theme'?",
        f"{path}: key 'wrap': must be true or false, not 'yes'; see: cockpit help config.md",
        f"{path}: key 'colours': unknown; known are {keys}",
        "cockpit.toml: key 'theme': must be the name of a theme, not 3; see: cockpit help config.md",
        "cockpit.toml: key 'ascii': must be true, false or \"auto\", not 'no'; see: cockpit help config.md",
        "cockpit.toml: key 'keys.stop': must be a text like \"x,ctrl+x\", not 1; see: cockpit help config.md",
        "cockpit.toml: key 'keys.log': must be a text like \"x,ctrl+x\", not true; "
        "see: cockpit help config.md",
    ]


@pytest.mark.parametrize(
    "text", ["where = 'x'\n", "wrap = 1\n", "ascii = 'AUTO'\n", "ascii = 1\n", "keys = 'x'\n", "theme = []\n"]
)
def test_what_does_not_fit_is_refused(text: str, local: Write) -> None:
    local(text)
    (line,) = said()
    assert line.startswith(f"cockpit.toml: key '{text.split()[0]}': ")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('theme = "dark"\n\nwrap = yes\n', "cockpit.toml:3: is not TOML: "),
        ('theme = "dark"\ntheme = "light"\n', "cockpit.toml:2: is not TOML: "),
        ("theme", "cockpit.toml: is not TOML: "),
    ],
)
def test_what_is_not_toml_is_named_by_its_line(text: str, place: str, local: Write) -> None:
    local(text)
    (line,) = said()
    assert line.startswith(place)
    assert line.endswith("; see: cockpit help config.md")


def test_a_file_that_cannot_be_read_is_named(mine: Write, local: Write) -> None:
    path = local("")
    path.write_bytes(b"theme = '\xff'\n")
    other = mine("")
    other.unlink()
    other.mkdir()
    assert said() == [
        f"{other}: cannot be read: Is a directory",
        "cockpit.toml, byte 9: is not UTF-8: invalid start byte",
    ]


def test_the_docs_list_every_key_with_its_value() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", DOCS.read_text(), re.MULTILINE))
    expected = {
        field.name: json.dumps(field.default)
        for field in fields(config.Config)
        if field.name not in ("quotas", "notices", "watch", "evidence", "keys", "where")
    }
    expected |= {field.name: json.dumps(field.default) for field in fields(config.Quotas)}
    expected |= {field.name: json.dumps(field.default) for field in fields(config.Notices)}
    expected |= {field.name: json.dumps(field.default) for field in fields(config.Watch)}
    expected |= {field.name: json.dumps(field.default) for field in fields(config.Evidence)}
    assert {name: value for name, value in table.items() if name in expected} == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("spool_bytes = -1", "key 'quotas.spool_bytes': must be a whole number from 0 on, not -1"),
        ('spool_bytes = "64 GiB"', "must be a whole number from 0 on, not '64 GiB'"),
        ("free_bytes = true", "must be a whole number from 0 on, not true"),
        ("free_percent = 101", "key 'quotas.free_percent': must be a number from 0 to 100, not 101"),
        ("free_percent = nan", "must be a number from 0 to 100, not nan"),
        ("spool_byte = 1", "key 'quotas.spool_byte': unknown; did you mean 'spool_bytes'?"),
    ],
)
def test_a_wrong_quota_is_said(local: Write, text: str, why: str) -> None:
    local(f"[quotas]\n{text}\n")
    with pytest.raises(CockpitError, match=re.escape(why)):
        config.load()


def test_quotas_are_overridden_one_by_one(mine: Write, local: Write) -> None:
    mine("[quotas]\nspool_bytes = 5\nspool_files = 8\n")
    local("[quotas]\nspool_files = 7\n")
    assert config.load().quotas == config.Quotas(spool_bytes=5, spool_files=7)


def test_notices_are_switched_off_one_by_one(mine: Write, local: Write) -> None:
    mine("[notices]\nmemory = false\nloss = false\n")
    local("[notices]\nloss = true\ngpu = false\n")
    assert config.load().notices.off == {"memory"}
    local("[notices]\nlos = true\n")
    with pytest.raises(CockpitError, match=re.escape("key 'notices.los': unknown; did you mean 'loss'?")):
        config.load()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hang_after = 0", "key 'watch.hang_after': must be a number of seconds, not 0"),
        ("hang_after = nan", "must be a number of seconds, not nan"),
        ('on_hang = "kill"', """key 'watch.on_hang': must be "note" or "stop", not 'kill'"""),
        ("looks = true", "key 'watch.looks': unknown; did you mean 'look'?"),
    ],
)
def test_a_wrong_setting_of_the_watch_is_said(local: Write, text: str, why: str) -> None:
    local(f"[watch]\n{text}\n")
    with pytest.raises(CockpitError, match=re.escape(why)):
        config.load()


def test_options_of_the_watch_come_before_its_settings(mine: Write) -> None:
    mine('[watch]\nhang_after = 60\non_hang = "stop"\n')
    parser = Parser("run", "Launch.")
    terminal.add_options(parser)
    assert terminal.watch_options(parser.parse_args([])) == WatchOptions(True, 60.0, "stop")
    words = ["--no-watch", "--hang-after", "5", "--on-hang", "note"]
    assert terminal.watch_options(parser.parse_args(words)) == WatchOptions(False, 5.0, "note")
    words = ["--stop-after", "600"]
    assert terminal.watch_options(parser.parse_args(words)) == WatchOptions(True, 60.0, "stop", 600.0)
    with pytest.raises(CockpitError, match="has no effect without --on-hang stop"):
        terminal.watch_options(parser.parse_args([*words, "--on-hang", "note"]))
    with pytest.raises(CockpitError, match="must be more than 0; --no-watch"):
        terminal.watch_options(parser.parse_args(["--hang-after", "0"]))
    with pytest.raises(CockpitError, match="with --no-watch nothing detects a hang"):
        terminal.watch_options(parser.parse_args(["--no-watch", "--on-hang", "stop"]))


def test_the_example_of_the_docs_is_read(local: Write) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    local(example)
    assert config.load() == config.Config(keys={"stop": "X", "filter": "/,ctrl+f"}, where=config.LOCAL)


def test_where_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert where.main(["--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == str(paths.config())
    assert found["own themes"] == str(paths.themes())
    assert where.main([]) == Exit.OK
    assert f"{paths.config()}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('notify = "touch owned"', "key 'notify': is a command, and a project's settings cannot set one"),
        ('[watch]\non_hang = "stop"', "key 'on_hang': a project's settings cannot stop a run"),
        ("[watch]\nstop_after = 60.0", "key 'stop_after': a project's settings cannot stop a run"),
        ("[watch]\nhang_after = 1.0", "key 'hang_after': your own settings stop hung runs after 60 s"),
    ],
)
def test_a_project_runs_nothing_and_stops_nothing(mine: Write, local: Write, text: str, wrong: str) -> None:
    mine('[watch]\nhang_after = 60.0\non_hang = "stop"\n')
    local(text)
    (line,) = said()
    assert line.startswith(f"{config.LOCAL}: {wrong}")


def test_a_project_may_watch_otherwise_and_takes_no_care_away(mine: Write, local: Write) -> None:
    mine("read_only = true\nnotify = 'page-me'\n")
    local('read_only = false\nnotify = ""\n[watch]\nhang_after = 1.0\non_hang = "note"\n')
    assert config.load().watch == config.Watch(hang_after=1.0)
    assert config.load().read_only
    assert config.load().notify == "page-me"
    mine('[watch]\non_hang = "stop"\n')
    local('[watch]\nhang_after = 300.0\non_hang = "note"\n')
    assert config.load().watch == config.Watch(hang_after=300.0, on_hang="note")


LOOSER = {
    "read_only": ("true", "false"),
    "bell": ("true", "false"),
    "git_diff": ("false", "true"),
    **{f"notices.{each.name}": ("true", "false") for each in fields(config.Notices)},
    "watch.look": ("true", "false"),
    "watch.hang_after": ("30.0", "999999.0", "0.001"),
    "evidence.keep": ("true", "false"),
    "evidence.after": ("30.0", "999999.0", "0.001"),
    "evidence.idle": ("45.0", "999999.0", "0.001"),
    **{f"quotas.{name}": ("10", "11") for name in ("spool_bytes", "spool_files", "report_files", "profiles")},
    "quotas.record_bytes": ("10", "11", "9"),
    "quotas.free_bytes": ("10", "9"),
    "quotas.free_percent": ("10.0", "9.9"),
}
"""What a person has set, and what of a project would loosen that."""

TASTE = {"probe", "report", "theme", "ascii", "timestamps", "wrap", "follow", "fold", "units", "lang", "keys"}
REFUSED = {"notify", "trusted_group", "watch.on_hang", "watch.stop_after"}


def test_each_setting_is_one_or_the_other() -> None:
    known = {name.name for name in fields(config.Settings)} - set(config._MADE)
    known |= {f"{table}.{each}" for table, made in config._MADE.items() for each in made.__annotations__}
    assert known == LOOSER.keys() | TASTE | REFUSED
    assert config._TIGHTENS.keys() == LOOSER.keys()


def in_table(key: str, value: str) -> str:
    table, _, name = key.rpartition(".")
    return f"[{table}]\n{name} = {value}\n" if table else f"{name} = {value}\n"


@pytest.mark.parametrize("key", LOOSER)
def test_a_project_loosens_nothing_and_it_is_said(key: str, mine: Write, local: Write) -> None:
    own, *looser = LOOSER[key]
    mine(in_table(key, own))
    before = config.load()
    assert config.of_project() == ""
    for value in looser:
        local(in_table(key, value))
        assert config.load() == before
        said = f"cockpit.toml here: ignored, as a project's settings can only tighten yours: {key} = {value}"
        assert config.of_project() == said


def test_what_a_project_changes_is_said(mine: Write, local: Write) -> None:
    mine('theme = "light"\nwrap = true\n[watch]\nlook = false\n')
    local('theme = "dark"\nwrap = true\n[watch]\nlook = true\n[quotas]\nfree_bytes = 0\n[keys]\nstop = "S"\n')
    assert config.of_project() == (
        "cockpit.toml here sets theme = dark, watch.look = true, keys.stop; "
        "ignored, as a project's settings can only tighten yours: quotas.free_bytes = 0"
    )
    assert config.load().watch.look


def test_verbs_say_it_on_stderr(local: Write, capsys: pytest.CaptureFixture[str]) -> None:
    local("bell = false\n")
    words = ["plan", "-w", "localhost:1", "--launcher", "command", "--json", "--", "true"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "ignored, as a project's settings can only tighten yours: bell = false" in told.err
    assert json.loads(told.out)["plans"]


@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "/dev/tty", "folder", "large"])
def test_what_is_no_small_file_is_refused_at_once(kind: str, local: Write) -> None:
    path = local("")
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_text("#" * (config.SIZE_LIMIT + 1))
    else:
        path.symlink_to(kind)
    (line,) = said()
    assert line.startswith("cockpit.toml: cannot be read: ")


def test_settings_may_be_a_link_to_a_file(mine: Write, tmp_path: Path) -> None:
    """Many keep such files in one place."""
    path = mine("wrap = true\n")
    path.rename(tmp_path / "dotfile")
    path.symlink_to(tmp_path / "dotfile")
    assert config.load().wrap


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=" + "[" * 60_000, ":1: is not TOML: it is nested too deeply"),
        ("\n\na=" + "[\n" * 20_000, ":19: is not TOML: it is nested too deeply"),
        ("x = 1\na=" + "{b=" * 10_000, ":2: is not TOML: it is nested too deeply"),
        ("x = 1\n" + "a." * 30_000 + "a=1", ":2: is not TOML: a key has too many parts"),
        ("[" + "a . " * 10_000 + "a]", ":1: is not TOML: a key has too many parts"),
        ("wrap = " + "9" * 60_000, ": is not TOML: a number has too many digits"),
    ],
)
def test_what_would_keep_a_parser_busy(text: str, why: str, local: Write) -> None:
    local(text)
    (line,) = said()
    assert line == f"cockpit.toml{why}; see: cockpit help config.md"


@pytest.mark.parametrize(
    "value",
    ['"' + "[." * 100 + '"', "'" + "{." * 100 + "'", '"""' + '[."' * 100 + 'x"""', "1 # " + "[." * 99],
)
def test_brackets_and_dots_in_texts_do_not_count(value: str, local: Write) -> None:
    config.read(local(f"theme = {value}\n"), config.SEE)


def test_endless_mistakes_are_not_all_said(local: Write) -> None:
    local("\n".join(f"k{number} = 1" for number in range(5000)))
    first, *rest = said()
    assert first == "cockpit.toml: 5000 keys are wrong; the first 20:"
    assert len(rest) == 20


def test_own_settings_that_others_may_write_are_refused(mine: Write, local: Write) -> None:
    path = mine("notify = 'touch owned'\ntrusted_group = 'team'\n")
    assert config.trusted_group() == "team"
    path.chmod(0o666)
    assert config.trusted_group() == ""
    (line,) = said()
    assert line.startswith(f"anybody may write to {path} (mode 0666), and could name a program there; ")
    local("wrap = true\n").chmod(0o666)
    path.chmod(0o600)
    assert config.load().wrap  # a project's names none
