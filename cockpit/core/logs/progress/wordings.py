"""How training programs name their numbers, as data: a new project is a new word here, not new code.

Everything is in small letters. In a name, a space stands for each of ``_ - / .``: ``train/global_step`` is
"train global step".
"""

from __future__ import annotations

from enum import IntEnum


class Order(IntEnum):
    """Of several numbers for one field, the one with the lowest place is shown."""

    FIRST = 0
    SECOND = 1
    THIRD = 2
    LAST = 3


def _words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


def _names(text: str) -> frozenset[bytes]:
    return frozenset(b" ".join(name.split()) for name in text.encode().split(b","))


_FIELDS: tuple[tuple[str, Order, str], ...] = (
    (
        "step",
        Order.FIRST,
        "global step, global steps, num updates, nupdates, global step max steps, current steps, current"
        " step, total timesteps, global batch",
    ),
    ("step", Order.SECOND, "step, step i, steps, update, updates, optimizer step, optim step, opt step"),
    ("step", Order.THIRD, "iteration, iterations, iter, iters, itr, it, iter num, niter, train step"),
    ("step", Order.LAST, "batch, batch idx, mini batch, minibatch"),
    (
        "total",
        Order.FIRST,
        "max steps, max step, total steps, total iterations, total iters, max iters, train steps, num"
        " training steps",
    ),
    (
        "epoch",
        Order.FIRST,
        "epoch, epch, progress or epoch, cur epoch, current epoch, epoch num, epoch idx",
    ),
    ("epoch", Order.SECOND, "ep"),
    (
        "samples_s",
        Order.FIRST,
        "currsamplespersec, cursamplespersec, samples per sec, samples per second, samples s, samples sec,"
        " samples second, sample s, images s, images sec, img s, img sec, imgs s, imgs sec, images per sec,"
        " images per second, examples s, examples sec, examples per second, seq s, seqs s, sequences s,"
        " sequences per second, ips, interval samples per second, smp s",
    ),
    ("samples_s", Order.LAST, "samplespersec"),
    (
        "tokens_s",
        Order.FIRST,
        "tokens s, tokens sec, tokens second, tok s, tok sec, toks s, token s, tokens per sec, tokens per"
        " second, tokens per s, tok per sec, token per sec",
    ),
    (
        "tokens_s",
        Order.SECOND,
        "tps, tgs, device tps, tokens per gpu per second, tokens gpu s, tokens s gpu, tokens s device,"
        " tokens sec gpu, tok s gpu, tokens per second per device, tokens per sec per gpu, tokens per second"
        " per gpu, device tokens per second, interval tokens per second per device, wps",
    ),
    (
        "step_s",
        Order.FIRST,
        "step time, time per step, time step, sec step, secs step, s step, s it, s iter, sec it, iter time,"
        " iteration time, time per iteration, time per iter, elapsed time per iteration, train step timing"
        " in s, step timing, timing s step, train speed s it, seconds per step, seconds per iteration,"
        " updt s, e2e latency, total step time",
    ),
    (
        "step_s",
        Order.SECOND,
        "batch time, dt, time per batch, batch t, batch cost, avg batch cost, step avg, seconds",
    ),
    ("time", Order.LAST, "time, sec, btime"),
    (
        "rate",
        Order.FIRST,
        "steps per second, steps per sec, steps s, steps sec, it s, it sec, iter s, iters s, train speed"
        " iter s, interval steps per second, iterations per second, ups, global step sec, batches per second,"
        " device batches per second",
    ),
)

NAMES: dict[bytes, tuple[str, Order]] = {
    name: (field, place) for field, place, names in _FIELDS for name in _names(names)
}
"""Whole names, with the field of each. "rate" is steps per second, "time" beside a loss is that of a step."""

GROUPS = _words(
    "train training trainer optim optimizer actor perf metrics throughput time progress timing_s global tr"
    " stats log info"
)
"""Words that may be joined to the front of a name without changing its meaning."""

NOT_BEFORE = _words(
    "total max min warmup num number save eval logging log per every decay optimization accumulation each"
    " left remaining skipped best micro in for of the next until after training_steps gradient target first"
    " from last previous saved same any consumed ref rollout gen generation inner sub diffusion denoising"
    " base initial peak final end start init fps"
)
"""Words right before a name that make it something else: "max steps"."""

LOSS = _words("loss losses crossentropyloss celoss closs lossmetric nll xent")
"""Names of a loss."""

LOSS_BESIDE = _words(
    "train training trainer tr lm total reduced avg avr average mean running global batch ce mlm gpt sft"
    " causal crossentropy step current curr cur iter iteration metrics now smooth smoothed interval actor act"
    " language model raw pretrain xent overall combined sum ctc epoch"
)
"""Words that may be joined to the name of the training loss."""

