"""Help on each pane of the stack screen, for F1."""

from __future__ import annotations

_RANK = (
    "Everything known about one rank: its process, its threads, frames outermost first.",
    "",
    "{native} C and C++ frames · {locals} local variables · {children} its children: "
    "each asks this rank alone",
    "{library} shows every frame of libraries · {mark_rank} marks it · {diff} compares · {back} goes back",
)

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "classes": (
        "classes",
        (
            "Ranks that are at the same place, line for line, make a class. Odd ones come first:",
            "few ranks, and not waiting in a collective. frozen: the same in all samples, with no",
            "work done between them; polls: as well, but woken now and then; moving: not the same.",
            "",
            "up, down: classes · left, right: other ranks of the class · {open} shows the rank in full",
            "{sample} takes another sample · {previous_sample} {next_sample} go through the samples "
            "· {mark_rank} marks a rank, {diff} compares",
        ),
    ),
    "tree": (
        "tree of all stacks",
        (
            "The main threads of all ranks, outermost frame first; in front of each frame the ranks",
            "that are in it. Where ranks part: how many continue here, and how many are missing.",
            "",
            "{open} folds and unfolds; at the end of a branch it shows a rank in full.",
            "{library} shows or folds frames of libraries · {filter_stacks} narrows to a function, "
            "a file or ranks",
        ),
    ),
    "threads": ("threads", ("The threads of the chosen rank. {open} shows them in full.",)),
    "rank": ("one rank", _RANK),
    "diff": (
        "what differs",
        (
            "The chosen rank against the marked one; without a mark, against its own sample before",
            "if it has moved, else against most of the others.",
            "- only in the first, + only in the second; frames in common are folded.",
        ),
    ),
}
"""Title and lines of each pane, by its id; names of commands stand for their keys."""
