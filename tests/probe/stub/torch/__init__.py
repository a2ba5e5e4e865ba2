"""A torch of a few lines: what the probe touches, with the side effects of the real one."""

from . import _C as _C
from . import compiler as compiler
from . import cuda as cuda
from . import distributed as distributed
from . import optim as optim
from .version import __version__ as __version__
