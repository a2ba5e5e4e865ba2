"""Answers that a login needs from a person: who is asked, for what, how often, and what is kept of it.

A wrong answer counts towards a lock-out, so what a person types is tried at one machine first, and after a
refusal nobody is asked, and nothing is tried, until a person says so. A password is kept in this process, a
one-time code never: it is asked again for each login that needs one.

Sources: OpenSSH 9.2 (``NumberOfPasswordPrompts``, ``BatchMode``); RFC 4256 (keyboard-interactive).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from cockpit.core.text import one_line
from cockpit.transport.base import LinkError, NoLogin

Kind = Literal["password", "code"]

PROVEN_S = 30.0
"""A password that was accepted no longer ago than this is used at many machines at once."""

GATHER_S = 0.3
"""Before the first question about many nodes: so long others may turn up that wait for the same answer."""

VERDICT_S = 120.0
"""A server may take as long to make up its mind: it waits for a button on somebody's phone (as sshd does)."""

MOST_PROMPTS = 8
"""Of one challenge; a person fills in two."""

PROMPT_CHARS, TOLD_CHARS, TOLD_LINES = 100, 300, 6
"""What is shown of a server's prompt, of a line that it tells, and how many of those."""

_PASSWORD = re.compile(r"\bpassword\b", re.IGNORECASE)
_NO_PASSWORD = re.compile(r"one.?time|otp|code|token|verif|new|again|current|old|expire", re.IGNORECASE)


@dataclass(frozen=True)
class Prompt:
    """One thing that a server wants typed.

    :param text: the server's own, harmless to show
    :param echo: whether it may be seen while it is typed
    """

    text: str
    echo: bool = False


@dataclass(frozen=True)
class Challenge:
    """What one server asks of a person.

    :param hop: whose login it is: ``user@host`` or ``user@host:port``
    :param kind: a ``password``, which is kept until cockpit ends, or a ``code``, which is used once
    :param prompts: one or more
    :param told: what the server says before that: lines, harmless to show
    :param of: the jump host that it is, and for which node; or the node; in words
    :param waiting: the other nodes that wait for this answer, or for one of their own: as of now
    :param number: how many such questions were answered before
    :param refused: what came of the answer before; empty: there was none
    """

    hop: str
    kind: Kind
    prompts: tuple[Prompt, ...]
    told: tuple[str, ...] = ()
    of: str = ""
    waiting: Callable[[], Sequence[str]] = field(default=tuple)
    number: int = 0
    refused: str = ""
    does: ClassVar[str] = "log in"

    @property
    def title(self) -> str:
        """The question in a few words."""
        return f"{'password' if self.kind == 'password' else 'login'} for {self.hop}"

    def about(self) -> list[str]:
        """Whose login it is, and what the answer will be used for; of the server's words nothing."""
        from cockpit.core.ranks import nodes_text  # whoever is asked nothing saves 30 ms

        others = list(self.waiting())
        lines = [self.refused] if self.refused else []
        lines.append(f"Logging in to {self.of}.")
        if self.kind == "password":
            first = f"The password is tried there first, then on {nodes_text(others)}. " if others else ""
            lines.append(f"{first}Kept in memory until cockpit exits, never written to disk.")
        elif others or self.number:
            lines.append(f"Each login needs its own code: {self.number} done, {len(others)} after this one.")
        else:
            lines.append("Used once, then discarded.")
        return lines


class Prompter(Protocol):
    """Who asks a person."""

    @property
    def absent(self) -> str:
        """Why nobody can be asked; empty: somebody can."""

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        """The answers, one for each prompt; None: the person gives up on this login.

        It is cancelled when the answer is not wanted any more.
        """


@dataclass
class Nobody:
    """Asks nobody.

    :param absent: why, as the end of a sentence
    """

    absent: str = "nobody can be asked"

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        """See :class:`Prompter`."""
        return None


class NeedsPerson(LinkError):
    """A login goes on only after a person says so: nothing tries it again by itself."""

    def __init__(self, what: str, *, where: str, hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, retry=False)


