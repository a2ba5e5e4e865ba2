"""What a node sends cannot drive the terminal."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cockpit.core.text import MAX_MARKS, RESET, RemoteText, sanitise

ALLOWED_SGR = re.compile(r"\x1b\[[0-9;:]*m", re.ASCII)
FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)

ATTACKS = {
    "clipboard, BEL": b"\x1b]52;c;cm0gLXJmIH4=\x07",
    "clipboard, ST": b"\x1b]52;c;cm0gLXJmIH4=\x1b\\",
    "clipboard, unterminated": b"\x1b]52;c;cm0gLXJmIH4=",
    "clipboard, 8-bit": b"\x9d52;c;cm0gLXJmIH4=\x9c",
    "clipboard, C1 in UTF-8": "\x9d52;c;cm0gLXJmIH4=\x9c".encode(),
    "hyperlink": b"\x1b]8;;http://evil/\x1b\\click\x1b]8;;\x1b\\",
    "title": b"\x1b]0;owned\x07",
    "notification": b"\x1b]777;notify;a;b\x07",
    "DCS through tmux": b"\x1bPtmux;\x1b\x1b]52;c;aa\x07\x1b\\",
    "sixel": b"\x1bPq#0;2;0;0;0~-\x1b\\",
    "device query": b"\x1b[c\x1b[6n\x1b[>q\x1b[5n",
    "status string": b"\x1bP$qm\x1b\\",
    "CSI, 8-bit": b"\x9b31m\x9b2J",
    "CSI, C1 in UTF-8": "\x9b2J".encode(),
    "cursor": b"\x1b[10A\x1b[2K\x1b[H\x1b[2J\x1b7\x1b8\x1bM",
    "alternate screen": b"\x1b[?1049h\x1b[?1000h\x1b[?2004h",
    "charset": b"\x1b(0lqqk\x0e\x0f",
    "reset": b"\x1bc\x1b[!p",
    "absurd colour": b"\x1b[38;5;999999999999m",
    "conceal": b"\x1b[8mhidden",
    "many parameters": b"\x1b[" + b"1;" * 5000 + b"1m",
    "lone escape at the end": b"text\x1b",
    "controls": bytes(range(9)) + bytes(range(10, 32)) + b"\x7f",
    "bidi": "\u202eexe.txt\u2066\u2069\u200f\u061c".encode(),
    "zero width": "ro\u200bot\u2060\ufeff\u200d\u00ad".encode(),
    "tags": "\U000e0001\U000e0041\U000e007f".encode(),
    "separators": "a\u2028b\u2029c\u0085d".encode(),
    "fillers": "\u3164\u115f\uffa0".encode(),
    "encoded surrogate": b"\xed\xa0\x80",
    "overlong escape": b"\xc0\x9b\xe0\x80\x9b",
}

fragments = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(sorted(ATTACKS.values())),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"\x1b", b"[", b"m", b";", b"31", b"\x1b[1;31m", b"\t", "\u0301".encode() * 7, b"e"]),
)
junk = st.lists(fragments, max_size=12).map(b"".join)


def harmless(shown: str, colour: bool) -> bool:
    """The oracle, written apart from the sanitiser: is there nothing that a terminal obeys or hides?"""
    rest = ALLOWED_SGR.sub("", shown) if colour else shown
    return not FORBIDDEN.search(rest)


@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_made_visible(name: str, colour: bool) -> None:
    raw = ATTACKS[name]
    assert not harmless(raw.decode("latin-1"), False) or not harmless(
        raw.decode("utf-8", "replace"), False
    ), "negative control: the oracle must object to the attack itself"
    shown = sanitise(raw, colour=colour)
    assert harmless(shown, colour)
    assert re.search(r"\\x|<U\+", shown), "something must show that it was there"
    if colour:
        assert "\x1b" not in shown, "none of these is a sane colour"


@given(junk, st.booleans())
@settings(max_examples=300)
@example(b"\x1b[31m", True)
@example(b"\x1b\x1b[31m[31m", True)
def test_output_is_harmless_whatever_comes(raw: bytes, colour: bool) -> None:
    shown = sanitise(raw, colour=colour)
    assert harmless(shown, colour)
    if "\x1b" in shown:
        assert shown.endswith(RESET)
        assert len(ALLOWED_SGR.findall(shown)) == shown.count("\x1b")
    for sequence in ALLOWED_SGR.findall(shown):
        numbers = [int(number) for number in re.findall(r"\d+", sequence)]
        assert all(number <= 255 for number in numbers)
    marks = longest = 0
    for char in shown:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        longest = max(longest, marks)
    assert longest <= MAX_MARKS


@given(junk)
def test_twice_is_once(raw: bytes) -> None:
    once = sanitise(raw, colour=False)
    assert sanitise(once.encode(), colour=False) == once


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_is_not_touched(text: str) -> None:
    assert sanitise(text.encode(), colour=False) == text
    assert sanitise(text.encode(), colour=True) == text


@given(junk, st.integers(0, 60))
def test_limit_accounts_for_every_byte(raw: bytes, limit: int) -> None:
    shown = sanitise(raw, colour=False, limit=limit)
    whole = sanitise(raw, colour=False)
    found = re.search(r" … \(\+([\d,]+) bytes\)$", shown)
    if found:
        left = int(found[1].replace(",", ""))
        kept = raw[: len(raw) - left]
        assert len(kept.decode("utf-8", "surrogateescape")) == limit
        assert shown[: found.start()] == sanitise(kept, colour=False)
    else:
        assert shown == whole


def test_what_is_let_through() -> None:
    for text in ("Grüße 日本語 ⚠️ é e\u0301 ▕██▌ ▏ שלום", "a  b\u00a0c"):
        assert sanitise(text.encode(), colour=False) == text
    assert sanitise(b"a\tb\t|", colour=False) == "a       b       |"
    for style in ("31", "01;31", "", "0", "38;5;208", "48;2;1;2;255", "1;4:3;97", "38:2::1:2:3"):
        raw = f"\x1b[{style}mtext\x1b[0m"
        assert sanitise(raw.encode(), colour=True) == raw + RESET
        assert sanitise(raw.encode(), colour=False) == "text"


def test_codes() -> None:
    shown = sanitise(b"\x1b]0;x\x07 \xff \x9b \xc2\x9b " + "\u202e \U000e0041".encode(), colour=True)
    assert shown == r"\x1b]0;x\x07 \xff \x9b <U+009B> <U+202E> <U+E0041>"


def test_marks_do_not_pile_up() -> None:
    for mark in ("\u0301", "\ufe0f", "\u20dd", "\U000e0101"):
        shown = sanitise(("a" + mark * 1000 + "b").encode(), colour=False)
        assert shown.count(mark) <= MAX_MARKS
        assert shown.count(f"<U+{ord(mark):04X}>") >= 1000 - MAX_MARKS


def test_limit_counts_characters_and_says_what_is_missing() -> None:
    assert sanitise(b"x" * 12445, colour=False, limit=100) == "x" * 100 + " … (+12,345 bytes)"
    assert sanitise("é".encode() * 10, colour=False, limit=10) == "é" * 10
    assert sanitise("é".encode() * 11, colour=False, limit=10) == "é" * 10 + " … (+2 bytes)"


def test_remote_text_is_no_string() -> None:
    text = RemoteText.of("a\x1b[2J")
    with pytest.raises(TypeError, match="shown"):
        str(text)
    with pytest.raises(TypeError, match="shown"):
        f"{text}"
    with pytest.raises(TypeError):
        "".join([text])  # type: ignore[list-item]
    assert "\x1b" not in repr(text)
    assert text.shown() == r"a\x1b[2J"
    assert RemoteText.of(b"\xff").shown() == RemoteText.of("\udcff").shown() == r"\xff"
    assert harmless(RemoteText.of("\ud800").shown(), False)
