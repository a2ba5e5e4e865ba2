"""Whether a model's states fit: the same numbers as DeepSpeed's, and what is said of them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from cockpit.core.doctor.memory import LARGEST, Have, have, needs, parameters, short, zero_of
from cockpit.errors import CockpitError
from tests.core.doctored import GB, NODES, looks, part
from tests.needs import require_module

SEVEN, SEVENTY = 7 * 10**9, 70 * 10**9


def deepspeeds(module: str, name: str) -> Callable[..., tuple[int, ...]]:
    """A function of the installed DeepSpeed by itself: to import all of it takes many seconds."""
    spec = find_spec("deepspeed")
    assert spec
    assert spec.origin
    source = (Path(spec.origin).parent / "runtime" / "zero" / f"{module}.py").read_text()
    tree = ast.parse(source)
    tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == name]
    found: dict[str, Callable[..., tuple[int, ...]]] = {}
    exec(compile(tree, module, "exec"), found)
    return found[name]


def test_the_numbers_are_deepspeeds() -> None:
    require_module("deepspeed")
    two = deepspeeds("stage_1_and_2", "estimate_zero2_model_states_mem_needs")
    three = deepspeeds("stage3", "estimate_zero3_model_states_mem_needs")
    layer = int(LARGEST * SEVEN)
    rows = {(row.stage, row.offload): (row.node_bytes, row.gpu_bytes) for row in needs(SEVEN, 4, 8)}
    assert rows == {
        (2, ""): two(SEVEN, 8, 4, cpu_offload=False),
        (2, "optimizer"): two(SEVEN, 8, 4, cpu_offload=True),
        (3, ""): three(SEVEN, layer, 8, 4, cpu_offload=False)[:2],
        (3, "optimizer"): three(SEVEN, layer, 8, 4, cpu_offload_params=False)[:2],
        (3, "optimizer, params"): three(SEVEN, layer, 8, 4)[:2],
    }


def test_what_the_smallest_node_has_counts() -> None:
    found = have(looks({3: part("system", memory_max_bytes=256 * GB)}), ())
    assert found == Have(8, 8, 85 * GB, 256 * GB)
    assert have(looks(), [4] * len(NODES)).gpus == 4


def test_what_fits_and_what_does_not() -> None:
    there = have(looks(), ())
    rows = needs(SEVENTY, there.nodes, there.gpus)
    assert [there.fits(row) for row in rows] == [False, False, True, True, True]
    assert short(rows, there) is None
    assert short(rows, there, 3) is None
    found = short(rows, there, 2)
    assert found is not None
    assert found.what == "the model states do not fit with ZeRO 2"
    assert found.evidence == ("a GPU needs 160 GB of 85 GB, a node 3.36 TB of 2.16 TB",)
    assert [step.text for step in found.steps] == [
        "ZeRO 3, offload: none: fits",
        "ZeRO 3, offload: optimizer: fits",
    ]
    nothing = short(needs(10**14, 8, 8), there)
    assert nothing is not None
    assert nothing.what == "the model states do not fit with any stage of ZeRO"


def test_without_gpus_nothing_is_known_to_fit() -> None:
    there = Have(2, 2, None, 25 * GB)
    assert [there.fits(row) for row in needs(10**9, 2, 2)] == [None] * 5
    assert there.fits(needs(SEVENTY, 2, 2)[0]) is False


@pytest.mark.parametrize(
    ("text", "number"),
    [("70e9", 70 * 10**9), ("7b", SEVEN), ("1.5B", 1_500_000_000), ("350M", 350_000_000), ("125000", 125000)],
)
def test_numbers_of_parameters(text: str, number: int) -> None:
    assert parameters(text) == number


@pytest.mark.parametrize("text", ["", "b", "-7b", "7x", "1e99", "nan", "inf", "0", "7 b b", "\x1b[2J"])
def test_what_is_no_number_of_parameters(text: str) -> None:
    with pytest.raises(CockpitError, match="not a number of parameters") as caught:
        parameters(text)
    assert "\x1b" not in str(caught.value)


def test_the_way_that_a_configuration_chooses() -> None:
    assert zero_of({"zero_optimization": {"stage": 3}}) == (3, "")
    cpu = {"device": "cpu"}
    both = {"zero_optimization": {"stage": 3, "offload_param": cpu, "offload_optimizer": cpu}}
    assert zero_of(both) == (3, "optimizer, params")
    odds: list[object] = [{}, [], {"zero_optimization": 3}, {"zero_optimization": {"stage": 0}}]
    for odd in odds:
        with pytest.raises(CockpitError, match="neither 2 nor 3"):
            zero_of(odd)
