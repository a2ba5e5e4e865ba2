"""What a console tells of a failure, as a report: for a person, and for programs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cockpit.core.nccl.findings import notable
from cockpit.core.nccl.table import NOTHING, Table
from cockpit.core.ranks import ranks_named, ranks_text
from cockpit.core.rules.row import Row
from cockpit.core.run.states import Rank, RankState, signal_name
from cockpit.lang import UNSAID, Phrase, word


class Line(NamedTuple):
    """A line of a file.

    :param number: from 1 on
    """

    file: str
    number: int
    text: str


class Cause(NamedTuple):
    """Why it failed, as it was printed.

    :param places: in the user's code, outermost first
    :param lines: where it is printed
    """

    what: str
    places: tuple[str, ...]
    lines: tuple[Line, ...]


def ended(rank: Rank) -> Phrase:
    """How a rank ended."""
    if rank.state is RankState.EXITED:
        return Phrase("exited {}", (rank.code,))
    if rank.state is RankState.KILLED:
        return Phrase("killed by {}", (signal_name(rank.signal or 0),))
    if rank.state is RankState.LOST:
        return Phrase("lost: {}", (rank.why,)) if rank.why else Phrase("lost")
    return Phrase("gone") if rank.state is RankState.GONE else UNSAID


class Party(NamedTuple):
    """Who printed.

    :param rank: None: no line says which
    :param name: how it is known else
    """

    rank: int | None
    node: str
    name: str
    lines: int
    size: int
    end: Phrase = UNSAID


def named(ranks: Sequence[int], lang: str) -> str:
    """``rank 3``, ``ranks 0-7``; Chinese has no plural."""
    return f"rank {ranks_text(ranks)}" if lang == "zh" else ranks_named(ranks)


_BETWEEN = re.compile(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])")
"""A space that Chinese does not have between two signs of its own."""

_HOW = {
    "broke": "{} failed",
    "left": "{} exited 0 while the others continued",
    "absent": "{} did not join the others",
    "gone": "{} is gone; its output ends with an error",
    "stalled": "{} holds up the others",
    "unknown": "which rank failed first is unknown: {} waited for others",
}


@dataclass(frozen=True)
class Report:
    """What is known.

    :param files: name, lines, bytes of each, whether all its lines were counted, and what was wrong with it
    :param how: as in :class:`cockpit.core.run.first.First`; ``stalled``: no rank failed, and the run made no
        step any more; empty: no failure was found
    :param ranks: who failed first, if its rank is known
    :param names: who did, else
    :param what: who it was, and how it ended, in an English sentence
    :param end: how it ended
    :param row: what that means
    :param end_line: where its launcher says how it ended
    :param waited: ranks that failed as a consequence: they waited for it, or were stopped
    :param ended_too: ranks that failed after it
    :param nccl: what NCCL says it uses
    """

    files: tuple[tuple[str, int, int, bool, tuple[Phrase, ...]], ...] = ()
    launchers: tuple[str, ...] = ()
    parties: tuple[Party, ...] = ()
    how: str = ""
    ranks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    what: str = ""
    end: Phrase = UNSAID
    cause: Cause | None = None
    row: Row | None = None
    certainty: str = "unsure"
    end_line: Line | None = None
    waited: tuple[int, ...] = ()
    ended_too: tuple[int, ...] = ()
    run: str = ""
    nccl: Table = NOTHING

    @property
    def failed(self) -> bool:
        """Whether a failure was found."""
        return bool(self.how)

    @property
    def exact(self) -> bool:
        """Whether every line was counted; else the numbers of speakers are estimates."""
        return all(exact for _, _, _, exact, _ in self.files)

    def sentence(self, lang: str) -> str:
        """Who failed first, and how it ended; in Chinese from what is known, in English as it was judged."""
        if lang != "zh" or (self.how == "stalled" and not self.ranks):
            return self.what
        who = named(self.ranks, lang) if self.ranks else "、".join(self.names)
        who = who or word("a process that no line names", lang)
        if self.ranks and len(self.nodes) == 1:
            who = word("{} on {}", lang).format(who, self.nodes[0])
        ended = self.how == "broke" and self.end.text(lang)
        said = f"{who} {ended}" if ended else word(_HOW[self.how], lang).format(who)
        return _BETWEEN.sub("", said)

    def as_json(self, lang: str = "en") -> dict[str, Any]:
        """The report for programs."""
        cause = self.cause
        return {
            "failed": self.failed,
            "run": self.run,
            "files": [
                {"file": name, "lines": lines, "bytes": size, "notes": [note.text() for note in notes]}
                for name, lines, size, _, notes in self.files
            ],
            "launchers": list(self.launchers),
            "exact": self.exact,
            "speakers": [
                {
                    "rank": one.rank,
                    "node": one.node,
                    "name": one.name,
                    "lines": one.lines,
                    "bytes": one.size,
                    "end": one.end.text(),
                }
                for one in self.parties
            ],
            "first": {
                "how": self.how,
                "what": self.what,
                "ranks": ranks_text(self.ranks),
                "names": list(self.names),
                "nodes": list(self.nodes),
                "certainty": self.certainty,
                "line": self.end_line._asdict() if self.end_line else None,
            }
            if self.failed
            else None,
            "cause": None
            if cause is None
            else {
                "what": cause.what,
                "places": list(cause.places),
                "lines": [one._asdict() for one in cause.lines],
            },
            "rule": self.row.id if self.row else "",
            "meaning": self.row.meaning(lang) if self.row else "",
            "next": [
                {"command": one.command, "reason": one.reason}
                for one in (self.row.steps(lang) if self.row else ())
            ],
            "waited": ranks_text(self.waited),
            "failed_too": ranks_text(self.ended_too),
            "findings": [one.as_json() for one in notable(self.nccl, lang)],
        }
