"""Help on each pane of the run's screen, for F1."""

from __future__ import annotations

_GRID = (
    "One row a node, one sign a rank, in the order of the hostfile.",
    "",
    "● running   ◌ starting   · waiting   ✓ exited 0",
    "✖ failed    ■ killed     ? lost      grey: the link is lost, old values",
    "▲ running, but slower than the others in 8 of its last 10 steps, by a tenth or more",
    "",
    "gpu, mem, cpu: mean utilisation, memory in use, load per core. The last line shows the median node and",
    "the one that differs most; meters are drawn where nodes differ, or where one has little left.",
    "link: only what stands out: slow (its round trip), lost (for how long), ended.",
    "",
    "up, down: nodes · left, right or h, l: ranks · {mark} marks · {open} opens the log",
    "{filter} narrows: gpu[01-04], rank 13, 0-3, or words such as failed, slow, stale; !word: all others.",
    "The log on the right narrows to where the cursor is; {back} widens it again.",
    "{zoom}: alone on the screen, with a line for each rank: its step, age, behind, work.",
)
_LOG = (
    "All output, merged by time; identical lines of several ranks are one line: [0-63].",
    "",
    "Above it, where there is room: loss and step time of the whole run; {pace} makes it the map of ranks.",
    "It follows the newest lines until you move; {last} or {follow} follows again.",
    "{filter} filters: a regular expression, live; !word hides lines; {back} clears.",
    "@0,13-15 word, @gpu[01-04] word: only these ranks, only these nodes · @nccl: what NCCL says",
    "{next_match} {previous_match} next, previous match · {next_error} {previous_error} errors "
    "· {next_warning} {previous_warning} warnings",
    "{fold}: each rank's lines one by one, or folded again",
    "← → scroll lines that are cut at the edge; {back} goes back to their beginnings",
    "{wrap} wraps · {timestamps} times · {copy} copies · {pager} opens $PAGER · {open}: that rank alone",
)
_PACE = (
    "Ranks × time: a cell is warm where a rank worked longer than the median rank in the same step.",
    "",
    "dark: no step in progress, as in a checkpoint, an evaluation or a stall. It is called a checkpoint if a",
    "line of the log named one then.",
    "ETA without rank 3: until the last step, if it worked like the slowest of the others.",
    "work: seconds of a step without waiting for other ranks; whole steps are alike on all ranks.",
    "behind: when it finished its last step, after the first rank; or by how many steps it is behind.",
    "phases: data (i), forward (f), backward (b), optimizer (u), waiting for other ranks (w), the rest (.).",
    "~: estimated, from when lines of the log arrived; without steps, from collectives or main threads.",
    "{longer} {shorter} show more or less of the past: the last 10 minutes, the last hour, the whole run.",
    "For older steps, only the slowest rank of each minute is known.",
    "A node whose ranks agree is one row. {zoom} shows the pane alone, with a row for each rank.",
    "Where there is little room, ranks that are slow by about as much share a row.",
)
_DETAIL = (
    "{down} {up} scroll · {page_down} {page_up} a page · {zoom}: alone · {copy} copies all of it",
    "{previous_rank} {next_rank} previous, next rank · {failed_log}: the log of the rank that failed first",
)
_EVENTS = (
    "What happened, on one clock over all nodes, newest last.",
    "",
    "{open} shows the rank it is about, or the evidence that was saved.",
    "{filter} filters, as in the log; {back} clears.",
)

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "grid": ("nodes and ranks", _GRID),
    "log": ("log", _LOG),
    "glance": (
        "detail",
        (
            "The node or rank under the cursor; {open} or {detail}: with its environment and files, too.",
            "With that open, it shows only what changes.",
            "",
            *_DETAIL,
        ),
    ),
    "detail": (
        "detail",
        (
            "The process of the node or rank under the cursor, its command, and the environment it was",
            "started with; its measurements too, unless the pane on the left shows all of these.",
            "Secrets stay on the node.",
            "",
            *_DETAIL,
        ),
    ),
    "pace": ("pace", _PACE),
    "recent": ("events", _EVENTS),
    "events": ("events", _EVENTS),
    "commands": (
        "commands",
        (
            "The command that started the run, then the exact commands cockpit ran, to read and to paste;",
            "{open} copies the one under the cursor.",
        ),
    ),
}
"""Title and lines of each pane, by its id; names of commands stand for their keys."""
