"""Becoming the training process of a rank, in a child of its wrapper or below its profiler."""

from __future__ import annotations

import os
import signal

from cockpit.base import record

ENDINGS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals by which somebody wants the end of a rank."""

_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61


def become_rank(
    command: list[str], rank: int, wrapper: int, log: int, user_umask: int, mask: set[int | signal.Signals]
) -> None:
    """Become the training process. Never returns.

    :param wrapper: pid of the parent, with which it dies
    :param log: where its output goes
    :param mask: signals that are blocked in it
    """
    code = 126
    try:
        # A signal to the launcher's process group then reaches the rank once, through the wrapper.
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _tie(wrapper)
        _probe(rank)
        _nccl(rank)
        os.umask(user_umask)
        # Python ignores these two, and exec would hand that on.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(command[0], command)
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        os.write(2, os.fsencode("cockpit: cannot start %s: %s\n" % (command[0], error.strerror)))
    finally:
        os._exit(code)


def _probe(rank: int) -> None:
    """Put the probe on the path of the rank's Python, which takes it away again."""
    mode = os.environ.get(record.ENV_PROBE)
    if not mode:
        return
    place = os.path.join(os.environ[record.ENV_DIR], record.PROBE_PYTHON)
    theirs = os.environ.get("PYTHONPATH")
    if ":" in place or not os.path.isdir(place):
        del os.environ[record.ENV_PROBE]
        return
    os.environ["PYTHONPATH"] = "%s:%s" % (place, theirs) if theirs else place
    os.environ[record.ENV_PROBE] = "%s %d %d" % (mode, rank, theirs is not None)


def _nccl(rank: int) -> None:
    """Name the file that NCCL writes: it puts in a host and a pid, but knows no rank."""
    if os.environ.pop(record.ENV_NCCL, None):
        place = os.path.join(os.environ[record.ENV_DIR], record.rank_nccl(rank))
        if "%" not in place:
            os.environ.setdefault("NCCL_DEBUG_FILE", place)


def _tie(wrapper: int) -> None:
    """Die with the wrapper, and let the supervisor and its children trace this process."""
    try:
        import ctypes
    except ImportError:
        os.write(2, b"cockpit: this python has no ctypes: a rank may outlive its wrapper\n")
        return
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != wrapper:
        os.kill(os.getpid(), signal.SIGKILL)  # it died before we asked
    supervisor = os.environ.get(record.ENV_SUPERVISOR, "")
    if supervisor.isdigit():
        # Fails without Yama: then nothing prevents tracing.
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(supervisor)), 0, 0, 0)
