"""Rows of builds."""

from __future__ import annotations

from cockpit.core.rules.row import Row

ROWS: tuple[Row, ...] = ()
