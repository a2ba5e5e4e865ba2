"""Programs that train, take their time in each phase of a step, and measure it: what marks must agree with.

Each writes its losses and what it measured. Without the probe none takes any time.
"""

from __future__ import annotations

from typing import NamedTuple

PRELUDE = """
import json, os, random, sys, time, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

STEPS = 14
torch.manual_seed(0)
now = time.monotonic
chance = random.Random(7 + RANK)

def busy(ms):
    ms *= chance.uniform(0.7, 1.3)
    if PROBED:
        time.sleep(ms / 1000)

class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        busy(50)
        return grad

def item(at, ms):
    busy(ms)
    return torch.randn(16, generator=torch.Generator().manual_seed(at))

class Data(Dataset):
    def __init__(self, size=20, ms=17):
        self.size, self.ms = size, ms

    def __len__(self):
        return self.size

    def __getitem__(self, at):
        return item(at, self.ms)

class Stream(IterableDataset):
    def __iter__(self):
        return (item(at, 17) for at in range(20))

class Own:
    def __init__(self):
        self.steps, self.losses = [], []
        self.begin()

    def begin(self):
        self.step = dict.fromkeys(("input", "forward", "backward", "update"), 0.0)
        self.other()

    def other(self):
        self.at = now()

    def to(self, phase):
        at = now()
        self.step[phase] += at - self.at
        self.at = at

    def end(self, loss):
        self.steps.append(self.step)
        self.losses.append(float(loss).hex())
        self.begin()

    def write(self):
        if RANK == 0:
            with open("own", "w") as file:
                json.dump(self.steps, file)
            with open("losses", "w") as file:
                json.dump(self.losses, file)

own = Own()

def network():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

def adam(net):
    return torch.optim.AdamW(net.parameters())

def forever(loader):
    while True:
        yield from loader

def loss_of(net, x):
    busy(60)
    return Back.apply(net(x)).square().mean()

def loop(net, made, batches, after=lambda at: None):
    for at in range(STEPS):
        own.begin()
        x = next(batches)
        own.to("input")
        loss = loss_of(net, x)
        own.to("forward")
        loss.backward()
        own.to("backward")
        busy(40)
        made.step()
        own.to("update")
        own.end(loss)
        made.zero_grad()
        busy(20)
        after(at)

def joined():
    import torch.distributed as dist
    store = "file://" + os.path.realpath("store")
    dist.init_process_group("gloo", init_method=store, rank=RANK, world_size=RANKS)
    return dist

def parted(dist):
    dist.barrier()
    dist.destroy_process_group()
"""

# Freeing what torch has made takes a copy of a process half a second.
END = "\nown.write()\nsys.stdout.flush()\nos._exit(0)\n"

PLAIN = "net = network()\nloop(net, adam(net), forever(DataLoader(Data(), batch_size=4)))"


class Loop(NamedTuple):
    """A program.

    :param lacks: phases that are not known of any of its steps
    :param needs: modules
    """

    text: str
    ranks: int = 1
    lacks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def workers(rest: str) -> str:
    loader = f"DataLoader(Data(40, 60), batch_size=4, num_workers={rest})"
    return f"net = network()\nbatches = forever({loader})\nloop(net, adam(net), batches)\ndel batches"


EVALUATES = """
net = network()
checks = DataLoader(Data(12, 4), batch_size=4)
def evaluate(at):
    if at % 3 == 2:
        with torch.no_grad():
            for seen, x in enumerate(checks):
                if seen == {most}:
                    break
                net(x)
                busy(15)
loop(net, adam(net), forever(DataLoader(Data(), batch_size=4)), evaluate)
"""

ZERO = """
os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=str(RANK))
dist = joined()
import deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed("gloo")
net = network()
engine, *_ = deepspeed.initialize(model=net, optimizer=adam(net), config={
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": PARTS,
    "zero_optimization": {"stage": STAGE, "stage3_param_persistence_threshold": 0},
    "steps_per_print": 10**9,
})
batches = forever(DataLoader(Data(), batch_size=4))
for _ in range(STEPS):
    own.begin()
    for part in range(PARTS):
        x = next(batches)
        own.to("input")
        loss = loss_of(engine, x)
        own.to("forward")
        engine.backward(loss)
        own.to("backward")
        if part == PARTS - 1:
            busy(40)
        engine.step()
        own.to("update")
    own.end(loss)
    busy(20)
parted(dist)
"""

