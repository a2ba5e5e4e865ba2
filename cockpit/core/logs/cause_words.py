"""Words by which programs, launchers and systems report an end, as data: rows of weight and pattern.

Sources: CPython (faulthandler.c, pylifecycle.c, threading.py), PyTorch (ProcessGroupNCCL.cpp, c10/util/
Exception.cpp, utils/cpp_extension.py, elastic/multiprocessing/errors), NCCL (debug.cc), glibc (malloc.c,
assert.c, fortify), libstdc++ (vterminate.cc), libc++abi, the Linux kernel (mm/oom_kill.c; Xid),
slurm (slurmstepd and srun), Open MPI (mpirun and its handler of signals), MPICH's Hydra, PBS and LSF,
Kubernetes, Ray (memory monitor), gcc, nvcc, ld, ninja, CMake, Rust's panics.
"""

from __future__ import annotations

import re
from enum import IntEnum

from cockpit.core.logs.search import Expression, Rows


class Weight(IntEnum):
    """How close to the root cause something is; of what happened together the highest counts."""

    PASSED_ON = 0
    """A launcher says that something ended."""
    NOISE = 1
    """An error in a thread, a destructor or an exit hook: it ends nothing."""
    ERROR = 2
    """A line that says it is an error, or a stop by a person."""
    SIGNAL = 3
    """A launcher says which signal ended a process."""
    VICTIM = 4
    """The end of another process, seen from here."""
    CHILD = 5
    """The end of a process of its own, or of work on its device, seen from here."""
    OWN = 6
    """An exception that nobody caught, a crash, a kill."""
    ROOT = 7
    """What is said to have caused others, OWN included."""


_SIGNALS = r"SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL|TRAP|SYS)"

