"""Watch a session in text (``--plain``, or in a pipe): live lines on stdout, narration on stderr."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from functools import partial

from cockpit import config
from cockpit.base.events import Left
from cockpit.base.shell import quote
from cockpit.cli import heap
from cockpit.cli.awaiting import Telling
from cockpit.cli.ctrl_c import Asks
from cockpit.cli.live import TICK_S, Live
from cockpit.cli.merged import Missed
from cockpit.cli.narration import mute, say_left
from cockpit.cli.nccl_tests import at_end
from cockpit.cli.output import ring, say
from cockpit.cli.since_good import since_good
from cockpit.cli.unattended_stop import REACH_HARD_S, REACH_S, Ending, leave_soon
from cockpit.core.ranks import nodes_text
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.watch.options import WatchOptions
from cockpit.engine.calls.caller import Caller, ways
from cockpit.engine.evidence_fetcher import keep_evidence
from cockpit.engine.launch.prepare import Times
from cockpit.engine.links.roll import Roll
from cockpit.engine.logs.last_words import last_cause
from cockpit.engine.profile.known import note_profiles
from cockpit.engine.run.session import Session
from cockpit.engine.watching import watch_stalls
from cockpit.engine.work_sampler import watch_works
from cockpit.errors import CockpitError, Exit
from cockpit.transport.login_prompts import DESK


@dataclass
class Output:
    """Where a watched session goes.

    :param json: an event stream on stdout instead of live lines
    :param headless: nobody is watching
    :param launched: this command launched the run: if nobody is watching, SIGTERM stops it
    :param give_up_s: how long to wait for lost links when all other nodes have ended
    :param leaving: what leaving means, if not that the run continues
    :param times: of a stop, as the run was started with
    :param stalls: how the run's progress is watched
    :param fold: fold similar lines of many ranks into one
    :param notify: the command that gets calls; None: that of the settings
    :param since: what happened before is no reason to call: unix seconds
    """

    json: bool = False
    headless: bool = False
    launched: bool = False
    give_up_s: float = 600.0
    leaving: str = ""
    times: Times = field(default_factory=Times)
    stalls: WatchOptions = field(default_factory=WatchOptions)
    fold: bool = True
    notify: str | None = None
    since: float = 0.0

    @property
    def asks(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty() and not self.headless


async def watch(
    session: Session, live: Live, output: Output, roll: Roll | None = None, missed: Missed | None = None
) -> Exit:
    """Watch until the run has ended or the person leaves; print the summary; return the exit code.

    :param roll: for a session without links yet: report pending nodes until each has been heard from once
    :param missed: the listener that prints first what nobody has seen; None: ``live`` is the listener
    """
    # A job that others started is only left: there is nothing to ask.
    ours = session.manifest.foreign is None
    asks = Asks(
        person=output.asks and ours,
        term="stop" if output.headless and output.launched else "leave",
        leaving=output.leaving,
        waiting=lambda: session.pool.waiting,
    )
    asks.install()
    session.watch()
    heap.settle()
    session.stand_by()
    watch_works(session)
    watch_stalls(session, output.stalls)
    note_profiles(session)
    keeper = keep_evidence(session)
    _call_from(session, output)
    if missed is not None:
        # A question that nobody answers does not outlast the run.
        missed.start(session, lambda: (asks.asking or DESK.asking) and not session.model.done)
    printed = time.monotonic()
    ending: Ending | None = None
    teller = Telling(lambda: roll, failures=False) if roll is not None else None
    waiting: list[str] = []
    logged_out: list[str] = []
    try:
        while not ((through := missed is None or missed.through()) and session.model.done):
            await session.wait(TICK_S)
            if teller is not None and roll is not None and not roll.awaited:
                await teller.stop()
                teller = None
            if through and session.model.over and (waiting := _waiting(session)):
                why = session.paused[waiting[0]]
                say(f"run finished, but logs of {nodes_text(waiting)} haven't been fetched: {why}")
                say(f"to fetch them once there is space: cockpit attach {quote(session.folder.name)}")
                break
            if ending is not None:
                ending.look()
                if output.headless and (left := ending.given_up()):
                    return _abandon(session, live, output, left)
            # A stop that nobody is there to follow has a deadline of its own, and says what it leaves.
            stopping = ending is not None and output.headless
            if through and not stopping and (given_up := _given_up(session.model, output.give_up_s)):
                lost = f"{nodes_text(given_up)} unreachable for {output.give_up_s:g} s"
                say(f"{lost}; every other node has finished")
                say(f"to check again: cockpit attach {quote(session.folder.name)}")
                break
            logged_out = _say_logged_out(session, logged_out, output)
            if time.monotonic() - printed >= TICK_S and not asks.asking and not DESK.asking:
                live.tick()
                printed = time.monotonic()
            answer = asks.take()
            if answer == "login":
                session.pool.again()
            if answer == "leave":
                if ending is not None and output.headless:
                    return _abandon(session, live, output, ending.left())
                live.close()
                return leave(session, output.leaving)
            if answer in ("stop", "kill"):
                reason = "asked at the terminal" if output.asks else "SIGTERM to the cockpit"
                hard = answer == "kill"
                reach_s = min(REACH_HARD_S if hard else REACH_S, output.give_up_s)
                ending = Ending(session, reason, output.times, reach_s, hard=hard)
        if keeper is not None and session.model.over:
            await keeper.settled()
        await session.concluded()
    except OSError:
        if not mute():
            raise
        return leave(session, output.leaving)
    except CockpitError:
        leave(session, output.leaving)  # our own trouble (a full disk here) does not concern the run
        raise
    finally:
        asks.remove()
        if teller is not None:
            await teller.stop()
        if missed is not None:
            await missed.stop()
        live.close()
    code = session.model.exit_code()
    if waiting and code is Exit.OK:
        code = Exit.USAGE
    live.over(session.model, session.folder.name, code, last_cause(session.model, session.folder))
    for line in at_end(session.folder, session.model):
        if not output.json:
            say(line)
    if code in (Exit.RANK_FAILED, Exit.HUNG) and not output.json:
        for line in since_good(session.folder.name):
            say(line)
    return code


def _call_from(session: Session, output: Output) -> None:
    """Call a person when the run fails, stands still, or is over."""
    settings = config.load()
    chosen = ways(output.notify, settings)
    rings = partial(ring, bell=settings.bell)
    Caller(session, chosen, rings, say, since=output.since, leaves=output.headless).start()


def _say_logged_out(session: Session, before: list[str], output: Output) -> list[str]:
    """Say which nodes wait for a person to log in, if those are not the same as before; return them."""
    found = session.pool.waiting
    if found and found != before and not DESK.asking:
        run = quote(session.folder.name)
        how = "Ctrl-C, then r" if output.asks else f"on a terminal, cockpit attach {run}"
        say(f"{nodes_text(found)}: login required again ({how})")
        return found
    return before if found else []


def _abandon(session: Session, live: Live, output: Output, left: list[str]) -> Exit:
    """End although the run has not: say what goes on where."""
    if output.json:
        live.over(session.model, session.folder.name, Exit.NODE_UNFIT)
    live.close()
    for line in left:
        say(line)
    leave_soon(Exit.NODE_UNFIT)
    return Exit.NODE_UNFIT


def _waiting(session: Session) -> list[str]:
    """Nodes whose logs do not fit here, once nothing else is left to wait for."""
    left = [name for name, node in session.model.nodes.items() if not node.done]
    return left if all(name in session.paused for name in left) else []


def _given_up(model: RunModel, after_s: float) -> list[str]:
    """Nodes without a link for too long, once nothing else is left to wait for."""
    waiting = [node for node in model.nodes.values() if not node.done]
    since = time.time() - after_s
    if all(node.link in ("stale", "gone") and node.link_since < since for node in waiting):
        return [node.name for node in waiting]
    return []


def leave(session: Session, leaving: str = "") -> Exit:
    """Say what leaving meant, and how to come back."""
    if session.writer:
        try:
            session.folder.write(Event(time.time(), "", Left()))
        except CockpitError as error:
            say(str(error))
    say_left(session.folder, session.model, leaving, controlled=session.writer)
    return Exit.LEFT
