"""A recorded run, at any moment: what its folder here has up to then."""

from __future__ import annotations
