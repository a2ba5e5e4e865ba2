"""Which environment variables matter to a training."""

from __future__ import annotations

import re

_OF_TRAINING = re.compile(
    r"(\w*_)?(RANK|WORLD_SIZE|LOCAL_SIZE)$"
    r"|(MASTER|NCCL|TORCH|TORCHELASTIC|PYTORCH|CUDA|NVIDIA|HIP|ROCR|GLOO|UCX|FI|OMPI|PMI|PMIX|SLURM|OMP|MKL)_"
    r"|(DS|DEEPSPEED|ACCELERATE|FSDP|HF|WANDB|TRITON|COCKPIT)_"
)
_OF_A_PROCESS = re.compile(
    r"(\w*_)?RANK$|COCKPIT_|TORCHELASTIC_(ERROR_FILE|RUN_ID)$|(SLURM|PMI|PMIX|OMPI)_|WANDB_RUN_ID$"
)


def matter(name: str) -> bool:
    """Whether by this variable ranks find each other, or a library is set."""
    return _OF_TRAINING.match(name) is not None


def differs_anyway(name: str) -> bool:
    """Whether a variable is another one in each process, or of whoever started it: that says nothing."""
    return _OF_A_PROCESS.match(name) is not None