_Group = tuple[str, ...]


@dataclass(frozen=True)
class _AcceptedPassword:
    """A password that was accepted."""

    password: str = field(repr=False)
    at: float
    """When (monotonic seconds)."""
    where: str
    """By whom, first."""


class Desk:
    """What the logins of one cockpit share: the person, the passwords that were accepted, what was refused.

    :param prompter: asks the person; whoever has the terminal may put its own here
    """

    def __init__(self, prompter: Prompter | None = None) -> None:
        self.prompter: Prompter = prompter or Nobody()
        self.asking = False
        """Whether a person is being asked now."""
        self._kept: dict[_Group, _AcceptedPassword] = {}
        self._coded: dict[_Group, int] = {}
        self._closed: dict[_Group, tuple[str, str]] = {}
        self._holders: dict[_Group, Login] = {}
        self._queues: dict[_Group, dict[Login, asyncio.Future[None]]] = {}
        self._one_at_a_time: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def reopen(self) -> None:
        """A person wants to try again: what was refused or given up may be asked anew."""
        self._closed.clear()

    async def ask(self, challenge: Challenge) -> Sequence[str] | None:
        """The person's answers, one question at a time."""
        loop = asyncio.get_running_loop()
        if self._one_at_a_time is None or self._one_at_a_time[0] is not loop:
            self._one_at_a_time = loop, asyncio.Lock()
        async with self._one_at_a_time[1]:
            self.asking = True
            try:
                return await self.prompter.ask(challenge)
            finally:
                self.asking = False

    @property
    def keeps(self) -> bool:
        """Whether there is any password that is enough for some login."""
        return any(group not in self._coded for group in self._kept)

    def _proven(self, group: _Group) -> bool:
        """Whether a password is enough and was accepted a moment ago: then it is no guess anywhere."""
        kept = self._kept.get(group)
        return bool(kept and group not in self._coded and time.monotonic() - kept.at < PROVEN_S)

    def _take(self, group: _Group, login: Login) -> bool:
        """Whether this login may go on, and all others of its group have to wait."""
        if self._proven(group) and group not in self._holders:
            return True
        return self._holders.setdefault(group, login) is login

    async def _wait(self, group: _Group, login: Login) -> None:
        """Until it is this login's turn, or nobody needs a turn any more."""
        if group not in self._holders:
            return
        queue = self._queues.setdefault(group, {})
        queue[login] = asyncio.get_running_loop().create_future()
        try:
            await queue[login]
        finally:
            queue.pop(login, None)

    def _release(self, group: _Group, login: Login) -> None:
        if self._holders.get(group) is not login:
            return
        del self._holders[group]
        queue = self._queues.get(group, {})
        waiting = [(each, future) for each, future in queue.items() if not future.done()]
        if waiting and not self._proven(group) and group not in self._closed:
            self._holders[group] = waiting[0][0]
            waiting = waiting[:1]
        for _, future in waiting:
            future.set_result(None)


DESK = Desk()
"""That of this process."""


