"""Frames of a node, rewritten: what a hostile or broken agent may send in place of an answer."""

from __future__ import annotations

import copy
import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cockpit.base.answers import Hello, Nothing, Trouble
from cockpit.base.events import RECORD
from cockpit.base.frames import MAX_HEADER, MAX_PAYLOAD, Header
from cockpit.base.gate import Of, fields
from cockpit.base.profile.summary import RankProfile
from cockpit.base.verbs import VERBS
from cockpit.engine.links.link import REPLIES
from tests.hostile import values
from tests.hostile.values import Place

PARTS = {"hello": "hello", "item": "item", "ok": "answer", "error": "error"}
"""Which part of a frame an agent's words are in."""


@dataclass
class Sent:
    """A frame that a node sent.

    :param verb: the request that it answers; ``hello``
    """

    verb: str
    header: Header
    payload: bytes = b""

    @property
    def word(self) -> str:
        """``item``, ``ok``, ``error`` or ``hello``."""
        return next((word for word in PARTS if word in self.header), "ok")

    @property
    def definition(self) -> type[Any]:
        """What the frame should hold."""
        if self.word == "hello":
            return Hello
        if self.word == "error":
            return Trouble
        reply = REPLIES[VERBS[self.verb]]
        return reply.item if self.word == "item" else reply.answer

    def places(self) -> list[Place]:
        """Every place in the frame's words, the words themselves last."""
        found = list(values.places(self.header, self.word, Of(self.definition)))
        return [*found[1:], found[0]]

    def copy(self) -> Sent:
        """One that may be changed."""
        return Sent(self.verb, copy.deepcopy(self.header), self.payload)

    def bytes(self, header_len: int | None = None, payload_len: int | None = None) -> bytes:
        """As it travels; the lengths may be wrong ones."""
        text = values.dumped(self.header)
        sizes = (
            len(text) if header_len is None else header_len,
            len(self.payload) if payload_len is None else payload_len,
        )
        return struct.pack(">II", *sizes) + text + self.payload


@dataclass
class Out:
    """What is sent in place of a frame.

    :param chunks: bytes, in order
    :param wait_s: seconds before
    :param held: frames that are sent after the next one
    :param silent: nothing more comes, ever
    """

    chunks: list[bytes] = field(default_factory=list)
    wait_s: float = 0.0
    held: list[bytes] = field(default_factory=list)
    silent: bool = False


Mutation = Callable[[Sent, random.Random], Out]


def _changed(change: Callable[[Place, random.Random], None]) -> Mutation:
    """A mutation of one to three places of a frame."""

    def mutate(sent: Sent, rng: random.Random) -> Out:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            change(rng.choice(sent.places()), rng)
        return Out([sent.bytes()])

    return mutate


def _drop(place: Place, rng: random.Random) -> None:
    place.drop()


def _retype(place: Place, rng: random.Random) -> None:
    place.put(values.other_type(place, rng))


def _too_much(place: Place, rng: random.Random) -> None:
    place.put(values.huge(place, rng))


def _nest(place: Place, rng: random.Random) -> None:
    if isinstance(place.holder, dict) and rng.random() < 0.3:
        place.holder["x"] = values.deep(rng)  # a field that nobody reads
    else:
        place.put(values.deep(rng))


def _lie(place: Place, rng: random.Random) -> None:
    place.put(values.good(place.kind, rng))


def _evil(place: Place, rng: random.Random) -> None:
    if isinstance(place.holder, dict) and rng.random() < 0.1:
        place.holder[rng.choice(values.EVIL)] = rng.choice(values.EVIL)
    else:
        place.put(values.evil(place, rng))


CHANGES: Sequence[Callable[[Place, random.Random], None]] = (_drop, _retype, _too_much, _nest, _lie, _evil)
"""What is done to one place of a frame, a line or a file."""


def _reorder(sent: Sent, rng: random.Random) -> Out:
    for place in sent.places():
        value = place.holder[place.key]
        if isinstance(value, list) and len(value) > 1:
            rng.shuffle(value)
    return Out(held=[sent.bytes()])


def _delay(sent: Sent, rng: random.Random) -> Out:
    return Out([sent.bytes()], wait_s=rng.uniform(0.05, 0.6))


def _repeat(sent: Sent, rng: random.Random) -> Out:
    times = rng.choice((2, 3, 20, 200))
    return Out([sent.bytes()] * (times if len(sent.payload) < 10_000 else 3))


def _never(sent: Sent, rng: random.Random) -> Out:
    return Out(silent=rng.random() < 0.5)


def _garbage(sent: Sent, rng: random.Random) -> Out:
    frame = bytearray(sent.bytes())
    match rng.randrange(4):
        case 0:
            return Out([rng.randbytes(rng.choice((1, 8, 300, 70_000)))])
        case 1:
            for _ in range(rng.choice((1, 3, 30))):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
        case 2:
            del frame[rng.randrange(len(frame)) :]
        case _:
            head = rng.choice((b"[]", b"null", b'"x"', b"\xff\xfe{}", b"{", b"", b"5", b'{"a":1,}'))
            return Out([struct.pack(">II", len(head), 0) + head])
    return Out([bytes(frame)])


def _lengths(sent: Sent, rng: random.Random) -> Out:
    real = len(values.dumped(sent.header))
    header = rng.choice((None, 0, real - 1, real + 1, MAX_HEADER, MAX_HEADER + 1, (1 << 32) - 1))
    payload = rng.choice((None, 0, 1, len(sent.payload) + 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, (1 << 32) - 1))
    return Out([sent.bytes(header, payload)])


