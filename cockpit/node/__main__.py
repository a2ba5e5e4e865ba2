"""The entry point of ``node.pyz``: its first argument says which part to run."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the part named by the first word of argv and return its exit code.

    Each part is imported only when asked for: a node runs one wrapper per rank, which must stay small. An
    unknown word is an error, never a silent success: a launcher may put its own words in front of ours.
    """
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word == "wrap":
        from cockpit.node.run import wrapper

        return wrapper.main(sys.argv[2:])
    if word == "inner":
        from cockpit.node.run import rank_profiler

        return rank_profiler.inner(sys.argv[2:])
    if word == "supervise":
        from cockpit.node.run import supervisor

        return supervisor.main(sys.argv[2:])
    if word == "look":
        from cockpit.node.evidence import taking

        return taking.main(sys.argv[2:])
    if word == "sum":
        from cockpit.node.profile import traces

        return traces.main(sys.argv[2:])
    if word == "nsyssum":
        from cockpit.node.profile import nsys_sum

        return nsys_sum.main(sys.argv[2:])
    if word == "keep":
        from cockpit.node.profile import nsys_keeper

        return nsys_keeper.main(sys.argv[2:])
    if word == "agent":
        from cockpit.node import agent

        agent.main()
        return 0
    sys.stderr.write(
        "cockpit: unknown part %r, expected agent, supervise, look, keep, nsyssum, sum, inner or wrap\n"
        % word
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
