"""Help on each pane of the profile screen, for F1."""

from __future__ import annotations

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "ranks": (
        "ranks",
        (
            "Where a step goes, the mean over the steps; slowest first, alike ranks of a node in a row.",
            "",
            "own: the step without waiting for other ranks: what they are compared by",
            "data: in a data loader's next · compute: an operation runs · comm: only a collective runs",
            "waiting: for other ranks, in a collective · idle: nothing runs (Python, kernel launches, sleep)",
            "Where colours do not tell: d data, c compute, m comm, w waiting; idle is blank.",
            "Of cpu: the function that the main thread is in most often, without what it calls.",
            "Of nsys: what its report of the node holds.",
            "",
            "up, down: ranks · {open} shows its operations · {profile_again} profiles again",
            "{previous_profile} {next_profile}: other profiles of the run · {back}: cancels, or goes back",
        ),
    ),
    "operations": (
        "operations",
        (
            "Of the rank under the cursor, without what they call; first those in which it differs.",
            "",
            "median: of the other ranks with the same operations. Of cpu: the part of its time that the rank",
            "is in a function or in what that calls, and the mean of the others.",
        ),
    ),
    "collectives": (
        "collectives",
        (
            "time: of the last rank to arrive, so without waiting · GB/s: per link, as nccl-tests has it",
            "spread: from the first arrival to the last · last: who arrives last, and how often",
            "",
            "Below: when ranks arrive at the one that is waited in most; and a step as it would be",
            "if who is slow were like the others.",
        ),
    ),
    "files": (
        "files",
        (
            "Traces stay on their nodes until they are fetched. Perfetto uploads nothing.",
            "",
            "{open_file} says how to open it, and copies that · {fetch} fetches it · {copy} copies its path",
        ),
    ),
}
