"""Markdown from values that may hold any sign."""

from collections.abc import Sequence


def cell(text: str) -> str:
    """Text in one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells are escaped here."""
    lines = [header, ["---"] * len(header), *[[cell(text) for text in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str) -> str:
    """A block that is shown as it is."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
