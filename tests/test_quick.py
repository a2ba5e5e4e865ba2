"""``make quick`` finds the tests of what was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quick
from tests.quick import Minute, graph, imports, nearest, slow_groups


def test_the_tests_that_import_a_change_come_first() -> None:
    importers = {
        Path("cockpit/a.py"): {Path("cockpit/b.py"), Path("tests/test_a.py")},
        Path("cockpit/b.py"): {Path("tests/test_b.py"), Path("cockpit/a.py")},
    }
    assert nearest([Path("cockpit/a.py")], importers) == [Path("tests/test_a.py"), Path("tests/test_b.py")]
    assert nearest([Path("cockpit/b.py"), Path("docs/x.md")], importers)[0] == Path("tests/test_b.py")
    assert nearest([Path("tests/test_b.py")], {}) == [Path("tests/test_b.py")]
    assert nearest([Path("docs/x.md")], importers) == []


def test_it_knows_who_imports_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path("tests/quick.py") in imports(Path("tests/test_quick.py"))
    assert Path("cockpit/base/frames.py") in imports(Path("cockpit/node/agent.py"))
    for folder in ("cockpit/base", "tests/base"):
        (tmp_path / folder).mkdir(parents=True)
    frames, agent, tested = "cockpit/base/frames.py", "cockpit/agent.py", "tests/base/test_frames.py"
    (tmp_path / frames).write_text("import os\n")
    (tmp_path / agent).write_text("def main():\n    import cockpit.base.frames\n")
    (tmp_path / tested).write_text("from cockpit.base import frames\nfrom cockpit.agent import main\n")
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    assert graph() == {Path(frames): {Path(agent), Path(tested)}, Path(agent): {Path(tested)}}


def test_the_slow_tests_of_a_layer_follow_if_it_was_changed() -> None:
    assert slow_groups([Path("docs/x.md"), Path("tests/cli/test_ps.py")]) == []
    assert slow_groups([Path("cockpit/node/agent.py"), Path("cockpit/paths.py")]) == [
        "tests/node",
        "tests/probe",
        "tests/recorder",
    ]


def test_what_does_not_fit_into_the_minute_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Item:
        nodeid = "tests/test_x.py::test_y"

    minute = Minute()
    assert minute.pytest_runtest_protocol(Item()) is None  # type: ignore[arg-type]
    monkeypatch.setattr(minute, "_ends", 0.0)
    assert minute.pytest_runtest_protocol(Item())  # type: ignore[arg-type]
    assert minute.left_out == {"tests/test_x.py": 1}
