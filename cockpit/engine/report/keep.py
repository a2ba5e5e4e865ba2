"""A run's report, written into its folder once the run has ended and all of it is here."""

from __future__ import annotations

from pathlib import Path

from cockpit.core.report.page import as_page
from cockpit.core.report.words import as_markdown
from cockpit.engine.files import replace
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.report.gather import report_of

PAGE, TICKET = "report.html", "report.md"


async def keep_report(folder: RunFolder) -> Path | None:
    """Write the report of a run, as a page and as Markdown; None: it is there, or not to be written now.

    It is not while the run goes on, while output is still on its nodes, while another cockpit writes there,
    and for a run that others may have written.

    :raises CockpitError: the run cannot be read, or the report not be written
    """
    page = folder.path / PAGE
    if page.exists() or folder.bundled or folder.manifest.closed:
        return None
    mine = RunFolder(folder.path)
    try:
        if not mine.model().done or not mine.lock():
            return None
        report = await report_of(mine)
        replace(mine.path / TICKET, "".join(f"{line}\n" for line in as_markdown(report)).encode())
        replace(page, as_page(report).encode("utf-8", "backslashreplace"))
    finally:
        mine.close()
    return page
