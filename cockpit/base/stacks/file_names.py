"""File names of frames, normalised across nodes, environments and people.

========================================================  =============================
``/opt/venv/lib/python3.11/site-packages/torch/nn/x.py``  ``torch/nn/x.py``
``/home/ada/.local/lib/python3.11/site-packages/y.py``    ``y.py``
``/usr/lib/python3.11/threading.py``                      ``python/threading.py``
``/opt/DeepSpeed/deepspeed/runtime/engine.py``            ``deepspeed/runtime/engine.py``
``/data/torch/train.py``                                  as it is: no checkout
``<working folder>/train.py``                             ``./train.py``
``/home/ada/lib/x.py`` of user ada                        ``~/lib/x.py``
``<string>``, ``<frozen importlib._bootstrap>``           as they are
========================================================  =============================

So what begins with neither ``.``, ``/``, ``~`` nor ``<`` is a library.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache

KNOWN = {
    "accelerate": "commands|utils",
    "apex": "amp|contrib|normalization|optimizers|parallel|transformer",
    "deepspeed": "accelerator|checkpoint|comm|inference|launcher|module_inject|moe|ops|runtime|sequence",
    "lightning": "fabric|pytorch",
    "megatron": "core|legacy|training",
    "torch": "_dynamo|_functorch|_inductor|autograd|cuda|distributed|fx|nn|optim|utils",
    "transformers": "generation|integrations|models|utils",
}
"""Packages that people also run out of a checkout, and folders inside each.

A folder of that name alone may as well hold somebody's own scripts.
"""

_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")
_STDLIB = re.compile(r"^.*/lib(?:64)?/python\d+\.\d+t?/")
_ZIPPED = re.compile(r"^.*/lib(?:64)?/python\d+\.zip/")
_INSIDE = re.compile(r"^/(?:.*/)?((?:%s)/.*)$" % "|".join("%s/(?:%s)" % each for each in KNOWN.items()))
# DeepSpeed/deepspeed, pytorch/torch, Megatron-LM/megatron, accelerate/src/accelerate
_CHECKOUT = re.compile(
    r"^/(?:.*/)?(?:py|pytorch-)?(%s)(?:[-_.][^/]*)?/(?:src/)?(?P<found>\1/.*)$" % "|".join(KNOWN),
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def normalise(path: str, cwd: str = "", home: str = "") -> str:
    """A file name as it is written in a frame (see the table above).

    :param cwd: working folder of the process; empty if unknown
    :param home: its user's home; empty if unknown
    """
    if not path.startswith("/"):
        return path if not path or path[0] in "<.~" else "./" + path
    path = "/" + posixpath.normpath(path).lstrip("/")
    for pattern, before in ((_PACKAGES, ""), (_STDLIB, "python/"), (_ZIPPED, "python/")):
        match = pattern.match(path)
        if match:
            return before + path[match.end() :]
    match = _CHECKOUT.match(path)
    if match:
        return match.group("found")
    if cwd and cwd != "/" and path.startswith(cwd.rstrip("/") + "/"):
        return "./" + path[len(cwd.rstrip("/")) + 1 :]
    match = _INSIDE.match(path)
    if match:
        return match.group(1)
    if home and home != "/" and path.startswith(home.rstrip("/") + "/"):
        return "~/" + path[len(home.rstrip("/")) + 1 :]
    return path


def is_library(file: str) -> bool:
    """Whether a normalised file is not the user's own code."""
    return not file.startswith((".", "/", "~")) and file not in ("<string>", "<stdin>")
