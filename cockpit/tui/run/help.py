"""Help on each pane of the run's screen, for F1."""

from __future__ import annotations

_GRID = (
    "One row a node, one sign a rank, in the order of the hostfile.",
    "",
    "● running   ◌ starting   · waiting   ✓ exited 0",
    "✖ failed    ■ killed     ? lost      grey: the link is lost, old values",
    "",
    "cpu, mem, gpu: load over cores, memory in use, mean utilisation.",
    "link: only what stands out: slow (its round trip), lost (for how long), ended.",
    "",
    "up, down: nodes · left, right: ranks · space marks · enter opens the log",
    "The log on the right narrows to where the cursor is; esc widens it again.",
)
_LOG = (
    "All output, merged by time; equal lines of several ranks are one line: [0-63].",
    "",
    "It follows the newest lines until you move; end or f follows again.",
    "/ filters: a regular expression, live; !word hides lines; esc clears.",
    "@0,13-15 word or @gpu[01-04] word: of these ranks or nodes alone.",
    "n N next, previous match · e E errors · w W warnings",
    "v wraps · t times · y copies · o opens $PAGER · enter: that rank alone",
)
_EVENTS = (
    "What happened, on one clock over all nodes, newest last.",
    "",
    "enter shows the rank it is about.",
)

HERE: dict[str, tuple[str, tuple[str, ...]]] = {
    "grid": ("nodes and ranks", _GRID),
    "log": ("log", _LOG),
    "glance": ("detail", ("The node or rank under the cursor, in short. 3 shows all of it.",)),
    "detail": (
        "detail",
        (
            "Measurements of the node or rank under the cursor, its process, its command,",
            "and the environment it was started with. Secrets stay on the node.",
        ),
    ),
    "recent": ("events", _EVENTS),
    "events": ("events", _EVENTS),
    "commands": (
        "commands",
        (
            "The command that started the run, then the exact commands cockpit ran, to read and to paste;",
            "enter copies the one under the cursor.",
        ),
    ),
}
"""Title and lines of each pane, by its id."""