_ROWS: dict[Weight, tuple[str, ...]] = {
    Weight.PASSED_ON: (
        r"\bninja: build stopped",
        r"\bexits with return code\b",
        r"\bKilling subprocess \d",
        r"\bfailed \(exitcode: ",
        r"\bExited with exit code \d",
        r"\bProcess exited with non-zero\b",
        r"\breturned a non-zero exit\b",
        r"\bexited with code \d{1,3}\b",
        r"\bssh exited with exit code [1-9]",
        r"\bexited on signal 15\b",
        r"\bterminated with code \d",
        r": Terminated[ \t]*$",
    ),
    Weight.ERROR: (r"\bSome NCCL operations have failed or timed out\b",),
    Weight.SIGNAL: (
        rf"\bSignal \d{{1,2}} \({_SIGNALS}\)",
        rf"\bdied with <Signals\.{_SIGNALS}",
        r"\bexited on signal (?!15)\d",
        r"\bexits with return code = -(?!15\b)\d",
        r"\bsrun: error: [\w.,\[\]-]{1,200}: tasks? [\d,-]{1,200}: (?!Exited|Terminated)\w",
        r"\bKILLED BY SIGNAL: (?!15)\d",
        r"\bwas sent SIGKILL\b",
        r"\bterminated with code -(?!15\b)\d",
        r"\bsignal: killed\b",
        r"\bexit(?:ed)? (?:with )?(?:exit )?(?:code|status):? ?(?:137|139|134)\b",
    ),
    Weight.VICTIM: (
        r"\bWatchdog caught collective operation timeout\b",
        r"\bwatchdog got stuck for\b",
        r"\b[Hh]eartbeat monitor timed out\b",
        r"\bwatchdog thread terminated with exception: ",
        r"\brecvValue failed on SocketImpl\b",
        r"\bEI000[26]: ",
        r"\bNPU error, error code is \d",
        r"\bMPI_ABORT was invoked on rank\b",
        r"\bCANCELLED AT [\dT:.-]{1,40} \*\*\*",
        r"\bapplication called MPI_Abort\(",
        r"\bTerminating process because\b",
        r"^Timeout \(\d{1,3}:\d\d:\d\d",
    ),
    Weight.OWN: (
        r"\bFatal Python error: ",
        r"\bterminate called (?:after throwing|without an active)",
        r"\blibc\+\+abi: terminating\b",
        r"\bwhat\(\):",
        r"\bSegmentation fault\b",
        r"\bBus error\b",
        r"\bIllegal instruction\b",
        r"\bFloating point exception\b",
        r"\bcore dumped\b",
        r"^Killed[ \t]*$",
        r"^Aborted[ \t]*$",
        r"\bline \d{1,9}: +\d{1,10} (?:Killed|Aborted|Terminated)\b",
        r"\b(?:free or corruption|corrupted size vs\. prev_size)",
        r"\w\(\): (?=invalid |corrupted |unaligned |unsorted |mismatching |double free|memory corruption)",
        r"\*\*\* [\w ]{1,40} \*\*\*: terminated",
        r"\bTrace/breakpoint trap\b",
        r"\bpure virtual method called\b",
        r"\bFatal error in (?=P?MPI|internal)",
        r"^panic: ",
        # ROCm's runtime, CANN, SynapseAI, XLA, Paddle.
        r"\bHW Exception by GPU\b",
        r"\bMemory access fault by GPU\b",
        r"\bAborting with error *: HSA_STATUS_ERROR",
        r"\bQueue at 0x\w{1,16} inactivated due to async error\b",
        r"\bHIP (?:error|runtime error|failure): ?\w",
        r"\bhipError[A-Z]\w{1,60}",
        r":\d{1,6}: [^\n]{1,300}?Device-side assertion ",
        r"\bE[A-Z]\d{4}: (?!EI000)",
        r"\b(?:rtStreamSynchronize|aclrt\w{1,60}) (?:execute )?failed\b",
        r"\bsynStatus: ?\d{1,3} ",
        r"\b[Ss]ynapse detected a device critical error\b",
        r"\bPT_\w{1,40}: [^\n]{0,100}?synStatus\b",
        r"\bFatalError: ",
        r"F(?<![\w.]F)\d{3,4} \d\d:\d\d:[\d.]{2,20} [^\]\n]{1,160}?:\d{1,6}\] (?!\s*$)",
        r"\bbad interpreter: ",
        r"\benv: [^\n]{1,80}?: No such file or directory\b",
        r"\bSignal: (?!Terminated)\w[\w ]{1,40} \(\d{1,2}\)",
        r"\bCaught signal \d{1,2} \(",
        rf"\*\*\* {_SIGNALS} ",
        r"\bAssertion [^\n]{1,300}? failed\b",
        r"\bAssertion failed: ",
        r"\bCheck failed: ",
        r"\bthread '[^'\n]{1,100}' (?:\(\d{1,20}\) )?panicked at\b",
        r"\bsymbol lookup error: ",
        r"\berror while loading shared libraries: ",
        r"\blibgomp: Thread creation failed\b",
        r"\bOMP: Error #\d",
        r"\bcan't open file\b",
        r"python[\d.]{0,6}: No module named \S",
        r"\bException in thread \"main\" \S",
        r"\bdocker: Error response from daemon: ",
        r"\bpyxis: +\[ERROR\] ",
        r"^EnvironmentNameNotFound: ",
        r"^There are not enough slots available\b",
        # What many training loops print before they exit.
        r"\b[Ll]oss is (?:[-+]?(?:nan|inf)\b|tensor\()[^\n]{0,80}, stopping training\b",
    ),
    Weight.ROOT: (
        r"\b[Oo]ut of memory: Killed process\b",
        r"\bMemory cgroup out of memory\b",
        r"\boom[-_]kill(?:er\b|:| event)",
        r"\bDetected \d{1,6} oom",
        r"\bOOMKilled\b",
        r"\b[Ee]xceeded (?:job |step )?memory limit\b",
        r"\bkilled due to (?:memory pressure|the node running low on memory)",
        r"\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE|JOB REQUEUE)\b",
        r"\bjob killed: (?:walltime|mem|vmem|cput)\b",
        r"\bTERM_(?:RUNLIMIT|MEMLIMIT|OWNER|PREEMPT)\b",
        r"\bNVRM: Xid \(",
        r"\bfallen off the bus\b",
        r"\buncorrectable ECC error",
        r"\.cuh?:\d{1,9}: [^\n]{1,300}?\bAssertion ",
        # gcc, clang and nvcc; "x.cu(12): error: …".
        r"\.(?:cu|cuh|c|cc|cpp|cxx|h|hpp|hip)(?::\d{1,9}(?::\d{1,9})?:|\(\d{1,9}\):)"
        r" (?:fatal |catastrophic )?error\b",
        r"\bnvcc fatal\b",
        r"\bld(?:\.\w{1,10})?: cannot find\b",
        r"\bld(?:\.\w{1,10})?: [^\n]{0,200}?(?:final link failed|file not recognized|undefined symbol)",
        r"\b(?:cc1plus|cc1|gcc|g\+\+|c\+\+|cc|clang|clang\+\+|hipcc|icpx): (?:fatal )?error: ",
        r"^(?:fatal|catastrophic) error: ",
        r"\bptxas (?:fatal|error)\b",
        r"\bnvcc error\b",
        r"\blld: error: ",
        r"\bninja: (?:fatal|error): ",
        r": \d{1,4}: [^\n:]{1,200}: (?:not found|Permission denied)$",
        r"\bundefined reference to\b",
        r"\bCMake Error at\b",
    ),
}


