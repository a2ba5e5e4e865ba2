"""A process group once somebody else has made its file."""

from __future__ import annotations

import os
import time

from .rendezvous import _rendezvous_helper


class _World:
    def __init__(self) -> None:
        self._default_pg: str | None = None

    @property
    def default_pg(self) -> str | None:
        return self._default_pg

    @default_pg.setter
    def default_pg(self, value: str | None) -> None:
        self._default_pg = value


_world = _World()


def init_process_group(url: str) -> None:
    path = _rendezvous_helper(url).partition(":")[2]
    while not os.path.exists(path):
        time.sleep(0.01)
    _world.default_pg = path
