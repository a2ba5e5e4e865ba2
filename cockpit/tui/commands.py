"""Every command of the app: the one list behind bindings, footer, help, palette and the docs' key table."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from cockpit.errors import CockpitError, near

HOME, RUN, STACKS, DOCTOR, KEPT, PROFILE = "home", "run", "stacks", "doctor", "kept", "profile"
COMPARE, EVERYWHERE = "compare", ""
"""Scopes: what a key does on the home screen, the run's, the stacks', the doctor's, that of evidence, a
profile's, that of two runs, or on all."""
REPLAY = "replay"
"""The run's screen where the run is replayed: it has the commands of both."""

GROUPS = ("Home", "Run", "Replay", "Move", "Log", "Stacks", "Doctor", "Profile", "View")
"""Headings in help and docs, in order."""

SEE = "see: cockpit help keys"
"""Where it says what may be among a person's own keys."""

Id = str
"""The name of a command. A screen carries out those of its scope, no fewer and no others."""


@dataclass(frozen=True)
class Command:
    """Something a person can do.

    :param group: heading in help
    :param id: its name in the config's ``[keys]``, in bindings and in code
    :param bound: keys in Textual's spelling with commas between them, the first one is shown
    :param title: what it does, in a few words
    :param short: its label in the footer
    :param help: one or two more sentences
    :param footer: place in the footer's order, lowest first; None: never there
    :param panes: those of the run's screen in which the footer offers it; empty: all of them
    :param changes: whether it changes the run, which ``--read-only`` forbids
    :param scope: the screen it is for, such as ``run`` or ``stacks``; empty: every screen
    :param replayed: its keys where a run is replayed, if a command of that has those it has elsewhere; None:
        the same
    """

    group: str
    id: Id
    bound: str
    title: str
    short: str = ""
    help: str = ""
    footer: int | None = None
    panes: tuple[str, ...] = ()
    changes: bool = False
    scope: str = RUN
    replayed: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys one by one."""
        return tuple(filter(None, self.bound.split(",")))

    @property
    def key(self) -> str:
        """The first key, as people write it; without one its name in the palette."""
        return shown(self.keys[0]) if self.keys else f":{self.id}"


# One for the commands under each heading.
_home, _run, _replay, _move, _log, _stacks, _doctor, _profile, _view = (
    partial(Command, group) for group in GROUPS
)
_home = partial(_home, scope=HOME)
_replay = partial(_replay, scope=REPLAY)
_stacks = partial(_stacks, scope=STACKS)
_doctor = partial(_doctor, scope=DOCTOR)
_profile = partial(_profile, scope=PROFILE)

EVERY: tuple[Command, ...] = (
    _home(
        "filter_runs",
        "slash,f",
        "filter the runs: a name, a node, a state, a word of the cause",
        "filter",
        "Live while you type; several words must all be found, a leading ! inverts.",
        35,
    ),
    _home(
        "run_again",
        "r",
        "run again: shows the command and environment variables that were not saved, then asks",
        "run again",
        "Secrets are not saved; cockpit prompts for them.",
        40,
        changes=True,
    ),
    _home(
        "compare_runs",
        "equals_sign",
        "compare two runs: press it on one, then on the other",
        "compare",
        footer=45,
    ),
    _home(
        "attach_job",
        "a",
        "watch the SLURM job under the cursor, else the first that runs",
        "attach to a job",
        footer=50,
    ),
    _home(
        "look_nodes",
        "o",
        "search nodes for runs and jobs that are not known here: a hostfile, or names",
        "other nodes",
        "A job that cockpit did not start is listed too; enter watches it.",
        55,
    ),
    _home(
        "stop_run",
        "x",
        "stop the run",
        "stop",
        "Asks first. SIGTERM, time to end, a profiler's time to write its report, then SIGKILL.",
        changes=True,
    ),
    _home(
        "remove_run",
        "X",
        "remove a run that is over",
        "remove",
        "Here and on its nodes, as cockpit clean RUN: shows what that frees, and asks.",
        changes=True,
    ),
    _home("ask_again", "u", "ask the nodes again, now", "ask again"),
    _home("demo", "d", "while no run is known: the demo, a healthy run of 4 ranks", "demo", footer=1),
    _home("demo_hang", "h", "the same with a rank that hangs", "demo with a hang", footer=2),
    _home("demo_crash", "c", "the same with a rank that fails", "demo with a crash", footer=3),
    _home("home_runs", "1", "the runs"),
    _home("home_run", "2", "the run under the cursor: cause, curves, last lines"),
    _home("home_jobs", "3", "your SLURM jobs"),
    _run(
        "stop",
        "x",
        "stop the run",
        "stop",
        "Asks first. SIGTERM, time to end, a profiler's time to write its report, then SIGKILL.",
        50,
        changes=True,
    ),
    _run(
        "keep",
        "K",
        "keep the other ranks running after a failure",
        "keep running",
        "Asks first. Cancels the stop that would follow a rank's failure.",
        5,
        changes=True,
    ),
    _run(
        "collect",
        "c",
        "collect profiler reports",
        "collect",
        "Fetches every node's reports and checks them by sha256. Press again to cancel, once more to resume.",
        40,
    ),
    _run(
        "stacks",
        "s",
        "stacks of all ranks, merged, and which rank is the odd one",
        "stacks",
        "Samples every rank twice, a second apart. Training is not disturbed.",
        35,
    ),
    _run(
        "stall_stacks",
        "S",
        "the stacks taken when the run stalled",
        "its stacks",
        "Taken automatically by the cockpit that watches. s takes new ones.",
        4,
    ),
    _run(
        "evidence",
        "V",
        "what the ranks were doing when they stalled, or when one failed",
        "evidence",
        "Saved by the nodes, whether or not anybody watched, and by cockpits that watched; enter opens them.",
        55,
    ),
    _run(
        "profile",
        "P",
        "profile the ranks: the same few steps on all of them, and who is slow in what",
        "profile",
        "Asks what, on which ranks and for how long, and says what it will cost. Opens earlier ones, too.",
        36,
    ),
    _run(
        "doctor",
        "D",
        "what differs between the nodes, and what is wrong with them",
        "doctor",
        "Checks all nodes at once, for a few seconds. Nothing is changed on them.",
    ),
    _run(
        "retry",
        "r",
        "try again after trouble, or log in again",
        "try again",
        "After an error on this machine, or when a lost link needs a password or a code again.",
        1,
    ),
    _run(
        "runs",
        "R",
        "open another run",
        help="Lists the same runs as cockpit ps. This one continues.",
    ),
    _run(
        "compare",
        "equals_sign",
        "compare this run with another one",
        help="What differs, and curves over each other. The last good run of the same command comes first.",
    ),
    _run("leave", "q", "leave; the run continues", "leave", "Prints how to come back.", 70, scope=EVERYWHERE),
    _run("interrupt", "ctrl+c", "copy the selection, end a sample, or ask how to leave", scope=EVERYWHERE),
    _replay("play", "space", "play, or pause", "play", "At the end: from the beginning.", 2),
    _replay("rewind", "left", "10 seconds back"),
    _replay("forward", "right", "10 seconds on"),
    _replay("rewind_far", "shift+left", "5 minutes back"),
    _replay("forward_far", "shift+right", "5 minutes on"),
    _replay(
        "previous_mark",
        "left_square_bracket",
        "to the failure, stall or checkpoint before",
        "mark before",
        footer=4,
    ),
    _replay(
        "next_mark", "right_square_bracket", "to the next failure, stall or checkpoint", "next mark", footer=3
    ),
    _replay("slower", "less_than_sign", "slower", help="1 to 1000 times as fast as it was."),
    _replay("faster", "greater_than_sign", "faster", "faster", footer=7),
    _replay(
        "go_to",
        "g",
        "go to a time or a step",
        "go to",
        "14:30, 14:30:05, step 1200, +10m, -30s, 2h (after the start), start, end.",
        3,
    ),
    _move("open", "enter", "open what the cursor is on", "open", footer=30, scope=EVERYWHERE),
    _move("back", "escape", "one step back", "back", footer=10, scope=EVERYWHERE),
    _move("previous_view", "minus", "the previous view"),
    _move("down", "j,down", "move down", scope=EVERYWHERE),
    _move("up", "k,up", "move up", scope=EVERYWHERE),
    _move("page_down", "pagedown", "a page down", scope=EVERYWHERE),
    _move("page_up", "pageup", "a page up", scope=EVERYWHERE),
    _move("first", "g,home", "to the beginning", scope=EVERYWHERE, replayed="home"),
    _move("last", "G,end", "to the end; a log follows again", scope=EVERYWHERE),
    _move("next_pane", "tab", "next pane", scope=EVERYWHERE),
    _move("previous_pane", "shift+tab", "previous pane", scope=EVERYWHERE),
    _move("nodes", "1", "nodes and ranks"),
    _move("log", "2", "log"),
    _move("detail", "3", "detail of a node or rank"),
    _move("events", "4", "events: what happened when"),
    _move("commands", "5", "commands: what cockpit ran, as you would type it"),
    _move("pace", "6", "pace: ranks × time, who is slow"),
    _move("previous_rank", "left_square_bracket", "previous rank", replayed="left_curly_bracket"),
    _move(
        "next_rank",
        "right_square_bracket",
        "next rank",
        replayed="right_curly_bracket",
        help="If no rank is chosen: the one that failed, is holding up the others, or is slow.",
    ),
    _move(
        "longer",
        "greater_than_sign",
        "pace: more of the past",
        "more time",
        "A step a column, the last 10 minutes, the last hour, the whole run.",
        31,
        panes=("pace",),
        replayed="full_stop",
    ),
    _move(
        "shorter",
        "less_than_sign",
        "pace: less of the past",
        "less time",
        footer=32,
        panes=("pace",),
        replayed="comma",
    ),
    _move("mark", "space", "mark the node or rank", "mark", "The log narrows to the marks.", replayed="m"),
    _log(
        "filter",
        "slash",
        "filter the log or the events, or narrow nodes and ranks",
        "filter",
        "A regular expression (RE2: without look-around), live while you type; a leading ! inverts; an "
        "all-lowercase one ignores case. "
        "Put @0,13-15 or @gpu[01-04] in front to see only these ranks or nodes, @nccl to see what NCCL says. "
        "With the cursor in the nodes, it narrows these: gpu[01-04], rank 13, 0-3, failed, slow, !done.",
        20,
        panes=("grid", "log", "recent", "events"),
    ),
    _log("next_match", "n", "next match", "next", "Of this filter, or of the last one."),
    _log("previous_match", "N", "previous match"),
    _log("failed_log", "F", "the log of the rank that failed first", "failed rank", footer=6),
    _log("next_error", "e", "next error", "error"),
    _log("previous_error", "E", "previous error"),
    _log("next_warning", "w", "next warning"),
    _log("previous_warning", "W", "previous warning"),
    _log("follow", "f", "follow the newest lines, or stay", "follow"),
    _log("fold", "a", "each rank's lines one by one, or identical ones as one"),
    _log("wrap", "v", "wrap long lines, or cut them"),
    _log("timestamps", "t", "show or hide times"),
    _log("pager", "o", "open this log in $PAGER"),
    _stacks(
        "sample",
        "s",
        "take another sample",
        "sample again",
        "Every rank is sampled once more; what moved since is marked.",
        2,
    ),
    _stacks(
        "cancel",
        "x",
        "end the sample in progress",
        "end it",
        "What has arrived is kept; the run is not touched.",
        1,
    ),
    _stacks(
        "native",
        "n",
        "C and C++ frames of the chosen rank",
        "native",
        "Asks only that rank, once more, and pauses it for up to half a second. Again: Python frames only.",
        8,
    ),
    _stacks(
        "locals",
        "l",
        "local variables of the chosen rank",
        "locals",
        "Asks only that rank, once more. Secrets stay on the node. Again: without them.",
    ),
    _stacks(
        "children",
        "c",
        "stacks of the chosen rank's child processes",
        "children",
        "Such as data loader workers. Asks only that rank, once more. Again: without them.",
    ),
    _stacks(
        "diff",
        "d",
        "what differs: two samples, or two ranks",
        "diff",
        "Compares the chosen rank with the marked one; without a mark, with its previous sample if it has "
        "moved, else with most of the others. Again: back to the tree.",
        9,
    ),
    _stacks("mark_rank", "space", "mark the chosen rank, to compare with"),
    _stacks("library", "L", "show frames of libraries, or fold them"),
    _stacks(
        "filter_stacks",
        "slash",
        "narrow to a function, a file or ranks",
        "filter",
        "Live while you type: read_shard, data.py, 13, 8-15, gpu[01-04]; a leading ! inverts.",
        40,
    ),
    _stacks(
        "verdict", "v", "show the whole verdict in a short terminal; again: shorten it", "verdict", footer=7
    ),
    _stacks(
        "save",
        "w",
        "save the snapshot, and say where",
        "save",
        "cockpit stacks FOLDER opens it again, on any machine.",
    ),
    _stacks("previous_sample", "left_square_bracket", "previous sample"),
    _stacks("next_sample", "right_square_bracket", "next sample"),
    _stacks("previous_in_class", "left", "previous rank of the same class"),
    _stacks("next_in_class", "right", "next rank of the same class"),
    _stacks("classes", "1", "ranks by what they do"),
    _stacks("tree", "2", "the tree of all stacks"),
    _stacks("threads", "3", "threads of the chosen rank"),
    _doctor("look_again", "r", "check the nodes again", "check again", footer=20),
    _profile(
        "profile_again",
        "P",
        "profile again, or open an earlier profile",
        "profile again",
        "The rank under the cursor can be profiled alone.",
        20,
    ),
    _profile(
        "open_file",
        "o",
        "how to open the file under the cursor",
        "open",
        "Copies its path or the command. Perfetto runs in the browser; nothing is uploaded.",
        40,
    ),
    _profile(
        "fetch",
        "c",
        "fetch the traces from the nodes",
        "fetch files",
        "In files only the one under the cursor. Checked by sha256. Press again to cancel.",
        45,
    ),
    _profile("ranks", "1", "ranks: where a step goes"),
    _profile("operations", "2", "operations of the chosen rank, beside the median of the others"),
    _profile("collectives", "3", "collectives, and who arrives last"),
    _profile("files", "4", "files, and what opens them"),
    _profile("previous_profile", "left_square_bracket", "the previous profile of the run"),
    _profile("next_profile", "right_square_bracket", "the next profile of the run"),
    _view(
        "copy",
        "y",
        "copy the line or the selection",
        help="By the terminal (OSC 52), and to a file.",
        scope=EVERYWHERE,
    ),
    _view("copy_command", "Y", "copy the shell command for this view", scope=EVERYWHERE),
    _view(
        "screenshot",
        "C",
        "screenshot as SVG and as text",
        help="Says where the two files are; cockpit where names the folder.",
        scope=EVERYWHERE,
    ),
    _view(
        "zoom",
        "z",
        "this pane alone, or all panes",
        "zoom",
        "Alone, nodes show a line per rank with step, age, lag and work; so does pace, if there is room.",
        33,
        panes=("pace",),
        scope=EVERYWHERE,
    ),
    _view("freeze", "p", "freeze or resume the display", help="The run and its spool continue."),
    _view("units", "u", "sizes in GiB, or in GB"),
    _view(
        "bell",
        "b",
        "bell on or off: ring the terminal when the run fails, stalls or ends",
    ),
    _view(
        "remember",
        "M",
        "remember theme, timestamps, wrapping, following, folding, units and bell",
        help="Saves what you changed in your own settings (cockpit where prints the path). "
        "Nothing else there changes.",
    ),
    _view(
        "palette",
        "ctrl+p,colon",
        "palette: commands, nodes, ranks, runs and themes by name",
        scope=EVERYWHERE,
    ),
    _view("help", "question_mark", "all keys; type to search", "all keys", footer=60, scope=EVERYWHERE),
    _view("help_here", "f1", "help on the focused pane", scope=EVERYWHERE),
)


def in_scope(scope: str, commands: Iterable[Command] = EVERY) -> list[Command]:
    """The commands of a screen: its own, and those of every screen."""
    if scope != REPLAY:
        return [command for command in commands if command.scope in (scope, EVERYWHERE)]
    own = [command for command in commands if command.scope in (REPLAY, RUN, EVERYWHERE)]
    keys: dict[Id, str] = {}
    taken: set[str] = set()
    # What a replay has its keys for, the run's own commands do not: they stay in the palette.
    for command in sorted(own, key=lambda command: command.scope != REPLAY):
        bound = command.bound if command.replayed is None else command.replayed
        free = [key for key in filter(None, bound.split(",")) if key not in taken]
        taken.update(free)
        keys[command.id] = ",".join(free)
    return [replace(command, bound=keys[command.id]) for command in own]


BY_ID = {command.id: command for command in EVERY}

SHOWN = {
    "question_mark": "?",
    "slash": "/",
    "equals_sign": "=",
    "minus": "-",
    "colon": ":",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "full_stop": ".",
    "comma": ",",
    "left": "←",
    "right": "→",
    "shift+left": "shift+←",
    "shift+right": "shift+→",
    "greater_than_sign": ">",
    "less_than_sign": "<",
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
    :raises CockpitError: a command or a key that does not exist, or one key for two commands of one screen
    """
    for name in changes:
        if name not in BY_ID:
            meant = near(name, BY_ID)
            hint = f"did you mean {meant!r}?" if meant else SEE
            raise CockpitError(f"keys: no command {name!r}", where=where, hint=hint)
    commands = {
        command.id: replace(command, bound=_spelled(changes[command.id]), replayed=None)
        if command.id in changes
        else command
        for command in EVERY
    }
    for name in changes:
        _refuse_unknown(commands[name], where)
    for scope in (HOME, RUN, STACKS, DOCTOR, KEPT, PROFILE, COMPARE):
        _refuse_clashes(in_scope(scope, commands.values()), where)
    _refuse_clashes((command for command in commands.values() if command.scope == REPLAY), where)
    return commands