class Login:
    """One login at one machine, over as many connections as it takes, as far as it needs answers.

    :param hop: ``user@host`` or ``user@host:port``
    :param where: the node or jump host, for messages
    :param node: for which node
    :param shared: its user, if it is a node: nodes with the same user share a password. Empty: a jump host
    :param tries: how often a person may answer, if answers are refused
    :param unasked: no person has asked for this login: it was begun to get a lost link back
    :param by_hand: the ssh command that a person types for it
    """

    def __init__(
        self,
        desk: Desk,
        hop: str,
        *,
        where: str,
        node: str,
        shared: str = "",
        tries: int = 3,
        unasked: bool = False,
        by_hand: str = "ssh",
    ) -> None:
        self.stopped: LinkError | None = None
        """Why it gets no answers any more."""
        self.blocked = False
        """Whether another login has to be done first: this connection is of no use (see :meth:`turn`)."""
        self.begun = False
        """Whether a way to log in that wants answers was begun."""
        self.where = where
        self._desk = desk
        self.hop = hop
        self.node = node
        self._group: _Group = ("nodes", shared) if shared else ("hop", hop)
        self._tries = tries
        self._unasked = unasked
        self._by_hand = by_hand
        self._refusals = 0
        self._told: list[str] = []
        self._question: asyncio.Task[Sequence[str] | None] | None = None
        self._typed: str = ""
        self._sent: str | None = None  # awaits its verdict; empty: a code
        self._coded = False
        self._from_kept = False

    @property
    def asking(self) -> bool:
        """Whether a person is being asked for it, or was and has not been heard yet."""
        return self._question is not None

    @property
    def sent(self) -> bool:
        """Whether the server has an answer and has not said what it makes of it."""
        return self._sent is not None

    async def may_begin(self, instead: Callable[[], Awaitable[bool]] | None = None) -> bool:
        """Whether a way to log in that wants answers should be begun at all: that alone may call a phone.

        :param instead: whether there is another way, which needs no person; asked only if one is needed
        """
        if self.stopped or self.blocked:
            return False
        desk, group = self._desk, self._group
        if group in desk._closed:
            self._stop(*desk._closed[group])
            return False
        silent = group in desk._kept and group not in desk._coded and not self._refusals
        if not silent and self._unasked:
            self._close("needs a password or code")
            return False
        if not silent and (absent := desk.prompter.absent):
            self.stopped = self._nobody(absent)
            return False
        if not desk._take(group, self):
            self.blocked = True
            return False
        if not silent and not self._typed and instead is not None and await instead():
            self.end()
            return False
        self.begun = True
        return True

    def hear(self, text: str) -> None:
        """What the server says without wanting an answer; it is shown with the next question."""
        for line in text.splitlines():
            if line.strip() and len(self._told) < TOLD_LINES:
                self._told.append(one_line(line[: 4 * TOLD_CHARS], limit=TOLD_CHARS))

    async def answers(self, prompts: Sequence[tuple[str, bool]]) -> Sequence[str] | None:
        """One answer for each of the server's prompts; None: there are none, see :attr:`stopped`.

        :param prompts: text, and whether it may be seen while it is typed
        """
        if self.stopped or self.blocked:
            return None
        if len(prompts) > MOST_PROMPTS:
            self._close(f"asks for {len(prompts)} answers at once")
            return None
        kind = kind_of(prompts)
        kept = self._desk._kept.get(self._group)
        if kind == "code":
            self._coded = True
        elif kept is not None and not self._refusals and self._sent is None:
            self._from_kept = True
            self._sent = kept.password
            return [kept.password]
        elif self._unasked:
            self._close("needs a password or code")
            return None
        if kind == "code" and self._unasked:
            self._close("needs a one-time code again")
            return None
        if kind == "password" and self._typed:
            # It was typed while the connection was lost.
            self._sent, self._typed = self._typed, ""
            return [self._sent]
        return await self._ask(kind, prompts)

    async def _ask(self, kind: Kind, prompts: Sequence[tuple[str, bool]]) -> Sequence[str] | None:
        if self._question is None:
            self._question = asyncio.get_running_loop().create_task(self._put(kind, prompts))
        try:
            # The server may hang up on a slow typist: a password is wanted all the same.
            given = await asyncio.shield(self._question)
        except asyncio.CancelledError:
            if kind == "code":
                self._close("closed the connection before it got an answer")
            raise
        except Exception:
            self._question = None
            self._close("could not be prompted for")
            raise
        self._question, self._typed = None, ""
        if given is None:
            self._close("was cancelled")
            return None
        self._sent = given[0] if kind == "password" else self._sent or ""
        return given

    async def _put(self, kind: Kind, prompts: Sequence[tuple[str, bool]]) -> Sequence[str] | None:
        if self._group[0] == "nodes" and not self._refusals:
            await asyncio.sleep(GATHER_S)
        shown = tuple(
            Prompt(one_line(text[: 4 * PROMPT_CHARS], limit=PROMPT_CHARS).strip(), echo)
            for text, echo in prompts
        )
        of = self.where if self.where == self.node else f"{self.where}, on the way to {self.node}"
        refused = f"Refused; this is try {self._refusals + 1} of {self._tries}." if self._refusals else ""
        challenge = Challenge(
            hop=self.hop,
            kind=kind,
            prompts=shown,
            told=tuple(self._told),
            of=of,
            waiting=lambda: [each.node for each in self._desk._queues.get(self._group, {})],
            number=self._desk._coded.get(self._group, 0),
            refused=refused,
        )
        self._told.clear()
        given = await self._desk.ask(challenge)
        if given is not None and len(given) != len(prompts):
            raise AssertionError("an answer for each prompt")
        if given is not None and kind == "password":
            self._typed = given[0]
        return given

    async def heard(self) -> bool:
        """After a connection was lost while a person was asked: wait for the answer.

        :return: whether to connect again with it
        """
        if self._question is not None:
            given = await asyncio.shield(self._question)
            self._question = None
            if given is None:
                self._close("was cancelled")
        return self.stopped is None and bool(self._typed)

    def verdict(self, accepted: bool) -> None:
        """What the server makes of the answers since the last verdict."""
        if self._sent is None:
            return
        password, self._sent = self._sent, None
        self._typed = ""
        desk, group = self._desk, self._group
        if accepted:
            if self._coded:
                desk._coded[group] = desk._coded.get(group, 0) + 1
            if password:
                desk._kept[group] = _AcceptedPassword(password, time.monotonic(), self.where)
            return
        desk._kept.pop(group, None)
        self._refusals += 1
        if self._from_kept:
            self._close("refuses the password that was accepted before")
        elif self._refusals >= self._tries:
            self._close(f"refused {'the answers' if self._coded else 'the password'}")

    def expired(self) -> None:
        """The password is accepted, and has to be changed first."""
        self._sent = None
        self._close("requires a new password: the old one has expired")

    async def turn(self) -> None:
        """Wait, without a connection, until it is this login's turn.

        :raises LinkError: the login before it was refused
        """
        await self._desk._wait(self._group, self)
        self.blocked = False
        if self._group in self._desk._closed:
            self._stop(*self._desk._closed[self._group])
            assert self.stopped
            raise self.stopped

    def end(self) -> None:
        """It is over, however: the next one may begin. An answer without a verdict counts as refused."""
        if self._question is not None:
            self._question.cancel()
            self._question = None
        if self._sent is not None:
            self._refusals = self._tries
            self.verdict(accepted=False)
        self._desk._release(self._group, self)

    def check(self) -> None:
        """Before a connection is made.

        :raises NeedsPerson: answers for it were refused, and nobody has asked for another try
        """
        if self._group[0] == "hop" and self._group in self._desk._closed:
            self._stop(*self._desk._closed[self._group])
            assert self.stopped
            raise self.stopped

    def _close(self, why: str) -> None:
        """Nothing of this group is tried any more until a person says so."""
        self._desk._closed[self._group] = self.hop, why
        self._stop(self.hop, why)

    def _stop(self, hop: str, why: str) -> None:
        what = f"login {'failed' if hop == self.hop else 'not attempted'}: {hop} {why}"
        self.stopped = NeedsPerson(
            what, where=self.where, hint=f"there is no automatic retry; check with: {self._by_hand} true"
        )

    def _nobody(self, absent: str) -> LinkError:
        return NoLogin(
            f"login refused: {self.hop} accepts no key and wants a password or a code, but {absent}",
            where=self.where,
            hint=(
                "load a key (ssh-add), or log in once and keep that open, with a ControlPath in the ssh "
                f"configuration: {self._by_hand.replace('ssh', 'ssh -fNM', 1)}; then: --transport openssh"
            ),
            refused=True,
        )


def kind_of(prompts: Sequence[tuple[str, bool]]) -> Kind:
    """Whether a server wants the password, which may be kept, or anything else, which may not."""
    if len(prompts) != 1:
        return "code"
    text, echo = prompts[0]
    return "password" if not echo and _PASSWORD.search(text) and not _NO_PASSWORD.search(text) else "code"
