"""Every state is drawn as it was designed: as a text snapshot, or with the words that matter."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.tui.pictures import PICTURES, ROOT, SMALL, SNAPSHOTS, as_designed, file_of, page
from tests.tui.scenes import SCENES, played, text_of, until

SAYS = {
    "ended": ("✓ ended", "ranks 0-63 exited 0", "q close"),
    "launching": ("◌ starting", "ranks 0/64", "gpu05 ◌◌◌◌ ◌◌◌◌"),
    "finalising": ("◌ finalising", "gpu05 ■■■■ ■■■■", "gpu[01-08]: finalising the report"),
    "stale": ("● running", "link gpu06 stale 14 s"),
    "logged-out": ("link gpu01 stale 40 s +2", "gpu[01-03]: login required again · r logs in", "r try again"),
    "back": ("● running", "links ok"),
    "disk-fails": ("watching paused: cannot write the spool: Input/output error", "r try again"),
    "recorded": ("✓ ended", "RECORDED RUN · it ended 2026-11-21 04:04:36", "nothing here is live"),
    "rank-chosen": ("▌ gpu02", "[INFO] [logging.py:96:log_dist] [Rank 0] step=1216", "esc back"),
    "phases-4": ("age   work        phases", "+80 % ▇▇▇▇▇▇▇▇▇▇"),
    "pace-half": ("512 ranks slow", "gpu[097-128] 768…1022", "z all 1,024 ranks"),
    "pace-log-only": ("loss", "▌gpu01   0-7", "~0.0 s", "z all 64 ranks"),
    "pace-unknown": ("no steps known yet", "--probe auto, the default"),
    "stalled-log": (
        "● stalled 48 s",
        "rank 13 has not reached all_reduce #4211",
        "gpu02 ○○○○ ○▲○○",
        "S its stacks",
    ),
    "no-step": ("no step for 48 s · in evaluate.py:31", "inspecting again at 04:05:09"),
    "filtered": ("loss 2.332", "/ loss 2.3", "enter keeps · esc clears"),
    "frozen": ("FROZEN · the display is paused, the run continues · p resumes", "frozen · 90 lines"),
    "palette": ("go to", "x            stop the run", "enter runs it · esc closes"),
    "login-password": ("password for ada@gpu01", "then on gpu[02-08]", "••••••"),
    "foreign": ("20261121-0412-heron", "[0-15]", "/ filter  enter open  s stacks  P profile  ? all keys"),
    "foreign-silent": (
        "no output here: each rank writes to a terminal (pts/4)",
        "to a file: … >train.log 2>&1",
    ),
    "foreign-gone": ("? ended", "ranks 0-15 gone", "gpu01 ???? ????", "q close"),
}
"""What a small terminal shows of states that are kept as no picture."""


async def drawn(name: str, size: tuple[int, int]) -> str:
    async with played(SCENES[name], size) as (app, _, _):
        return text_of(app)


@pytest.mark.few(5)
@pytest.mark.parametrize("name", [name for name in SCENES if name in PICTURES])
def test_it_looks_as_designed(name: str, tmp_path: Path) -> None:
    # Folders of this test's own are not the same twice.
    as_designed(name, asyncio.run(drawn(name, PICTURES[name])).replace(str(tmp_path), "/home/ada"))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [name for name in SCENES if name not in PICTURES])
def test_it_says_what_matters(name: str) -> None:
    shown = asyncio.run(drawn(name, SMALL))
    assert [words for words in SAYS[name] if words not in shown] == [], shown


def test_every_snapshot_is_of_a_picture() -> None:
    assert set((ROOT / SNAPSHOTS).iterdir()) == {file_of(name) for name in PICTURES}
    assert not SAYS.keys() & PICTURES.keys()


def test_what_changed_in_a_snapshot_is_shown_beside_what_it_was() -> None:
    shown = page({"a": "one\n<two>\n", "b": "same"}, {"a": "one\nthree\n", "b": "same"})
    assert (
        "<td><pre>one\n<mark>&lt;two&gt;</mark></pre></td><td><pre>one\n<mark>three</mark></pre></td>"
        in shown
    )
    assert "same" not in shown


@pytest.mark.few(1)
@pytest.mark.parametrize(("size", "says"), [((49, 24), "50 x 12"), ((80, 11), "50 x 12"), ((50, 12), "")])
def test_a_terminal_too_small_says_so(size: tuple[int, int], says: str) -> None:
    async def main() -> str:
        async with played(SCENES["running"], size) as (app, _, _):
            return text_of(app)

    shown = asyncio.run(main())
    assert ("is too small for cockpit" in shown) == bool(says)
    assert says in shown


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "left"), [(140, 47), (200, 60), (300, 90)])
def test_a_wide_screen_gives_the_left_column_its_share(width: int, left: int) -> None:
    async def main() -> None:
        async with played(SCENES["running"], (width, 50)) as (app, pilot, _):
            await until(pilot, lambda: app.screen.query_one("#left").size.width == left, "its share")
            await until(pilot, lambda: "mem 59 %" in text_of(app), "what nodes have alike is said")
            await until(
                pilot, lambda: "last step  1,216" in text_of(app), "what is known of the rank is there"
            )

    asyncio.run(main())
