"""``cockpit doctor``: its options, and what it says once."""

from __future__ import annotations

import pytest

from cockpit.cli.verbs import doctor
from cockpit.core.doctor.deep import Rehearsed
from cockpit.core.finding import Finding
from cockpit.errors import CockpitError, Exit


@pytest.mark.parametrize("option", [["--iface", "eth0"], ["--deep-timeout", "60"]])
def test_what_goes_with_deep_alone(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = doctor.main(["-w", "gpu01", *option])
    except SystemExit as ended:
        code = int(str(ended.code))
    except CockpitError as error:
        code = error.code
        print(error)
    told = capsys.readouterr()
    assert code == Exit.USAGE
    assert f"{option[0]} needs --deep" in told.err + told.out


def test_that_torch_is_not_there_is_said_once() -> None:
    done = Rehearsed(("gpu03",), broken={"gpu01": "No module named 'torch'", "gpu02": "it was killed"})
    seen = [Finding("no_torch", "no torch in /usr/bin/python3", nodes=("gpu01",), severity="error")]
    assert doctor._news(done, seen).broken == {"gpu02": "it was killed"}
    assert doctor._news(done, []).broken == done.broken
