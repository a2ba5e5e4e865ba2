"""What the environment of a process says about its rank: every launcher has its own way."""

from __future__ import annotations

import re
from typing import Any, Dict, NamedTuple, Optional, Tuple

from cockpit.base import record


class _Family(NamedTuple):
    """How one kind of launcher tells a rank who it is; of several variables the first one counts."""

    rank: str
    size: Tuple[str, ...]
    local: Tuple[str, ...]
    launcher: str


_FAMILIES = (
    _Family("RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), "other"),
    _Family("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",), "mpi"),
    _Family("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",), "mpi"),
    # Before PMI, which Slurm sets too. Without a step it is a batch script, not a rank.
    _Family("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",), "slurm"),
    _Family("PMIX_RANK", ("PMIX_SIZE",), ("PMIX_LOCAL_RANK",), "mpi"),
    _Family("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), "mpi"),
)
_SLURM = _FAMILIES[3]
_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_MPI_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")

_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""How many ranks a launcher has started on this node: torchrun, deepspeed, MPI."""

_VARIABLES = re.compile(
    r"\0(%s|ACCELERATE_[A-Z_]+)=([^\0]*)"
    % "|".join(
        (
            *(name for family in _FAMILIES for name in (family.rank, *family.size, *family.local)),
            *_LOCAL_SIZES,
            *(*_STEP, *_MPI_JOB, "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "CROSS_RANK"),
            *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", record.ENV_RUN, record.ENV_NODE),
        )
    )
)
"""All variables of an environment that matter here."""

_NUMBER = re.compile(r"[0-9]{1,6}\Z")


class Claim(NamedTuple):
    """The rank that a process says it is of.

    :param direct: ``RANK`` says so, which only torch's programs set; otherwise it may be any program's
    :param whole: a torch launcher made it; if that one got it from another launcher, it lacks a local rank
    :param port: the master's; empty if none was chosen yet
    :param job: the launcher's own name for the job; may be empty
    :param step: the step of a SLURM job that it is in, like ``12.3``; empty: in none
    :param local_size: how many ranks of its job were started on this node
    """

    rank: int
    size: Optional[int]
    local: Optional[int]
    direct: bool
    whole: bool
    attempt: int
    launcher: str
    run: str
    node: str
    addr: str
    port: str
    job: str
    step: str
    local_size: Optional[int] = None

    @property
    def place(self) -> Tuple[Any, ...]:
        """The same for all processes of one rank of one job."""
        return (self.rank, self.size, self.run, self.addr, self.port, self.job)

    @property
    def number(self) -> Tuple[int, Optional[int]]:
        """Which rank, of how many: a rank's child processes have it too, even if it told them more."""
        return self.rank, self.size

    def is_started_by(self, above: Claim) -> bool:
        """Whether ``above`` is a launcher that another one started as a rank, and has started this one."""
        if above.whole:
            return False
        if self.launcher not in ("other", above.launcher):
            return True
        return self.whole and self.number != above.number

    @property
    def launch(self) -> Tuple[str, ...]:
        """What stays the same when a launcher restarts its ranks: torchrun may use another port."""
        return (self.run, self.job) if self.job else (self.run, self.addr, self.port)


def read(data: bytes) -> Optional[Claim]:
    """What an environment, as the kernel shows it, says; None: it is not that of a rank."""
    # Most are skipped at once: every variable with a rank ends like one of these.
    if b"RANK=" not in data and b"SLURM_PROCID=" not in data:
        return None
    env: Dict[str, str] = {}
    for name, value in _VARIABLES.findall("\0" + data.decode("utf-8", "surrogateescape")):
        env.setdefault(name, value)
    family = _family(env)
    if family is None:
        return None
    port = env.get("MASTER_PORT", "")
    return Claim(
        rank=int(env[family.rank]),
        size=_size(env, family),
        local=_local(env, family),
        direct=family.rank == "RANK",
        whole=family.rank == "RANK" and "LOCAL_RANK" in env,
        attempt=_number(env, ("TORCHELASTIC_RESTART_COUNT",)) or 0,
        launcher=_launcher(env, family),
        run=env.get(record.ENV_RUN, ""),
        node=env.get(record.ENV_NODE, ""),
        addr=env.get("MASTER_ADDR", ""),
        port="" if port == "0" else port,
        job=_job(env),
        step=_step(env),
        local_size=_number(env, _LOCAL_SIZES) or None,
    )


def number(data: bytes) -> Tuple[int, Optional[int]]:
    """Which rank, of how many, an environment says; -1: none."""
    found = read(data)
    return (-1, None) if found is None else found.number


def _family(env: Dict[str, str]) -> Optional[_Family]:
    for family in _FAMILIES:
        if not _NUMBER.match(env.get(family.rank, "")):
            continue
        # Other programs have variables of this name too.
        if family.rank == "RANK" and not {"WORLD_SIZE", "MASTER_ADDR", record.ENV_RUN} & set(env):
            continue
        if family.rank == "SLURM_PROCID" and not _first(env, _STEP):
            continue
        return family
    return None


def _step(env: Dict[str, str]) -> str:
    """``12.3``; of what a batch script starts itself ``12.``; empty: in no job of SLURM."""
    job = env.get("SLURM_JOB_ID")
    return "%s.%s" % (job, _first(env, _STEP)) if job else ""


def _job(env: Dict[str, str]) -> str:
    if env.get("TORCHELASTIC_RUN_ID", "none") != "none":
        return env["TORCHELASTIC_RUN_ID"]
    if _first(env, _MPI_JOB):
        return _first(env, _MPI_JOB)
    return _step(env) if _first(env, _STEP) else ""


def _launcher(env: Dict[str, str], family: _Family) -> str:
    if family.launcher != "other":
        # srun sets these of MPI as well.
        step = env.get("SLURM_PROCID") == env[family.rank] and _first(env, _STEP)
        return "slurm" if step and _size(env, family) in (None, _size(env, _SLURM)) else family.launcher
    if "TORCHELASTIC_RUN_ID" in env:
        return "accelerate" if any(name.startswith("ACCELERATE_") for name in env) else "torchrun"
    if "CROSS_RANK" in env:
        return "deepspeed"
    for other in _FAMILIES[1:]:
        if env.get(other.rank) == env["RANK"] and _size(env, other) == _size(env, family):
            return _launcher(env, other)
    return "other"


def _local(env: Dict[str, str], family: _Family) -> Optional[int]:
    for one in (family, *_FAMILIES):
        # A launcher that one launcher runs on each node has left its own numbers here too.
        if env.get(one.rank) == env[family.rank] and _number(env, one.local) is not None:
            return _number(env, one.local)
    return None


def _size(env: Dict[str, str], family: _Family) -> Optional[int]:
    return _number(env, family.size) or None


def _number(env: Dict[str, str], names: Tuple[str, ...]) -> Optional[int]:
    return next((int(env[name]) for name in names if _NUMBER.match(env.get(name, ""))), None)


def _first(env: Dict[str, str], names: Tuple[str, ...]) -> str:
    return next((env[name] for name in names if env.get(name)), "")