LOSS_MEAN = _words("avr avg average mean running smooth smoothed nll epoch")
"""Words for a loss that is a mean: shown if there is nothing better."""

OTHER_LOSS = _words(
    "val valid validation eval evaluation test dev best min max aux auxiliary balancing balance router kl z"
    " old last previous target scale weight expected lowest ref reference improved initial final prev"
    " minimum moe load teacher student value policy pg vf critic"
)
"""Words near a loss that make it a different loss."""

LOSS_AFTER = _words("with the and info debug is has at done of a in got new")
"""Words that may precede a loss, with a blank in between."""

LR_BESIDE = _words(
    "lr train training trainer current cur curr actor optim optimizer opt group param main model adam adamw"
    " sgd lion muon decoupledadamw fusedadam scheduler sched new the metrics policy last pg default matrix"
)
"""Words that may be joined to the learning rate, also with digits after them."""

EVALUATION = _words(
    "val valid validation validating validate eval evaluation evaluate evaluating evaluated test testing cv"
)
"""Words for a measurement outside training."""

ASIDE = EVALUATION | _words(
    "tests dev infer inference predict predicting prediction sanity benchmark benchmarks benchmarking bench"
    " config configs configuration args arguments argument hparams hyperparameters namespace load loaded"
    " loading resume resumed resuming restore restored restoring best early expected reference baseline"
    " settings options generate generating generated decode prefill profile profiling profiler preprocess"
    " preprocessing tokenizing tokenize compile compiling compiled autotune tune tuning estimate estimated"
    " dry-run sweep skipping skipped prepare preparing prepared calibrating calibration warmup warm-up"
    " warming"
)
"""Words in a line that say its numbers are not of training."""

SETTINGS = _names(
    "weight decay, betas, beta1, beta2, eps, seed, num epochs, epochs, num train epochs, hidden size, num"
    " layers, batch size, warmup steps, warmup ratio, max grad norm, save steps, eval steps, logging steps,"
    " max seq length, momentum, per device train batch size, gradient accumulation steps, warmup, lr"
    " scheduler type, num workers, gamma, max steps, dropout, nesterov, amsgrad, num heads, vocab size, max"
    " epochs"
)
"""Names of settings: a line with two of them is a dump of a configuration."""

BAR_OF_TRAINING = _words(
    "train training trainer epoch step steps iteration iterations iter iters fit fitting update updates"
    " optimizing optimization progress pretrain pretraining finetune finetuning fine-tuning sft dpo grpo ppo"
    " of total global loss lr sgd"
)
"""Words in the description of a progress bar that make it one of training."""

NO_WORDS = _words(
    "stdout stderr default rank ranks local worker node info debug warning mon tue wed thu fri sat sun jan"
    " feb mar apr may jun jul aug sep oct nov dec utc gmt z t pm am g"
)
"""Words before a bar that come from launchers, loggers and clocks."""

_COUNTED = {
    "samples_s": "samples sample images image imgs img examples ex sequences sequence seqs seq",
    "tokens_s": "tokens token toks tok",
    "rate": "it its iter iters iteration iterations step steps ba batch batches update updates",
}
UNITS = {word: field for field, words in _COUNTED.items() for word in _words(words)}
"""Things counted per second, if ``/s`` follows: the field each is for."""

TIMES: dict[bytes, float] = {
    b"us": 1e-6,
    b"ms": 1e-3,
    b"msec": 1e-3,
    **dict.fromkeys(_words("s sec secs second seconds"), 1.0),
}
"""Units of time: seconds each."""

STEPS = _words("it iter iteration step batch update")
"""Names of a step after a unit of time: ``ms/batch``."""

LONG = _words("min mins minutes minute h hr hrs hour hours d day days gb gib mb mib kb kib b tb times words")
"""Units after a number that make it belong to no field."""

GLUED: dict[bytes, str] = {b"it": "", b"epoch": "epoch"}
"""Words that may follow a number without a blank, and the field they name."""

PROSE = _words("the a is are was we they you it its that this to if how so by i")
"""Words of sentences, of which lines with numbers of a training have few."""

PARTS = _names("forward time, data loading time")
"""Times of parts of a step: a line that has one of these gives no time of a step."""

HEADINGS = _names("step, iteration, iter, update, epoch, batch, total timesteps")
"""Names of a step on a line of its own, without a total, above the numbers it is for."""

OF_TRAINING = _names("currsamplespersec, cursamplespersec, samplespersec, step time, train step timing in s")
"""Names of speeds that only training has."""
