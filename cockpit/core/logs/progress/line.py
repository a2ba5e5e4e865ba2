"""What the numbers of a line are, worked out from the words between them.

Validation metrics, means over a whole training, settings, and bars of anything other than training are left
out: a missing number does less harm than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from cockpit.core.logs.progress import wordings
from cockpit.core.logs.progress.durations import time_left
from cockpit.core.logs.progress.names import NEAR, Name, Unit, name_of, unit_of
from cockpit.core.logs.progress.plan import NUMBER, PARTS, Plan, Trust
from cockpit.core.logs.progress.rows import row_of
from cockpit.core.logs.progress.wordings import Order

NUMBERS = 160
"""A line with more numbers is not read."""

PROSE = 3
"""A line with so many words that logs do without is what a model or a person wrote."""

# A step out of a total, an epoch out of a total.
_OF = re.compile(rb"[kmb]?\s{0,8}/\s{0,8}|\s{1,8}(?:of|out of|\(of)\s{1,8}")
_AFTER_EPOCH = re.compile(rb"[\]\[\s:,|)(-]{1,8}")
_IN_BRACKETS = re.compile(rb"\]|\s{0,4}\(")
_DRAWN = re.compile(rb"\s{0,4}\[[=>.#\-\s]{4,80}\]")
_BAR = re.compile(
    rb"(?<![\w.])(?P<step>\d{1,15})(?:/(?:(?P<total>\d{1,15})|\?)|it) \[[\d:]{1,12}(?:<[\d:?]{1,12})?,\s{0,3}"
    rb"(?:\?|\d{1,9}(?:\.\d{1,9})?)\s?(?:(?P<unit>it|ba|batch|batches|steps?|iters?|updates?)/s|s/(?P<each>it|ba|batch|steps?|iters?|updates?))"
)
_SEPARATES = re.compile(rb"\s{0,8}[|,;)\]]")
_GLUED = re.compile(rb"[a-z]{1,3}\b")
_WORDS = re.compile(rb"[^\s:\[\]<>(){}|,'\"=]+")
_EPOCHS = re.compile(rb"\bepochs?\s*:?\s*(?:\d+%|\Z)")
_OTHER_BAR = re.compile(
    rb"\b(?:val|eval|test|sanity|predict|infer|generat|load|fetch|download|upload|sav|map|filter|token"
    rb"|cach|convert|prepar|preprocess|pack|group|captur|compil|sampl|warm|rollout|request|prompt|render"
    rb"|process|collect|denois|encod|quant|merg|extract|index|read|scan|comput|check|creat|build|writ)"
)
# "lr ........ 0.0003", as Megatron lists its arguments.
_SETTING = re.compile(rb"\w \.{3,200} \S{1,200}\s*\Z")
# What launchers say they start: "cmd = … train.py --steps 600".
_COMMAND = re.compile(rb"(?:^|[\s'\"])--[a-z][\w.-]*[\s=]")
_TIME_LEFT = re.compile(rb"[^\w\n]{0,80}eta[^\w\n]{1,8}(?:\d{1,5}[\s:.,]{0,2}[a-z]{0,7}\s?){1,5}[^\w\n]{0,8}")
_PLAIN_WORD = re.compile(rb"(?<!\S)[a-z]{1,7}(?=[\s,.;:!?]|\Z)")
_KINDS = {frozenset({"rate"}): Trust.SPEED, frozenset({"step"}): Trust.HEADING}
"""How far to trust a project's own pattern with nothing else than this."""
_SPOILT = b"train_runtime", b"train_loss_total"
_SPEEDS = frozenset(("samples_s", "tokens_s", "rate", "step_s"))


def plan_of(line: bytes) -> Plan | None:
    """How to read lines such as this one, in small letters; None: they have nothing to read."""
    if any(word in line for word in _SPOILT) or (b" ..." in line and _SETTING.search(line)):
        return None
    if b"--" in line and _COMMAND.search(line):
        return None
    if sum(word in wordings.PROSE for word in _PLAIN_WORD.findall(line)) >= PROSE:
        return None
    return _Line(line).plan()


class _Step(NamedTuple):
    """A number that may be the step; the smallest one is taken."""

    lacks_total: bool
    place: Order
    number: int
    total: int | None = None
    told: bool = False


