"""Ranks that are in another collective than the rest, or in none; sends, receives, groups, the store."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.faultpool.kind import Kind

_kind = partial(Kind, family="collective", bare="never")

_STUCK = """
def {name}():
    reader, writer = os.pipe()
    return os.read(reader, 1)
"""


def _stuck(name: str, function: str, **more: Any) -> Kind:
    """A rank that reads for ever, while the others wait in some way."""
    return _kind(name, code=_STUCK.format(name=function), **more)


_ORDER = """
def sync_counts():
    dist.all_reduce(torch.ones(8), group=MORE[0])
    dist.all_reduce(torch.ones(8), group=MORE[1])
"""

_ELSEWHERE = (
    _kind("early_end", call="finish()", places=("finish",)),
    _kind("skipped", call="return", places=("finish",), sites=("average",), rest=3),
    _kind(
        "crossed",
        code=_ORDER
        + """
def sync_sums():
    dist.all_reduce(torch.ones(8), group=MORE[1])
    dist.all_reduce(torch.ones(8), group=MORE[0])
""",
        call="sync_sums()",
        others="sync_counts()",
        places=("sync_sums",),
        sites=("log",),
    ),
    _kind(
        "crossed_alike",
        code="""
def sync_both(first, second):
    for group in (first, second):
        dist.all_reduce(torch.ones(8), group=group)
""",
        call="sync_both(MORE[1], MORE[0])",
        others="sync_both(MORE[0], MORE[1])",
        sites=("log",),
        silence="without",
    ),
    _kind(
        "crossed_pair",
        code="""
def share(first, second):
    dist.all_reduce(torch.ones(8), group=MORE[first])
    dist.all_reduce(torch.ones(8), group=MORE[second])

def pair():
    if RANK == (FIRST + 1) % WORLD:
        share(0, 1)
""",
        setup="MORE[:] = [dist.new_group(sorted([FIRST, (FIRST + 1) % WORLD])) for _ in range(2)]",
        call="share(1, 0)",
        others="pair()",
        places=("share",),
        sites=("log",),
        partner=True,
        silence="without",
    ),
    _kind(
        "pair_absent",
        code=_STUCK.format(name="read_part")
        + """
def share_part():
    dist.all_reduce(torch.ones(8), group=PAIR)
""",
        others="share_part()",
        sites=("data", "log"),
    ),
    _stuck("pair_moving", "read_next", waits=("pair",), sites=("data",)),
    _kind(
        "wrong_root",
        code="""
def share_state(root):
    dist.broadcast(torch.ones(8), src=root)
""",
        call="share_state((RANK + 1) % WORLD)",
        others="share_state(0)",
        who="some",
        sites=("log",),
    ),
    _kind(
        "unequal_branch",
        code="""
def mean_loss():
    dist.broadcast(torch.ones(8), src=0, group=MORE[0])
""",
        sites=("log",),
        times=1,
    ),
)

_P2P = (
    _kind(
        "wrong_source",
        code="""
def receive_state():
    dist.recv(torch.zeros(8), src=(RANK + 1) % WORLD)
""",
    ),
    _kind(
        "no_receiver",
        code="""
def push_state():
    dist.send(torch.ones(1000000), dst=(RANK + 1) % WORLD)
""",
    ),
    _kind(
        "irecv",
        code="""
def expect_state():
    dist.irecv(torch.zeros(8), src=(RANK + 3) % WORLD).wait()
""",
        times=1,
    ),
    _kind(
        "cycle",
        code="""
def rotate():
    dist.recv(torch.zeros(8), src=(RANK - 1) % WORLD)
    dist.send(torch.ones(8), dst=(RANK + 1) % WORLD)
""",
        who="all",
        certainty=("sure", "likely", "unsure"),
    ),
    _kind(
        "cycle_pair",
        code="""
def swap_state():
    other = sum(CONCERNED) - RANK
    dist.recv(torch.zeros(8), src=other)
    dist.send(torch.ones(8), dst=other)
""",
        who="two",
    ),
    _kind(
        "cycle_batch",
        code="""
def exchange():
    other = sum(CONCERNED) - RANK
    wish = dist.P2POp(dist.irecv, torch.zeros(8), other)
    for work in dist.batch_isend_irecv([wish]):
        work.wait()
""",
        who="two",
        times=1,
    ),
)

_STORE = (
    _kind(
        "new_group",
        call="pass",
        others="make_group()",
        places=("average",),
        silence="without",
        code=(
            """
def make_group():
    return dist.new_group(list(range(WORLD)))
"""
        ),
    ),
    _kind(
        "store_get",
        code="""
def read_table():
    return dist.distributed_c10d._get_default_store().get("table")
""",
    ),
    _kind(
        "store_wait",
        code=_STUCK.format(name="publish")
        + """
def read_plan():
    return dist.distributed_c10d._get_default_store().get("plan")
""",
        others="read_plan()",
    ),
    _kind(
        "store_all",
        code="""
def read_roles():
    return dist.distributed_c10d._get_default_store().get("roles")
""",
        who="all",
        certainty=("sure", "likely", "unsure"),
        times=1,
    ),
)

_WAITS = (
    _stuck("handle", "lag_behind", waits=("handle",), sites=("data", "log")),
    _stuck("poll_work", "lag_more", waits=("poll",), sites=("data", "log")),
    _stuck("barrier", "lag_late", waits=("barrier",), times=1),
    _stuck("object", "lag_long", waits=("object",), times=1),
    _stuck("gather", "lag_far", waits=("gather",), times=1),
    _stuck("monitored", "lag_once", waits=("monitored",), times=1),
    _stuck("ddp", "lag_deep", body="ddp", sites=("forward", "data")),
    _kind("ddp_short", call="finish()", places=("finish",), body="ddp", times=1),
    _stuck("zero3", "lag_inside", body="zero3", sites=("layer",), launchers=("deepspeed", "command")),
    _stuck("zero3_data", "lag_outside", body="zero3", sites=("data",), launchers=("torchrun",), times=1),
)

KINDS = (*_ELSEWHERE, *_P2P, *_STORE, *_WAITS)