def _spelled(keys: str) -> str:
    """Keys in Textual's spelling."""
    spelled = {text: key for key, text in SHOWN.items()}
    words = (word.strip() for word in keys.split(","))
    return ",".join(spelled.get(word, word) for word in words)


NAMED = (
    "escape return enter tab space backspace insert delete left right up down home end pageup pagedown "
    "plus minus slash backslash at underscore f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 "
    "f13 f14 f15 f16 f17 f18 f19 f20 f21 f22 f23 f24"
)
"""Keys in Textual's spelling that are no single character, nor called by its name in Unicode."""
MODIFIERS = "shift ctrl alt super hyper meta"


def _refuse_unknown(command: Command, where: str) -> None:
    for key in command.keys:
        *before, last = key.split("+") if len(key) > 1 else [key]
        if not set(MODIFIERS.split()).issuperset(before) or (
            len(last) != 1 and last not in NAMED.split() and not _character(last)
        ):
            meant = near(key, [*NAMED.split(), *SHOWN.values()])
            hint = f"did you mean {meant!r}?" if meant else SEE
            raise CockpitError(f"keys: no key {key!r}, for {command.id!r}", where=where, hint=hint)


def _character(name: str) -> str:
    """The character of this name in Unicode, as Textual calls keys that have no other; empty: none."""
    try:
        return unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return ""


def _refuse_clashes(commands: Iterable[Command], where: str) -> None:
    taken: dict[str, str] = {}
    for command in commands:
        for key in command.keys:
            if key in taken:
                what = f"keys: {shown(key)!r} is for {taken[key]!r} and for {command.id!r}"
                raise CockpitError(what, where=where, hint="give one of them another key")
            taken[key] = command.id
