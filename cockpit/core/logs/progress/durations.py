"""How much longer a training program says it will take."""

from __future__ import annotations

import re

_SAID = re.compile(
    rb"(?<![a-z])(?:eta|(?:est(?:imated)?\.?[ _])?(?:time[ _])?(?:remaining|left)(?:[ _](?:time|estimate))?)"
    rb"(?:[ _]?[(\[]?(?P<unit>s|sec|seconds|min|mins|minutes|h|hr|hrs|hours)[)\]]?)?"
    rb"['\"]?\s{0,8}[:=|]?[\s'\"]{0,8}"
    rb"(?P<text>[\d][\w:,. ]{0,40})"
)
_IN_BAR = re.compile(rb"(?<!/\? )\[[\d:]{1,12}<(?P<text>(?:\d+ days?, )?\d{1,4}(?::\d\d){1,2}),")
# rich: "0:01:18 0:03:30 3.02it/s", with a dot in between that is left out
_IN_RICH = re.compile(rb" [\d:]{1,12} {1,3}(?P<text>\d{1,4}:\d\d:\d\d) {1,3}\d[\d.]{0,9}it/s")
_CLOCK = re.compile(rb"(?:(\d{1,5})\s?d(?:ays?)?,?\s{0,3})?(\d{1,6}):(\d\d)(?::(\d\d))?(?:\.\d+)?(?![\w:])")
_WORDS = re.compile(
    rb"(?=\d)(?:(\d{1,5}(?:\.\d+)?)\s?d(?:ays?)?,?\s{0,2})?"
    rb"(?:(\d{1,6}(?:\.\d+)?)\s?h(?:(?:ou)?rs?)?,?\s{0,2})?"
    rb"(?:(\d{1,6}(?:\.\d+)?)\s?m(?:in(?:ute)?s?)?,?\s{0,2})?(?:(\d{1,9}(?:\.\d+)?)\s?s(?:ec(?:ond)?s?)?)?(?![\w.])"
)
_PLAIN = re.compile(rb"\d{1,9}(?:\.\d+)?(?![\w:.])")
_SECONDS = {b"s": 1, b"m": 60, b"h": 3600}


def time_left(line: bytes) -> float | None:
    """Seconds left according to a line in small letters; None: it does not say."""
    said = None
    for said in _SAID.finditer(line):  # noqa: B007  (the last one)
        pass
    found = said or _IN_BAR.search(line) or _IN_RICH.search(line)
    if found is None:
        return None
    text = found["text"]
    unit = found["unit"] if found is said else None
    clock = _CLOCK.match(text)
    if clock is not None:
        parts = [float(part) if part else 0.0 for part in clock.groups()]
        if clock[4] is None:
            parts[1:] = [0.0, *parts[1:3]]
        return _seconds(*parts)
    words = _WORDS.match(text)
    if words is not None and words[0].strip():
        return _seconds(*(float(part) if part else 0.0 for part in words.groups()))
    plain = _PLAIN.match(text)
    return float(plain[0]) * _SECONDS[unit[:1]] if plain is not None and unit is not None else None


def _seconds(days: float, hours: float, minutes: float, seconds: float) -> float:
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
