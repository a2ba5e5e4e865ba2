"""NCCL's dump files are pickles: read opcode by opcode, without ever resolving a class or calling anything.

Only the opcodes that make dict, list, tuple, str, int, float, bool and None are known. Everything else ends
the reading, before its argument is looked at.
"""

from __future__ import annotations

import io
import pickletools
from typing import Any, Callable, Dict, List

from cockpit.base.gate import Malformed

OPCODES = 4_000_000
"""A dump of 2,000 entries has some 250,000."""

MEMORY = 96 << 20
"""Bytes that the values of a pickle may take, roughly. Few opcodes make much: one byte an empty object."""

LARGEST_NAME = 1 << 20
"""Names that are integers are below it. Larger ones can be chosen so that all meet in one place of a dict,
and then each costs a look at all before it; names that are text cannot, their hashes are random."""

_COSTS = {"EMPTY_DICT": 240, "EMPTY_LIST": 96, "MARK": 96, "TUPLE": 56, "MEMOIZE": 120}
_LEAST = 8
"""What any opcode may cost: a place in a list."""

_BY_CODE = {opcode.code: opcode for opcode in pickletools.opcodes}
_CONSTANTS: Dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_NEW: Dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_INTEGERS, _TEXTS = (
    {"BININT", "BININT1", "BININT2", "LONG1"},
    {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"},
)
_VALUES = {*_INTEGERS, *_TEXTS, "BINFLOAT"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUT, _GET = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
_SKIPPED = {"PROTO", "FRAME"}
_OTHERS = {"MARK", "MEMOIZE", "TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "STOP"}
_KNOWN = {*_CONSTANTS, *_NEW, *_VALUES, *_TUPLES, *_PUT, *_GET, *_SKIPPED, *_OTHERS}


def load(data: bytes) -> Any:
    """The value that a pickle of plain data holds; one that holds itself is returned as it is.

    :raises Malformed: it is cut off, makes no sense, is too large, or holds anything but plain data
    """
    try:
        return _Machine().run(io.BytesIO(data))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # A wrong order of opcodes shows as any of these; what pickletools finds wrong is a ValueError.
        raise Malformed("not a pickle of plain data: %s" % str(error)[:200]) from None


def _cost(name: str, argument: Any) -> int:
    """Bytes that an opcode may add, roughly."""
    if name in _VALUES:
        return 60 + 4 * len(argument) if isinstance(argument, str) else 40
    if name in _PUT:
        return _COSTS["MEMOIZE"]
    if name in _TUPLES:
        return _COSTS["TUPLE"]
    return _COSTS.get(name, _LEAST)


class _Machine:
    def __init__(self) -> None:
        self._stack: List[Any] = []
        self._below: List[List[Any]] = []
        """What was on the stack before each mark."""
        self._memo: Dict[int, Any] = {}
        self._left = MEMORY

    def run(self, file: io.BytesIO) -> Any:
        for _ in range(OPCODES):
            code = file.read(1).decode("latin-1")
            opcode = _BY_CODE.get(code)
            if opcode is None or opcode.name not in _KNOWN:
                raise Malformed(
                    "opcode %s, which plain data has no use for" % (opcode.name if opcode else repr(code))
                )
            argument = opcode.arg.reader(file) if opcode.arg else None
            if opcode.name == "STOP":
                (value,) = self._stack
                return value
            self._left -= _cost(opcode.name, argument)
            if self._left < 0:
                raise Malformed("values of more than %d bytes" % MEMORY)
            self._do(opcode.name, argument)
        raise Malformed("more than %d opcodes" % OPCODES)

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _PUT:
            if argument >= OPCODES:
                raise Malformed("a place in the memo that no writer uses")
            self._memo[argument] = stack[-1]
        elif name in _GET:
            stack.append(self._memo[argument])
        elif name in _VALUES:
            stack.append(argument)
        elif name == "MARK":
            self._below.append(stack)
            self._stack = []
        elif name in _NEW:
            stack.append(_NEW[name]())
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            count = _TUPLES[name]
            if len(stack) < count:
                raise Malformed("a tuple of what is not there")
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name not in _SKIPPED:
            self._gather(name)

    def _gather(self, name: str) -> None:
        """What puts values into a container."""
        if name in ("APPEND", "SETITEM"):
            count = 1 if name == "APPEND" else 2
            if len(self._stack) <= count:
                raise Malformed("an entry of what is not there")
            values = self._stack[-count:]
            del self._stack[-count:]
        else:
            values, self._stack = self._stack, self._below.pop()
        if name == "TUPLE":
            self._stack.append(tuple(values))
            return
        target = self._stack[-1]
        if type(target) is list and name.startswith("APPEND"):
            target.extend(values)
        elif type(target) is dict and name.startswith("SETITEM") and len(values) % 2 == 0:
            names = values[::2]
            # A tuple in a tuple in a tuple …: hashing it overruns the stack of the interpreter itself.
            if not {*map(type, names)} <= {str, int}:
                raise Malformed("a name that is neither text nor an integer")
            if any(type(each) is int and not 0 <= each < LARGEST_NAME for each in names):
                raise Malformed("a name that is an integer out of bounds")
            target.update(zip(names, values[1::2]))
        else:
            raise Malformed("%s on something else" % name)
