"""Stages of pipelines, each of them once the one that holds up the rest, in two schedules."""

from __future__ import annotations

from itertools import product

from tests.faultpool.kind import Kind

_STUCK = (
    """
def swap_weights(micro):
    if micro == {micro}:
        reader, writer = os.pipe()
        os.read(reader, 1)
""",
    """
def route_tokens(micro):
    until, turn = micro == {micro}, 1
    while until:
        turn = turn * 31 % 65521
""",
    """
def take_buffer(micro):
    if micro == {micro}:
        lock = threading.Lock()
        with lock:
            lock.acquire()
""",
    """
def read_shard(micro):
    if micro == {micro}:
        os.mkfifo(os.path.join(HERE, "shard-%d" % RANK))
        open(os.path.join(HERE, "shard-%d" % RANK)).read()
""",
    """
def back_off(micro):
    if micro == {micro}:
        time.sleep(9999)
""",
)
"""How a stage gets stuck, after so many microbatches."""

SCHEDULES = ("gpipe", "alternating")
_WORLDS = {2: 4, 3: 3, 4: 4}
"""Ranks by the number of stages: of two stages there are two replicas."""


def _pipeline(schedule: str, stages: int, stage: int, number: int) -> Kind:
    world = _WORLDS[stages]
    code = _STUCK[number % len(_STUCK)].format(micro=number % 3)
    rank = stage * (world // stages) + number % (world // stages)
    return Kind(
        f"{schedule}_{stages}_{stage}",
        "pipeline",
        code,
        call=f"{code.split()[1].partition('(')[0]}(micro)",
        ranks=(rank,),
        sites=(("forward", "backward")[number // 2 % 2],),
        body=schedule,
        world=world,
        stages=stages,
        bare="never",
        times=1,
    )


_EACH = [
    (schedule, stages, stage) for schedule, stages in product(SCHEDULES, _WORLDS) for stage in range(stages)
]

_SKIPPED = tuple(
    Kind(
        f"{schedule}_skipped",
        "pipeline",
        "def skip(micro):\n    SKIPPED.add(micro)\n",
        call="skip(2)",
        places=("send_forward", "send_forward_receive_backward", "receive_backward", "receive_forward"),
        ranks=(1,),
        sites=("forward",),
        body=schedule,
        stages=4,
        bare="never",
        partner=True,
        times=1,
    )
    for schedule in SCHEDULES
)

_HEALTHY = tuple(
    Kind(
        f"{schedule}_{stages}",
        "pipeline",
        "def bubble():\n    time.sleep(0.3)\n",
        body=schedule,
        world=_WORLDS[stages],
        stages=stages,
        ranks=(_WORLDS[stages] - 1,),
        sites=("forward", "backward"),
        every=True,
        bare="never",
        state="healthy",
        times=1,
    )
    for schedule, stages in product(SCHEDULES, _WORLDS)
)

KINDS = (
    *(_pipeline(*each, number) for number, each in enumerate(_EACH)),
    *_SKIPPED,
    *_HEALTHY,
)
