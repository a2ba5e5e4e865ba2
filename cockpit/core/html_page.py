"""A self-contained HTML page: it loads nothing, and nothing in it runs, whatever a node has said."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A frame's name cannot smuggle in what is not allowed either."""


def html_page(title: str, style: str, body: Iterable[str]) -> str:
    """The page.

    :param title: any text
    :param style: CSS
    :param body: HTML, in which all text is escaped
    """
    head = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
    )
    return "".join(f"{part}\n" for part in (*head, *body, "</body></html>"))
