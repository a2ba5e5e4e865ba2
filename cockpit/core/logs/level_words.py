"""Words that make a line an error or a warning, as rows of expressions.

First, the level a logger gives a line: names as in Python's logging, glog's letters (``[E626 …`` is
torch's, whose month has no leading zero), fields of logfmt and JSON. Else its words: exceptions' last lines,
and what the C library, the kernel, NCCL, compilers and launchers say about a failure. A number after
"error:" is a metric, not an error.
"""

from __future__ import annotations


def _not_after(*words: str) -> str:
    return "".join(f"(?<!{word})" for word in words)


# "0 ERROR", "no ERROR", "log_level=ERROR", "set the level to ERROR".
_NAME = _not_after(
    *(r"[\w-]", r"\b0 ", r"\b[nN]o ", "level ", "level to "),
    *(
        f"{name}{sign}"
        for name in ("log_level", "loglevel", "log-level", "log level", "LEVEL", "_DEBUG")
        for sign in ("=", "='", '="', ": ", "': '", " ", " = ")
    ),
)
# "error: 0.013", "Error: 12.4% …", "error: None" are metrics; "error: 404 Not Found" is an error.
_VALUE = (
    r"[ \t]*(?:[-+]?\d{0,20}(?:\.\d|\d%|\d[eE][-+]\d)"
    r"|(?:[-+]?\d{1,20}|[nN]one|null|[fF]alse|nan|inf|0x0)[ \t\r]*(?:$|[,;|)\]}/]|[A-Z]+:)"
    r"|\"\"|''|\[\]|\{\}|[nN]/[aA]\b)"
)
_LOUD = rf"(?![=\w])(?! RATE|:{_VALUE})"
# A metric whose number does not follow at once: "Test Error: \n Accuracy: …".
_MEASURED = _not_after(
    *(f"[{word[0].upper()}{word[0]}]{word[1:]} [Ee]rror" for word in (
        *("test", "train", "training", "val", "valid", "validation", "eval", "evaluation", "dev", "mean"),
        *("absolute", "abs", "squared", "square", "relative", "rel", "max", "maximum", "average", "avg"),
        *("rms", "prediction", "reconstruction", "quantization", "approximation", "rounding", "standard"),
        *("rate", "l1", "l2", "top-1", "top-5", "top1", "top5", "word", "character", "residual"),
    ))
)  # fmt: skip


def _field(value: str) -> str:
    """A level in a field of logfmt or JSON. The value comes first: a text to look for."""
    heads = (f"{name}{sign}" for name in ("lvl", "level", "levelname", "severity") for sign in _SIGNS)
    return "{}(?:{})\\b".format(value, "|".join(f"(?<={head}{value})" for head in heads))


_SIGNS = ("=", '="', '":"', '": "')


def _glog(letter: str) -> tuple[str, ...]:
    # "E1120 03:14:05.123456 140 a.cc:12]", "[E626 03:14:…", "[E a.cpp:12]"; "03:14:05.123: E tensorflow/…".
    times = (
        "^",
        *(rf"{end}{colon}" for end in (r":\d\d", r"[.,]\d{3}", r"[.,]\d{6}") for colon in (" ", ": ")),
    )
    return (
        rf"{letter}(?<![\w.]{letter})\d{{3,4}} \d\d:\d\d:[\d.]{{2,20}} [^\]\n]{{1,160}}?:\d{{1,6}}\]",
        rf"{letter} (?<=\[{letter} )[\w./-]{{1,80}}\.\w{{1,4}}:\d",
        rf"\[NeMo {letter} \d",
        rf"{letter} (?:{'|'.join(f'(?<={time}{letter} )' for time in times)})(?=[\w./-]{{2}})(?!\d{{1,9}}\.)",
    )


