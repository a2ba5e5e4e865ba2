"""What is too long for its place is cut where least is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.cutting import cut_command, cut_middle, cut_sentence
from cockpit.core.text import columns

CHECKPOINT = "/scratch/ada/experiments/2026/run-7/epoch-12/optim.pt"
MISSING = f"FileNotFoundError: [Errno 2] No such file or directory: '{CHECKPOINT}'"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (53, CHECKPOINT),
        (40, "/scratch/ada/…/run-7/epoch-12/optim.pt"),
        (33, "/scratch/ada/…/epoch-12/optim.pt"),
        (20, "/…/epoch-12/optim.pt"),
        (12, "/…/optim.pt"),
        (1, "…"),
        (0, ""),
    ],
)
def test_a_path_keeps_its_ends(width: int, shown: str) -> None:
    assert cut_middle(CHECKPOINT, width) == shown


def test_a_path_without_room_for_a_directory_keeps_its_end() -> None:
    assert cut_middle("torch/nn/functional.py:12", 12) == "…ional.py:12"


def test_a_command_keeps_the_program_and_the_last_arguments() -> None:
    command = "train.py --data /scratch/ada/tokens/part-00/train.bin --lr 3e-4 --steps 5000 --resume last"
    shown = cut_middle(command, 60)
    assert shown.startswith("train.py")
    assert shown.endswith("--resume last")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ('bash "$COCKPIT_DIR"/x/launch.sh --steps 600 --together', "bash …/launch.sh --ste… --together"),
        ("deepspeed --no_ssh --node_rank 1 train.py --name 'a b'", "deepspeed … train.py --name 'a b'"),
        ("bash slots.sh /opt/bin/python -u train_plain.py --steps 6", "bash … train_plain.py --steps 6"),
        ("/opt/venv/bin/python -u -m pkg.train --steps 600 --hang 63", "python … pkg.train --st… --hang 63"),
        ("./train.py --data /scratch/ada/tokens --steps 5000", "…train.py --data …ens --steps 5000"),
    ],
)
def test_a_command_keeps_the_names_of_its_program_and_its_script(command: str, shown: str) -> None:
    assert cut_command(command, 34) == shown


def test_a_sentence_gives_up_the_middle_of_its_path_then_its_end() -> None:
    assert cut_sentence(MISSING, 90).endswith("directory: '/scratch/ada/…/epoch-12/optim.pt'")
    assert cut_sentence(MISSING, 30) == "FileNotFoundError: [Errno 2] …"
    assert cut_sentence("no path in here", 10) == "no path i…"


@given(text=st.text(st.sampled_from("ab/ .,'日é")), width=st.integers(0, 40))
def test_nothing_is_wider_than_its_place(text: str, width: int) -> None:
    for cut in (cut_command, cut_middle, cut_sentence):
        shown = cut(text, width)
        assert columns(shown) <= width
        assert shown == text or columns(text) > width
