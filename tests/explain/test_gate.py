"""The gate rules out only what is healthy."""

from __future__ import annotations

import pytest

from cockpit.core.explain.gate import DULL, Gate
from cockpit.core.rules.table import table


@pytest.mark.parametrize(
    ("healthy", "other"),
    [
        (b"agent got signal: 0", b"agent got signal: 1"),
        (b"child exited on signal 0", b"child exited on signal 9"),
        (b"OS said [Errno 0]", b"OS said [Errno 28]"),
    ],
)
def test_a_line_with_other_numbers_than_a_healthy_one_is_read(healthy: bytes, other: bytes) -> None:
    alone, after = Gate(table()), Gate(table())
    list(after.found_in(healthy + b"\n"))
    assert list(after.found_in(other + b"\n")) == list(alone.found_in(other + b"\n"))
    assert all(worth > DULL for _, worth in alone.found_in(other + b"\n"))
