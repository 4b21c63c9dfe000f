"""The text of a query → sqlglot's tree, in bounded time, with the place of what is wrong in it."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from service.query.sql_names import bad_query, line_and_column

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = object

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings quote the query; what it cannot read is refused here

_TOKEN = re.compile(r",? but got <Token.*>", re.DOTALL)  # the parser's description of its position


class _Endless(Exception):
    """The parser tries the same tokens again and again."""


class Bounded(Parser):
    """For a parser of sqlglot: it reads a text token by token, hardly ever one twice, but backtracks in exponential time where joins
    have no condition. So its steps are limited."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        self._steps = 4 * len(raw_tokens) + 2000
        return super().parse(raw_tokens, sql)

    def _advance(self, times: int = 1) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _Endless
        super()._advance(times)


def check_length(text: str, most: int) -> None:
    """Problem `bad-query` for a text of more bytes, before it is parsed."""
    size = len(text.encode(errors="replace"))
    if size > most:
        raise bad_query(f"the query has {size} bytes; at most {most} are allowed (--max-sql)", 1, 1)


def parse(text: str, dialect: type[Dialect], rule: str) -> exp.Expr:
    """The one statement, read by a dialect whose parser is Bounded; `rule` says why there is one. Problem `bad-query` with `position`."""
    try:
        statements = [statement for statement in sqlglot.parse(text, read=dialect) if statement is not None]
    except _Endless:
        raise bad_query("the query cannot be read in reasonable time: write ON or USING after each JOIN", 1, 1) from None
    except ParseError as error:
        first = error.errors[0]
        column = first["col"] - len(first["highlight"] or "") + 1
        said = _TOKEN.sub("", first["description"]).rstrip(".")
        what = "incomplete" if said.startswith("Required keyword") else said
        raise bad_query(f"{what} at {first['highlight'] or 'the end'!r}", first["line"], column) from None
    except TokenError as error:
        found = re.match(r"Missing (.+) from \d+:(\d+)", str(error.__context__))  # the second number counts from the text's beginning
        what, offset = (f"a {found[1]} is not closed", int(found[2])) if found else ("unexpected end of the text", len(text))
        raise bad_query(what, *line_and_column(text, offset)) from None
    if not statements:
        raise bad_query("the query is empty", 1, 1)
    if len(statements) > 1:
        raise bad_query(f"{len(statements)} statements: {rule}", 1, 1)
    if isinstance(statements[0], exp.Command | exp.Condition | exp.Alias):  # sqlglot also parses expressions and unknown commands
        raise bad_query("this is not a SELECT", 1, 1)
    return statements[0]