INSIDE = """
class Fetched(Data):
    busy = False

    def __getitem__(self, at):
        if not Fetched.busy:
            Fetched.busy = True
            own.other()
        return super().__getitem__(at)

def collate(items):
    made = torch.stack(items)
    if Fetched.busy:
        Fetched.busy = False
        own.to("input")
    return made

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        if not self.training:
            busy(10)
            return {"loss": self.net(x).square().mean()}
        own.other()
        self.loss = loss_of(self.net, x)
        own.to("forward")
        return {"loss": self.loss}

def stepped(made, args, kwargs):
    own.to("update")
    own.end(whole.loss)

whole = Whole()
made = adam(whole)
made.register_step_post_hook(stepped)
"""
"""A framework calls it all; it evaluates, too."""

TRANSFORMERS = (
    INSIDE
    + """
from transformers import PrinterCallback, Trainer, TrainingArguments

made.register_step_pre_hook(lambda *_: busy(40))
arguments = TrainingArguments(
    "made", max_steps=STEPS, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
    use_cpu=True, save_strategy="no", logging_strategy="no", disable_tqdm=True, eval_strategy="steps",
    eval_steps=4, remove_unused_columns=False,
)
trainer = Trainer(
    whole, arguments, lambda items: {"x": collate(items)}, Fetched(32), Data(16, 4),
    optimizers=(made, torch.optim.lr_scheduler.ConstantLR(made)),
)
backward = trainer.accelerator.backward

def timed(loss, **kwargs):
    own.other()
    backward(loss, **kwargs)
    own.to("backward")

trainer.accelerator.backward = timed
trainer.remove_callback(PrinterCallback)  # it prints how long that took
trainer.train()
"""
)

LIGHTNING = (
    INSIDE
    + """
import lightning

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.whole = whole

    def configure_optimizers(self):
        return made

    def training_step(self, x, at):
        return self.whole(x)["loss"]

    def validation_step(self, x, at):
        self.whole(x)

    def on_before_backward(self, loss):
        own.other()

    def on_after_backward(self):
        own.to("backward")

    def on_before_optimizer_step(self, optimizer):
        busy(40)

trainer = lightning.Trainer(
    max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, val_check_interval=4, limit_val_batches=2, accumulate_grad_batches=2,
)
loaders = DataLoader(Fetched(32), batch_size=4, collate_fn=collate), DataLoader(Data(16, 4), batch_size=4)
trainer.fit(Module(), *loaders)
"""
)

