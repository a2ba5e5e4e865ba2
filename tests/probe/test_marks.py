"""Marks go into the ring from the process and the thread that trains, and from no other."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from cockpit.base.progress import ring
from cockpit.node.probe import hooks, marks


def test_a_child_and_another_thread_leave_the_ring_as_it_is(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "ring"), 0, 0)
    one = marks.Marks(made.words, made.broke)
    one.add(marks.INPUT, 5)
    child = os.fork()
    if not child:
        try:
            one.add(marks.INPUT_END)
            os._exit(int(one.armed))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    other = threading.Thread(target=one.add, args=(marks.BACKWARD,))
    other.start()
    other.join()
    one.add(marks.UPDATE_END)
    found = ring.read((tmp_path / "ring").read_bytes()).marks
    assert [(mark.kind, mark.loader) for mark in found] == [(marks.INPUT, 5), (marks.UPDATE_END, 0)]


class Logger:
    """As much of one as torch asks."""

    level = 30

    def getEffectiveLevel(self) -> int:
        return self.level


def test_a_level_is_that_of_the_moment_and_each_comparison_marks_for_itself(tmp_path: Path) -> None:
    made = hooks.Ring(str(tmp_path / "ring"), 0, 0)
    plain = Logger()
    log = marks.Log(plain, marks.Marks(made.words, made.broke))
    outer, inner = log.getEffectiveLevel() <= 10, log.getEffectiveLevel() <= 10
    assert [bool(outer), bool(inner), bool(inner), bool(outer)] == [False] * 4
    plain.level = 10
    assert log.getEffectiveLevel() == 10
    assert log.getEffectiveLevel() <= 10
    found = ring.read((tmp_path / "ring").read_bytes()).marks
    begun, ended = marks.BACKWARD, marks.BACKWARD_END
    assert [mark.kind for mark in found] == [begun, begun, ended, ended, begun]
