"""Secrets: told by the name of what holds them, by their form, and by the values that a program was given.

Whatever leaves a node or is written passes one of four functions here: :func:`variable` an environment,
:func:`local` variables of a program, :func:`command` command lines, :func:`without` any other text.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Callable, FrozenSet, Iterable, List, Mapping, Match, Optional, Pattern, Sequence

GONE = "(secret)"
"""What stands for a secret in a text."""

SHORT = 6
"""A shorter value is no secret wherever it is: it would be found in half of all texts."""

A_LINE = 16
"""A shorter line of a value, such as a key's file or JSON, may be any word."""

CUT = 8
"""Characters of a value at the end of a text that was cut: fewer may be anything."""

LONGEST = 4096
"""Characters of a secret in a text, where nothing else tells its end."""

_REMEMBERED = 2048
"""Characters of a value of an environment that is kept with what was found in it."""


# -- by name -----------------------------------------------------------------------------------------


def _of(words: str) -> FrozenSet[str]:
    return frozenset(words.split())


_ANYWHERE = _of("PASSWORD PASSWD PASSPHRASE PASSCODE SECRET CREDENTIAL COOKIE WEBHOOK AUTHORIZATION")
"""A word of a name with one of these in it makes it a secret's."""

_WORDS = _of("AUTH OAUTH XAUTH JWT CREDS BEARER PSK")
_ENDS = ("TOKEN", "TOKENS", "KEY", "KEYS")
_LAST_ENDS = ("PASS", "PWD", "PSWD")
_LAST = ("PW", "PAT")
_OTHERS = _of(
    "MONKEY MONKEYS DONKEY TURKEY HOCKEY JOCKEY WHISKEY HOTKEY HOTKEYS TURNKEY BYPASS COMPASS TRESPASS"
    " SURPASS ENCOMPASS OVERPASS UNDERPASS ASKPASS OLDPWD DETOKEN SUBTOKEN SUBTOKENS SECRETARY"
)
"""Words that only look like those."""

_BEFORE = {
    "TOKEN": _of(
        "PAD EOS BOS UNK SEP CLS MASK SPECIAL IMAGE AUDIO VIDEO VISION TEXT SPEECH START STOP END NEXT PREV"
        " FIRST LAST PER NUM N MAX MIN TOTAL NEW INPUT OUTPUT PROMPT COMPLETION ADDITIONAL VOCAB ADDED"
        " DECODED GENERATED"
    ),
    "KEY": _of(
        "SORT CACHE DICT FOREIGN PRIMARY PUBLIC PUB QUERY STATE PAST PARTITION NUM N MAX MIN PRESS MISSING"
        " UNEXPECTED MODEL PARAM CONFIG BATCH DATA INPUT OUTPUT"
    ),
    "PASS": _of("FORWARD BACKWARD FIRST SECOND ONE TWO SINGLE MULTI NEXT LAST EACH PER BY NUM ASK"),
}
"""A word before one of those that makes it another thing: a model's token, a dict's key, a pass over data."""

