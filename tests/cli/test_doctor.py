"""``cockpit doctor``: its options, and what it says once."""

from __future__ import annotations

import json

import pytest

from cockpit.cli.verbs import doctor
from cockpit.core.doctor.deep import Rehearsed
from cockpit.core.doctor.diagnosis import diagnosis
from cockpit.core.finding import Finding
from cockpit.core.rules.table import table
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.errors import CockpitError, Exit
from tests.core.doctored import disk, looks


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


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_a_finding_means_and_what_to_type_is_said_in_the_language_that_was_chosen(
    lang: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = looks({3: disk("/dev/shm", total_bytes=64 << 20, free_bytes=64 << 20)})

    async def examined(*_: object) -> tuple[Diagnosis, None]:
        return Diagnosis(full, diagnosis(full)), None

    monkeypatch.setattr(doctor, "_examine", examined)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8" if lang == "zh" else "C.UTF-8")
    row = table().by_id["shm-full"]
    assert doctor.main(["-w", "gpu01"]) == Exit.RANK_FAILED
    assert capsys.readouterr().out.splitlines()[:5] == [
        "warning: gpu03: /dev/shm: 67.1 MB free of 67.1 MB",
        f"    {row.meaning(lang)}",
        *(f"    → {step.text}" for step in row.steps(lang)),
    ]
    doctor.main(["-w", "gpu01", "--json"])
    (told,) = json.loads(capsys.readouterr().out)["findings"]
    assert (told["rule"], told["meaning"]) == (row.id, row.meaning(lang))
