"""Help on each pane of the home screen, for F1."""

from __future__ import annotations

ABOUT: dict[str, tuple[str, tuple[str, ...]]] = {
    "runs": (
        "runs",
        (
            "What is known on this machine: runs that need attention first, then running ones, then",
            "the newest. Nodes of runs that continue are asked in the background; grey: not answered yet.",
            "",
            "{open} opens a run · {filter_runs} filters · {run_again} runs it again · {stop_run} stops it",
            "{compare_runs} compares two · {remove_run} removes one that is over · {look_nodes}: other nodes",
            "{ask_again} asks the nodes now · {copy_command} copies what to type",
        ),
    ),
    "preview": (
        "one run",
        (
            "Why it ended, how long it ran, loss and step time of its last steps, memory of the fullest GPU",
            "or node, its command, how another run of that was started otherwise, last lines.",
            "All of it from what is here: no node is asked.",
            "",
            "{open} opens it · {back} goes back to the runs",
        ),
    ),
    "jobs": (
        "SLURM",
        ("Your jobs, as squeue lists them. {attach_job} or {open} watches the one under the cursor.",),
    ),
    "start": ("start", ("What to type in a shell to start something.",)),
}
"""Title and lines of each pane, by its id; names of commands stand for their keys."""
