"""Which answers belong to which request: each says so by its type, in names that agents do not read."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Dict, NamedTuple, Type, get_args

from cockpit import base
from cockpit.base import answers, checkup_answers, ras, rehearsal_answers, verbs  # noqa: F401 (what the names are in)


class Reply(NamedTuple):
    """The final answer to a request, and the parts before it."""

    answer: Type[Any]
    item: Type[Any]


def _reply(asks: Any) -> Reply:
    (request,) = asks.__orig_bases__
    return Reply(*(attrgetter(name.__forward_arg__)(base) for name in get_args(request)))


REPLIES: Dict[Type[verbs.Request[Any, Any]], Reply] = {asks: _reply(asks) for asks in verbs.VERBS.values()}
"""What answers each request."""