LOOPS = {
    "plain": Loop(PLAIN),
    "ddp": Loop(
        "dist = joined()\n"
        "net = torch.nn.parallel.DistributedDataParallel(network())\n"
        "loop(net, adam(net), forever(DataLoader(Data(), batch_size=4)))\n"
        "parted(dist)",
        ranks=2,
    ),
    "fsdp2": Loop(
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.fsdp import fully_shard\n"
        "dist = joined()\n"
        "net = network()\n"
        "mesh = init_device_mesh('cpu', (2,))\n"
        "for part in (net[0], net[2], net):\n"
        "    fully_shard(part, mesh=mesh)\n"
        "loop(net, adam(net), forever(DataLoader(Data(), batch_size=4)))\n"
        "parted(dist)",
        ranks=2,
    ),
    "zero 2": Loop("STAGE, PARTS = 2, 1" + ZERO, ranks=2, needs=("deepspeed",)),
    "zero 3": Loop("STAGE, PARTS = 3, 1" + ZERO, ranks=2, needs=("deepspeed",)),
    "zero 2, accumulation": Loop("STAGE, PARTS = 2, 2" + ZERO, ranks=2, needs=("deepspeed",)),
    "no loader": Loop(
        "net = network()\nloop(net, adam(net), (torch.stack([item(0, 70)]) for _ in iter(int, 1)))",
        lacks=("input", "forward"),
    ),
    "iterable": Loop("net = network()\nloop(net, adam(net), forever(DataLoader(Stream(), batch_size=4)))"),
    "zipped": Loop(
        "class Both:\n"
        "    loaders = [DataLoader(Data(), batch_size=2), DataLoader(Data(), batch_size=2)]\n"
        "    def __iter__(self):\n"
        "        return zip(*self.loaders)\n"
        "net = network()\n"
        "loop(net, adam(net), (torch.cat(both) for both in forever(Both())))"
    ),
    "workers": Loop(workers("4")),
    "persistent workers": Loop(workers("4, persistent_workers=True")),
    "accumulation": Loop(
        "net = network()\nmade = adam(net)\nbatches = forever(DataLoader(Data(), batch_size=2))\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    for _ in range(3):\n"
        "        x = next(batches)\n"
        "        own.to('input')\n"
        "        loss = loss_of(net, x)\n"
        "        own.to('forward')\n"
        "        loss.backward()\n"
        "        own.to('backward')\n"
        "    busy(40)\n"
        "    made.step()\n"
        "    own.to('update')\n"
        "    own.end(loss)\n"
        "    made.zero_grad()"
    ),
    "accumulation, batches together": Loop(
        "net = network()\nmade = adam(net)\nbatches = forever(DataLoader(Data(24), batch_size=2))\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    many = []\n"
        "    for _ in range(3):\n"
        "        if many:\n"
        "            busy(5)  # moves the one before to its device\n"
        "            own.other()\n"
        "        x = next(batches)\n"
        "        own.to('input')\n"
        "        many.append(x)\n"
        "    for x in many:\n"
        "        loss = loss_of(net, x)\n"
        "        own.to('forward')\n"
        "        loss.backward()\n"
        "        own.to('backward')\n"
        "    busy(40)\n"
        "    made.step()\n"
        "    own.to('update')\n"
        "    own.end(loss)\n"
        "    made.zero_grad()"
    ),
    "evaluation": Loop(EVALUATES.format(most=99)),
    "evaluation that is cut short": Loop(EVALUATES.format(most=2)),
    "closure": Loop(
        "net = network()\nmade = torch.optim.LBFGS(net.parameters(), max_iter=2)\n"
        "batches = forever(DataLoader(Data(), batch_size=4))\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    x = next(batches)\n"
        "    own.to('input')\n"
        "    def closure():\n"
        "        made.zero_grad()\n"
        "        loss = loss_of(net, x)\n"
        "        own.to('forward')\n"
        "        loss.backward()\n"
        "        own.to('backward')\n"
        "        return loss\n"
        "    loss = made.step(closure)\n"
        "    own.to('update')\n"
        "    own.end(loss)"
    ),
    "checkpointed": Loop(
        "from torch.utils.checkpoint import checkpoint\n"
        "net = network()\n"
        "class Saves(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        x = checkpoint(lambda x: Back.apply(net(x)), x.requires_grad_(), use_reentrant=True)\n"
        "        return Back.apply(x)\n"
        "loop(Saves(), adam(net), forever(DataLoader(Data(), batch_size=4)))"
    ),
    "two optimizers": Loop(
        "net, other = network(), network()\nmade, second = adam(net), adam(other)\n"
        "batches = forever(DataLoader(Data(), batch_size=4))\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    x = next(batches)\n"
        "    own.to('input')\n"
        "    for it, of in ((other, second), (net, made)):\n"
        "        loss = loss_of(it, x)\n"
        "        own.to('forward')\n"
        "        loss.backward()\n"
        "        own.to('backward')\n"
        "        busy(20)\n"
        "        if at or it is net:  # the first to step leads\n"
        "            of.step()\n"
        "        own.to('update')\n"
        "        of.zero_grad()\n"
        "    own.end(loss)"
    ),
    "a batch ahead": Loop(
        "net = network()\nmade = adam(net)\nbatches = forever(DataLoader(Data(), batch_size=4))\n"
        "ahead = next(batches)\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    x, ahead = ahead, next(batches)\n"
        "    own.to('input')\n"
        "    loss = loss_of(net, x)\n"
        "    own.to('forward')\n"
        "    loss.backward()\n"
        "    own.to('backward')\n"
        "    busy(40)\n"
        "    made.step()\n"
        "    own.to('update')\n"
        "    own.end(loss)\n"
        "    made.zero_grad()"
    ),
    "a batch ahead of the update": Loop(
        "net = network()\nmade = adam(net)\nbatches = forever(DataLoader(Data(), batch_size=4))\n"
        "x = next(batches)\n"
        "for at in range(STEPS):\n"
        "    own.begin()\n"
        "    loss = loss_of(net, x)\n"
        "    own.to('forward')\n"
        "    loss.backward()\n"
        "    own.to('backward')\n"
        "    x = next(batches)\n"
        "    own.to('input')\n"
        "    busy(40)\n"
        "    made.step()\n"
        "    own.to('update')\n"
        "    own.end(loss)\n"
        "    made.zero_grad()"
    ),
    "optimizer in backward": Loop(
        "net = network()\n"
        "each = {one: torch.optim.SGD([one]) for one in net.parameters()}\n"
        "for one in each:\n"
        "    one.register_post_accumulate_grad_hook(\n"
        "        lambda one: (busy(10), each[one].step(), each[one].zero_grad()) and None)\n"
        "class None_:\n"
        "    step = zero_grad = staticmethod(lambda: None)\n"
        "loop(net, None_, forever(DataLoader(Data(), batch_size=4)))",
        lacks=("input", "forward", "backward", "update"),
    ),
    "a backward that fails and is repeated": Loop(
        "fails = [False]\n"
        "class Fails(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return x.view_as(x)\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad):\n"
        "        if fails[0]:\n"
        "            raise ValueError('no')\n"
        "        return grad\n"
        "net = network()\nmade = adam(net)\nbatches = forever(DataLoader(Data(), batch_size=4))\n"
        "for at in range(STEPS):\n"
        "    for fails[0] in (True, False):\n"
        "        x = next(batches)\n"
        "        own.to('input')\n"
        "        loss = loss_of(net, Fails.apply(x.requires_grad_()))\n"
        "        own.to('forward')\n"
        "        try:\n"
        "            loss.backward()\n"
        "        except ValueError:\n"
        "            pass\n"
        "        own.to('backward')\n"
        "    busy(40)\n"
        "    made.step()\n"
        "    own.to('update')\n"
        "    own.end(loss)\n"
        "    made.zero_grad()"
    ),
    "compiled": Loop(
        "import torch._dynamo.utils as dynamo\n"
        "net = network()\nmade = adam(net)\n"
        "fast = torch.compile(net, backend='aot_eager')\n"
        "loop(fast, made, forever(DataLoader(Data(), batch_size=4)))\n"
        "print(json.dumps(dynamo.counters, sort_keys=True))"
    ),
    "accelerate": Loop(
        "from accelerate import Accelerator\n"
        "made_by = Accelerator(cpu=True, gradient_accumulation_steps=2)\n"
        "net = network()\n"
        "net, made, loader = made_by.prepare(net, adam(net), DataLoader(Data(24), batch_size=4))\n"
        "batches = forever(loader)\n"
        "for _ in range(STEPS):\n"
        "    own.begin()\n"
        "    for part in range(2):\n"
        "        x = next(batches)\n"
        "        own.to('input')\n"
        "        with made_by.accumulate(net):\n"
        "            loss = loss_of(net, x)\n"
        "            own.to('forward')\n"
        "            made_by.backward(loss)\n"
        "            own.to('backward')\n"
        "            if part:\n"
        "                busy(40)\n"
        "            made.step()\n"
        "            if part:\n"
        "                own.to('update')\n"
        "                own.end(loss)\n"
        "            else:\n"
        "                own.other()\n"
        "            made.zero_grad()",
        needs=("accelerate",),
    ),
    "transformers": Loop(TRANSFORMERS, needs=("transformers", "accelerate")),
    "lightning": Loop(LIGHTNING, needs=("lightning",)),
}

