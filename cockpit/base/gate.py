"""The gate: what another machine sent, or a file says, is checked against a definition before it is used.

A definition is a frozen dataclass whose fields carry their bounds::

    class Report(Definition):
        name: str = bound(FILE_NAME)
        size: int = bound(Whole(0, 1 << 62), 0)

:func:`read` builds one from parsed JSON, or says what is wrong. Fields that a definition does not have are
ignored: a newer peer may send more. A field without a default is required.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict, List, Sequence, Tuple, Type, TypeVar

T = TypeVar("T")

_KIND = "kind"
_SHOWN = 60


class Malformed(ValueError):
    """What was read is not what its definition says; the text names the field and never quotes much of it."""

    def inside(self, place: str) -> Malformed:
        """The same, one level further out."""
        text = str(self)
        return Malformed("%s%s%s" % (place, "" if text[:1] in (".", "[") else ": ", text))


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Callable[[Type[T]], Type[T]]:
        """Tells type checkers what the fields of a definition are for; at run time it does nothing."""
        return lambda definition: definition


@dataclass_transform(frozen_default=True)
class Definition:
    """What a definition is a class of: a frozen dataclass.

    Its methods are written here once: those that dataclasses generates cost each start half a millisecond
    a class.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[Dict[str, dataclasses.Field[Any]]]
    else:

        def __init__(self, *values: Any, **named: Any) -> None:
            kind = type(self)
            names, defaults, factories, check = _parts.get(kind) or _parts.setdefault(
                kind, _taken_apart(kind)
            )
            given = {**defaults, **named}
            if values:
                first = dict(zip(names, values))
                if len(first) < len(values) or not named.keys().isdisjoint(first):
                    raise TypeError("%s: too many values: %s %s" % (kind.__name__, values, named))
                given.update(first)
            for name, factory in factories:
                if name not in given:
                    given[name] = factory()
            if given.keys() != names.keys():
                odd = given.keys() ^ names.keys()
                raise TypeError("%s: unknown or missing: %s" % (kind.__name__, ", ".join(sorted(odd))))
            vars(self).update(given)
            if check is not None:
                check(self)

        def __setattr__(self, name: str, value: Any) -> None:
            raise dataclasses.FrozenInstanceError("cannot assign to field %r" % name)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *(vars(self)[field.name] for field in dataclasses.fields(self))))

    def __repr__(self) -> str:
        told = ", ".join("%s=%r" % (field.name, vars(self)[field.name]) for field in dataclasses.fields(self))
        return "%s(%s)" % (type(self).__name__, told)


_Parts = Tuple[Dict[str, None], Dict[str, Any], List[Tuple[str, Callable[[], Any]]], Any]
_parts: Dict[Type[Any], _Parts] = {}


def _taken_apart(kind: Type[Any]) -> _Parts:
    """Its fields in their order, the defaults, those that make a default, and the class's own check."""
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    return (
        dict.fromkeys(field.name for field in fields),
        {field.name: field.default for field in fields if field.default is not missing},
        [(field.name, field.default_factory) for field in fields if field.default_factory is not missing],
        getattr(kind, "__post_init__", None),
    )


class FieldKind(Definition):
    """What a value may be."""

    def read(self, value: Any) -> Any:
        """The checked value.

        :raises Malformed: it is not of this kind
        """
        raise NotImplementedError


class Flag(FieldKind):
    """True or false."""

    def read(self, value: Any) -> bool:
        """See :meth:`FieldKind.read`."""
        if value is True or value is False:
            return bool(value)
        raise _not("true or false", value)


class Whole(FieldKind):
    """An integer from ``least`` to ``most``, both included."""

    least: int
    most: int

    def read(self, value: Any) -> int:
        """See :meth:`FieldKind.read`."""
        if isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most:
            return value
        raise _not("an integer from %d to %d" % (self.least, self.most), value)

    def nearest(self, value: int) -> int:
        """The value, or the bound that it is beyond: some file systems report what cannot be."""
        return min(max(self.least, value), self.most)


