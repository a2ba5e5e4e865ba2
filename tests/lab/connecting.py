"""Log in from a lab's login node by cockpit's ssh transport alone."""

from __future__ import annotations

from pathlib import Path

from tests.lab.lab import REPO, Lab

CONNECT = f"""
import asyncio, sys
sys.path.insert(0, {str(REPO)!r})
from pathlib import Path
from cockpit.errors import CockpitError
from cockpit.transport.ssh import SshHops, SshOptions

async def main(name, config=None):
    hops = SshHops(SshOptions(config=Path(config) if config else None))
    connection = await hops.connect(name)
    print((await connection.run("whoami")).stdout.strip())
    connection.abort()
    await hops.close()

try:
    asyncio.run(main(*sys.argv[1:]))
except CockpitError as error:
    print(error)
"""


def connect(lab: Lab, name: str, config: Path | None = None) -> str:
    """Who the lab's user is on a node, or why it is nobody.

    :param config: an ssh configuration in place of the user's
    """
    done = lab.run([lab.python, "-c", CONNECT, name, *([config] if config else [])])
    return done.stdout.strip() or done.stderr
