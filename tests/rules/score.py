"""How many samples the rules judge right, open ones and those set aside: ``python -m tests.rules.score``."""

from __future__ import annotations

from tests.rules.firing import right, samples


def score(folder: str) -> str:
    """Right of all, those that fire and near misses, in a line."""
    judged = [(one.fires, right(one)) for one in samples(folder)]
    parts = []
    for words, fires in (("fire", True), ("near misses", False)):
        of = [is_right for fired, is_right in judged if fired is fires]
        parts.append(f"{words} {sum(of)} of {len(of)}")
    return f"{folder}: {', '.join(parts)}"


if __name__ == "__main__":
    for folder in ("samples", "held_out"):
        print(score(folder))
