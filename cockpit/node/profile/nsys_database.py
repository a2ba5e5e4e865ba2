"""An nsys report exported to SQLite, opened so that nothing in it can harm who reads it.

Versions of nsys differ in tables and columns (schemas 3.0 of 2022.4 to 3.28 of 2026), and leave tables out
that would be empty: columns are found by name, what is missing is NULL. Whatever is in the file, only plain
tables are read, no code of it runs, and both the time and the rows are bounded.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, FrozenSet, Iterator, List, Sequence, Tuple

from cockpit.node import safefiles
from cockpit.node.profile.events import BadTrace

MOST_ROWS = 4_000_000
"""Of all events that are read, together."""
MOST_STRINGS = 200_000
_STRING = 400
"""Characters of one."""
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH, which sqlite3 names from 3.11 on."""
_LENGTH = 16 << 20
"""Bytes of a value beyond which SQLite gives up."""
_STEPS = 100_000
"""SQLite instructions between two checks of the deadline."""
_HIDDEN = 6
"""The column of ``PRAGMA table_xinfo`` that says whether a column is computed."""


class Database:
    """An export.

    :param path: of a regular file
    :param deadline_s: seconds that all queries may take together
    :raises BadTrace: it is no database, or this Python has no SQLite
    :raises OSError: it cannot be opened
    """

    def __init__(self, path: str, deadline_s: float) -> None:
        try:
            import sqlite3
        except ImportError:
            raise BadTrace("this Python has no sqlite3 module") from None
        self._errors = (sqlite3.Error, UnicodeError, OverflowError)
        self._db: Any = None
        self._file = os.fdopen(safefiles.opened(path), "rb")
        self._end = time.monotonic() + deadline_s
        self.cut: List[str] = []
        """Sentences on what is not read."""
        self._left = MOST_ROWS
        self._tables: Dict[str, FrozenSet[str]] = {}
        self._strings: Dict[int, str] = {}
        self._has_strings = False
        # By descriptor: nobody can put another file there, and no journal beside it is looked for.
        uri = "file:/proc/self/fd/%d?mode=ro&immutable=1" % self._file.fileno()
        try:
            self._db = db = sqlite3.connect(uri, uri=True)
            db.text_factory = lambda data: data.decode("utf-8", "replace")
            limit = getattr(db, "setlimit", None)  # from Python 3.11 on
            if limit is not None:
                limit(_LIMIT_LENGTH, _LENGTH)
            db.execute("PRAGMA trusted_schema=OFF")
            db.execute("PRAGMA cell_size_check=ON")
            db.execute("PRAGMA query_only=ON")
            db.set_progress_handler(lambda: time.monotonic() > self._end, _STEPS)
            self._find_tables()
        except self._errors as error:
            self.close()
            raise self._bad(error) from None

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
        self._file.close()

    def _bad(self, error: Exception) -> BadTrace:
        if time.monotonic() > self._end:
            return BadTrace("reading it takes too long")
        return BadTrace("it is not a usable SQLite export: %s" % str(error)[:200])

    def _find_tables(self) -> None:
        """Plain tables only: a view, a virtual table or a computed column could do anything."""
        plain = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %' ORDER BY name"
        )
        for (name,) in self._db.execute(plain).fetchmany(10_000):
            if not isinstance(name, str) or '"' in name:
                continue
            columns = self._db.execute('PRAGMA table_xinfo("%s")' % name).fetchmany(2000)
            self._tables[name] = frozenset(
                one[1] for one in columns if not one[_HIDDEN] and isinstance(one[1], str)
            )
        self._has_strings = {"id", "value"} <= self._tables.get("StringIds", frozenset())

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table, with these columns."""
        return table in self._tables and self._tables[table].issuperset(columns)

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        order: str,
        *,
        where: str = "",
        needed: Sequence[str] = (),
        few: bool = False,
    ) -> Iterator[Tuple[Any, ...]]:
        """Rows of a table in order, a column that is not there as None; no rows, where there is no table.

        :param where: a condition on ``needed`` columns
        :param few: of a table that has no events; its rows are not counted as such
        :raises BadTrace: it is damaged, or takes too long
        """
        if not self.has(table, order, *needed):
            return
        there = self._tables[table]
        what = ", ".join('"%s"' % one if one in there else "NULL" for one in columns)
        sql = 'SELECT %s FROM "%s"%s ORDER BY "%s" LIMIT ?'
        most = 100_000 if few else self._left
        read = 0
        try:
            for row in self._db.execute(
                sql % (what, table, " WHERE " + where if where else "", order), (most + 1,)
            ):
                read += 1
                if read > most:
                    self.cut.append(f"only the first {most:,} rows of {table} are read")
                    break
                yield row
        except self._errors as error:
            raise self._bad(error) from None
        finally:
            if not few:
                self._left -= min(read, most)

    def busiest(self, table: str, column: str) -> List[Tuple[int, int]]:
        """How many rows each process has in a table, the one with most first.

        :param column: a globalPid or globalTid
        :raises BadTrace: see :meth:`rows`
        """
        if not self.has(table, column):
            return []
        sql = 'SELECT "%s" >> 24 & 16777215 AS pid, count(*) AS many FROM "%s" GROUP BY pid'
        sql += " ORDER BY many DESC, pid"
        try:
            found = self._db.execute(sql % (column, table)).fetchmany(1000)
        except self._errors as error:
            raise self._bad(error) from None
        return [(pid, many) for pid, many in found if type(pid) is int and pid > 0]

    def string(self, number: Any) -> str:
        """A text by its id; empty: there is none."""
        if type(number) is not int or not self._has_strings:
            return ""
        found = self._strings.get(number)
        if found is None:
            try:
                sql = "SELECT substr(value, 1, %d) FROM StringIds WHERE id = ? LIMIT 1" % _STRING
                row = self._db.execute(sql, (number,)).fetchone()
            except self._errors as error:
                raise self._bad(error) from None
            found = row[0] if row and isinstance(row[0], str) else ""
            if len(self._strings) < MOST_STRINGS:
                self._strings[number] = found
        return found
