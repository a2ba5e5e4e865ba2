"""What is on the screen, kept in two files: a picture (SVG), and text to paste into a message."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

from textual.app import App

from cockpit import paths
from cockpit.engine.files import create
from cockpit.private import private_dir


def take(app: App[int]) -> Path:
    """Write both (0600), named after the local time.

    :return: the picture; the text is beside it, with ``.txt`` for ``.svg``
    :raises OSError: they cannot be written
    """
    picture = app.export_screenshot(title=app.TITLE)
    strips = app.screen._compositor.render_strips()
    text = "".join(f"{''.join(segment.text for segment in strip).rstrip()}\n" for strip in strips)
    folder = private_dir(paths.screenshots())
    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time()))
    free = (folder / f"{name}{f'-{number}' if number > 1 else ''}.svg" for number in count(1))
    path = next(path for path in free if not path.exists())
    for where, what in ((path, picture), (path.with_suffix(".txt"), text)):
        with create(where) as file:
            file.write(what.encode(errors="replace"))
    return path
