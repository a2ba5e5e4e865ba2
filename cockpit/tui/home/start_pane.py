"""What to type to start something; without any run, what cockpit does."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.tui.panes.text_pane import Line, Piece, TextPane, hanging

START: Sequence[tuple[str, str]] = (
    ("cockpit run HOSTFILE -- train.py ARGS", "launch on every node and watch"),
    ("cockpit attach HOSTFILE | --slurm JOB", "watch a job that is already running"),
    ("cockpit doctor HOSTFILE", "are these nodes fit to run"),
    ("cockpit demo --fault hang", "try it here: real training, 4 ranks, no GPU"),
)
DOES: Sequence[tuple[str, str]] = (
    ("launches", "on every node of a hostfile"),
    ("watches", "logs, ranks, GPUs, pace"),
    ("tells", "who failed first, hangs, is slow"),
    ("profiles", "any rank from one key"),
    ("leaves", "the run alone when you quit"),
)


class StartPane(TextPane):
    """A few lines that never change."""

    welcomes = False
    """Whether nothing is known here yet."""

    def build(self, width: int) -> Sequence[Line]:
        """The lines."""
        lines: list[Line] = []
        if self.welcomes:
            for does, what in DOES:
                lines += [*hanging((Piece(f"{does:<11}"),), what, width, "label"), Line()]
            return lines
        for command, what in START:
            lines += [*hanging((), command, width), *hanging((Piece("  "),), what, width, "label"), Line()]
        return lines
