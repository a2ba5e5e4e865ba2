"""The program of a rehearsal: runs in the ranks' own Python, imports torch once, and forks one rank a trial.

Its source is handed to that Python as it is, so it imports nothing of ours. Commands are JSON lines on the
first descriptor that it is told, replies go to the second; it ends with the first, and so do its children.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from datetime import timedelta
from typing import Any, Dict, List, Optional, Set

TAIL = 16 << 10
"""Bytes that are kept of what a rank prints."""
FLOATS = 1 << 20
"""Numbers of the tensor that is reduced and sent: 4 MiB, more than any buffer of a socket holds."""
MEASURED_S, MEASURED = 0.3, 16
"""How long two ranks send to each other once they know how fast they are, and how often at most."""
SPARE_S = 2.0
"""A rank gives up by itself so long before it is killed: then it says why."""

NEVER = float("inf")


def die_with(parent: int) -> None:
    """End when the parent does, whatever happens to it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def send(to: int, **words: Any) -> None:
    """One line of JSON."""
    os.write(to, json.dumps(words).encode() + b"\n")


class Lines:
    """The lines that arrive on a descriptor."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._rest = b""

    def read(self) -> Optional[List[Dict[str, Any]]]:
        """Whole lines that are here, as objects; None: it has ended."""
        data = os.read(self.number, 1 << 16)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Rank:
    """A forked rank: what it reports and prints, until it is killed."""

    def __init__(self, spec: Dict[str, Any], torch: Any) -> None:
        self.number = spec["n"]
        self.deadline = time.monotonic() + spec["limit_s"]
        self.tail = b""
        reports, reports_end = os.pipe()
        said, said_end = os.pipe()
        me = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                die_with(me)
                os.dup2(said_end, 1)
                os.dup2(said_end, 2)
                perform(spec, torch, reports_end)
            finally:
                os._exit(0)
        os.close(reports_end)
        os.close(said_end)
        self.said = said
        self.reports = Lines(reports)

    def listen(self) -> bool:
        """Take in what it has printed; return whether there may be more."""
        data = os.read(self.said, 1 << 16)
        self.tail = (self.tail + data)[-TAIL:]
        return bool(data)

    def died(self) -> str:
        """Wait for its end; return how it ended."""
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit %d" % (status >> 8)

    def end(self) -> str:
        """Kill it; return what it printed last."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.died()
        while select.select([self.said], [], [], 0)[0] and self.listen():
            pass
        os.close(self.said)
        os.close(self.reports.number)
        return self.tail.decode("utf-8", "replace")


def serve(commands: int, replies: int) -> None:
    """Carry out commands: ``{"n", "rank", …}`` starts a rank, ``{"end": n}`` kills it and tells its words."""
    import torch
    import torch.distributed as dist

    send(replies, torch=torch.__version__, cuda=torch.version.cuda or "", nccl=dist.is_nccl_available())
    orders = Lines(commands)
    ranks: Dict[int, Rank] = {}
    mute: Set[int] = set()
    while True:
        waited: Dict[int, Optional[Rank]] = {orders.number: None}
        for each in ranks.values():
            waited.update({number: each for number in (each.reports.number, each.said) if number not in mute})
        due = min([each.deadline for each in ranks.values()], default=NEVER)
        timeout = None if due == NEVER else max(0.0, due - time.monotonic())
        for number in select.select(list(waited), [], [], timeout)[0]:
            rank = waited[number]
            if rank is None:
                found = orders.read()
                if found is None:
                    return
                for order in found:
                    if "end" in order:
                        over = ranks.pop(order["end"], None)
                        if over is not None:
                            mute -= {over.said, over.reports.number}
                            send(replies, n=over.number, said=over.end())
                    else:
                        began = ranks[order["n"]] = Rank(order, torch)
                        send(replies, n=began.number, pid=began.pid)
            elif rank.number not in ranks:
                continue
            elif number == rank.said:
                if not rank.listen():
                    mute.add(number)
            else:
                found = rank.reports.read()
                if found is None:
                    mute.add(number)
                    send(replies, n=rank.number, over=True, error="it died: " + rank.died())
                for report in found or ():
                    send(replies, n=rank.number, **report)
        for late in ranks.values():
            if time.monotonic() >= late.deadline:
                late.deadline = NEVER
                send(replies, n=late.number, over=True, error="not finished in time")