BROKEN = {
    "a forward": "def loss_of(net, x):\n    raise ValueError('no')",
    "a backward": "def busy(ms):\n    if ms == 50:\n        raise ValueError('no')",
    "a batch": "def item(at, ms):\n    raise ValueError('no')",
    "an update": "def adam(net):\n"
    "    made = torch.optim.AdamW(net.parameters())\n"
    "    made.register_step_pre_hook(lambda *_: 1 / 0)\n"
    "    return made",
    "a loss": "def loss_of(net, x):\n    return net(x)  # as many as samples",
}
"""What goes wrong in a plain loop, and ends it."""

FRAMES = """
import inspect
def frames():
    for each in inspect.stack()[1:]:
        print(each.function, os.path.basename(each.filename))
class Looks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        frames()
        return grad
def item(at, ms):
    frames()
    return torch.ones(16)
def loss_of(net, x):
    frames()
    return Looks.apply(net(x)).sum()
STEPS = 2
net = network()
made = adam(net)
made.register_step_pre_hook(lambda *_: frames())
loop(net, made, forever(DataLoader(Data(), batch_size=1)))
"""
"""What a dump of stacks would show in each phase."""

COMPILED = """
import torch._dynamo.utils as dynamo
net = network()
made = adam(net)
batches = iter(DataLoader(Data(100), batch_size=4))
def step():
    loss = net(next(batches)).square().mean()
    loss.backward()
    return loss
step()  # torch imports what it needs: what looks at imports is of the probe, too
fast = torch.compile(step, backend="aot_eager")
for _ in range(STEPS):
    own.begin()
    loss = fast().detach()
    made.step()
    own.end(loss)
    made.zero_grad()
print(json.dumps(dynamo.counters, sort_keys=True))
"""
"""The loader and the backward are within what is compiled: the compiler looks at each frame in there."""

ALL_COMPILED = """
import torch._dynamo.utils as dynamo
net = network()
made = adam(net)
def step(x):
    loss = net(x).square().mean()
    made.zero_grad()
    loss.backward()
    made.step()
    return loss
fast = torch.compile(step, backend="aot_eager")
batches = forever(DataLoader(Data(), batch_size=4))
for _ in range(STEPS):
    own.end(fast(next(batches)).detach())
counted = {name: dynamo.counters[name] for name in ("graph_break", "stats", "aot_autograd")}
print(json.dumps(counted, sort_keys=True))
"""
"""So is the optimizer: no step is counted. Its hook is one that the compiler reads, as it would others."""
