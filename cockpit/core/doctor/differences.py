"""What differs between nodes: a rule for each thing that should be the same, most nodes against the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cockpit.core.doctor.node_checks import Look, Looks, clean, in_hostfile_order
from cockpit.core.finding import Finding, Rule, Step
from cockpit.core.ranks import nodes_text
from cockpit.core.rules.explanation import recognised
from cockpit.core.text import size

ALIKE = 0.02
"""Sizes that differ by less than this part of them are the same: firmware takes some memory."""


_SAME = Step("make them the same")


@dataclass(frozen=True)
class Trait:
    """Something that should be the same on all nodes.

    :param id: the finding's is ``differs_ID``
    :param of: its value on a node; None: not known there
    :param label: its name in a sentence, before the value; empty: the value says it
    :param told: the value in words
    :param step: what to do about it, where no row of the table knows it
    :param package: what is installed to change it
    """

    id: str
    of: Callable[[Look], Any]
    label: str = ""
    told: Callable[[Any], str] = clean
    step: Step = _SAME
    package: str = ""

    @property
    def rule(self) -> Rule:
        """The rule that finds nodes which differ in this."""
        return Rule(f"differs_{self.id}", ("looks",), self._test)

    def _test(self, looks: Looks) -> Finding | None:
        values = {name: self.of(look) for name, look in looks.answered.items()}
        groups = grouped({name: value for name, value in values.items() if value is not None})
        if len(groups) < 2:
            return None
        nodes, text = versus([(self._words(value), names) for value, names in groups], looks)
        what = f"{self.label} {text}" if self.label else text
        found = Finding(
            f"differs_{self.id}",
            what,
            nodes=nodes,
            severity="warning",
            certainty="sure",
            evidence=tuple(f"{nodes_text(names)}: {self._words(value)}" for value, names in groups),
        )
        found = recognised(found, typed=self._typed)
        return found if found.steps else replace(found, steps=(self.step,))

    def _typed(self, step: Step) -> tuple[Step, ...]:
        command = step.command.replace("PACKAGE", self.package)
        return () if command != step.command and not self.package else (replace(step, command=command),)

    def _words(self, value: Any) -> str:
        return self.told(value) or "none"


def grouped(values: Mapping[str, Any]) -> list[tuple[Any, list[str]]]:
    """Nodes by value, the largest group first; sizes that are nearly the same are one group."""
    groups: list[tuple[Any, list[str]]] = []
    for name, value in values.items():
        for known, names in groups:
            if _alike(known, value):
                names.append(name)
                break
        else:
            groups.append((value, [name]))
    return sorted(groups, key=lambda group: -len(group[1]))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float) and max(one, other) > 1 << 20:
        return abs(one - other) <= ALIKE * max(one, other)
    return bool(one == other)


def versus(groups: Sequence[tuple[str, Sequence[str]]], looks: Looks) -> tuple[tuple[str, ...], str]:
    """Whom to name, and what differs in words: ``2.11, others 2.13``; at a tie all are named.

    :param groups: a value and its nodes, the largest group first
    """
    (most, largest), *rest = groups
    if len(rest[0][1]) == len(largest):
        named = [name for _, names in groups for name in names]
        text = ", ".join(f"{value} on {nodes_text(names)}" for value, names in groups)
    else:
        named = [name for _, names in rest for name in names]
        alone = len(rest) == 1
        text = ", ".join(value if alone else f"{value} on {nodes_text(names)}" for value, names in rest)
        text += f", others {most}"
    return in_hostfile_order(named, looks), text


def _fact(name: str) -> Callable[[Look], Any]:
    return lambda look: None if look.facts is None else getattr(look.facts, name) or ""


def _package(*names: str) -> Callable[[Look], Any]:
    """The version of the first of these distributions that is there; empty: of none."""

    def found(look: Look) -> str | None:
        if look.facts is None:
            return None
        return next((look.facts.packages[name] for name in names if name in look.facts.packages), "")

    return found


def _part(part: str, name: str) -> Callable[[Look], Any]:
    def found(look: Look) -> Any:
        there = getattr(look.condition, part)
        return None if there is None else getattr(there, name)

    return found


def _limit(part: str, name: str) -> Callable[[Look], Any]:
    """A limit, where None is a value: there is none."""

    def found(look: Look) -> Any:
        there = getattr(look.condition, part)
        return (
            None if there is None else (_UNLIMITED if getattr(there, name) is None else getattr(there, name))
        )

    return found


_UNLIMITED = "unlimited"


def _gpu(tell: Callable[[Any], Any]) -> Callable[[Look], Any]:
    """What the GPUs of a node have in common, or each of them; None: it has none, which is another trait."""

    def found(look: Look) -> Any:
        values = [tell(gpu) for gpu in look.condition.gpus or ()]
        if not values or None in values:
            return None
        return values[0] if len(set(values)) == 1 else tuple(values)

    return found


def _gpus(look: Look) -> Any:
    if look.condition.gpus is None:
        return None
    names: dict[str, int] = {}
    for gpu in look.condition.gpus:
        names[gpu.name or "GPU"] = names.get(gpu.name or "GPU", 0) + 1
    return " + ".join(f"{count} x {name}" for name, count in names.items())


def _shm(look: Look) -> int | None:
    return next((disk.total_bytes for disk in look.condition.disks or () if disk.role == "/dev/shm"), None)


def _cwd(look: Look) -> str | None:
    disks = look.condition.disks or ()
    return next((disk.type or None for disk in disks if disk.role == "working directory"), None)


def _rdma(look: Look) -> str | None:
    network = look.condition.network
    if network is None:
        return None
    return ", ".join(f"{port.name} {port.state} {port.rate}".strip() for port in network.rdma)


def _link(name: str) -> Callable[[Look], Any]:
    return lambda look: None if look.interface is None else getattr(look.interface, name)


def _amount(value: Any) -> str:
    if isinstance(value, tuple):
        return _several(map(_amount, value))
    return clean(value) if isinstance(value, str) else size(value)


def _each(value: Any) -> str:
    return _several(map(clean, value)) if isinstance(value, tuple) else clean(value)


def _several(values: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(values))


PACKAGES: dict[str, tuple[str, ...]] = {
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
    "numpy": ("numpy",),
    "triton": ("triton",),
    "transformers": ("transformers",),
    "flash_attn": ("flash-attn",),
}
"""Distributions that the ranks' python is asked for; several names: the first that is there counts."""

