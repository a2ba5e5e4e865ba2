"""``cockpit run HOSTFILE -- script``: launch on every node and watch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from cockpit import config, paths
from cockpit.cli import launch_options, reporting, terminal
from cockpit.cli.awaiting import Telling
from cockpit.cli.ctrl_c import ask, interruptible
from cockpit.cli.live import Live
from cockpit.cli.output import say
from cockpit.cli.parsing import GIVE_UP, Parser, add_flag, add_seconds, add_word, reach
from cockpit.cli.plain import Output, watch
from cockpit.cli.verbs.collect import fetch
from cockpit.core.doctor.diagnosis import told
from cockpit.core.ranks import nodes_text
from cockpit.core.text import counted
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.launch.prepare import Times
from cockpit.engine.launch.start import Wanted, start
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.plans.launch import PER_NODE
from cockpit.plans.nodes.sources import filled
from cockpit.plans.plan import build_plans
from cockpit.transport.base import UnknownHostKey


def main(words: list[str], leaving: str = "") -> int:
    """Launch, watch, and collect at the end of a profiled run.

    :param leaving: what leaving means, if not that the run continues
    """
    launch = launch_options.parse(parser(), words)
    if launch.note:
        say(launch.note)
    config.load()
    # Errors in settings or job are reported before any node is asked, such as for its slots.
    build_plans(replace(launch.job, hosts=filled(launch.job.hosts, 1)))
    if (paths.runs() / launch.job.run).exists():
        raise CockpitError("a run of that name exists here", where=launch.job.run, hint="use another --name")
    args = launch.args
    stalls = terminal.watch_options(args, launch.job.launcher)
    if terminal.wanted(plain=args.plain, headless=args.headless, json=args.json):
        from cockpit.tui.run.purpose import Launching

        collects = bool(launch.job.profiler) and not args.no_collect
        flight = Launching(request(launch), collects, leaving, stalls)
        code = terminal.fly(flight, read_only=args.read_only, theme=args.theme, notify=args.notify)
        _report(launch, leaving)
        return code
    times = Times(args.grace, args.finalise_wait)
    output = Output(
        args.json,
        args.headless,
        launched=True,
        give_up_s=args.give_up,
        leaving=leaving,
        times=times,
        stalls=stalls,
        notify=args.notify,
    )
    code = asyncio.run(_run(launch, output))
    _report(launch, leaving)
    return code


def _report(launch: launch_options.LaunchOptions, leaving: str) -> None:
    """Let the run have its report, unless its folder goes with whoever leaves it."""
    path = paths.runs() / launch.job.run
    if not leaving and path.exists():
        asyncio.run(reporting.at_end(RunFolder(path), asked=launch.args.report))


def parser() -> Parser:
    made = launch_options.parser(
        "run",
        "Launch on every node of a hostfile and watch. Leaving never stops the run.",
        "--name --profile --on-failure --headless --notify",
    )
    group = made.add_argument_group("run")
    group.add_argument(
        "--on-failure",
        choices=("stop", "wait"),
        default="stop",
        help="after a rank's recorded failure: stop the rest (default), or wait for it to end",
    )
    add_seconds(
        group, "--failure-wait", 30.0, "seconds between reporting the failure and the stop (default: 30)"
    )
    add_seconds(group, "--grace", 30.0, "when stopping: seconds from SIGTERM to SIGKILL (default: 30)")
    add_seconds(group, "--finalise-wait", 600.0, "seconds for a profiler to write its report (default: 600)")
    add_seconds(group, "--give-up", 600.0, GIVE_UP)
    add_word(
        group, "--node-dir", "DIR", "parent of the run folders on the nodes (default: their $TMPDIR or /tmp)"
    )
    add_flag(group, "--no-preflight", "skip the check of the nodes; see: cockpit doctor --help")
    add_flag(
        group,
        "--git-diff",
        "save the diff of tracked files at launch (at most 1 MB) for report and compare; else only its hash",
    )
    add_flag(group, "--no-collect", "leave a profiled run's reports on the nodes")
    terminal.add_options(made)
    return made


async def _run(launch: launch_options.LaunchOptions, output: Output) -> int:
    args, job = launch.args, launch.job
    stages = _Stages(output)
    try:
        with interruptible(lambda: _interrupted(job.run)):
            session = await start(request(launch), stages)
    except BaseException as error:
        await stages.stop()
        stages.close()
        raise (stages.untold(error) if isinstance(error, CockpitError) else error) from None
    await stages.stop()
    try:
        manifest = session.folder.manifest
        own = job.launcher == PER_NODE
        what = counted(len(manifest.world), "program" if own else "rank")
        say(f"{session.folder.name}: {what} on {counted(len(manifest.nodes), 'node')} starting")
        if own:
            say(f"they start their own ranks: cockpit stacks {session.folder.name} shows them")
        code = await watch(session, stages.live, output)
        if job.profiler and code != Exit.LEFT and not args.no_collect:
            outcome = await fetch(session.folder, session.pool, as_json=args.json)
            code = max(code, outcome) if code == Exit.OK else code
        return code
    finally:
        await session.close()


def _interrupted(run: str) -> CockpitError:
    """What to say after an interrupted start; its folder shows whether everything was undone."""
    if (paths.runs() / run).exists():
        what, hint = "interrupted: it may be running on some nodes", f"to stop it there: cockpit stop {run}"
    else:
        what, hint = "interrupted: nothing was started", ""
    return CockpitError(what, where=run, hint=hint, code=Exit.LEFT)


def request(launch: launch_options.LaunchOptions) -> Wanted:
    """What the command line asks to launch."""
    args = launch.args
    return Wanted(
        launch.job,
        launch.hostfile,
        reach(args),
        args.node_dir,
        Times(args.grace, args.finalise_wait),
        args.on_failure,
        args.failure_wait,
        launch.command,
        not args.no_preflight,
        args.report,
        args.git_diff or config.load().git_diff,
    )


class _Stages:
    """Reports the progress of a start on stderr."""

    live: Live

    def __init__(self, output: Output) -> None:
        self._output = output
        self._started = time.monotonic()
        self._roll = Roll()
        self._telling: Telling | None = None

    def connecting(self, roll: Roll) -> None:
        say(f"connecting to {counted(roll.total, 'node')}: {nodes_text(roll.awaited)}")
        self._roll = roll
        if self._telling is None:
            self._telling = Telling(lambda: self._roll)

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        if not self._output.asks:
            return False
        for key in keys:
            say(f"{key.where}: host key is not known: {key.key.split()[0]} {key.fingerprint}")
        answer = await ask(
            f"Trust {'it' if len(keys) == 1 else f'all {len(keys)}'} from now on? [y] yes · [Enter] no? "
        )
        return answer in ("y", "yes")

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        ready = counted(len(self._roll.answered), "node")
        say(f"{ready} ready after {time.monotonic() - self._started:.1f} s")
        for note in [*notes, *told(preflight.findings)]:
            say(note)

    def listener(self, folder: RunFolder) -> Live:
        self.live = Live(folder.manifest, json=self._output.json, leaving=self._output.leaving)
        return self.live

    def untold(self, error: CockpitError) -> CockpitError:
        """The part of an error not reported yet: errors of nodes were reported as they arrived."""
        told = set() if self._telling is None else self._telling.told
        errors = error.errors if isinstance(error, ManyErrors) else (error,)
        rest = [each for each in errors if str(each) not in told]
        if len(rest) == len(errors):
            return error
        failed = f"{len(self._roll.failed)} of {counted(self._roll.total, 'node')} failed"
        if (late := len(errors) - len(self._roll.failed)) > 0:
            failed += f", {late} had not answered yet"
        return ManyErrors([*rest, CockpitError(f"nothing was started: {failed}", code=error.code)])

    async def stop(self) -> None:
        """Stop reporting."""
        if self._telling is not None:
            await self._telling.stop()

    def close(self) -> None:
        """Print any output that a failed start still holds."""
        if hasattr(self, "live"):
            self.live.close()
