"""Names that a pipeline file uses: formats of rows, and what their columns mean."""

from typing import Literal

FormatName = Literal["preference", "labelled", "chat", "problem", "prompt_completion", "text"]

FormatChoice = Literal["auto", FormatName]
"""A format, or what the columns tell."""

Column = Literal[
    "messages", "tools", "system", "history", "prompt", "input", "completion", "chosen", "rejected", "margin",
    "score_chosen", "score_rejected", "label", "question", "answer", "text",
]  # fmt: skip
"""What a column may be."""