ERROR = (
    r"Traceback \(most recent call last\)",
    rf"{_NAME}ERROR{_LOUD}",
    rf"{_NAME}CRITICAL{_LOUD}",
    rf"{_NAME}FATAL{_LOUD}",
    *map(_field, ("error", "fatal")),
    r"\"critical\"",
    *(rf"\[{word} {{0,8}}\]" for word in ("error", "fatal", "critical")),
    r"\b(?:ERRO|FATA)\[\d",
    r"\bSEVERE: ",
    # Whatever a package calls its exceptions.
    r"\.(?:exceptions|errors|error)\.[A-Z]\w{1,80}(?::|[ \t\r]*$)",
    r"\b_dynamo\.exc\.[A-Z]\w{1,80}(?::|[ \t\r]*$)",
    # "RuntimeError: …", "fatal error: …"; "KeyError" alone; "CUDA error 700"; "Error executing job with …".
    rf"rror(?:(?<=[Ee]rror)(?<![\w-]error){_MEASURED}:(?=[ \t]*\S)(?!{_VALUE})|(?<=\wError):?[ \t\r]*$)",
    r"\bBus error\b",
    r"\bC(?:uda|UDA) (?:error|failure)(?![\w.-])",
    r"\bError executing\b",
    r"\bError response from daemon: ",
    r"(?<![-\w])(?<!no )fatal error\b",
    r"\berror while loading\b",
    r"\bAn error occurred in MPI_",
    r"(?<!except )Exception(?::|[ \t\r]*$| in thread | in task )",
    r"\b[Uu]nhandled exception\b",
    r"\bKeyboardInterrupt[ \t\r]*$",
    r"\w\.?TimeoutExpired: ",
    r"\bFatal:|(?<![-\w])fatal:",
    r"\bSegmentation fault\b",
    r"\bsegfault at\b",
    r"\bIllegal instruction\b",
    r"\bFloating point exception\b",
    r"\(core dumped\)",
    r"\bterminate called after throwing\b",
    r"\bterminate called without an active\b",
    r"\blibc\+\+abi: ",
    r"\bpanicked at\b",
    r"\bfree or corruption\b",
    r"\bcorrupted size vs\.",
    r"\*\*\*: terminated\b",
    r"\(\): (?=invalid |corrupted |unaligned |mismatching |unsorted |double free|memory corruption)",
    r"(?<!\bavoid )(?<!\brun )(?<!\brunning )\b[Oo]ut of memory\b",
    r"\boom[-_]kill(?:er\b|:|(?:\(s\))? event)",
    r"\bkilled due to memory pressure\b",
    r"\bSIG(?:SEGV|ABRT|BUS|KILL|FPE|ILL)\b",
    r"\bexited on signal \d",
    r"\bssh exited with exit code [1-9]",
    r"\bProcess received signal\b",
    r"\bMPI_ABORT was invoked\b",
    r"\bFatal error in (?=P?MPI|internal)",
    r"\bBAD TERMINATION\b",
    r"\bjob killed: ",
    r"\bNVRM: Xid\b",
    r"\bHW Exception by GPU\b",
    r"\bMemory access fault by GPU\b",
    # Ascend: torch_npu, and the codes of CANN's messages.
    r"\bNPU error, error code\b",
    *(rf"{family}(?<!\w{family})\d{{4}}: [A-Z]" for family in ("EE", "EI", "EZ")),
    r"\bNCCL WARN\b",
    r"\bAssertion [^\n]{1,300}? failed\b",
    r"(?<![-\w])Check failed: ",
    r"\bAborted(?: \(|[ \t\r]*$)",
    r"\bKilled(?: process \d|[ \t\r]*$)|: +\d{1,10} Killed ",
    r"\bnvcc fatal\b",
    r"\bld: cannot find\b",
    r"\bundefined reference to\b",
    r"\bninja: build stopped\b",
    r"^FAILED: ",
    r"\bCMake Error\b",
    r"\*\*\* \[[^\]\n]{1,200}\] Error \d",
    r"\bCould not resolve host",
    r": command not found\b",
    # Messages of the C library's errors; lines of ssh and of shells end with them.
    r": (?:No such file or directory|Connection refused|Connection timed out|Connection reset by peer"
    r"|Broken pipe|No route to host|Cannot allocate memory|Too many open files|Stale file handle"
    r"|Input/output error|Read-only file system|Disk quota exceeded|Name or service not known)\.?[ \t\r]*$",
    r"\bPermission denied(?: \(|[ \t\r]*$)",
    r"\bNo space left on device\b",
    r"\bHost key verification failed\b",
    r"\bcannot open shared object file\b",
    *_glog("E"),
    *_glog("F"),
)
"""Each matches within one line; a row needs no other word beside it."""

WARNING = (
    rf"{_NAME}WARN(?:ING)?{_LOUD}",
    *(rf"{word}(?: #\d|!|: ?(?!{_VALUE})| : )" for word in ("Warning", "warning")),
    r"\bCMake Warning\b",
    r"\bdeprecated\b",
    *map(_field, ("warn", "warning")),
    r"\[warn(?:ing)? {0,8}\]",
    *_glog("W"),
)

QUIET = "|".join(
    (
        r"(?<![\w-])(?:INFO|DEBUG|TRACE|NOTICE|SUCCESS)(?![\w=])",
        *map(_field, ("info", "debug", "trace")),
        r"\[(?:info|debug|trace)\]",
        r"^=== (?:RUN|PAUSE|CONT|NAME) ",
        # What a trainer prints of its data and of a model's answers.
        r"^(?:Prompt|Response|Completion|Question|Answer|User|Assistant|Human): ",
        r"(?<![\w.])I\d{4} \d\d:",
    )
)
"""A logger's level of a line that is neither."""
