"""Collectives: none."""

from .distributed_c10d import _world as _world
from .distributed_c10d import init_process_group as init_process_group
