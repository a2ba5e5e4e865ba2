"""What a console tells of a failure, as a report: for a person, and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from cockpit.core.ranks import ranks_text
from cockpit.core.rules.row import Row


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


class Party(NamedTuple):
    """Who printed.

    :param rank: None: no line says which
    :param name: how it is known else
    :param end: how it ended, in words; empty: nothing says
    """

    rank: int | None
    node: str
    name: str
    lines: int
    size: int
    end: str = ""


@dataclass(frozen=True)
class Report:
    """What is known.

    :param files: name, lines, bytes of each, whether all its lines were counted, and what was wrong with it
    :param how: as in :class:`cockpit.core.run.first.First`; ``stalled``: no rank failed, and the run made no
        step any more; empty: no failure was found
    :param ranks: who failed first, if its rank is known
    :param names: who did, else
    :param what: who it was, and how it ended, in a sentence
    :param row: what that means
    :param end_line: where its launcher says how it ended
    :param waited: ranks that only followed: they waited for it, or were stopped
    :param ended_too: ranks that failed after it
    """

    files: tuple[tuple[str, int, int, bool, tuple[str, ...]], ...] = ()
    launchers: tuple[str, ...] = ()
    parties: tuple[Party, ...] = ()
    how: str = ""
    ranks: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    what: str = ""
    cause: Cause | None = None
    row: Row | None = None
    certainty: str = "unsure"
    end_line: Line | None = None
    waited: tuple[int, ...] = ()
    ended_too: tuple[int, ...] = ()
    run: str = ""

    @property
    def failed(self) -> bool:
        """Whether a failure was found."""
        return bool(self.how)

    @property
    def exact(self) -> bool:
        """Whether every line was counted; else the numbers of speakers are estimates."""
        return all(exact for _, _, _, exact, _ in self.files)

    def as_json(self, lang: str = "en") -> dict[str, Any]:
        """The report for programs."""
        cause = self.cause
        return {
            "failed": self.failed,
            "run": self.run,
            "files": [
                {"file": name, "lines": lines, "bytes": size, "notes": list(notes)}
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
                    "end": one.end,
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
        }
