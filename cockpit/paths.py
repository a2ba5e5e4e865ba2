"""Every folder cockpit uses on this machine (the XDG folders; ``cockpit where`` prints them)."""

from __future__ import annotations

from pathlib import Path

import platformdirs

APP = "cockpit"


def state() -> Path:
    """Folder for what must persist: runs, secrets of printed plans."""
    return Path(platformdirs.user_state_dir(APP))


def runs() -> Path:
    """Folder with one folder per run: manifest, journal, spool, reports."""
    return state() / "runs"


def index() -> Path:
    """The file that has each run in one line, so that not all of them are read again; it may be removed."""
    return state() / "runs.jsonl"


def stacks() -> Path:
    """Folder with one folder for each snapshot of a job that cockpit did not start."""
    return state() / "stacks"


def profiles() -> Path:
    """Folder with one folder for each profile of a job that cockpit did not start."""
    return state() / "profiles"


def bundles() -> Path:
    """Folder with one folder for each bundle of somebody's run that was opened last."""
    return state() / "bundles"


def packages() -> Path:
    """Folder with one file for each set of installed packages that a run's Python had, by its hash."""
    return state() / "packages"


def measured() -> Path:
    """Folder with one file for each set of nodes that nccl-tests ran on: what they measured."""
    return state() / "nccl-tests"


def copied() -> Path:
    """The file with the text that was copied last in the app."""
    return state() / "copied.txt"


def screenshots() -> Path:
    """Folder of the app's screenshots."""
    return state() / "screenshots"


def plans() -> Path:
    """Folder of the 0600 files that printed plans take their secrets from."""
    return state() / "plans"


def ssh() -> Path:
    """Folder of the ssh program: configurations that it is started with, and sockets (docs/clusters.md)."""
    return state() / "ssh"


def errors() -> Path:
    """Folder of tracebacks of errors in cockpit itself (docs/exit-codes.md)."""
    return state() / "errors"


def config() -> Path:
    """The file of this person's settings (docs/config.md)."""
    return Path(platformdirs.user_config_dir(APP)) / "config.toml"


def shipped_themes() -> Path:
    """Folder of the themes that come with cockpit."""
    here = Path(__file__).parent
    # An installed cockpit carries its themes inside; a checkout has them in its top folder.
    return next(
        (place for place in (here / "themes", here.parent / "themes") if place.is_dir()), here / "themes"
    )


def theme_files() -> list[Path]:
    """The files of all themes, shipped ones first: a person's own of the same name wins."""
    return [*sorted(shipped_themes().glob("*.toml")), *sorted(themes().glob("*.toml"))]


def theme_names() -> list[str]:
    """The names of all themes, each once."""
    return list(dict.fromkeys(path.stem for path in theme_files()))


def themes() -> Path:
    """Folder of this person's own themes (docs/themes.md)."""
    return Path(platformdirs.user_config_dir(APP)) / "themes"
