"""What launchers, collectors of logs and loggers put before a line, and the line without it.

Sources of the forms: torch (``distributed/elastic/multiprocessing/tail_log.py``: ``[default3]:``;
``distributed/distributed_c10d.py``: ``[rank3]: ``), torchx (``trainer/0 ``), Open MPI and PRRTE (``--output
tag,timestamp``: ``Fri Nov 20 03:14:05 2026[1,3]<stderr>:``), srun ``--label`` (``12: ``), pdsh (``host: ``),
kubectl ``--prefix`` (``[pod/trainer-0/pytorch] ``), docker compose (``trainer-0  | ``), Ray
(``(Trainer pid=7) ``), syslog and dmesg.
"""

from __future__ import annotations

import re

TRACEBACK = b"Traceback (most recent call last)"

STYLE = re.compile(rb"\x1b\[[\d;:]*m")
"""What gives text a colour: Ray colours who speaks, in files too."""

MOST = 200
"""Bytes that may precede a traceback; anything longer is a line of its own."""

_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY = rb"[A-Z][a-z]{2} [ \d]\d "
_TIMES = (
    rb"(?P<open>\[)?\d{4}[-/]\d\d[-/]\d\d[ T_]%s(?:Z| ?[+-]\d\d:?\d\d)?(?(open)\]):? ?" % _CLOCK,
    rb"[A-Z][a-z]{2} %s%s \d{4}(?: (?! ))?" % (_DAY, _CLOCK),
    # syslog goes on with the host and the program.
    rb"%s%s (?:[\w.-]{1,64} [\w.-]{1,64}\[\d{1,10}\]: )?" % (_DAY, _CLOCK),
    rb"(?P<round>\[)?%s(?(round)\]) " % _CLOCK,
    rb"\[ {0,8}\d{1,9}\.\d{3,9}\] ",
)
_TAGS = (
    rb"\[rank\d{1,6}\]: ?",
    # Neither a level nor a count: "[INFO]: ", "[340/5004]: ".
    rb"(?:\[(?!(?:[A-Z]{4,8}|\d{1,9}/\d{1,9})\])[^\[\]\s]{1,64}\]){1,2}(?:<\w{1,16}>)?:(?: (?! ))?",
    rb"\[[A-Za-z][\w.-]{0,63}/[^\[\]\s]{1,128}\] ",
    rb"[A-Za-z][\w.-]{0,63}/\d{1,6} ",
    rb"\([^()\n]{1,64} pid=\d{1,10}[^()\n]{0,64}\) ?",
    rb" {0,5}\d{1,6}: ",
    # Host names: in small letters and numbered, and not followed by a value ("top1: 71.3").
    rb"(?=[a-z._]{0,63}[\d-])[a-z0-9][a-z0-9._-]{0,63}: (?![-+.]?\d)",
    rb"[a-z][\w.-]{0,63}[-_]\d{1,5} {1,40}\| ",
)
_TIME = re.compile(b"|".join(_TIMES))
_PREFIX = re.compile(rb"(?:%s){0,6}" % b"|".join((*_TIMES, *_TAGS)))
# A bar ends without a newline: what is printed next continues its line.
_BAR_END = re.compile(rb"(?:it/s|s/it|B/s)[^\]\r\n]{0,300}\]|\[(?:\d\d:)?\d\d:\d\d<[^\]\r\n]{0,300}\]")
_GROUP = re.compile(rb" {0,40}\+ (?:Exception Group )?\Z")
_BOX = re.compile("(?:╭|┌)(?:─| ){0,200}\\Z".encode())
_DIGITS = re.compile(rb"\d")


def split(line: bytes) -> tuple[bytes, bytes]:
    """A line as ``(prefix, body)``; together they are the line.

    The prefix has times and who speaks (launchers' tags), but not what a program's own logger puts there:
    levels, modules. Names of exceptions are not mistaken for hosts: ``ValueError: x`` has no prefix.
    """
    match = _PREFIX.match(line)
    end = match.end() if match else 0
    return line[:end], line[end:]


def speaker(prefix: bytes) -> bytes:
    """A prefix without its times: equal in all lines of one process, different for another rank."""
    return _TIME.sub(b"", prefix).strip()


def message(line: bytes) -> bytes:
    """The :func:`split` body of a line, without a progress bar in front of it."""
    body = split(line)[1]
    return body[_after_bars(body) :]


def _after_bars(text: bytes) -> int:
    """Where the last progress bar in the text ends; 0: there is none."""
    end = 0
    for bar in _BAR_END.finditer(text[-5 * MOST :]):
        end = bar.end()
    return end and max(0, len(text) - 5 * MOST) + end


def head(line: bytes) -> bytes | None:
    """What precedes the first words of a traceback and recurs in its lines; None: it begins no traceback.

    It may be more than :func:`split` finds: a logger's level and name too. A progress bar does not count.
    """
    before, found, _ = line.partition(TRACEBACK)
    if not found:
        return None
    start = _after_bars(before)
    if start:
        return (split(before)[0] + before[start:])[-MOST:]
    before = _BOX.sub(b"", _GROUP.sub(b"", before))
    return before if len(before) <= MOST else split(before)[0]


def body(line: bytes, prefix: bytes) -> bytes | None:
    """The text of a line in a traceback with this :func:`head`; None: the line is another speaker's.

    The digits of times may differ. Lines that have only the launcher's part of the head belong to it too: a
    logger's level is in the first line only.
    """
    if not prefix:
        return line
    if line == prefix.rstrip():
        return b""
    own, rest = split(line)
    if speaker(own) != speaker(split(prefix)[0]):
        return None
    start = line[: len(prefix)]
    if start == prefix or _DIGITS.sub(b"0", start) == _DIGITS.sub(b"0", prefix):
        return line[len(prefix) :]
    return rest
