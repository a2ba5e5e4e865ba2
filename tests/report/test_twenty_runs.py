"""Real runs of eleven endings, and two of torchrun: each number in a report is counted once more."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.cli.verbs import Verbs
from tests.report.endings import ENDINGS, MET, Made, make_again, make_all
from tests.report.recount import Recount, numbers_in

pytestmark = [pytest.mark.slow, pytest.mark.launch]

POINTS, LINES, EXACT = 240, 25, 1e-6
INDEX_S = 0.5
"""When a line of a log was written is known as well as that, on a busy machine."""
CLOCK_S = 0.05
"""A clock is measured anew; which of the offsets counts for an event is no question of this test."""

COUNTED = {
    "began", "ended", "took_s", "code", "made", "ranks", "events_left_out", "secrets_taken",
    "pace.steps", "pace.first", "pace.last", "pace.begun_s", "pace.mean_s",
    "wall.wall_s", "wall.share", "wall.lost_steps",
    *(f"wall.parts.{name}" for name in (
        "steps", "start", "checkpoint", "evaluation", "stalled", "lost", "between", "other")),
    "curves[].points[][]", "curves[].first", "curves[].last", "curves[].least", "curves[].most",
    "curves[].most_at", "curves[].odd", "curves[].odd_from",
    "events[].at", "events[].rank", "why.lines[].number", "last_lines[].rank", "last_lines[].size",
}  # fmt: skip
"""Where numbers are that are counted again."""

NOT_COUNTED = {
    "stacks[].at": "when the first sample was taken is in a file of cockpit's own format alone",
    "stacks[].found.since": "as that",
    "findings[].since": "when a watch judged it is in no file but as it was told",
}
"""Where numbers are that cannot be counted again, and why."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, quick_cockpit: tuple[str, ...]) -> Verbs:
    folder = tmp_path_factory.mktemp("twenty")
    return Verbs(folder / "state", folder / "work", quick_cockpit)


@pytest.fixture(scope="module")
def every(here: Verbs) -> list[Made]:
    """All of them, run once for all tests here."""
    return make_all(here)


def test_every_number_is_that_of_the_files(here: Verbs, every: list[Made]) -> None:
    """One test for all: workers that share its cases would have all of them run several times.

    Where a machine is so busy that a rank or the watch is starved for some steps, the recount, which knows
    only the plain rules, may be wrong. So two may differ, and another run that ends so, with none beside
    it, must not.
    """
    assert len(every) in (13, 15)
    wrong = {one.ending: told for one in every if (told := differences(one))}
    assert len(wrong) <= 2, wrong
    again = {ending: told for ending in wrong if (told := differences(make_again(here, ending)))}
    assert not again, (wrong, again)
    paths = set().union(*(numbers_in(one.report) for one in every))
    assert paths - COUNTED - set(NOT_COUNTED) == set(), "numbers that nothing counts again"
    assert COUNTED - paths == set(), "numbers that no report has"


Point = tuple[float, float]


def differences(one: Made) -> list[str]:
    """In which of its numbers a report is not what the files say."""
    counted = Recount(one.folder, last_timed(one.report))
    found = [
        *_ending(one, counted),
        *_pace(one.report, counted),
        *_wall(one.report, counted),
        *_curves(one.report, counted),
        *_events(one.report, counted),
        *_last_lines(one.report, counted),
        *_worded(one),
    ]
    return [text for text, right in found if not right]


def last_timed(told: dict[str, Any]) -> float:
    """The last step of which a report says how long it took."""
    return max(
        (curve["points"][-1][0] for curve in told["curves"] if curve["name"] == "step time"), default=0.0
    )


Checked = list[tuple[str, bool]]
"""What was compared, in words, and whether it is right."""


def same(what: str, told: Any, counted: Any, within: float = EXACT) -> tuple[str, bool]:
    """Compare a number, or nothing, with nothing but a number."""
    if told is None or counted is None or isinstance(told, str):
        right = told == counted
    else:
        right = abs(told - counted) <= within
    return f"{what}: the report says {told!r}, the files {counted!r}", right


def _ending(one: Made, counted: Recount) -> Checked:
    told, kind, first = one.report, ENDINGS[one.ending.how], counted.first_bad
    states = {"stop": "stopped", "now": "stopped", "hang": "stopped"}
    if first is not None:
        state = f"failed: rank {first} {counted.how(first)}"
    else:
        state = states.get(one.ending.how, "ended")
    found = [
        same("code", told["code"], counted.code),
        same("exit code", one.done.code, kind.exits),
        same("code of run", told["code"], one.done.code),
        same("ranks", told["ranks"], len(counted.ranks)),
        same("began", told["began"], counted.began),
        same("ended", told["ended"], counted.ended),
        same("took", told["took_s"], counted.ended - counted.began),
        ("made after it ended", told["ended"] <= told["made"] <= time.time()),
        same("secrets", told["secrets_taken"], 0),
        ("the rank that it happened to", first in (None, one.ending.bad)),
    ]
    if one.ending.how != "watch":
        found.append(same("state", told["state"], state))
    # Of a run that was stopped nothing failed; of one that the watch stopped all ranks stood still.
    why = {} if told["why"] is None else {"how": told["why"]["how"], "ranks": told["why"]["ranks"]}
    if first is not None:
        found.append((f"why: {why}", why == {"how": "broke", "ranks": str(first)}))
    else:
        found.append((f"why: {why}", (why.get("how") == "stalled") == (one.ending.how == "watch")))
    for line in (told["why"] or {"lines": []})["lines"]:
        log = (one.folder / line["file"]).read_text().splitlines()
        found.append(same(f"line {line['number']}", line["text"], log[line["number"] - 1]))
    return found


