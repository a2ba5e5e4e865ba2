"""A DeepSpeed of a few lines."""

import torch as torch

from .runtime import engine as engine
from .runtime import later as later