_KIND = _of(
    "FILE FILES FILENAME PATH PATHS DIR FOLDER SOCK SOCKET HELPER STORE TYPE LEN LENGTH SIZE COUNT DIM DIMS"
    " INDEX IDX IDS MASK STATES STATE VALUES PROJ HEADS LAYER LAYERS PARALLELISM BITS LIMIT FORMAT METHOD"
    " MODE TTL TIMEOUT EXPIRY EXPIRES ALGORITHM ALGO POLICY ERROR EXCEPTION INTERRUPT SECOND SECONDS SEC STEP"
    " BATCH PROVIDER HOST PORT USER USERNAME REQUIRED"
)
"""The last word of a name that says where a secret is, or of what kind, how long or how many it is."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret(name: str) -> bool:
    """Whether what has this name is treated as a secret."""
    return _told(name[-256:])


@lru_cache(maxsize=4096)
def _told(name: str) -> bool:
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or words[-1] in _KIND or name.strip("-=") == "PWD":
        return False
    return any(_is_secrets(words, at) for at in range(len(words))) or "PASSPHRASE" in "".join(words)


def _is_secrets(words: List[str], at: int) -> bool:
    word = words[at]
    if word in _OTHERS:
        return False
    if word in _WORDS or any(part in word for part in _ANYWHERE):
        return True
    last = at == len(words) - 1
    if last and at and word in _LAST:
        return True
    for end in (*_ENDS, *(_LAST_ENDS if last else ())):
        if word.endswith(end):
            before = words[at - 1] if word == end and at else word[: -len(end)]
            return before not in _BEFORE.get(end.rstrip("S") if end in _ENDS else end, ())
    return last and word == "PW"


# -- by value ----------------------------------------------------------------------------------------

_TRIVIAL = re.compile(
    r"[-+.\d]{1,12}[a-zA-Z%]?|[Tt]rue|[Ff]alse|[Nn]one|null|yes|no|on|off|auto|default|disabled|enabled|required"
    r"|optional|basic|bearer|localhost|password|passwd|secret|token|(?:~|\.{1,2})?(?:/[\w.@~ -]+){2,}/?",
)
"""Values that are no secrets wherever they are: numbers, words of settings, paths."""

_PLAIN = re.compile(r"None|True|False|true|false|null|[-+.\d]{1,12}[a-zA-Z%]?|<[\w.]+ at 0x[0-9a-f]+>")
"""Values that are no secrets whatever the name: models have other kinds of tokens and keys."""


def hidden(value: str) -> str:
    """What is shown for a secret: ``(secret, N characters)``."""
    return "(secret, %d characters)" % len(value)


def is_hidden(text: str) -> bool:
    """Whether a secret has been taken out of a text."""
    return _SHOWN.search(text) is not None


def values(environ: Mapping[str, str]) -> List[str]:
    """The secrets in an environment, in every form they take in a text, the longest first.

    They are the values of variables that are secrets, the lines of such a value, and what is recognised as a
    secret in the others.
    """
    found = set()
    for name, value in environ.items():
        if is_secret(name):
            lines = (line.strip() for line in value.splitlines())
            found.update([value, *(line for line in lines if len(line) >= A_LINE)])
        else:
            found.update(_taken(value) if len(value) <= _REMEMBERED else _taken.__wrapped__(value))
    kept = {each for each in found if len(each) >= SHORT and not _TRIVIAL.fullmatch(each)}
    for each in list(kept):
        kept.update((_quoted(each), json.dumps(each)[1:-1]))
    return sorted(kept, key=len, reverse=True)


@lru_cache(maxsize=256)
def _taken(value: str) -> Sequence[str]:
    """What is recognised as a secret in a value: processes of one node share most of them."""
    taken: List[str] = []
    _without(value, (), False, taken)
    return taken


def _quoted(value: str) -> str:
    """A value as it is in an address."""

    def escaped(found: Match[str]) -> str:
        return "".join("%%%02X" % byte for byte in found[0].encode("utf-8", "replace"))

    return re.sub(r"[^\w.~-]", escaped, value, flags=re.ASCII)


def _without_known(text: str, known: Iterable[str]) -> str:
    for value in known:
        if len(value) < SHORT:
            continue
        text = text.replace(value, GONE)
        if len(value) > CUT:
            text = _without_start(text, value)
    return text


_CUT_OFF = re.compile(r"(?:\.\.\.|…)|\Z")


def _without_start(text: str, value: str) -> str:
    """Without the beginning of a value where a text was cut."""
    start = value[:CUT]
    if start not in text:
        return text
    kept, at = [], 0
    for end in _CUT_OFF.finditer(text):
        begin = text.find(start, max(at, end.start() - len(value)), end.start())
        if begin >= 0 and value.startswith(text[begin : end.start()]):
            kept += [text[at:begin], GONE]
            at = end.start()
    return "".join([*kept, text[at:]])


# -- by form -----------------------------------------------------------------------------------------

_PIECE = r"[^\s,;&\"'<>]{1,%d}" % LONGEST

_KEYS = re.compile(
    r"\b(?:"
    r"hf_[A-Za-z0-9]{16,255}|gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_\w{16,255}|glpat-[\w-]{16,255}"
    r"|xox[abeoprs]-[\w-]{10,255}|xapp-[\w-]{16,255}|pypi-[\w-]{16,255}|npm_[A-Za-z0-9]{30,255}"
    r"|sk-(?:(?=[\w-]{0,63}[\dA-Z])[\w-]{16,255}|[a-z]{20,255})|(?:sk|rk)_(?:live|test)_\w{16,255}|gsk_[A-Za-z0-9]{20,255}"
    r"|nvapi-[\w-]{16,255}|r8_[A-Za-z0-9]{30,255}|wandb_v1_\w{16,255}|AIza[\w-]{30,255}|ya29\.[\w-]{16,1024}"
    r"|SG\.[\w-]{16,255}\.[\w-]{16,255}"
    r"|A(?:KI|SI)A[0-9A-Z]{16}(?:[\s:,;\"'=]{1,4}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))?"
    r"|eyJ[\w-]{8,%d}\.[\w-]{8,%d}\.?[\w-]{0,%d}"
    r")" % (LONGEST, LONGEST, LONGEST)
)
"""Keys and tokens that tell by their beginning what they are."""

_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL)

# Some after which there is one. A name and a password, without which it is a token; a port is none.
_AFTER: List[Pattern[str]] = [
    re.compile(r"(?<=://)()[^\s:/@\"'<>]{0,64}:(?!\d{1,5}(?:[/\s\"']|\Z))[^\s\"'<>]{0,191}(?=@)"),
    re.compile(r"(?<=://)()(?!git@)[^/?#\s@\"']{6,1024}(?=@)"),
    re.compile(r"(?i)\b(bearer\s{1,3})(?=[\w~+/-]{0,1024}[\d._~+/=-])[\w.~+/=-]{8,%d}" % LONGEST),
    re.compile(r"(?i)\b(basic\s{1,3})(?=[\w+/]{0,1024}(?:\d|=))[\w+/]{6,1024}={0,2}"),
    re.compile(r"(hooks\.slack\.com/services/|/api/webhooks/|\.webhook\.office\.com/)[^\s\"']{1,1024}"),
    re.compile(
        r"((?<![\w-])(?:-u|-U|--user|--proxy-user)(?:=|[\"']?,?\s{1,3}[\"']?|[\"'])?[^\s:/,=\"']{1,64}:)"
        r"(?!\d+\b)(?![/\\])[^\s\"']{1,1024}"
    ),
    re.compile(r"(\bsshpass[\"']?,?\s{1,3}[\"']?-p(?:[\"']?,?\s{0,3}[\"']?))[^\s\"']{1,1024}"),
    re.compile(r"(\b(?:docker|podman) login\b[^\n|;&]{0,200}?\s-p\s{0,3}[\"']?)[^\s\"']{1,1024}"),
    re.compile(r"(\bmysql(?:dump|admin)?\b[^\n|;&]{0,200}?\s-p[\"']?)[^\s\"'-][^\s\"']{0,1024}"),
    re.compile(r"(\b(?:https?|xh) (?:[^\n|;&]{0,60} )?-a [\"']?[^\s:/\"']{1,64}:)[^\s\"']{1,1024}"),
    re.compile(r"(\bmachine \S{1,80} login \S{1,80} password )\S{1,1024}"),
    re.compile(r"(\bconfigure set \w{0,64}(?:secret|token|key)\w{0,64}\s{1,3}[\"']?)[^\s\"']{4,1024}"),
    re.compile(r"(\bwandb login(?:\s{1,3}-{1,2}[\w-]{1,30}){0,4}\s{1,3}[\"']?)(?!-)\w[^\s\"']{5,1024}"),
    re.compile(r"((?<![\w-])[?&;]?\b(?:sig|[Ss]ignature|X-Amz-Signature)=)[^\s,;&\"'<>]{6,1024}"),
]

_DIGEST = re.compile(r"(?<![0-9A-Za-z/@])[0-9a-f]{40}(?![0-9A-Za-z])")
_OF_GIT = re.compile(
    r"(?i)(?:commit|sha|rev|revision|head|hash|digest|git|ref|blob|tree|checkout|tag)\w*(?:\W|is|at|to|of){0,8}$"
)


def _without_forms(text: str, take: Callable[[str], str]) -> str:
    text = _PEM.sub(lambda found: take(found[0]), text) if "-----BEGIN" in text else text
    text = _KEYS.sub(lambda found: take(found[0]), text)
    for pattern in _AFTER:
        text = pattern.sub(lambda found: found[1] + take(found[0][len(found[1]) :]), text)

    def digest(found: Match[str]) -> str:
        before = found.string[max(0, found.start() - 30) : found.start()]
        return found[0] if _OF_GIT.search(before) else take(found[0])

    return _DIGEST.sub(digest, text)


# -- what has a name in a text -----------------------------------------------------------------------

_NAMED = re.compile(
    r"(?<![\w.-])(-{0,2}[A-Za-z_][\w.-]{0,255})"
    r"(\\{0,3}[\"']?\]?\s{0,3}(?:=>|(?<![=!<>])=(?!=)|:(?!//)|(?<=[\"']),)\s{0,3}|(?<=[\w])\s{1,3}(?![-=:]))"
)
"""A name and what separates it from its value; white space alone only after an option."""

_QUOTE = re.compile(r"[bBrRuUfF]{0,2}(\\{0,3}[\"'])")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|digest|apikey)\s{1,3}")
_BARE = re.compile(_PIECE)
_LINE = re.compile(r"[^\n\"']{1,%d}" % LONGEST)
_BRACKET = re.compile(r"[()\[\]{}\"']")
_NUMBERS = re.compile(r"[-+.\d\s,()\[\]{}eE]*(?:\.\.\.|…)?")
_SHOWN = re.compile(r"\(secret(?:, \d{1,9} characters)?\)")
_CODE = re.compile(r"[A-Za-z_][\w.]{0,255}(?:[(\[]|\.\w|\s*[,)]|\s*\Z)")


def _without_named(text: str, code: bool, take: Callable[[str], str]) -> str:
    kept: List[str] = []
    at = 0
    for match in _NAMED.finditer(text):
        name, begin = match[1], match.end()
        bare = not match[2].strip(" \t\n\r\f\v")
        if match.start() < at or (bare and name[0] != "-") or not is_secret(name):
            continue
        end = _end(text, begin, name, quoted="," in match[2], code=code)
        if end <= begin:
            continue
        kept += [text[at:begin], take(text[begin:end])]
        at = end
    return "".join([*kept, text[at:]])


def _end(text: str, begin: int, name: str, *, quoted: bool, code: bool) -> int:
    """Where the value ends that begins there; ``begin`` if there is none, or none that may be a secret."""
    shown = _SHOWN.match(text, begin)
    if shown:
        return begin
    opened = _QUOTE.match(text, begin)
    if opened:
        end = _closed(text, opened.end(), opened[1])
        inner = text[opened.end() : end - len(opened[1])]
    elif quoted or text.startswith("//", begin):
        return begin
    elif text[begin : begin + 1] in ("(", "[", "{"):
        end = _matched(text, begin)
        inner = text[begin:end]
        if _NUMBERS.fullmatch(inner) or (code and not _QUOTE.search(inner)):
            return begin
    else:
        if code and _CODE.match(text, begin):
            return begin
        scheme = _SCHEME.match(text, begin)
        whole = _LINE if "COOKIE" in name.upper() else _BARE
        found = whole.match(text, scheme.end() if scheme else begin)
        if found is None:
            return begin
        end = found.end()
        while end > begin and text[end - 1] in ")]}" and _unopened(text[begin:end]):
            end -= 1
        inner = text[begin:end]
    strong = any(part in name.upper() for part in _ANYWHERE)
    plain = _PLAIN.fullmatch(inner) is not None
    return begin if not inner or (plain and not (strong and inner[:1].isdigit() and len(inner) > 3)) else end


def _closed(text: str, at: int, mark: str) -> int:
    """Where the text in quotes ends that goes on at a place; its end if they are not closed."""
    while True:
        found = text.find(mark, at)
        if found < 0:
            return len(text)
        if len(mark) > 1 or (found - len(text[at:found].rstrip("\\")) - at) % 2 == 0:
            return found + len(mark)
        at = found + 1


def _matched(text: str, at: int) -> int:
    """Where the brackets end that open at a place; the end of what is looked at if they do not."""
    depth, last = 0, min(len(text), at + LONGEST)
    place = at
    while place < last:
        found = _BRACKET.search(text, place, last)
        if found is None:
            break
        place = found.end()
        if found[0] in "\"'":
            place = _closed(text, place, found[0])
        else:
            depth += 1 if found[0] in "([{" else -1
            if depth <= 0:
                return place
    return max(place, last)


def _unopened(text: str) -> bool:
    return sum(map(text.count, ")]}")) > sum(map(text.count, "([{"))


# -- what is shown -----------------------------------------------------------------------------------


def without(text: str, known: Iterable[str] = (), *, code: bool = False) -> str:
    """A text without what looks like a secret: in an address, a header, an assignment, an option, by form.

    What it cannot know is a secret that has no name, no form and is not known.

    :param known: values that are secrets wherever they are, as :func:`values` has them
    :param code: it is a line of a program: names and calls in it are no secrets, only what is in quotes
    """
    return _without(text, known, code, None)


def _without(text: str, known: Iterable[str], code: bool, taken: Optional[List[str]]) -> str:
    def take(secret: str) -> str:
        secret = _bare(secret)
        if taken is not None and secret != GONE:
            taken.append(secret)
        return GONE

    text = _without_forms(_without_known(text, known), take)
    return _without_named(text, code, take)


def _bare(secret: str) -> str:
    """What was taken, without its quotes, and without the user before a password."""
    scheme = _SCHEME.match(secret)
    secret = secret[scheme.end() :] if scheme else secret
    opened = _QUOTE.match(secret)
    if opened and secret.endswith(opened[1]):
        return secret[opened.end() : -len(opened[1])]
    user, colon, password = secret.partition(":")
    return password if colon and not re.search(r"[\s{\[(]", user) else secret


def variable(name: str, value: str, known: Iterable[str] = ()) -> str:
    """What is shown of a variable of an environment."""
    return hidden(value) if is_secret(name) else without(value, known)


def local(name: str, text: str, known: Iterable[str] = ()) -> str:
    """What is shown of a variable of a program, of which this is the ``repr``."""
    if is_secret(name) and not _PLAIN.fullmatch(text) and not _NUMBERS.fullmatch(text):
        return hidden(text)
    return without(text, known)


def holds(name: str, value: str, known: Iterable[str] = ()) -> bool:
    """Whether a variable is a secret, or has one in its value."""
    return variable(name, value, known) != value


def command(words: Sequence[str], known: Iterable[str] = (), taken: Optional[List[str]] = None) -> List[str]:
    """The words of a command line, each without its secrets.

    :param taken: gets the secrets
    """
    known = list(known)
    taken = [] if taken is None else taken
    shown: List[str] = []
    before = ""
    for word in words:
        shown.append(_word(word, before, known, taken))
        before = word
    return shown


_USERS = ("-u", "-U", "--user", "--proxy-user")
_ASSIGNED = re.compile(r"(-{0,2}[A-Za-z_][\w.-]{0,255}=)(.*)", re.DOTALL)


def _word(word: str, before: str, known: List[str], taken: List[str]) -> str:
    name, value = "", word
    assigned = _ASSIGNED.fullmatch(word)
    if assigned and is_secret(assigned[1]):
        name, value = assigned[1], assigned[2]
    elif not before.startswith("-") or "=" in before or word.startswith("-") or not is_secret(before):
        start = before + " " if before in _USERS else ""
        return _without(start + word, known, False, taken)[len(start) :]
    if _PLAIN.fullmatch(value) or _SHOWN.fullmatch(value) or not value:
        return word
    taken.append(value)
    return name + GONE


_EXPANSION = re.compile(r"\$\([^()]{0,1000}\)|\$\{[^{}]{0,1000}\}|\$\w{1,255}|`[^`]{0,1000}`")


def in_shell(text: str) -> List[str]:
    """The secrets in a text for a shell: of ``TOKEN=x`` it is ``x``, and ``TOKEN=$(cat file)`` has none."""
    taken: List[str] = []
    _without(_EXPANSION.sub(GONE, text), (), False, taken)
    return taken
