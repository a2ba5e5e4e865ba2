"""How a rule tells what is wrong on which nodes, and the one finding that becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from cockpit.base.shell import quote
from cockpit.core.doctor.node_checks import Look, Looks, in_hostfile_order
from cockpit.core.finding import Finding, Rule, Step
from cockpit.core.ranks import nodes_text, set_words
from cockpit.core.rules.explanation import recognised


class Fault(NamedTuple):
    """What is wrong on one node, in words.

    :param values: what to type for which words of the rule's steps; nothing: a step with it is of no use
    :param place: where those steps are typed; empty: here
    :param about: which of several things it is, for rules
    :param steps: against just that, where no rule has any
    """

    node: str
    what: str
    values: tuple[tuple[str, str], ...] = ()
    place: str = ""
    about: str = ""
    steps: tuple[Step, ...] = ()


class FaultRules(list[Rule]):
    """Rules of what is wrong, in the order of their functions."""

    def rule(
        self, id: str, *steps: Step, source: str = "", severity: str = "warning", apart: bool = False
    ) -> Callable[[Callable[[Looks], Iterable[Fault]]], None]:
        """Makes a rule of a function that tells what is wrong on which nodes.

        :param steps: against it, where no row of the table knows it: meaning and steps are that row's
        :param apart: words that differ in more than numbers and the node's name are of another cause
        """

        def made(tell: Callable[[Looks], Iterable[Fault]]) -> None:
            def test(looks: Looks) -> list[Finding]:
                causes: dict[tuple[str, str], list[Fault]] = {}
                for one in dict.fromkeys(tell(looks)):
                    causes.setdefault((one.about, _shape(one) if apart else ""), []).append(one)
                return [_found(looks, id, told, steps, severity) for told in causes.values()]

            self.append(Rule(id, ("looks",), test, source))

        return made

    def rule_of_each(
        self, id: str, *steps: Step, severity: str = "warning"
    ) -> Callable[[Callable[[Look], Iterable[str]]], None]:
        """The same of a function that tells what is wrong with one node."""

        def made(tell: Callable[[Look], Iterable[str]]) -> None:
            def told(looks: Looks) -> Iterator[Fault]:
                for node, look in looks.answered.items():
                    yield from (Fault(node, what) for what in tell(look))

            self.rule(id, *steps, severity=severity)(told)

        return made


def _shape(one: Fault) -> str:
    return re.sub(r"[0-9]+", "0", one.what.replace(one.node, "NODE"))


def _found(looks: Looks, id: str, told: list[Fault], steps: tuple[Step, ...], severity: str) -> Finding:
    """One finding on all nodes that something is wrong with; the same words are said once.

    If they differ from node to node, the sentence has the first, and the evidence all of them.
    """
    words: dict[str, list[str]] = {}
    for one in told:
        words.setdefault(one.what, []).append(one.node)
    first, *more = words
    nodes = in_hostfile_order((one.node for one in told), looks)
    whose = f"{nodes_text(words[first])}; " if len(nodes) > 1 else ""
    some = tuple(dict.fromkeys(step for one in told[:3] for step in one.steps))
    found = recognised(
        Finding(
            id,
            f"{first} ({whose}{len(more)} more like it)" if more else first,
            nodes=nodes,
            severity=severity,
            certainty="sure",
            evidence=tuple(f"{nodes_text(nodes)}: {what}" for what, nodes in words.items()) if more else (),
            steps=(*some, *steps),
        ),
        told[0].about,
        lambda step: filter(None, (_typed(step, one) for one in told[:3])),
    )
    if len(nodes) == len(looks.nodes):
        return found
    steps = tuple(replace(step, command=_without(step.command, nodes)) for step in found.steps)
    return replace(found, steps=steps)


def _typed(step: Step, told: Fault) -> Step | None:
    """A rule's step with what is known of a node in it; None: it is of no use there."""
    values = [(word, value) for word, value in told.values if word in step.command]
    for word, value in values:
        step = replace(step, command=step.command.replace(word, value), node=told.place)
    return step if all(value for _, value in values) else None


def _without(command: str, nodes: tuple[str, ...]) -> str:
    return command.replace("--exclude NODE", f"--exclude {quote(','.join(set_words(nodes_text(nodes))))}")