class Number(FieldKind):
    """A finite number from ``least`` to ``most``, both included."""

    least: float
    most: float

    def read(self, value: Any) -> float:
        """See :meth:`FieldKind.read`."""
        # The comparison comes before float(): an integer may be too large for one. NaN fails it.
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and self.least <= value <= self.most
        ):
            return float(value)
        raise _not("a number from %g to %g" % (self.least, self.most), value)


class Text(FieldKind):
    """A string of at most ``most`` characters; lone surrogates are allowed, they represent odd bytes.

    :param pattern: what the whole string must match; empty: anything
    :param cut: truncate a longer one rather than refuse it: for sentences, never for names
    """

    most: int
    pattern: str = ""
    cut: bool = False

    def read(self, value: Any) -> str:
        """See :meth:`FieldKind.read`."""
        if not isinstance(value, str):
            raise _not("a text", value)
        text: str = value
        if len(text) > self.most:
            if not self.cut:
                raise _not("a text of at most %d characters" % self.most, text)
            text = text[: self.most] + "…"
        if self.pattern and not re.fullmatch(self.pattern, text, re.DOTALL):
            raise _not("a text like %s" % self.pattern, text)
        return text


class Maybe(FieldKind):
    """Null, or a value of another kind."""

    kind: FieldKind

    def read(self, value: Any) -> Any:
        """See :meth:`FieldKind.read`."""
        return None if value is None else self.kind.read(value)


class ListOf(FieldKind):
    """A list of at most ``most`` values of one kind, as a tuple.

    :param skip: values of another kind are left out rather than refused
    """

    kind: FieldKind
    most: int
    skip: bool = False

    def read(self, value: Any) -> Tuple[Any, ...]:
        """See :meth:`FieldKind.read`."""
        if not isinstance(value, (list, tuple)):
            raise _not("a list", value)
        if len(value) > self.most:
            raise Malformed("expected at most %d entries, got %d" % (self.most, len(value)))
        found: List[Any] = []
        for place, each in enumerate(value):
            try:
                found.append(self.kind.read(each))
            except Malformed as error:
                if not self.skip:
                    raise error.inside("[%d]" % place) from None
        return tuple(found)


class MapOf(FieldKind):
    """An object of at most ``most`` entries, whose names and values are each of one kind."""

    name: FieldKind
    value: FieldKind
    most: int

    def read(self, value: Any) -> Dict[Any, Any]:
        """See :meth:`FieldKind.read`."""
        if not isinstance(value, dict):
            raise _not("an object", value)
        if len(value) > self.most:
            raise Malformed("expected at most %d entries, got %d" % (self.most, len(value)))
        found = {}
        for name, each in value.items():
            try:
                found[self.name.read(name)] = self.value.read(each)
            except Malformed as error:
                raise error.inside("[%s]" % shown(name)) from None
        return found


class Digits(FieldKind):
    """An integer as the name of an entry, since JSON allows only strings."""

    kind: Whole

    def read(self, value: Any) -> int:
        """See :meth:`FieldKind.read`."""
        if isinstance(value, int):
            return self.kind.read(value)
        if isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,18}", value):
            return self.kind.read(int(value))
        raise _not("digits", value)


class Of(FieldKind):
    """An object that a definition describes."""

    definition: Type[Any]

    def read(self, value: Any) -> Any:
        """See :meth:`FieldKind.read`."""
        return read(self.definition, value)


class RowOf(FieldKind):
    """A list that holds the fields of a definition in their order."""

    definition: Type[Any]

    def read(self, value: Any) -> Any:
        """See :meth:`FieldKind.read`."""
        names = [name for name, _, _ in fields(self.definition)]
        if not isinstance(value, (list, tuple)) or len(value) != len(names):
            raise _not("a list of %d values" % len(names), value)
        return read(self.definition, dict(zip(names, value)))


def bound(kind: FieldKind, default: Any = dataclasses.MISSING) -> Any:
    """A field of a definition.

    :param kind: what it holds
    :param default: its value if it is missing; left out: the field is required
    """
    if isinstance(default, dict):
        copied = dict(default)
        return dataclasses.field(default_factory=lambda: dict(copied), metadata={_KIND: kind})
    return dataclasses.field(default=default, metadata={_KIND: kind})


