"""The report of a run: one model of it, as text, as Markdown, as a page, and for programs.

Nothing here does I/O.
"""