DISTRIBUTIONS = tuple(name for names in PACKAGES.values() for name in names)
"""All of their names."""

_SOFTWARE = (
    Trait("python", _fact("python_version"), "python"),
    *(Trait(name, _fact(name), name, package=name) for name in ("torch", "deepspeed", "accelerate")),
    *(
        Trait(name, _package(*names), name.replace("nccl", "NCCL"), package=names[0])
        for name, names in PACKAGES.items()
    ),
    Trait("driver", lambda look: look.condition.driver, "NVIDIA driver"),
    Trait("kernel", _part("system", "kernel"), "kernel", step=Step("uname -r", "boot the same kernel")),
    Trait("libc", _part("system", "libc"), step=Step("ldd --version", "install the same system")),
)

_HARDWARE = (
    Trait("cpu", _part("system", "cpu"), "processor", step=Step("lscpu", "the slowest node sets the pace")),
    Trait("cores", _part("system", "cores"), "cores:", step=Step("lscpu", "the slowest node sets the pace")),
    Trait(
        "governor",
        _part("system", "governor"),
        "frequency governor",
        step=Step("sudo cpupower frequency-set -g performance"),
    ),
    Trait(
        "memory",
        _part("system", "memory_bytes"),
        "memory",
        _amount,
        Step("free -h", "is a module missing? the smallest node sets the limit"),
    ),
    Trait("gpus", _gpus, "GPUs:", step=Step("nvidia-smi", "lspci | grep -i nvidia shows what is built in")),
    Trait("gpu_memory", _gpu(lambda gpu: gpu.memory_total_bytes), "GPU memory", _amount, Step("nvidia-smi")),
    Trait(
        "gpu_clock",
        _gpu(lambda gpu: gpu.clock_mhz),
        "highest GPU clock (MHz)",
        _each,
        Step("sudo nvidia-smi -rgc", "the slowest GPU sets the pace"),
    ),
    Trait(
        "gpu_power",
        _gpu(lambda gpu: gpu.power_w),
        "GPU power limit (W)",
        _each,
        Step("sudo nvidia-smi -pl WATTS", "the slowest GPU sets the pace"),
    ),
    Trait(
        "gpu_persistence",
        _gpu(lambda gpu: gpu.persistent),
        "GPU persistence mode",
        lambda value: {True: "on", False: "off"}.get(value, "mixed"),
        Step("sudo nvidia-smi -pm 1"),
    ),
)

