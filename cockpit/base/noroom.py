"""Errors of a disk that takes nothing. Part of every rank wrapper: it imports nothing that costs memory."""

from __future__ import annotations

import errno

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ESTALE)
"""No rank stays away because of these, and what is to be written is tried again."""
