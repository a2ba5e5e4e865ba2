"""Every command of the app: the one list behind bindings, footer, help, palette and the docs' key table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from cockpit.errors import CockpitError, near

RUN, STACKS, EVERYWHERE = "run", "stacks", ""
"""Scopes: what a key does on the run's screen, on that of the stacks, or on both."""

GROUPS = ("Run", "Move", "Log", "Stacks", "View")
"""Headings in help and docs, in order."""

Id = Literal[
    "stop",
    "keep",
    "collect",
    "stacks",
    "retry",
    "leave",
    "interrupt",
    "open",
    "back",
    "previous_view",
    "down",
    "up",
    "page_down",
    "page_up",
    "first",
    "last",
    "next_pane",
    "previous_pane",
    "nodes",
    "log",
    "detail",
    "events",
    "commands",
    "previous_rank",
    "next_rank",
    "mark",
    "filter",
    "next_match",
    "previous_match",
    "failed_log",
    "next_error",
    "previous_error",
    "next_warning",
    "previous_warning",
    "follow",
    "wrap",
    "timestamps",
    "pager",
    "sample",
    "cancel",
    "native",
    "locals",
    "children",
    "diff",
    "mark_rank",
    "library",
    "filter_stacks",
    "save",
    "previous_sample",
    "next_sample",
    "previous_in_class",
    "next_in_class",
    "classes",
    "tree",
    "threads",
    "copy",
    "copy_command",
    "zoom",
    "freeze",
    "palette",
    "help",
    "help_here",
]
"""The names of all commands: what is spelled otherwise in code is an error of mypy's."""

NAMES = {"Stacks": "Stacks, after `s`"}
"""Headings in the docs, if they say more than those in the app."""


@dataclass(frozen=True)
class Command:
    """Something a person can do.

    :param id: its name in the config's ``[keys]``, in bindings and in code
    :param keys: keys in Textual's spelling, the first one is shown
    :param title: what it does, in a few words
    :param short: its label in the footer
    :param group: heading in help
    :param help: one or two more sentences
    :param footer: place in the footer's order, lowest first; None: never there
    :param panes: those of the run's screen in which the footer offers it; empty: all of them
    :param changes: whether it changes the run, which ``--read-only`` forbids
    :param scope: the screen it is for, ``run`` or ``stacks``; empty: every screen
    """

    id: Id
    keys: tuple[str, ...]
    title: str
    short: str
    group: str
    help: str = ""
    footer: int | None = None
    panes: tuple[str, ...] = ()
    changes: bool = False
    scope: str = RUN

    @property
    def key(self) -> str:
        """The first key, as people write it; without one its name in the palette."""
        return shown(self.keys[0]) if self.keys else f":{self.id}"


