"""Draws what is on the run's screen: the grid, its head and its banners, and the panes that are shown."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from cockpit.base.answers import EnvironAnswer
from cockpit.base.record import rank_environ
from cockpit.core.logs.batches import PATIENCE_S
from cockpit.core.run.failure import blamed
from cockpit.core.run.model import LIVE, Rank, RankState
from cockpit.core.text import one_line
from cockpit.core.time_text import span_text
from cockpit.engine.run.board import Board
from cockpit.engine.run.session import Session
from cockpit.transport.base import LinkError
from cockpit.tui.command_screen import CommandScreen, entitle
from cockpit.tui.error_reporting import explained
from cockpit.tui.logs.view import LogView
from cockpit.tui.look.units import SIZES
from cockpit.tui.pace.pane import PacePane
from cockpit.tui.pace.strip import strip_height
from cockpit.tui.pace.view_model import STRETCHES, WHOLE, Sight
from cockpit.tui.panes.banner import Banner
from cockpit.tui.run import notices
from cockpit.tui.run.actions import Deeds
from cockpit.tui.run.command_list import CommandList
from cockpit.tui.run.detail import Detail
from cockpit.tui.run.detail_paper import About, Part
from cockpit.tui.run.event_list import EventList
from cockpit.tui.run.failure_banner import FailureBanner
from cockpit.tui.run.grid_lines import Mark
from cockpit.tui.run.narrowed import Narrowed
from cockpit.tui.run.nccl_output import NcclSaid
from cockpit.tui.run.rank_grid import RankGrid
from cockpit.tui.run.stall import standing, stands_still
from cockpit.tui.run.stall_banner import StallBanner
from cockpit.tui.run.tabs import FRAME, Tabs
from cockpit.tui.run.top_bar import Head, TopBar


class Environs:
    """What is known of each rank's environment.

    :param recorded: the run is looked at from disk: no node is asked
    """

    def __init__(self, session: Session, *, recorded: bool) -> None:
        self._session = session
        self._recorded = recorded
        self._known: dict[tuple[int, int], EnvironAnswer | str] = {}
        """By rank and attempt; or why it is not known."""
        self._asked: set[tuple[int, int]] = set()

    def of(self, rank: Rank) -> EnvironAnswer | str | None:
        """What is known, or why it is not; None: it was not asked for, or there is no answer yet."""
        return self._known.get((rank.rank, rank.attempt))

    def wants(self, rank: Rank) -> bool:
        """Whether to :meth:`fetch` it: once per process, since what it was started with stays."""
        key = rank.rank, rank.attempt
        if key in self._asked or rank.state in (RankState.WAITING, RankState.STARTING):
            return False
        if self._recorded and self._session.manifest.foreign:
            self._known[key] = "it was not copied while the process was alive"
        elif self._recorded:
            path = f"{self._session.dir(rank.node)}/{rank_environ(rank.rank)}"
            self._known[key] = f"not copied here; {rank.node} may still have it: {path}"
        elif self._session.model.nodes[rank.node].link == "ok":
            self._asked.add(key)
            return True
        return False

    async def fetch(self, rank: Rank) -> None:
        """Ask its node."""
        node, key = rank.node, (rank.rank, rank.attempt)
        try:
            answer = await self._session.ask(node, self._session.source.environ_of(rank))
            self._known[key] = answer
        except Exception as error:
            self._known[key] = one_line(explained(error).what, limit=300)
            if isinstance(error, LinkError):
                self._asked.discard(key)  # asked again when the link is back


LAG_BYTES = 256 << 10
"""From this many outstanding bytes of logs, we are behind and not just polling."""


def _is_shown(pane: Widget) -> bool:
    """Whether a pane is on the screen, or will be once that is laid out: then it has its lines at once."""
    return all(node.display for node in pane.ancestors_with_self if isinstance(node, Widget))


@dataclass
class Drawing:
    """Draws one run, from its board.

    :param recorded: the run had ended before the screen opened: nothing is live
    :param frozen: nothing is drawn but the notice that says so
    :param stretch: how much of the past the pane of pace shows: a place in its stretches
    """

    screen: CommandScreen
    board: Board
    session: Session
    deeds: Deeds
    recorded: bool
    frozen: bool = False
    stretch: int = 0

    def __post_init__(self) -> None:
        self._ranks_of = {node.name: node.ranks for node in self.board.manifest.nodes}
        self._environs = Environs(self.session, recorded=self.recorded)
        self._nccl = NcclSaid(self.session, self.screen.app.config.language)
        self._behind = notices.Since()
        self.narrowed = Narrowed(self.screen, self.board)
        self._notice = notices.Notice(self.board, self.session, self.screen.app.keys, recorded=self.recorded)

    @property
    def _past(self) -> bool:
        """Whether what is drawn is over; a moment of the past is drawn as it was."""
        return self.recorded and self.board.moment is None

    @property
    def _grid(self) -> RankGrid:
        return self.screen.query_one(RankGrid)

    @property
    def _log(self) -> LogView:
        return self.screen.query_one(LogView)

    # What changes quickly

    def quickly(self) -> None:
        """The grid and the log, if there is anything new in them."""
        app, new = self.screen.app, False
        with app.contained():
            new = self.board.flush(time.time(), wait_s=PATIENCE_S)
        if self.frozen:
            return
        changed = self.board.take_changed()
        if changed:
            with app.contained():
                self.narrowed.draw(changed, self.board.now)
        if new:
            self._log.refresh_log()

    # What changes slowly, and what ages

    def draw_grid(self, now: float) -> None:
        """Nodes and ranks."""
        board = self.board
        self._grid.missing, self._grid.held = (
            (frozenset(), frozenset()) if self._past else standing(board.model)
        )
        ended = self._past or board.model.over
        self._grid.pace, self._grid.ended = board.pace, ended
        self._grid.dead = frozenset(
            number for number, rank in board.model.ranks.items() if rank.state not in LIVE
        )
        self._grid.slow = frozenset(() if ended else (slow.rank for slow in board.pace.slow()))
        self.narrowed.draw(None, now)

    def draw_head(self, now: float) -> None:
        """The top line and the banners."""
        board = self.board
        head = Head(
            board.folder.name,
            board.model,
            board.metrics,
            board.manifest.created,
            now,
            self._past,
            board.pace,
            board.starting(now),
        )
        low = self.screen.has_class("-low")
        self.screen.query_one(TopBar).show(head)
        for each in self.screen.query(Banner):
            each.acts = board.moment is None
        self.screen.query_one(StallBanner).show(board.model, now, low=low)
        if self._nccl.due(seldom=True):
            self.screen.run_worker(self._nccl.read(), group="nccl")
        said = self._nccl.notable if self.screen.app.config.notices.nccl else ()
        beside = [*self._nccl.tests, *said]
        banner = self.screen.query_one(FailureBanner)
        banner.show(board.model, board.model.judged, self.session.stops_at, now, beside)
        self._title_grid()

    def _title_grid(self) -> None:
        """How many nodes and ranks; a filter hides some, so it must be noticeable."""
        head, named = f"{self.screen.app.key_of('nodes')} nodes", self._named()
        room = self._grid.outer_size.width - FRAME - cell_len(f"{head} {named}")
        counts = self.narrowed.counts
        entitle(self._grid, head, next((one for one in counts if len(one) <= room), counts[-1]) + named)
        text = one_line(self.narrowed.text, limit=30)
        kept = Content.styled(f" /{text}/ ", "bold reverse") if text else Content("")
        if self._grid.border_subtitle != kept.markup:
            self._grid.border_subtitle = kept

    def narrow_grid(self, text: str) -> None:
        """Show only the nodes and ranks that a text means.

        :raises CockpitError: it means nothing
        """
        self.narrowed.narrow(text)
        self._title_grid()

    def _named(self) -> str:
        """Who is marked in the grid, also where its row is not on the screen."""
        marked = self._grid.missing or self._grid.slow
        if not marked:
            return ""
        who = f"rank {min(marked)}" if len(marked) == 1 else f"{len(marked):,} ranks"
        return f" · {self.screen.app.glyphs.look} {who}"

    def draw_panes(self, chosen: Mark | None, now: float) -> None:
        """The panes that are on the screen.

        :param chosen: whom they are about, if anybody was chosen
        """
        query = self.screen.query_one
        about = chosen or self._grid.selected or self.odd or self._grid.first
        for name in ("glance", "detail"):
            pane = query(f"#{name}", Detail)
            if about is not None and _is_shown(pane):
                self._show_detail(pane, *about, now=now)
        for name in ("recent", "events"):
            events = query(f"#{name}", EventList)
            if _is_shown(events):
                events.show(self.board.timeline.entries)
        pace, tabs = query(PacePane), query(Tabs)
        sight = self._pace(now, None if about is None else about[1])
        tabs.strip(bool(sight.tall))
        if sight.tall or _is_shown(pace):
            pace.show(sight)
        commands = query(CommandList)
        if _is_shown(commands):
            commands.show(self.deeds.ran)

    def _pace(self, now: float, chosen: int | None) -> Sight:
        board = self.board
        ended = board.pace.last_at if self._past or board.model.over else None
        app, screen = self.screen.app, self.screen
        failed = blamed(board.model, board.model.judged)
        sight = Sight(
            board.pace,
            board.metrics,
            self._ranks_of,
            now if ended is None else ended,
            chosen,
            every=screen.has_class("-zoom-right"),
            stretch=tuple(STRETCHES)[self.stretch],
            plain=self._plain,
            ascii_only=app.glyphs.ascii,
            missing=self._grid.missing,
            stalled=not self._past and stands_still(board.model),
            saves=[*self.session.saves, *board.saves],
            dead=self._grid.dead,
            failed=failed.rank if failed is not None and failed.rank in self._grid.dead else None,
            left=board.metrics.time_left(now) if ended is None else None,
            ended=ended is not None,
        )
        if screen.on_the_right != "log":
            return sight
        narrow = screen.has_class("-narrow")
        if not narrow and board.book.lines and board.starting(now):
            age = span_text(max(0.0, now - board.manifest.created))
            sight = replace(sight, doing=(f"starting, {age} after the launch", *board.doing(now)))
        tall = strip_height(sight, screen.size.height, narrow=narrow)
        return replace(sight, tall=tall, stretch=WHOLE)

    @property
    def _plain(self) -> bool:
        """Whether colours do not tell enough."""
        app = self.screen.app
        return app.no_color or app.current_theme.ansi

    @property
    def odd(self) -> Mark | None:
        """Who failed first, or holds up the others, or slows them most; None: nobody does."""
        model = self.board.model
        first = blamed(model, model.judged)
        if first is None and self._grid.missing:
            first = model.ranks.get(min(self._grid.missing))
        slow = () if self._past or model.over else self.board.pace.slow()
        if first is None and slow:
            first = model.ranks.get(slow[0].rank)
        return None if first is None else (first.node, first.rank)

    def _show_detail(self, pane: Detail, node: str, rank: int | None, *, now: float) -> None:
        board = self.board
        process = None if rank is None else board.model.ranks[rank]
        if pane.id == "glance":
            entitle(pane, "", f"rank {rank}" if process is not None else node)
        else:
            if process is not None and self._environs.wants(process):
                self.screen.run_worker(self._environs.fetch(process), group="environ")
            if self._nccl.due():
                self.screen.run_worker(self._nccl.read(), group="nccl")
        environ = None if process is None else self._environs.of(process)
        log = "" if process is None else self.session.source.log_place(process)
        part = self._part(pane)
        more = self.screen.app.key_of("detail") if pane.id == "glance" and part is Part.ALL else ""
        pane.show(
            About(
                node,
                rank,
                board.model,
                board.trends,
                board.metrics,
                board.entry(node),
                board.plan(node),
                environ,
                now,
                log,
                board.pace,
                board.pages.named,
                part,
                more,
                SIZES[self.screen.app.units],
                plain=self._plain,
                nccl=self._nccl.table,
                nccl_wrong=[*self._nccl.tests, *self._nccl.wrong],
            )
        )

    def _part(self, pane: Detail) -> Part:
        """What a pane shows: beside the tab, the small pane leaves it what stays, and is drawn before it."""
        query = self.screen.query_one
        glance = query("#glance", Detail)
        if not (_is_shown(glance) and _is_shown(query("#detail", Detail))):
            return Part.ALL
        if pane is glance:
            return Part.NOW
        return Part.REST if len(glance.lines) <= glance.size.height else Part.ALL

    def measure_lag(self, now: float) -> None:
        """How long we have been behind the nodes' logs, if it is worth mentioning."""
        behind = sum(self.session.behind.values())
        self._log.behind_s = self._behind.tell(behind >= LAG_BYTES, now)

    def say_what_is_waited_for(self, now: float) -> None:
        """An empty log says what the run is doing."""
        if not self._log.empty:
            return
        text = notices.waiting_text(self.board, now, recorded=self._past)
        if text != self._log.empty_text:
            self._log.empty_text = text
            self._log.refresh()

    def draw_notice(self) -> None:
        """One line that stays: trouble here, a recorded run, a frozen display."""
        trouble = self.deeds.trouble
        self.screen.query_one("#notice").set_class(trouble is not None, "-trouble")
        self.screen.draw_notice(self._notice.text(trouble, frozen=self.frozen))
