"""A finding: what is wrong, with whom, on what evidence, how sure, what to type; and rules that find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cockpit.core.ranks import mask_text
from cockpit.core.text import one_line

RULE_FAILED = "rule_failed"
"""The id of what is found where a rule raised an error."""


PROOFS = {
    "end": "a rank that the others wait for has ended",
    "stop": "a signal has stopped it",
    "circle": "they wait for each other in a circle",
}
"""Facts because of which ranks cannot go on by themselves: nothing else makes it sure that they are stuck."""

_BEFORE_COMMANDS = frozenset(("try", "see", "type"))
"""What a hint begins with whose rest can be typed."""


@dataclass(frozen=True)
class Step:
    """What to do next.

    :param command: what to type; options alone go with the command that was typed; empty: see the reason
    :param reason: what it is for
    :param node: where to type it; empty: here
    :param action: the app's command that does the same, by its id; empty: none does
    """

    command: str
    reason: str = ""
    node: str = ""
    action: str = ""

    @property
    def text(self) -> str:
        """``gpu01: dmesg -T | grep -i oom``, ``--samples 3: what moves``."""
        return ": ".join(filter(None, (self.node, self.command, self.reason)))

    @classmethod
    def hinted(cls, hint: str) -> Step:
        """The step that an error's hint is: a command where it is one, such as ``try: ssh gpu01 true``."""
        text = one_line(hint, limit=400)
        word, _, command = text.partition(": ")
        return cls(command) if command and word in _BEFORE_COMMANDS else cls("", text)

    def in_app(self, keys: Callable[[str], str]) -> str:
        """The step as the app shows it: with the key alone, if there is one.

        :param keys: the key of a command, by its id
        """
        return f"{keys(self.action)}: {self.reason}" if self.action else self.text

    def in_shell(self, command: str) -> str:
        """The step as shown in a shell.

        :param command: what was typed; empty if nobody can be asked any more, and then a step that would ask
            is empty too
        """
        if not self.command.startswith("-"):
            return self.text
        return f"{command} {self.command}  ({self.reason})" if command else ""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or that nothing is; all its text is harmless for a terminal.

    :param id: what it is, one word for programs
    :param what: the answer in one sentence
    :param ranks: the ranks it is about, as a mask; 0 if about none
    :param where: the place in the user's code that they are at: ``data.py:118 read_shard``; else empty
    :param detail: one more sentence: what they do there, or why that is unknown
    :param evidence: what it is based on, one fact each
    :param certainty: ``sure``, ``likely`` or ``unsure``
    :param proof: why those whom it is about cannot go on by themselves, a word of :data:`PROOFS`; empty: they
        may, for all that is known
    :param steps: what to do next
    :param nodes: the nodes it is about
    :param severity: ``error``; ``warning``: nothing may be wrong; ``info``: nothing is
    :param since: since when it has been so, unix seconds on our clock; None: not known
    :param rule: the id of the rule that explains it, see :mod:`cockpit.core.rules`; empty: none does
    :param meaning: what that rule says: what happened, in one sentence
    """

    id: str
    what: str
    ranks: int = 0
    where: str = ""
    detail: str = ""
    evidence: tuple[str, ...] = ()
    certainty: str = "unsure"
    steps: tuple[Step, ...] = ()
    nodes: tuple[str, ...] = ()
    severity: str = "error"
    since: float | None = None
    proof: str = ""
    rule: str = ""
    meaning: str = ""

    def completed(self, command: str) -> Finding:
        """The finding with steps that can be typed as they are.

        :param command: what options alone go with; empty if nobody can be asked any more
        """
        steps = [
            replace(step, command=f"{command} {step.command}") if step.command.startswith("-") else step
            for step in self.steps
            if command or not step.command.startswith("-")
        ]
        return replace(self, steps=tuple(steps))

    @property
    def sureness(self) -> str:
        """How certain it is, and whether there is proof that those whom it is about are stuck."""
        proof = PROOFS.get(self.proof)
        return f"{self.certainty}; cannot continue by itself: {proof}" if proof else self.certainty

    def as_json(self) -> dict[str, Any]:
        """The finding for programs: ranks as text, everything else as it is."""
        return {**asdict(self), "ranks": mask_text(self.ranks)}


@dataclass(frozen=True)
class Rule:
    """How to find one thing.

    :param id: its name
    :param needs: the inputs that :attr:`test` takes, by name, in their order
    :param test: gives the finding, or several; None: nothing of the kind
    :param source: where this is known from; empty: from this project
    """

    id: str
    needs: tuple[str, ...]
    test: Callable[..., Finding | Sequence[Finding] | None]
    source: str = ""


def findings(rules: Iterable[Rule], inputs: Mapping[str, Any]) -> Iterator[Finding]:
    """What the rules find, in their order; those that need something else than these inputs are passed over.

    A rule that raises an error costs itself only: its finding is :data:`RULE_FAILED`.
    """
    for rule in rules:
        if not inputs.keys() >= set(rule.needs):
            continue
        try:
            found = rule.test(*(inputs[name] for name in rule.needs))
        except Exception as error:
            why = one_line(f"{type(error).__name__}: {error}", limit=200)
            found = Finding(RULE_FAILED, f"the rule {rule.id} failed: {why}", severity="warning")
        yield from (found,) if isinstance(found, Finding) else found or ()