def spoilt(told: dict[str, Any], definition: type[Any], rng: random.Random) -> bytes:
    """JSON of an object, changed in a place or more."""
    held = {"file": told}
    for _ in range(rng.choice((1, 1, 3, 20))):
        try:
            places = list(values.places(held, "file", Of(definition)))[1:]
            rng.choice(CHANGES)(rng.choice(places), rng)
        except (AttributeError, IndexError, KeyError, TypeError):
            break  # a second change met what the first had left
    return values.dumped(held["file"])


def _summary(data: bytes, rng: random.Random) -> bytes:
    """What came of the profile of a rank, rewritten."""
    try:
        return zlib.compress(spoilt(json.loads(zlib.decompress(data)), RankProfile, rng))
    except (ValueError, zlib.error):
        return zlib.compress(rng.choice((b"ab 1\n", b"f (x.py:1);\x1b[2J \x9b 3\n", b"\n")) * (1 << 20), 1)


def _payload(sent: Sent, rng: random.Random) -> Out:
    data = sent.payload
    if sent.verb in ("profile", "sumup") and data and rng.random() < 0.8:
        sent.payload = _summary(data, rng)
        return Out([sent.bytes()])
    sent.payload = rng.choice(
        (
            data + b"more",
            data[:-1],
            b"",
            b"x" * rng.choice((1, 1 << 20, MAX_PAYLOAD)),
            rng.randbytes(max(1, len(data))),
            b"[" * 200_000 + b"\n",
            b"".join(values.dumped(values.good_line(rng)) + b"\n" for _ in range(200)),
            _record_of(rng),
        )
    )
    parts = sent.header.get("item", {}).get("parts") if isinstance(sent.header.get("item"), dict) else None
    if parts and rng.random() < 0.6:
        # As long as its parts say: what is in it is the fault.
        sent.header["item"]["parts"] = [[*parts[0][:2], len(sent.payload)]]
    return Out([sent.bytes()])


def _record_of(rng: random.Random) -> bytes:
    """Lines of a run record, each with a fault."""
    return b"".join(line(rng) + b"\n" for _ in range(30))


def line(rng: random.Random) -> bytes:
    """A line of a run record, rewritten."""
    told = {"line": values.good_line(rng)}
    found = list(values.places(told, "line", Of(_fact(told["line"]))))[1:]
    change = rng.choice(CHANGES)
    if found:
        change(rng.choice(found), rng)
    elif rng.random() < 0.5:
        told["line"]["t"] = rng.choice((None, "x", 10**400, -1, values.Raw("1e400")))
    return values.dumped(told["line"])


def _fact(told: dict[str, Any]) -> type[Any]:
    return RECORD[str(told["e"])]


def _other_id(sent: Sent, rng: random.Random) -> Out:
    now = sent.header.get("id", 0)
    sent.header["id"] = rng.choice((now + 1, now - 1, 0, -1, 10**30, "1", None, True, [now], 1.0, 99))
    if rng.random() < 0.2:
        del sent.header["id"]
    return Out([sent.bytes()])


def _refuse(sent: Sent, rng: random.Random) -> Out:
    """An error, or the words of another frame, in place of what was asked for."""
    number = sent.header.get("id", 0)
    kinds = ("gone", "folder", "unreadable", "protocol", "bug", "os", "busy", *values.EVIL)
    trouble = {"kind": rng.choice(kinds), "what": rng.choice(values.EVIL), "hint": rng.choice(values.EVIL)}
    match rng.randrange(4):
        case 0 | 1:
            sent.header = {"id": number, "error": trouble}
        case 2:
            other = REPLIES[rng.choice(list(REPLIES))]
            sent.header = {"id": number, "ok": values.good_object(other.answer, rng)}
        case _:
            other = REPLIES[rng.choice(list(REPLIES))]
            item = other.item if other.item is not Nothing else other.answer
            sent.header = {"id": number, "item": values.good_object(item, rng)}
    return Out([sent.bytes()])


MUTATIONS: dict[str, Mutation] = {
    "dropped": _changed(_drop),
    "retyped": _changed(_retype),
    "huge": _changed(_too_much),
    "nested": _changed(_nest),
    "lies": _changed(_lie),
    "text": _changed(_evil),
    "reordered": _reorder,
    "late": _delay,
    "repeated": _repeat,
    "never": _never,
    "garbage": _garbage,
    "lengths": _lengths,
    "payload": _payload,
    "other-id": _other_id,
    "refused": _refuse,
}
"""Ways to rewrite a frame. ``lies`` are within all bounds, and not true."""


def mutated(name: str, sent: Sent, rng: random.Random) -> Out:
    """What is sent in place of a frame; the frame itself stays as it is."""
    sent = sent.copy()
    try:
        return MUTATIONS[name](sent, rng)
    except (AttributeError, IndexError, KeyError, TypeError):
        # A second change met what the first had left.
        return Out([sent.bytes()])


def made(verb: str, rng: random.Random, words: Sequence[str] = ("item", "ok", "ok", "error")) -> Sent:
    """A good frame for a verb, made up."""
    if verb == "hello":
        return Sent(verb, {"id": 0, "hello": values.good_object(Hello, rng)})
    reply = REPLIES[VERBS[verb]]
    word = rng.choice(words)
    if word == "item" and not fields(reply.item):
        word = "ok"
    definition = {"item": reply.item, "ok": reply.answer, "error": Trouble}[word]
    payload = rng.randbytes(rng.choice((0, 3, 500))) if word == "item" else b""
    return Sent(verb, {"id": 7, word: values.good_object(definition, rng)}, payload)