EVERY: tuple[Command, ...] = (
    Command(
        "stop",
        ("x",),
        "stop the run",
        "stop",
        "Run",
        "Asks first. SIGTERM, time to end, a profiler's time to write its report, then SIGKILL.",
        50,
        changes=True,
    ),
    Command(
        "keep",
        ("K",),
        "keep the other ranks running after a failure",
        "keep running",
        "Run",
        "Asks first. Sets aside the stop that would follow a rank's failure.",
        5,
        changes=True,
    ),
    Command(
        "collect",
        ("c",),
        "collect profiler reports",
        "collect",
        "Run",
        "Fetches every node's reports and checks them by sha256. Again: cancels; once more: resumes.",
        40,
    ),
    Command(
        "stacks",
        ("s",),
        "stacks of all ranks, merged, and which rank is the odd one",
        "stacks",
        "Run",
        "Looks at every rank twice, a second apart. Training is not disturbed.",
        35,
    ),
    Command("retry", ("r",), "try again after trouble on this machine", "try again", "Run", "", 1),
    Command(
        "leave",
        ("q",),
        "leave; the run goes on",
        "leave",
        "Run",
        "Prints how to come back.",
        70,
        scope=EVERYWHERE,
    ),
    Command(
        "interrupt",
        ("ctrl+c",),
        "copy the selection, end a sample, or ask how to leave",
        "",
        "Run",
        scope=EVERYWHERE,
    ),
    Command("open", ("enter",), "open what the cursor is on", "open", "Move", "", 30, scope=EVERYWHERE),
    Command("back", ("escape",), "one step back", "back", "Move", "", 10, scope=EVERYWHERE),
    Command("previous_view", ("minus",), "the previous view", "", "Move"),
    Command("down", ("j", "down"), "move down", "", "Move", scope=EVERYWHERE),
    Command("up", ("k", "up"), "move up", "", "Move", scope=EVERYWHERE),
    Command("page_down", ("pagedown",), "a page down", "", "Move", scope=EVERYWHERE),
    Command("page_up", ("pageup",), "a page up", "", "Move", scope=EVERYWHERE),
    Command("first", ("g", "home"), "to the beginning", "", "Move", scope=EVERYWHERE),
    Command("last", ("G", "end"), "to the end; a log follows again", "", "Move", scope=EVERYWHERE),
    Command("next_pane", ("tab",), "next pane", "", "Move", scope=EVERYWHERE),
    Command("previous_pane", ("shift+tab",), "previous pane", "", "Move", scope=EVERYWHERE),
    Command("nodes", ("1",), "nodes and ranks", "", "Move"),
    Command("log", ("2",), "log", "", "Move"),
    Command("detail", ("3",), "detail of a node or rank", "", "Move"),
    Command("events", ("4",), "events: what happened when", "", "Move"),
    Command("commands", ("5",), "commands: what cockpit ran, as you would type it", "", "Move"),
    Command("previous_rank", ("left_square_bracket",), "previous rank", "", "Move"),
    Command("next_rank", ("right_square_bracket",), "next rank", "", "Move"),
    Command("mark", ("space",), "mark the node or rank", "mark", "Move", "The log narrows to the marks."),
    Command(
        "filter",
        ("slash",),
        "filter the log",
        "filter",
        "Log",
        "A regular expression, live while you type; a leading ! inverts; small letters match capitals too. "
        "Put @0,13-15 or @gpu[01-04] in front to see only these ranks or nodes.",
        20,
        panes=("grid", "log"),
    ),
    Command("next_match", ("n",), "next match", "next", "Log", "Of the filter, or of the last one."),
    Command("previous_match", ("N",), "previous match", "", "Log"),
    Command("failed_log", ("F",), "the log of the rank that failed first", "failed rank", "Log", "", 6),
    Command("next_error", ("e",), "next error", "error", "Log"),
    Command("previous_error", ("E",), "previous error", "", "Log"),
    Command("next_warning", ("w",), "next warning", "", "Log"),
    Command("previous_warning", ("W",), "previous warning", "", "Log"),
    Command("follow", ("f",), "follow the newest lines, or stay", "follow", "Log"),
    Command("wrap", ("v",), "wrap long lines, or cut them", "", "Log"),
    Command("timestamps", ("t",), "show or hide times", "", "Log"),
    Command("pager", ("o",), "open this log in $PAGER", "", "Log"),
    Command(
        "sample",
        ("s",),
        "take another sample",
        "sample again",
        "Stacks",
        "Every rank is looked at once more; what moved since is marked.",
        2,
        scope=STACKS,
    ),
    Command(
        "cancel",
        ("x",),
        "end the sample under way",
        "end it",
        "Stacks",
        "What has arrived is kept; the run is not touched.",
        1,
        scope=STACKS,
    ),
    Command(
        "native",
        ("n",),
        "C and C++ frames of the chosen rank",
        "native",
        "Stacks",
        "Asks that rank alone, once more; it is held for up to half a second. Again: Python frames alone.",
        8,
        scope=STACKS,
    ),
    Command(
        "locals",
        ("l",),
        "local variables of the chosen rank",
        "locals",
        "Stacks",
        "Asks that rank alone, once more. Secrets stay on the node. Again: without them.",
        scope=STACKS,
    ),
    Command(
        "children",
        ("c",),
        "stacks of the chosen rank's child processes",
        "children",
        "Stacks",
        "Data loaders' workers, for one. Asks that rank alone, once more. Again: without them.",
        scope=STACKS,
    ),
    Command(
        "diff",
        ("d",),
        "what differs: two samples, or two ranks",
        "diff",
        "Stacks",
        "The chosen rank against the marked one; without a mark, against its sample before if it has moved, "
        "else against most of the others. Again: back to the tree.",
        9,
        scope=STACKS,
    ),
    Command("mark_rank", ("space",), "mark the chosen rank, to compare with", "", "Stacks", scope=STACKS),
    Command("library", ("L",), "show frames of libraries, or fold them", "", "Stacks", scope=STACKS),
    Command(
        "filter_stacks",
        ("slash",),
        "narrow to a function, a file or ranks",
        "filter",
        "Stacks",
        "Live while you type: read_shard, data.py, 13, 8-15; a leading ! inverts.",
        40,
        scope=STACKS,
    ),
    Command(
        "save",
        ("w",),
        "save the snapshot, and say where",
        "save",
        "Stacks",
        "cockpit stacks FOLDER opens it again, on any machine.",
        scope=STACKS,
    ),
    Command("previous_sample", ("left_square_bracket",), "the sample before", "", "Stacks", scope=STACKS),
    Command("next_sample", ("right_square_bracket",), "the sample after", "", "Stacks", scope=STACKS),
    Command("previous_in_class", ("left",), "the rank before, of the same class", "", "Stacks", scope=STACKS),
    Command("next_in_class", ("right",), "the next rank of the same class", "", "Stacks", scope=STACKS),
    Command("classes", ("1",), "ranks by what they do", "", "Stacks", scope=STACKS),
    Command("tree", ("2",), "the tree of all stacks", "", "Stacks", scope=STACKS),
    Command("threads", ("3",), "threads of the chosen rank", "", "Stacks", scope=STACKS),
    Command(
        "copy",
        ("y",),
        "copy the line or the selection",
        "",
        "View",
        "By the terminal (OSC 52), and to a file.",
        scope=EVERYWHERE,
    ),
    Command("copy_command", ("Y",), "copy the shell command for this view", "", "View", scope=EVERYWHERE),
    Command("zoom", ("z",), "the pane alone on the screen, or all panes", "zoom", "View", scope=EVERYWHERE),
    Command("freeze", ("p",), "freeze the display, or go on", "", "View", "The run and its spool go on."),
    Command(
        "palette",
        ("ctrl+p", "colon"),
        "palette: commands, nodes, ranks and themes by name",
        "",
        "View",
        scope=EVERYWHERE,
    ),
    Command(
        "help", ("question_mark",), "all keys; type to search", "all keys", "View", "", 60, scope=EVERYWHERE
    ),
    Command("help_here", ("f1",), "help on the focused pane", "", "View", scope=EVERYWHERE),
)