SIGNS = Rows([Expression(weight, pattern) for weight, patterns in _ROWS.items() for pattern in patterns])
"""The weight of a line with a word that reports an end."""

PASSED_ON = re.compile(
    rb"(?:\w{1,80}\.){0,20}(?:ChildFailedError|CalledProcessError|ProcessRaisedException|SignalException|WorkerGroupError"
    rb"|(?:Base)?ExceptionGroup)\b"
    rb"|[\w.]{1,200}: [^\n]{0,200}?\b[Ss]ee (?:the )?(?:root cause|error|exception|traceback)s? above\b"
    rb"|[\w.]{1,200}: Caught \w{1,80} in (?:\w{1,40} ){1,4}\d{1,6}\."
)
"""Exceptions that report what happened elsewhere; matched at their beginning."""

STOPPED = re.compile(rb"(?:KeyboardInterrupt|SystemExit)\b")
"""Exceptions of a stop; matched at their beginning."""

VICTIM = re.compile(
    rb"(?:BrokenPipeError|ConnectionResetError|ConnectionAbortedError|EOFError)\b"
    rb"|\bRendezvous(?:Connection|Timeout|Closed|State)Error\b"
    rb"|\bremote process exit(?:ed|ing)\b|\b[Bb]roken pipe\b|\b[Cc]onnection (?:reset by peer|refused)\b"
    rb"|\b[Cc]onnection closed by (?:remote )?peer\b|\b[Ss]ocket [Tt]imeout\b|\b[Ww]ait timeout\b"
    rb"|\bcollective operation timeout\b|\b[Tt]imed out waiting \d"
    rb"|\b[Tt]imed out after \d[\w .]{0,20} waiting for clients\b"
    rb"|\bremote end (?:closed|hung)|\b[Ff]ailed to recv, got \d|\bcommunicator was aborted on rank\b"
    rb"|\bmonitoredBarrier\b|\bclient socket has (?:timed out|failed)\b|\bcaused pair closure\b"
    rb"|\bconnectFullMesh failed\b|\bConnection to the C10d store has failed\b|\bStop_waiting response\b"
    rb"|\bsocketStartConnect: |\bEI000[26]\b|\bEI9999\b|\bHCCL[^\n]{0,80} tim(?:e|ed) ?out\b"
    rb"|\bUNAVAILABLE: |\bDEADLINE_EXCEEDED: |\bBarrier timed out\b|\bHeartbeat timeout\b"
)
"""Messages of exceptions that report the end, or the absence, of another rank."""

CHILD = re.compile(
    rb"\b(?:ActorDiedError|ActorUnavailableError|WorkerCrashedError|ProcessExitedException|BrokenProcessPool)\b"
    rb"|\bDataLoader worker \(pid|\bexited unexpectedly\b|\bterminated (?:abruptly|unexpectedly)\b"
    rb"|\bkilled by signal\b|\bsubprocesses has abruptly died\b"
    rb"|\b(?:CUDA|HIP) error: (?:device-side assert|unspecified launch failure)"
)
"""Messages of exceptions that report the end of a process of this rank, or of what its device did."""