def _pace(told: dict[str, Any], counted: Recount) -> Checked:
    pace, steps = told["pace"], counted.steps
    within = INDEX_S / max(1, len(steps)) if counted.rest or counted.untimed else EXACT
    found = [
        same("steps", pace["steps"], len(steps)),
        same("first step", pace["first"], min(steps, default=(0, None))[1]),
        same("last step", pace["last"], max(steps, default=(0, None))[1]),
        same("first step after", pace["begun_s"], counted.begun_s),
        same("mean", pace["mean_s"], counted.mean_s, within),
        (f"exact: {pace['exact']}", pace["exact"] == counted.exact),
        ("phases", pace["phases"] == {}),
    ]
    if counted.exact:
        # Nobody sleeps for less than that; of the very first step it is not known how long it took.
        least = sum(0.03 + 0.02 * (step % 3) for _, step in steps) - 0.2
        found.append((f"{len(steps)} steps of {pace['mean_s']} s", pace["mean_s"] * len(steps) >= least))
    return found


def _wall(told: dict[str, Any], counted: Recount) -> Checked:
    wall, parts = told["wall"], counted.wall
    if wall is None or not parts:
        return [("wall", wall is None and not parts)]
    within = INDEX_S if counted.rest or counted.untimed else 1e-5
    loose = [] if counted.exact else [name for name in ("steps", "start", "other") if parts[name] > 0]
    found = [same(name, took, parts.get(name, 0.0), within) for name, took in wall["parts"].items()]
    found += [
        same("wall", wall["wall_s"], counted.ended - counted.began),
        same("sum of its parts", sum(wall["parts"].values()), wall["wall_s"], 1e-5),
        same("share", wall["share"], parts["steps"] / wall["wall_s"], within / wall["wall_s"]),
        same("lost", wall["lost_steps"], counted.lost_steps),
        (f"estimated: {wall['estimated']}", wall["estimated"] == loose),
    ]
    return found


def _curves(told: dict[str, Any], counted: Recount) -> Checked:
    timed: list[Point] = [] if counted.untimed else [(line.step, line.span) for line in counted.pace]
    wanted: dict[str, list[Point]] = {
        "loss": [(step, loss) for step, loss, _ in counted.said],
        "step time": timed,
        "tokens/s": [(step, speed) for step, _, speed in counted.said],
    }
    found: Checked = [
        ("curves", [one["name"] for one in told["curves"]] == [n for n, v in wanted.items() if v])
    ]
    for curve in told["curves"]:
        name, values = curve["name"], wanted[curve["name"]]
        odd = [step for step, value in values if not abs(value) < float("inf")]
        good = [(step, value) for step, value in values if step not in odd]
        if name == "step time" and counted.rest:
            good = _as_told(good, curve["points"], len(counted.rest))
        most = max(value for _, value in good)
        found += [
            same(f"{name}: first", curve["first"], good[0][1]),
            same(f"{name}: last", curve["last"], good[-1][1]),
            same(f"{name}: least", curve["least"], min(value for _, value in good)),
            same(f"{name}: most", curve["most"], most),
            same(f"{name}: most at", curve["most_at"], next(step for step, value in good if value == most)),
            same(f"{name}: no numbers", curve["odd"], len(odd)),
            same(f"{name}: from", curve["odd_from"], odd[0] if odd else None),
            (f"{name}: points", {tuple(point) for point in curve["points"]} <= set(good)),
            (
                f"{name}: how many",
                len(curve["points"]) == len(good) or POINTS / 4 < len(curve["points"]) <= POINTS,
            ),
        ]
    return found


def _as_told(good: list[Point], told: list[list[float]], rest: int) -> list[Point]:
    """The same values, the last ones as they were told, if they are about those."""
    near = [abs(one[1] - other[1]) < INDEX_S for one, other in zip(good[-rest:], told[-rest:], strict=False)]
    return [*good[:-rest], *((point[0], point[1]) for point in told[-rest:])] if all(near) else good


def _events(told: dict[str, Any], counted: Recount) -> Checked:
    events = told["events"]
    found = [
        same("events", len(events), len(counted.events)),
        same("events left out", told["events_left_out"], 0),
        ("order of events", events == sorted(events, key=lambda one: one["at"])),
    ]
    # Those of one moment may have changed places.
    levels = sorted(one["level"] for one in events), sorted(one.level for one in counted.events)
    found.append((f"levels of events: {levels}", levels[0] == levels[1]))
    spread = max(counted.offsets) - min(counted.offsets) + CLOCK_S
    for one, other in zip(events, counted.events, strict=False):
        found.append(same(f"when: {one['text']}", one["at"], other.at, spread))
    errors = [one["rank"] for one in events if one["level"] == "error" and one["rank"] is not None]
    wanted = [one.rank for one in counted.events if one.level == "error" and one.rank is not None]
    found.append((f"who failed first: {errors}", errors == wanted))
    return found


