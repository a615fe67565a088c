"""The words of a condition."""

import re
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["number", "name", "string", "reference", "symbol", "end"]


@dataclass(frozen=True)
class Token:
    """A word; the column counts from 1 in the expression's text."""

    kind: TokenKind
    text: str
    column: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.text}`"


class RequireSyntaxError(ValueError):
    """A condition that cannot be read; the message starts with the column."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column


_WORDS: tuple[tuple[TokenKind, re.Pattern[str]], ...] = (
    ("number", re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")),
    ("name", re.compile(r"[A-Za-z_][A-Za-z0-9_]*")),
    ("string", re.compile(r"'[^']*'|\"[^\"]*\"")),
    ("reference", re.compile(r"\$\{[^{}]*\}")),
    ("symbol", re.compile(r"<=|>=|==|!=|<|>|\(|\)|,")),
)


def tokenize(text: str) -> list[Token]:
    """The words of the text and an end mark.

    Raises:
        RequireSyntaxError: a character starts no word.
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        kind, word = _word_at(text, position)
        inner = word[1:-1] if kind == "string" else word
        tokens.append(Token(kind, inner, position + 1))
        position += len(word)
    tokens.append(Token("end", "", len(text) + 1))
    return tokens


def _word_at(text: str, position: int) -> tuple[TokenKind, str]:
    for kind, pattern in _WORDS:
        found = pattern.match(text, position)
        if found:
            return kind, found.group()
    if text[position] in "'\"":
        raise RequireSyntaxError(position + 1, "this quote is not closed")
    hint = " (`==` compares)" if text[position] == "=" else ""
    raise RequireSyntaxError(position + 1, f"unexpected `{text[position]}`{hint}")