_NETWORK = (
    Trait(
        "interface",
        _link("name"),
        "interface to the other nodes:",
        step=Step(
            "--env NCCL_SOCKET_IFNAME=A,B",
            "names of the interface on all nodes; with gloo GLOO_SOCKET_IFNAME too",
        ),
    ),
    Trait(
        "mtu",
        _link("mtu"),
        "MTU",
        step=Step("ip link set IFACE mtu N", "large messages get lost or split where MTUs differ"),
    ),
    Trait("speed", _link("mbit"), "Mbit/s of the interface:", step=Step("ethtool IFACE")),
    Trait("rdma", _rdma, "InfiniBand:", step=Step("ibstat", "is a cable out, or a port down?")),
)


def _counters(look: Look) -> str | None:
    free = look.condition.profiling and look.condition.profiling.gpu_counters
    return None if free is None else "for everybody" if free else "for root alone"


_VARIABLES = ("CUDA_HOME", "LD_LIBRARY_PATH")
"""What builds and loaders of libraries go by; a login shell may set them, and ranks do not have one."""


def _login(look: Look) -> str | None:
    there = look.condition.login
    return (
        None if there is None else ", ".join(f"{name}={there[name]}" for name in _VARIABLES if name in there)
    )


_LIMITS = (
    Trait("open_files", _limit("limits", "open_files"), "ulimit -n:", step=Step("ulimit -n N", "in --setup")),
    Trait("processes", _limit("limits", "processes"), "ulimit -u:", step=Step("ulimit -u N", "in --setup")),
    Trait(
        "locked_memory",
        _limit("limits", "locked_bytes"),
        "ulimit -l:",
        _amount,
        Step("memlock in /etc/security/limits.conf", "InfiniBand registers memory"),
    ),
    Trait(
        "cgroup_memory",
        _limit("system", "memory_max_bytes"),
        "cgroup's memory limit:",
        _amount,
        Step("cat /proc/self/cgroup", "whose limit is it?"),
    ),
    Trait("cgroup_pids", _limit("system", "pids_max"), "cgroup's limit of processes:"),
    Trait(
        "shm", _shm, "/dev/shm", _amount, Step("mount -o remount,size=SIZE /dev/shm", "docker: --shm-size")
    ),
    Trait(
        "working_directory",
        _cwd,
        "the working directory's file system:",
        step=Step("mount", "is a shared file system not mounted?"),
    ),
    Trait(
        "ptrace_scope",
        _part("profiling", "ptrace_scope"),
        "kernel.yama.ptrace_scope =",
        step=Step("sudo sysctl -w kernel.yama.ptrace_scope=1"),
    ),
    Trait(
        "perf_event_paranoid",
        _part("profiling", "perf_event_paranoid"),
        "kernel.perf_event_paranoid =",
        step=Step("sudo sysctl -w kernel.perf_event_paranoid=2"),
    ),
    Trait("gpu_counters", _counters, "GPU performance counters:"),
    Trait("login", _login, "set in login shells only:"),
    Trait(
        "uid",
        lambda look: look.uid,
        "your user id:",
        step=Step("id -u", "files of a shared home have one owner"),
    ),
)

TRAITS: tuple[Trait, ...] = (*_SOFTWARE, *_HARDWARE, *_NETWORK, *_LIMITS)
"""Everything that should be the same."""


def _code(looks: Looks) -> Finding | None:
    """Python files beside the script that are not the same everywhere."""
    codes = {
        name: look.condition.code for name, look in looks.answered.items() if look.condition.code is not None
    }
    files = sorted({file for code in codes.values() for file in code})
    odd: dict[str, list[str]] = {}
    evidence = []
    for file in files:
        groups = grouped({name: code.get(file, "") for name, code in codes.items()})
        if len(groups) > 1:
            nodes, text = versus([(value[:8] or "no such file", names) for value, names in groups], looks)
            odd[file] = list(nodes)
            evidence.append(f"{clean(file)}: {nodes_text(nodes)}: {text}")
    if not odd:
        return None
    some = ", ".join(clean(file) for file in list(odd)[:3]) + (" …" if len(odd) > 3 else "")
    nodes = in_hostfile_order((name for names in odd.values() for name in names), looks)
    found = Finding(
        "differs_code",
        f"code differs from the other nodes: {some}",
        nodes=nodes,
        severity="warning",
        certainty="sure",
        evidence=tuple(evidence[:20]),
    )
    return recognised(found)


DIFFERENCES: tuple[Rule, ...] = (
    *(trait.rule for trait in TRAITS),
    Rule("differs_code", ("looks",), _code),
)
"""The rules of what differs, the most telling first."""