def in_scope(scope: str, commands: Iterable[Command] = EVERY) -> list[Command]:
    """The commands of a screen: its own, and those of every screen."""
    return [command for command in commands if command.scope in (scope, EVERYWHERE)]


BY_ID = {command.id: command for command in EVERY}

SHOWN = {
    "question_mark": "?",
    "slash": "/",
    "minus": "-",
    "colon": ":",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "up": "↑",
    "down": "↓",
    "f1": "F1",
}
"""How keys are written for people, if not as Textual spells them."""


def shown(key: str) -> str:
    """A key as people write it."""
    return SHOWN.get(key, key)


def keymap(changes: Mapping[str, str], where: str = "") -> dict[Id, Command]:
    """All commands, with a person's own keys.

    :param changes: command id to keys, with commas between them, in people's or Textual's spelling
    :param where: the config file, for errors
    :raises CockpitError: a command that does not exist, or one key for two commands of one screen
    """
    for name in changes:
        if name not in BY_ID:
            meant = near(name, BY_ID)
            hint = f"did you mean {meant!r}?" if meant else "docs/keys.md lists the names"
            raise CockpitError(f"keys: no command {name!r}", where=where, hint=hint)
    commands = {
        command.id: replace(command, keys=_spelled(changes[command.id])) if command.id in changes else command
        for command in EVERY
    }
    for scope in (RUN, STACKS):
        _refuse_clashes(in_scope(scope, commands.values()), where)
    return commands


def _spelled(keys: str) -> tuple[str, ...]:
    """Keys in Textual's spelling."""
    spelled = {text: key for key, text in SHOWN.items()}
    words = (word.strip() for word in keys.split(","))
    return tuple(spelled.get(word, word) for word in words if word)


def _refuse_clashes(commands: Iterable[Command], where: str) -> None:
    taken: dict[str, str] = {}
    for command in commands:
        for key in command.keys:
            if key in taken:
                what = f"keys: {shown(key)!r} is for {taken[key]!r} and for {command.id!r}"
                raise CockpitError(what, where=where, hint="give one of them another key")
            taken[key] = command.id


def key_table() -> str:
    """The table of all keys in Markdown, for the docs."""
    lines = []
    group = ""
    for command in sorted(EVERY, key=lambda c: GROUPS.index(c.group)):
        if command.group != group:
            group = command.group
            lines += [
                "",
                f"**{NAMES.get(group, group)}**",
                "",
                "| key | what it does | name in `[keys]` |",
                "|---|---|---|",
            ]
        keys = " ".join(f"`{shown(key)}`" for key in command.keys)
        text = f"{command.title}. {command.help}" if command.help else command.title
        lines.append(f"| {keys} | {text} | `{command.id}` |")
    return "\n".join(lines).strip() + "\n"
