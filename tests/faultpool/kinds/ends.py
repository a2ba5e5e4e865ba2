"""A rank has ended, however; the others wait for it, or fail because of it."""

from __future__ import annotations

from functools import partial

from tests.faultpool.kind import Kind

_kind = partial(Kind, family="end", state="ended", sites=("data", "log"), bare_waits=("files",))

KINDS = (
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
    _kind("parent_killed", call="os.kill(os.getppid(), signal.SIGKILL)", bare="only", times=1),
)