# A rank


def perform(spec: Dict[str, Any], torch: Any, to: int) -> None:
    """Be one rank, step by step; then keep all sockets open until killed, for they are looked at."""
    began = [time.monotonic()]

    def step(name: str, **more: Any) -> None:
        now = time.monotonic()
        send(to, step=name, after_s=now - began[0], **more)
        began[0] = now

    try:
        rates = rehearse(spec, torch, step)
        step("done", rates=rates)
        send(to, over=True)
    except BaseException as error:
        text = str(error).strip().splitlines() or [""]
        send(to, over=True, error="%s: %s" % (type(error).__name__, text[0][:1500]))
    while True:
        signal.pause()


def rehearse(spec: Dict[str, Any], torch: Any, step: Any) -> List[Optional[float]]:
    """Meet the other ranks, connect, reduce, measure; return the rates with each peer, bytes a second."""
    dist = torch.distributed
    rank, world, gpu = spec["rank"], spec["world"], spec["gpu"]
    torch.set_num_threads(1)
    device = "cpu"
    if gpu >= 0:
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
        device = "cuda:0"
    limit = timedelta(seconds=max(1.0, spec["limit_s"] - SPARE_S))
    step("rendezvous")
    store = dist.TCPStore(
        spec["address"], spec["port"], world, rank == 0, timeout=limit, wait_for_workers=False
    )
    step("gather", port=store.port)
    store.set("rank%d" % rank, "here")
    store.wait(["rank%d" % each for each in range(world)], limit)
    step("connect")
    if gpu >= 0:
        torch.cuda.set_device(0)
    dist.init_process_group(spec["backend"], store=store, rank=rank, world_size=world, timeout=limit)
    reduced(torch, dist, device, 1, world)  # NCCL connects with the first collective
    step("reduce")
    reduced(torch, dist, device, FLOATS, world)
    step("measure")
    rates: List[Optional[float]] = []
    for peer in spec["peers"]:
        dist.barrier()
        rates.append(None if peer < 0 else rate(torch, dist, device, rank, peer))
    dist.barrier()
    return rates


def reduced(torch: Any, dist: Any, device: str, size: int, world: int) -> None:
    """All-reduce a tensor, and check the sum."""
    tensor = torch.full((size,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(tensor)
    wanted = world * (world + 1) / 2
    if not bool((tensor == wanted).all()):
        raise ArithmeticError("all_reduce gave a wrong sum: %r, not %r" % (tensor.max().item(), wanted))


def rate(torch: Any, dist: Any, device: str, rank: int, peer: int) -> Optional[float]:
    """Bytes a second from one to the other and back; the lower rank measures, the other gives None."""
    big = torch.ones(FLOATS, device=device)
    lead = rank < peer

    def there_and_back(tensor: Any) -> float:
        if lead:
            dist.send(tensor, peer)
            dist.recv(tensor, peer)
        else:
            dist.recv(tensor, peer)
            dist.send(tensor, peer)
        return float(tensor[0])  # it has really arrived

    there_and_back(big[:1].clone())
    began = time.monotonic()
    there_and_back(big)
    once = time.monotonic() - began
    count = torch.tensor([max(1.0, min(float(MEASURED), MEASURED_S / max(once, 1e-9)))], device=device)
    times = int(there_and_back(count))
    began = time.monotonic()
    for _ in range(times):
        there_and_back(big)
    took = time.monotonic() - began
    return 2.0 * 4 * FLOATS * times / max(took, 1e-9) if lead else None


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(int(sys.argv[1]), int(sys.argv[2]))