class _Line:
    """One line, taken apart."""

    def __init__(self, line: bytes) -> None:
        parts = PARTS.split(line)
        self.line = line
        self.gaps = parts[0::2]
        self.count = len(parts) // 2
        self.aside = False
        self.settings = 0
        self.parts = False
        self.trains = False
        # field: (place, number, factor), and whether a heading gives it
        self.found: dict[str, tuple[Order, int, float]] = {}
        self.named: set[str] = set()
        self.steps: list[_Step] = []
        self.bar: tuple[str, int, int | None] | None = None
        self.epochs = -1
        self.kind: Trust | None = None

    def plan(self) -> Plan | None:
        if self.count > NUMBERS or not self._take_bar():
            return None
        self._take_numbers()
        row = row_of(self.line)
        if row is not None:
            self._take_row(row)
        elif self.aside or self.settings > 1:
            return None
        step = min(self.steps, default=None, key=lambda each: each[:3])
        loss = self.found.get("loss")
        if self.bar is not None:
            step = _Step(False, Order.FIRST, self.bar[1], self.bar[2])
        elif step is None and loss is not None:
            step = self._unnamed_step()
        if step is not None and step.lacks_total and step.place is Order.LAST and "epoch" not in self.found:
            step = None
        if "time" in self.found and not self._times_a_step(step is not None):
            del self.found["time"]
        if self.parts:
            self.found.pop("step_s", None)
        kind = self._kind(step)
        if kind is None:
            return Plan(Trust.ALONE, self.count, (), eta=True) if _TIME_LEFT.fullmatch(self.line) else None
        plain = loss is not None and loss[0] is Order.FIRST
        return Plan(kind, self.count, self._places(step), self._eta(), self._label(), plain, self.epochs)

    def _places(self, step: _Step | None) -> tuple[tuple[str, int, float], ...]:
        places = []
        if step is not None:
            places.append(("step", step.number, self._scale(step.number)))
            if step.total is not None:
                places.append(("total", step.total, self._scale(step.total)))
        for name, (_, index, factor) in self.found.items():
            if name == "time":
                if "step_s" in self.found:
                    continue
                name = "step_s"
            if name == "total" and (step is None or step.total is not None):
                continue
            places.append((name, index, factor))
        # A time of a step before its rate, which is rounded more often.
        return tuple(sorted(places, key=lambda place: place[0] == "rate"))

    def _name(self, index: int) -> Name:
        """The name before a number, without the unit of the previous number."""
        before = self.gaps[index]
        if index:
            end = unit_of(before[:NEAR]).rate_end
            if end and (_SEPARATES.match(before, end) or not self._name(index - 1).field):
                before = before[end:]
            elif (glued := _GLUED.match(before)) is not None:
                before = before[glued.end() :]
        return name_of(before[-NEAR:])

    def _scale(self, index: int) -> float:
        unit = unit_of(self.gaps[index + 1][:NEAR])
        return unit.factor if unit.kind == "scaled" else 1.0

    def _eta(self) -> bool:
        return time_left(self.line) is not None

    def _label(self) -> bytes:
        return self.gaps[self.found["loss"][1]][-24:] if "loss" in self.found else b""

    def _kind(self, step: _Step | None) -> Trust | None:
        fields = self.found.keys() - {"epoch", "total", "time"}
        counted = step is not None or "epoch" in self.found
        if self.kind is not None:
            return self.kind
        if self.bar is not None:
            return Trust.TOLD if self.bar[0] or fields - {"step_s", "rate"} else Trust.BARE
        if "loss" in fields:
            return Trust.TOLD if counted or len(fields) > 1 else Trust.ALONE
        if "lr" in fields and (self._named(step) or "epoch" in self.found):
            return Trust.TOLD
        if fields and (self._named(step) or "epoch" in self.found or self.trains):
            return Trust.TOLD if self.trains else Trust.SPEED
        if counted and not fields and self._heads(step):
            return Trust.HEADING
        return Trust.ALONE if fields & self.named or ("epoch" in self.found and step is None) else None

    @staticmethod
    def _named(step: _Step | None) -> bool:
        return step is not None and step.place is not Order.LAST

    def _heads(self, step: _Step | None) -> bool:
        """Whether a lone step, or epoch, is a heading for numbers to come; ``steps: 10`` is a setting."""
        index = step.number if step is not None else self.found["epoch"][1]
        ends = {step.number, step.total} if step is not None else {index, index + 1}
        ends.add(self.found.get("epoch", (0, -1))[1])
        rest = self.gaps[-1]
        if rest.strip(b" \t:.=-|#])*") or (self.count - 1 not in ends and rest.strip() != b"]"):
            return False
        if step is not None and step.total is not None:
            return True
        name = self._name(index)
        after = self.gaps[index + 1]
        if _OF.fullmatch(after) is not None:
            return True
        banner = self.gaps[0].lstrip()[:2] in (b"**", b"==", b"--", b"##")
        return name.known in wordings.HEADINGS and (
            not name.told or banner or after[:1] in (b"]", b"|") or b"|" in after
        )

    def _times_a_step(self, stepped: bool) -> bool:
        """Whether "time" is that of a step: only if other measurements of the step are beside it."""
        _, index, factor = self.found["time"]
        after = self.gaps[index + 1]
        return (
            stepped
            and "loss" in self.found
            and (factor == 1e-3 or b"data" in self.line or after.startswith(b" ("))
        )

    def _take_bar(self) -> bool:
        """Find the bar in the line; return False if it is not one of training."""
        found = None
        for found in _BAR.finditer(self.line):  # noqa: B007  (the last one is the newest)
            pass
        if found is None:
            return True
        before = self.line[: found.start()]
        words = {word.rstrip(b".") for word in _WORDS.findall(before)}
        if _OTHER_BAR.search(before) or _EPOCHS.search(before) or not wordings.ASIDE.isdisjoint(words):
            return False
        plain = {word for word in words if word.isalpha()} - wordings.NO_WORDS
        training = not wordings.BAR_OF_TRAINING.isdisjoint(plain)
        if (
            not training
            and ((found["unit"] or found["each"]).startswith(b"ba") or plain)
            and b"loss" not in self.line
        ):
            return False
        index = len(NUMBER.findall(before))
        self.bar = "training" if training else "", index, index + 1 if found["total"] else None
        return True

    def _take_row(self, row: Mapping[str, tuple[int, float]]) -> None:
        """Take the numbers of a project's own pattern before all others."""
        at = {found.start(): index for index, found in enumerate(NUMBER.finditer(self.line))}
        row = {name: (at[start], factor) for name, (start, factor) in row.items() if start in at}
        if "rate" in row or "step_s" in row:
            self.found.pop("rate", None)
            self.found.pop("step_s", None)
        for name, (index, factor) in row.items():
            if name == "epochs":
                self.epochs = index
            elif name == "step":
                self.steps = [_Step(False, Order.FIRST, index, row["total"][0] if "total" in row else None)]
            elif name != "total":
                self.found[name] = Order.FIRST, index, factor
        self.kind = _KINDS.get(frozenset(row), Trust.TOLD)

    def _take_numbers(self) -> None:
        index = 0
        after_epoch = False
        while index < self.count:
            taken, after_epoch = self._take(index, after_epoch)
            index += taken

    def _take(self, index: int, after_epoch: bool) -> tuple[int, bool]:
        """Take a number, or two ("3 of 10"); return how many it took, and whether it was an epoch."""
        before, after = self.gaps[index], self.gaps[index + 1]
        if self.bar is not None and index in self.bar[1:]:
            return 1, False
        name = self._name(index)
        self._look_about(before, name)
        of = index + 1 < self.count and _OF.fullmatch(after) is not None and self.gaps[index + 2][:1] != b"/"
        count = 2 if of else 1
        if before == b"] [" and self.gaps[index - 1].endswith(b".py:") and after.startswith(b"] "):
            self.steps.append(_Step(True, Order.THIRD, index))
            return 1, False
        if before[:1] == b")" and index and not name.field:
            name = self._outside(index, name)
        if after_epoch and _AFTER_EPOCH.fullmatch(before) and of and not self._of_samples(index):
            self.steps.append(_Step(False, Order.FIRST, index, index + 1))
            return 2, False
        if name.words in (b"train", b"training") and self._pair_follows(index + 1):
            name = Name("epoch")
        if not self._valid(index, name):
            return 1, False
        if name.field == "step":
            self.steps.append(_Step(not of, name.place, index, index + 1 if of else None, name.told))
        elif name.field or unit_of(after[:NEAR]).kind:
            self._keep(index, name)
            if of and self.found.get("epoch", (None, -1))[1] == index:
                self.epochs = index + 1
        return (count if name.field in ("step", "epoch") else 1), name.field == "epoch"

    def _outside(self, index: int, name: Name) -> Name:
        """The name in ``lr (group 0)=0.1``: it is before the brackets."""
        outer = self.gaps[index - 1]
        return name_of(outer[: outer.rfind(b"(")][-NEAR:]) if b"(" in outer else name

    def _look_about(self, before: bytes, name: Name) -> None:
        self.settings += name.words in wordings.SETTINGS
        self.trains = self.trains or name.words in wordings.OF_TRAINING
        self.parts = self.parts or name.words in wordings.PARTS
        if self.bar is None or name.field:  # in a bar, the rest is times
            free = name.free if len(before) <= NEAR else before[:-NEAR] + name.free
            words = {word.rstrip(b".") for word in _WORDS.findall(free)}
            aside = name.aside or (not name.field and name.words.rpartition(b" ")[2] in wordings.EVALUATION)
            if aside or not wordings.ASIDE.isdisjoint(words):
                self.aside = self.aside or "loss" not in self.found

    def _pair_follows(self, index: int) -> bool:
        gaps = self.gaps
        return (
            index + 1 < self.count
            and re.fullmatch(rb"\s{0,4}\[\s{0,8}", gaps[index]) is not None
            and gaps[index + 1] == b"/"
        )

    def _of_samples(self, index: int) -> bool:
        """Whether it is ``epoch: 1 [640/60000 (1%)]``, which counts samples."""
        percent = self.gaps[index + 2]
        name = self._name(index - 1)
        return percent.strip() == b"(" and name.field == "epoch" and self.gaps[index + 3][:1] == b"%"

    def _valid(self, index: int, name: Name) -> bool:
        """Whether the number is whole, and not part of a time or a date."""
        before, after = self.gaps[index], self.gaps[index + 1]
        last = index + 1 == self.count
        if (not last and after in (b":", b"-")) or (index and before in (b":", b"-", b".")):
            return False
        if index and before == b"/":
            return False
        unit = unit_of(after[:NEAR])
        if not name.field:
            return True
        if unit.rate_end and not last and not _SEPARATES.match(after, unit.rate_end):
            unit = Unit()  # "lr 9.2e-5 tokens/s 33.1k": it names the next number
        if name.field in ("loss", "lr") and not last and after.isspace():
            # If two numbers follow one name, neither is sure; one with a unit is something else.
            return bool(unit_of(self.gaps[index + 2][:NEAR]).kind)
        if name.field in ("loss", "lr", "epoch", "total"):
            return unit.kind == "" or (name.field == "total" and unit.kind == "scaled")
        if name.field == "step":
            return unit.kind in ("", "scaled")
        return unit.kind != "other"

    def _keep(self, index: int, name: Name) -> None:
        unit = unit_of(self.gaps[index + 1][:NEAR])
        where, place, factor = name.field, name.place, name.factor
        if not where and unit.kind == "epoch":
            where = "epoch"
        elif where in ("", "time", "samples_s", "tokens_s") and unit.kind in _SPEEDS:
            where, factor = unit.kind, unit.factor
            place = Order.SECOND
        elif where in ("time", "step_s"):
            factor *= unit.factor if unit.kind in ("time", "step_s", "scaled") else 1.0
        elif unit.kind == "scaled":
            factor *= unit.factor
        elif unit.kind == "time":
            return
        if name.field:
            self.named.add(where)
        if where and (where not in self.found or place < self.found[where][0]):
            self.found[where] = place, index, factor

    def _unnamed_step(self) -> _Step | None:
        """A step without a name: ``[340/5004] loss``, ``[12/90][340/5004] loss``, ``340/5004 [===>…]``,
        ``340 | loss``."""
        for index in range(min(self.count - 1, self.found["loss"][1])):
            before, after = self.gaps[index], self.gaps[index + 2]
            if self.gaps[index + 1].strip() != b"/" or self._name(index).field:
                continue
            boxed = before.rstrip().endswith(b"[") and _IN_BRACKETS.match(after)
            if boxed and after == b"][" and self.gaps[index + 3].strip() == b"/":
                self.found.setdefault("epoch", (Order.FIRST, index, 1.0))
                self.epochs = index + 1
                index += 2
                boxed = _IN_BRACKETS.match(self.gaps[index + 2])
            drawn = _DRAWN.match(after) or (after.isspace() and "step_s" in self.found)
            if (boxed and not self._of_samples_at(index)) or drawn:
                return _Step(False, Order.LAST, index, index + 1)
        if not self.gaps[0].strip() and self.gaps[1].startswith(b" | ") and "lr" in self.found:
            return _Step(True, Order.THIRD, 0)
        return None

    def _of_samples_at(self, index: int) -> bool:
        return index > 0 and index + 3 < len(self.gaps) and self._of_samples(index)