def _last_lines(told: dict[str, Any], counted: Recount) -> Checked:
    shown = [tail["rank"] for tail in told["last_lines"]]
    # Of those that fail, two; of those that have said something at all, the one that tells of steps.
    wanted = {counted.first_bad, counted.speaker} - {None}
    found: Checked = [(f"whose last lines: {shown}", wanted <= set(shown) and len(shown) == len(set(shown)))]
    for tail in told["last_lines"]:
        rank = tail["rank"]
        lines = [line.rstrip() for line in counted.logs[rank].splitlines() if line.strip()]
        size = (counted.spool / f"rank-{rank}.log").stat().st_size
        found.append(same(f"size of the log of rank {rank}", tail["size"], size))
        found.append(
            (f"last lines of rank {rank}", [one.rstrip() for one in tail["lines"]] == lines[-LINES:])
        )
    return found


# In words


def _lasted(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"


def _value(value: float, unit: str) -> str:
    if unit == "s":
        return _lasted(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _sentences(told: dict[str, Any]) -> list[str]:
    """What text and Markdown have to say, by the numbers for programs."""
    pace, about = told["pace"], "" if told["pace"]["exact"] else "~"
    span = "" if pace["mean_s"] is None else f", {about}{_lasted(pace['mean_s'])} a step"
    found = [
        f"{told['run']}: {told['state']}",
        f"2 ranks on 1 node (localhost), {told['launcher']}",
        f", after {_lasted(told['took_s'])}, exit code {told['code']}",
        f"{pace['steps']} steps, {pace['first']} to {pace['last']}{span}",
        f"first step finished after {about}{_lasted(pace['begun_s'])}",
    ]
    for one in told["curves"]:
        first, last, least, most = (
            _value(one[name], one["unit"]) for name in ("first", "last", "least", "most")
        )
        line = f"{one['name']}: {first} to {last}, min {least}, max {most} at step {one['most_at']}"
        many = f"{one['odd']} step{'' if one['odd'] == 1 else 's'}"
        found.append(
            line + (f"; not a number in {many}, from step {one['odd_from']} on" if one["odd"] else "")
        )
    if wall := told["wall"]:
        parts = [
            f"{'~' * (name in wall['estimated'])}{name} {_lasted(took)} ({100 * took / wall['wall_s']:.0f} %)"
            for name, took in wall["parts"].items()
            if took
        ]
        found.append(f"wall time {_lasted(wall['wall_s'])}: {', '.join(parts)}")
    return found


def _worded(one: Made) -> Checked:
    told, markdown = one.report, re.sub(r"\\(\W)", r"\1", one.markdown)
    found = [(f"not in the text: {text}", text in one.text) for text in _sentences(told)]
    found += [(f"not in the Markdown: {text}", text in markdown) for text in _sentences(told)]
    for at, tail in enumerate(told["last_lines"]):
        size = f"{tail['size']} B" if tail["size"] < 1000 else f"{tail['size'] / 1000:.0f} kB"
        for text, most in ((one.text, 12), *([(markdown, 10)] if at < 2 else [])):
            many = min(most, len(tail["lines"]))
            title = rf"rank {tail['rank']} on localhost: .*; last (\d+) lines? of {size}:"
            counts = [int(count) for count in re.findall(title, text)]
            # Of 60 lines of Markdown there may be fewer left.
            right = (
                counts == [many] if text is one.text else len(counts) <= 1 and max(counts, default=0) <= many
            )
            found.append((f"{tail['why']}: {counts} of {many} lines of {size}", right))
    found.append(("Markdown has at most 60 lines", len(one.markdown.splitlines()) <= 60))
    return found


def test_the_runs_ended_as_they_were_to(every: list[Made]) -> None:
    """Else the other test says little."""
    for one in every:
        pace, how = one.report["pace"], one.ending.how
        assert pace["exact"] == one.ending.noted, one.ending.name
        if how in ("watch", "hang"):
            assert pace["last"] == MET - 1
        if how == "restarted":
            # The steps of the first start were done again, and each step of the second one counts.
            assert MET - 2 <= one.report["wall"]["lost_steps"] <= MET - 1
            assert pace["steps"] == MET - 1 + ENDINGS[how].steps
            assert sum("started again, attempt 2" in event["text"] for event in one.report["events"]) == 2
        if how == "torchrun":
            assert (pace["steps"], one.report["wall"]["lost_steps"]) == (ENDINGS[how].steps, 0)
        if how == "nan":
            assert one.report["curves"][0]["odd"] == ENDINGS[how].steps - MET + 1
        if how == "import":
            assert "a_module_that_nobody_has" in one.report["why"]["cause"]