REFERS_BACK = re.compile(rb"\blook up to see its traceback\b|\bSee root cause above\b")
"""An exception that says only that another one, before it, is the cause."""

TRIGGER = re.compile(
    rb"(?:[\w.]{1,100}\.)?(?:UnicodeDecodeError|JSONDecodeError|ParserError|KeyError|IndexError|AttributeError|StopIteration"
    rb"|FileNotFoundError|ImportError|ModuleNotFoundError|HTTPError|ConnectionError|MaxRetryError|Empty"
    rb"|binascii\.Error|Error)\b|ValueError: (?:invalid literal|could not convert)"
)
"""Exceptions that code expects and answers with one that tells more; matched at their beginning."""

BLAMES = re.compile(
    rb"(?:\bcheck rank (\d{1,6}) logs for faulty rank|\bRanks? ([\d,"
    rb" ]{1,400}) failed to pass monitoredBarrier"
    rb"|\bwaiting for send/recv from rank (\d{1,6})\b|\bfrom remote rank \[(\d{1,6})\])"
)
"""Who is said to be missing: numbers of ranks."""

CALL = re.compile(rb"\bWork(?:NCCL|HCCL|XCCL)?\(SeqNum=(\d{1,15}), OpType=(\w{1,40})")
"""The call that a watchdog says to have waited in: its number and what it is."""

NOISE_BEFORE = re.compile(
    rb"\bException ignored \b|\bException in thread \b|\bError in (?:atexit|sys\.excepthook)\b"
    rb"|\b_run_exitfuncs\b|--- Logging error ---|\bexception was never retrieved\b|\bException in callback \b"
)
"""What precedes the traceback of a thread, a destructor or a hook, which ends nothing."""

NOISE_FRAME = re.compile(
    rb"/multiprocessing/queues\.py \d{1,9} _feed$|/threading\.py \d{1,9} _bootstrap_inner$| __del__$"
    rb"|/multiprocessing/util\.py \d{1,9} _(?:exit_function|run_finalizers)$"
    rb"|/multiprocessing/resource_tracker\.py |/weakref\.py \d{1,9} _exitfunc$"
)
"""A frame, as ``path line name``, that only such a traceback has."""

HANDLED = re.compile(
    rb"(?i)\bretry|\bcontinuing\b|\bskipp(?:ed|ing)\b|\bfall(?:ing)? ?back\b|\bfell back\b|\bignoring\b"
    rb"|\btry(?:ing)? again\b|\breconnect|\brecover(?:ed|ing)\b|\bwill be disabled\b|\bproceeding\b"
    rb"|\bnon-fatal\b"
)
"""What programs say around a traceback that they survive."""

AFTERMATH = re.compile(
    rb"\bwandb:|\bNCCL INFO\b|\[launch\.py:\d|\b(?:srun|slurmstepd|mpirun|mpiexec|prterun)\b|/elastic/"
    rb"|\bframe #\d|\bresource_tracker\b|\(most recent call first\)|\bclosing signal\b"
    rb"|\bexitcode +:|\blocal_rank: \d|^(?:time|host|rank|error_file|traceback) +:|^\[\d{1,6}\]:"
    rb"|^\[[\w.:-]{1,100}\] +(?:\[ ?\d|\*\*\*)|\bProcessGroupNCCL\.cpp:"
)
"""Lines that continue after an end as before it: launchers, run loggers, dumps."""

PROGRESS = re.compile(
    rb"(?i)\b(?:step|iter|iteration|epoch|batch|update|global_step)s?\b[^\w\n]{0,6}\d"
    rb"|\bloss\b[^\w\n]{1,6}\d|\d(?:it/s|s/it)\b|\d%\|"
)
"""What only ongoing training prints."""

TALK = re.compile(rb"\bINFO\b|\[info\]|\blevel=info\b|\"level\": ?\"info\"|(?:^|[\s\]:])I\d{4} \d\d:")
"""A logger's line from a program that keeps running."""
