"""Who could put something else in the place of a file: owners and modes, checked as OpenSSH checks them.

A folder is fit for our files if only we and root can change what is in it, and in each folder on the way.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from functools import lru_cache
from typing import Callable, Optional, Sequence

from cockpit.base import users
from cockpit.base.volumes import volumes

_LINKS = 40
"""Links on one way, as the kernel allows."""


SETTING = "trusted_group"
"""The one that accepts a group's members, in a person's settings and in a launch spec."""


class NotOurs(OSError):
    """Others could swap what is in a folder; ``strerror`` names it, and them."""

    hint = "use a folder of yours: XDG_STATE_HOME=DIR"
    """For a person, where it is one on their own machine."""


def is_ours(uid: int) -> bool:
    """Whether a user is this one, or root."""
    return uid in (os.geteuid(), 0, _unmapped())


@lru_cache(maxsize=1)
def _unmapped() -> int:
    """Whom root of the machine is shown as in a container that does not know it; -1: root is known."""
    try:
        with open("/proc/self/uid_map", "rb") as file:
            if int(file.readline().split()[2]) == (1 << 32) - 1:
                return -1
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.readline())
    except (OSError, ValueError, IndexError):
        return -1


def others_in(path: str, found: os.stat_result, groups: Optional[Sequence[str]] = None) -> str:
    """Who else may change a file, or what is in a folder, in one sentence; empty: nobody.

    :param found: its owner and mode
    :param groups: names of groups whose members may; None: no group may, whatever is set
    """
    mode = stat.S_IMODE(found.st_mode)
    group = _group(found.st_gid)
    accept = "" if groups is None else '; to accept that, set %s = "%s"' % (SETTING, group)
    if not is_ours(found.st_uid) and not any(_is_in(found.st_uid, each) for each in groups or ()):
        shared = mode & 0o020 and _is_in(found.st_uid, group)
        return "%s belongs to %s%s" % (path, users.name(found.st_uid), accept if shared else "")
    if stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX:
        return ""  # what is in it can be moved by its owner alone
    if mode & 0o002:
        return "anybody may write to %s (mode %04o)" % (path, mode)
    if mode & 0o020 and not _is_private(found.st_gid) and group not in (groups or ()):
        return "group %s may write to %s (mode %04o)%s" % (group, path, mode, accept)
    return ""


def check(path: str, groups: Sequence[str] = ()) -> None:
    """Check each folder on the way to ``path`` that is there, and itself; a volume of this pod is its own.

    :param groups: names of groups whose members may own and change them
    :raises NotOurs: others may change one, or made a link on the way
    :raises OSError: something on the way is no folder, or cannot be looked at
    """

    own = volumes()

    def fit(folder: str, found: os.stat_result) -> None:
        why = others_in(folder, found, groups)
        if why and not (is_ours(found.st_uid) and folder in own):
            raise NotOurs(errno.EPERM, why)

    _walk(path, fit)


def resolved(path: str) -> str:
    """Where a path leads by way of links that we or root made, as far as there is something.

    :raises NotOurs: another made a link on the way
    :raises OSError: something on the way is no folder, or cannot be looked at
    """
    return _walk(path, lambda folder, found: None)


def _walk(path: str, visit: Callable[[str, os.stat_result], None]) -> str:
    at, links = "/", 0
    visit(at, os.lstat(at))
    rest = (path if os.path.isabs(path) else os.path.join(os.getcwd(), path)).split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, part)
        try:
            found = os.lstat(here)
        except FileNotFoundError:
            return os.path.join(here, *rest[::-1])
        if stat.S_ISDIR(found.st_mode):
            visit(here, found)
            at = here
            continue
        if not stat.S_ISLNK(found.st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), here)
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if not is_ours(found.st_uid):
            raise NotOurs(errno.EPERM, "%s is a link that %s made" % (here, users.name(found.st_uid)))
        target = os.readlink(here)
        at = "/" if target.startswith("/") else at
        rest += target.split("/")[::-1]
    return at


def make(path: str, groups: Sequence[str] = ()) -> None:
    """Make a folder with mode 0700 if it is missing, and those on the way to it.

    :raises OSError: it cannot be made; see :func:`check`
    """
    check(path, groups)
    _make(path)
    # Again, as another may have been quicker where anybody may make folders, as in /tmp.
    check(path, groups)


def _make(path: str) -> None:
    above = os.path.dirname(path)
    if above and not os.path.isdir(above):
        _make(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


@lru_cache(maxsize=64)
def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


@lru_cache(maxsize=64)
def _is_in(uid: int, group: str) -> bool:
    try:
        user, found = pwd.getpwuid(uid), grp.getgrnam(group)
    except KeyError:
        return False
    return user.pw_gid == found.gr_gid or user.pw_name in found.gr_mem


@lru_cache(maxsize=64)
def _is_private(gid: int) -> bool:
    """Whether a group is this user's own, with no other members."""
    me = _me()
    if me is None or me.pw_gid != gid:
        return False
    try:
        found = grp.getgrgid(gid)
    except KeyError:
        return False
    if set(found.gr_mem) - {me.pw_name}:
        return False
    # Where not all users can be listed, as with some directory services, the usual name must do.
    users = pwd.getpwall()
    known = any(user.pw_uid == me.pw_uid for user in users) or found.gr_name == me.pw_name
    return known and not any(user.pw_gid == gid and user.pw_uid != me.pw_uid for user in users)


def _me() -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwuid(os.geteuid())
    except KeyError:
        return None
