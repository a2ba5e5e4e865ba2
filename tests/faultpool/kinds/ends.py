"""A rank has ended, however; the others wait for it, or fail because of it."""

from __future__ import annotations

from functools import partial

from tests.faultpool.kind import Kind

_kind = partial(Kind, family="end", state="ended", sites=("data", "log"), bare_waits=("files",))
_leaving = partial(
    Kind, family="leaving", sites=("end",), rest=1, leave=True, bare="never", launchers=("command",)
)

_BYE = """
def say_bye():
    store = dist.distributed_c10d._get_default_store()
    store.set("bye/%d" % RANK, "1")
    if RANK == 0:
        store.wait(["bye/%d" % rank for rank in range(WORLD)], datetime.timedelta(hours=1))
"""

_LEAVING = (
    _leaving(
        "leaves_last",
        code="""
def flush_tracker():
    here, there = socket.socketpair()
    here.recv(1)
""",
        call="atexit.register(flush_tracker)",
        places=("flush_tracker",),
    ),
    _leaving("leaves_stopped", call="os.kill(os.getpid(), signal.SIGSTOP)", places=("",), times=1),
    _leaving(
        "bye_late",
        code="""
def close_files():
    reader, writer = os.pipe()
    os.read(reader, 1)
"""
        + _BYE,
        others="say_bye()",
        who="some",
    ),
    # Three have left, and one of them without a word: nothing but the keys in the store could tell which.
    _leaving("bye_missing", call="pass", code=_BYE, others="say_bye()", who="some", silence="always"),
)

KINDS = (
    *_LEAVING,
    _kind("exit_0", call="sys.exit(0)", times=4),
    _kind("exit_3", call="os._exit(3)", times=3),
    _kind("quiet_0", call="os._exit(0)", bare="only", times=1),
    _kind(
        "exception",
        code="""
def parse_row():
    return {}["label"]
""",
        times=4,
    ),
    _kind("killed", call="os.kill(os.getpid(), signal.SIGKILL)", times=4),
    _kind("segfault", call="ctypes.string_at(0)", times=2),
    _kind("abort", call="os.abort()", times=1),
    _kind("exit_early", call="sys.exit(1)", sites=("start",), who="some", bare="never", times=2),
    _kind(
        "zombie",
        code="""
def vanish():
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)
""",
        bare="only",
        who="some",
    ),
    _kind("exit_store", call="sys.exit(0)", who="zero", bare="never"),
    _kind(
        "store_gone",
        call="os._exit(0)",
        code="""
def read_names():
    return dist.distributed_c10d._get_default_store().get("names")
""",
        others="read_names()",
        who="zero",
        bare="never",
    ),
    _kind("parent_killed", call="os.kill(os.getppid(), signal.SIGKILL)", bare="only", times=1),
)
