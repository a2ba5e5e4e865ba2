"""Groups at their first use or making, and meshes of tensor and data parallelism."""

from __future__ import annotations

from functools import partial

from tests.faultpool.kind import Kind

_kind = partial(Kind, family="group", bare="never")

_STUCK = """
def {name}():
    reader, writer = os.pipe()
    return os.read(reader, 1)
"""

_TWO = "MORE[:] = [dist.new_group(sorted([FIRST, (FIRST + other) % WORLD])) for other in (1, 2)]"
_MESH = (
    "MORE[:] = [[dist.new_group(each) for each in (([0, 1], [2, 3]), ([0, 2], [1, 3]))[way]]"
    "[(RANK // 2, RANK % 2)[way]] for way in (0, 1)]"
)

KINDS = (
    _kind(
        "group_first",
        code=_STUCK.format(name="prepare")
        + "\ndef share_first():\n    dist.all_reduce(torch.ones(8), group=MORE[0])\n",
        others="share_first()",
    ),
    _kind(
        "group_first_two",
        code=_STUCK.format(name="prepare_both")
        + """
def share_two():
    place = (RANK - FIRST) % WORLD - 1
    if place < 2:
        dist.all_reduce(torch.ones(8), group=MORE[place])
""",
        setup=_TWO,
        others="share_two()",
    ),
    _kind(
        "group_first_kinds",
        code="""
def tokenize_slowly():
    time.sleep(9999)

def share_kinds():
    if RANK == (FIRST + 1) % WORLD:
        dist.broadcast(torch.ones(8), src=FIRST, group=MORE[0])
    else:
        dist.barrier(group=MORE[1])
""",
        others="share_kinds()",
    ),
    _kind(
        "mesh_first",
        code=_STUCK.format(name="place_layers")
        + """
def share_mesh():
    for group in MORE:
        dist.all_reduce(torch.ones(8), group=group)
""",
        setup=_MESH,
        others="share_mesh()",
    ),
    _kind(
        "group_subset",
        call="pass",
        code="""
def make_subset():
    return dist.new_group([rank for rank in range(WORLD) if rank != (FIRST + 1) % WORLD])
""",
        others="make_subset()",
        places=("average",),
        silence="without",
    ),
    _kind(
        "group_subset_late",
        code=_STUCK.format(name="load_vocab")
        + """
def make_part():
    return dist.new_group([rank for rank in range(WORLD) if rank != (FIRST + 1) % WORLD])
""",
        others="make_part()",
        times=1,
    ),
    _kind("mesh", code=_STUCK.format(name="slice_rows"), waits=("mesh",)),
    _kind(
        "mesh_between",
        code="def gather_slices():\n    time.sleep(9999)\n",
        waits=("mesh_between",),
        sites=("between",),
    ),
    _kind(
        "mesh_lock",
        code="def take_slice():\n    threading.Event().wait()\n",
        waits=("mesh",),
        sites=("data", "average"),
    ),
    _kind("mesh_skipped", call="return", places=("finish",), waits=("mesh",), sites=("average",), rest=3),
    _kind("mesh_train", family="healthy", state="healthy", call="pass", waits=("mesh",), times=1),
)