def read(definition: Type[T], value: Any) -> T:
    """The object that parsed JSON describes.

    :raises Malformed: a field is missing or not of its kind, or the definition's own check refuses it
    """
    if not isinstance(value, dict):
        raise _not("an object", value)
    found = {}
    for name, kind, needed in fields(definition):
        if name in value:
            try:
                found[name] = kind.read(value[name])
            except Malformed as error:
                raise error.inside(".%s" % name) from None
        elif needed:
            raise Malformed(".%s: missing" % name)
    return definition(**found)


def parsed(line: bytes) -> Any:
    """The value of a line of JSON.

    :raises Malformed: it is not JSON, or nested too deep
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed("not JSON: %s" % type(error).__name__) from None


def plain(value: Any) -> Any:
    """The JSON form of an object of a definition, the reverse of :func:`read`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


_known: Dict[Type[Any], List[Tuple[str, FieldKind, bool]]] = {}


def fields(definition: Type[Any]) -> Sequence[Tuple[str, FieldKind, bool]]:
    """Name, kind, and whether it is required, for each field of a definition."""
    found = _known.get(definition)
    if found is None:
        missing = dataclasses.MISSING
        found = _known[definition] = [
            (field.name, field.metadata[_KIND], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(definition)
        ]
    return found


def shown(value: Any) -> str:
    """A value as shown in a message: short, and ASCII."""
    if isinstance(value, str):
        return ascii(value[:_SHOWN]) + ("…" if len(value) > _SHOWN else "")
    if isinstance(value, (bool, float)) or value is None:
        return repr(value)
    if isinstance(value, int):
        # Thousands of digits are costly, and no help.
        return repr(value) if abs(value) < 1 << 80 else "an integer of %d bits" % value.bit_length()
    names: Dict[Any, str] = {dict: "an object", list: "a list", tuple: "a list"}
    return names.get(type(value), type(value).__name__)


def _not(wanted: str, value: Any) -> Malformed:
    return Malformed("expected %s, got %s" % (wanted, shown(value)))


# Kinds that several definitions share.

RANK_LIMIT = 1 << 17
"""Ranks from this number on are nonsense."""

RANKS_A_NODE = 4096
"""Ranks on one node."""

RUN_NAME_RULE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a run may be called: folders have this name, here and on every node."""

FLAG = Flag()
RANK = Whole(0, RANK_LIMIT - 1)
RANKS = ListOf(RANK, RANKS_A_NODE)
PID = Whole(0, 1 << 30)
TICKS = Whole(0, (1 << 63) - 1)
"""Clock ticks since a boot."""
SIZE = Whole(0, (1 << 62) - 1)
"""Bytes, or a place in a file."""
COUNT = Whole(0, 1 << 40)
TIME = Number(0, 1 << 36)
"""Unix seconds; a time outside the calendar cannot be shown."""
SECONDS = Number(-(1 << 36), 1 << 36)
"""A length of time, or a difference of clocks."""
RUN_NAME = Text(64, RUN_NAME_RULE)
NODE_NAME = Text(255, r"[^\0]+")
_NEVER = r"\0\ud800-\udc7f\udd00-\udfff"
"""In no name of a file: zero, and surrogates that stand for no byte: no path could be made of them."""
FILE_NAME = Text(255, r"(?!\.\.?\Z)[^/%s]+" % _NEVER)
"""The name of a file in a folder, never a path."""
PATH = Text(4096, r"/[^%s]*" % _NEVER)
"""An absolute path."""
FILE_PATH = Text(4096, r"/(?:[^%s]*/)?(?!\.\.?\Z)[^/%s]+" % (_NEVER, _NEVER))
"""The absolute path of a file: its last part is a name."""
WORD = Text(100)
SENTENCE = Text(2000, cut=True)
VARIABLES = MapOf(Text(4096), Text(8192), 10_000)
"""An environment as it is sent: no secrets, long values cut."""


def maybe(kind: FieldKind) -> Any:
    """A field that may be missing or null."""
    return bound(Maybe(kind), None)
