"""Who failed first, why, with what consequences, and what happens next: the answer before the question.

While nobody has failed: what is about to go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from textual.strip import Strip

from cockpit.core.finding import Finding
from cockpit.core.ranks import nodes_text, ranks_text
from cockpit.core.rules.explanation import translated
from cockpit.core.run.failure import blamed, failure, how
from cockpit.core.run.model import Rank, RunModel
from cockpit.core.run.notices.words import findings
from cockpit.core.text import columns, one_line
from cockpit.core.time_text import span_text
from cockpit.lang import word
from cockpit.tui.look.units import clock_text
from cockpit.tui.panes.banner import Banner
from cockpit.tui.panes.line import Part, fit
from cockpit.tui.panes.text_pane import fold

GROUPS = 3
"""At most this many ways in which other ranks ended are listed."""

LABEL, MEANS = 7, 2
"""Columns of what a line is about; lines that a meaning takes at most."""

SOON = 2
"""At most this many notices are listed, the worst first."""

AGES = 1e9
"""Seconds (three decades): a longer span between two ranks is not real: a node may send any time."""


class FailureBanner(Banner):
    """Up to six lines; none while nothing has failed, and nothing is about to.

    :param run: the run's name, for what to type
    :param keys: the key of a command, by its id
    :param lang: the language of what rules say
    """

    DEFAULT_CSS = "FailureBanner { background: $notice; }"

    class Pressed(Banner.Pressed):
        """It was clicked: a person wants to see the rank's log."""

    def __init__(
        self, *, run: str = "", keys: Callable[[str], str] = str, lang: str = "en", id: str | None = None
    ) -> None:
        super().__init__(keys=keys, id=id)
        self._run = run
        self._lang = lang
        self._beside: Sequence[Finding] = ()
        self._told: tuple[dict[str, list[int]], Part] | None = None
        """The other ranks by how they ended, with the sentence: folding thousands of numbers is slow."""

    def show(
        self,
        model: RunModel,
        cause: Finding | None,
        stops_at: float | None,
        now: float,
        beside: Sequence[Finding] = (),
    ) -> None:
        """Draw what is known.

        :param stops_at: when the failure policy stops the rest, unix seconds
        :param now: unix seconds
        :param beside: what is wrong and not urgent: for want of room the first to go
        """
        self._beside = beside
        self.set_lines(self._lines(model, cause, stops_at, now))

    def drawn_line(self, y: int) -> Strip:
        """One of the lines."""
        edge = "warn" if self.lines[0][0].pieces[0][1] == "warn" else "bad"
        return self.strip_of([("▌ ", edge), *fit(self.lines[y], self.size.width - 3)])

    def _lines(
        self, model: RunModel, cause: Finding | None, stops_at: float | None, now: float
    ) -> list[list[Part]]:
        failures = model.failures()
        if not failures and cause is not None and cause.id == "gone":
            return [self._gone(model, cause), *self._why(cause), *self._soon(model, now)]
        if not failures:
            return [[Part(((_shown(model.job_end), "bad"),), 0)]] if model.job_end else self._soon(model, now)
        first = blamed(model, cause) or failures[0]
        others = [rank for rank in failures if rank is not first]
        lines = [self._who(model, first, others, cause), *self._why(cause or failure(model, ""))]
        rest = self._rest(model, others, stops_at, now)
        return [*lines, rest] if rest else lines

    def _who(self, model: RunModel, first: Rank, others: Sequence[Rank], cause: Finding | None) -> list[Part]:
        if cause is not None and cause.what != f"rank {first.rank} {how(first)}":
            return [Part(((_shown(cause.what), "bad"),), 0)]
        place = model.nodes[first.node].ranks.index(first.rank)
        node, ended = _shown(first.node), _shown(first.text)
        when = f" at {clock_text(model.ended_at(first), 10)}" if first.ended_at else ""
        short = Part(((f"{node} · {ended}", ""),), 1)
        parts = [
            Part(((f"rank {first.rank} failed first", "bad"),), 0),
            Part(((f"{node}, local rank {place} · {ended}{when}", ""),), 3, short),
        ]
        at = model.ended_at(first)
        other = min((model.ended_at(rank) for rank in others if rank.ended_at), default=None)
        if first.ended_at and other is not None and 0 <= other - at < AGES:
            parts.append(Part(((f"{span_text(other - at)} before any other", "dim"),), 2))
        return parts

    def _gone(self, model: RunModel, found: Finding) -> list[Part]:
        """What is known of a rank of which nobody saw the end."""
        (node,) = found.nodes
        rank = next(each for each in model.on(node) if found.ranks == 1 << each.rank)
        at = f" · at {clock_text(model.ended_at(rank), 10)}" if rank.ended_at else ""
        place = model.nodes[node].ranks.index(rank.rank)
        return [
            Part(((_shown(found.what), "bad"),), 0),
            Part(((f"{_shown(node)}, local rank {place}{at}", ""),), 1),
            Part((("how it ended is not known", "dim"),), 2),
        ]

    def _why(self, found: Finding | None) -> Iterator[list[Part]]:
        if found is None:
            return
        parts = [Part(((found.detail, "strong"),), 0)]
        if found.where:
            # If there is little room, the innermost frame is the one to keep.
            parts.append(Part(((" → ".join(found.evidence), ""),), 3, Part(((found.where, ""),), 1)))
        steps = " · ".join(step.in_app(self._keys) for step in found.steps)
        if not found.meaning:
            yield [*parts, Part(((steps, "dim"),), 2)]
            return
        yield parts
        for at, text in enumerate(fold(found.meaning, max(20, self.app.size.width - 3 - LABEL))[:MEANS]):
            yield [Part(((self._label("" if at else "means"), "dim"), (text.rstrip(), "")), 0)]
        yield [Part(((self._label("next"), "dim"), (found.steps[0].text, "strong")), 0), *self._more(found)]

    def _label(self, english: str) -> str:
        text = word(english, self._lang) if english else ""
        return text + " " * (LABEL - columns(text))

    def _more(self, found: Finding) -> Iterator[Part]:
        """What else may be done; a key takes little room."""
        for at, step in enumerate(found.steps[1:]):
            yield Part(((step.in_app(self._keys), "dim"),), 1 if step.action else at + 2)

    def _rest(
        self, model: RunModel, others: Sequence[Rank], stops_at: float | None, now: float
    ) -> list[Part]:
        parts = [self._then(others)] if others else []
        if stops_at is not None:
            left = f"{max(0.0, stops_at - now):.0f} s"
            stop, keep = self._keys("stop"), self._keys("keep")
            short = Part(((f"rest stops in {left} · {stop} now · {keep} keep", "warn"),), 0)
            keys = f"{stop} now · {keep} keep them running"
            parts.append(Part(((f"the other ranks stop in {left} · {keys}", "warn"),), 0, short))
        elif model.over:
            return parts
        elif model.asked_to_stop:
            parts.append(Part((("stopping the other ranks", "warn"),), 0))
        elif model.alive():
            stops = f" · {self._keys('stop')} stops them" if self.acts else ""
            parts.append(Part(((f"the other ranks keep running{stops}", "warn"),), 0))
        return parts

    def _soon(self, model: RunModel, now: float) -> list[list[Part]]:
        """What is wrong although nothing has failed, and what to type: a line for each, the worst first."""
        found = findings(model, self._run, now)
        left = len(found) + len(self._beside) - SOON
        lines = []
        for each in (translated(one, self._lang) for one in found[:SOON]):
            more = [Part(((text, "dim"),), 2 - at) for at, text in enumerate(each.evidence[:2])]
            more.reverse()
            more += [Part(((step.text, "dim"),), 3) for step in each.steps[:1]]
            more += [Part(((text, "dim"),), 4) for text in filter(None, (each.meaning,))]
            colour = "bad" if each.severity == "error" else "warn"
            lines.append([Part(((each.what, colour),), 0), *more])
        lines += [self._aside(each) for each in self._beside[: max(0, SOON - len(found))]]
        return [*lines, [Part(((f"and {left:,} more", "warn"),), 0)]] if left > 0 else lines

    def _aside(self, found: Finding) -> list[Part]:
        """What is not urgent, in a line."""
        head = found.what if self._lang == "en" or not found.meaning else found.meaning
        step = found.steps[0]
        short = Part(((step.command, "dim"),), 1)
        return [Part(((head, "warn"),), 0), Part(((step.text, "dim"),), 1, short)]

    def _then(self, others: Sequence[Rank]) -> Part:
        """The consequences: how the others ended."""
        ended: dict[str, list[int]] = {}
        for rank in others:
            ended.setdefault(rank.text, []).append(rank.rank)
        if self._told is None or self._told[0] != ended:
            nodes = {rank.rank: rank.node for rank in others}
            groups = sorted(ended.items(), key=lambda group: -len(group[1]))
            left = sum(len(ranks) for _, ranks in groups[GROUPS:])
            more = [f"{left:,} more"] if left else []
            long, short = (
                [_ended_text(*group, nodes, numbers) for group in groups[:GROUPS]]
                for numbers in (True, False)
            )
            least = _then(f"{_count(len(others))} failed")
            self._told = ended, _then("; ".join(long + more), _then("; ".join(short + more), least))
        return self._told[1]


def _then(words: str, less: Part | None = None) -> Part:
    return Part((("then ", "dim"), (words, "")), 1, less)


def _ended_text(text: str, ranks: Sequence[int], nodes: dict[int, str], numbers: bool) -> str:
    places = _shown(nodes_text(dict.fromkeys(nodes[rank] for rank in sorted(ranks))))
    which = f" ({ranks_text(ranks)})" if numbers else ""
    return f"{_count(len(ranks))}{which} on {places} {_shown(text)}"


def _count(ranks: int) -> str:
    return f"{ranks:,} rank{'s' * (ranks > 1)}"


def _shown(text: str) -> str:
    """Text from a node, made harmless."""
    return one_line(text, limit=200)
