"""Which answers belong to which request: the two halves of the wire's table, joined."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Type

from cockpit.base import verbs
from cockpit.base.answers import (
    DigestAnswer,
    EnvironAnswer,
    FactsAnswer,
    FollowItem,
    LaunchAnswer,
    Nothing,
    PingAnswer,
    PortAnswer,
    ReadAnswer,
    ReadItem,
    ReportsAnswer,
    ResolveAnswer,
    RunsAnswer,
    SamplesItem,
    SeekAnswer,
    SpyAnswer,
    StacksAnswer,
    StacksItem,
    StatusAnswer,
    StopAnswer,
)


class Reply(NamedTuple):
    """The final answer to a request, and the parts before it."""

    answer: Type[Any]
    item: Type[Any] = Nothing


REPLIES: Dict[Type[verbs.Request[Any, Any]], Reply] = {
    verbs.Ping: Reply(PingAnswer),
    verbs.Facts: Reply(FactsAnswer),
    verbs.Port: Reply(PortAnswer),
    verbs.Resolve: Reply(ResolveAnswer),
    verbs.Launch: Reply(LaunchAnswer),
    verbs.Stop: Reply(StopAnswer),
    verbs.Discard: Reply(Nothing),
    verbs.Status: Reply(StatusAnswer),
    verbs.Runs: Reply(RunsAnswer),
    verbs.Follow: Reply(Nothing, FollowItem),
    verbs.Samples: Reply(Nothing, SamplesItem),
    verbs.Environ: Reply(EnvironAnswer),
    verbs.Seek: Reply(SeekAnswer),
    verbs.Spy: Reply(SpyAnswer),
    verbs.Stacks: Reply(StacksAnswer, StacksItem),
    verbs.Reports: Reply(ReportsAnswer),
    verbs.Digest: Reply(DigestAnswer),
    verbs.Read: Reply(ReadAnswer, ReadItem),
}
"""What answers each request."""
