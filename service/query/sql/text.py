"""Parses the text of a query into sqlglot's tree, in bounded time, and locates errors in it."""

from __future__ import annotations

import logging
import re
from difflib import get_close_matches
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from service.errors import Problem
from service.query.sql.names import Source, bad_query, line_and_column

if TYPE_CHECKING:
    from sqlglot.parser import Parser
else:
    Parser = object

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings quote the query; what it cannot read is rejected here

_TOKEN = re.compile(r",? but got <Token.*>", re.DOTALL)  # the parser's description of its position
_KEYWORDS = (
    "SELECT DISTINCT AS FROM JOIN LEFT RIGHT FULL INNER OUTER CROSS SEMI ANTI ASOF ON USING OVERLAPS WHERE AND OR NOT IN IS NULL LIKE "
    "BETWEEN EXISTS CASE WHEN THEN ELSE END GROUP BY HAVING QUALIFY UNION EXCEPT ORDER LIMIT OFFSET WITH"
).split()
_SECOND = {**dict.fromkeys(("GROUP", "ORDER", "PARTITION"), "BY"), **dict.fromkeys(("LEFT", "RIGHT", "FULL", "INNER", "CROSS"), "JOIN")}
_MISSING = {
    **dict.fromkeys((TokenType.SELECT, TokenType.DISTINCT), "a comma, an operator or FROM"),
    **dict.fromkeys((TokenType.FROM, TokenType.USING), "a comma, JOIN, WHERE or GROUP BY"),
    TokenType.JOIN: "ON or USING",
    **dict.fromkeys((TokenType.ON, TokenType.WHERE, TokenType.HAVING, TokenType.QUALIFY), "an operator such as AND"),
    **dict.fromkeys((TokenType.GROUP_BY, TokenType.ORDER_BY), "a comma"),
}
"""By the clause's keyword, what belongs before a word that is not expected in it."""
_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_COMPARED = (*_ORDERED, exp.EQ, exp.NEQ)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OPERANDS = (*_NAMES, TokenType.STRING, TokenType.NUMBER)


class _EndlessParse(Exception):
    """The parser tries the same tokens over and over."""


class BoundedParser(Parser):
    """Base of a parser of sqlglot that limits its steps: it reads a text token by token, hardly ever one twice, but backtracks in
    exponential time where joins have no condition."""

    def parse(self, raw_tokens: list[Token], sql: str) -> list[exp.Expr | None]:
        self._steps = 4 * len(raw_tokens) + 2000
        return super().parse(raw_tokens, sql)

    def _advance(self, times: int = 1) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _EndlessParse
        super()._advance(times)


def check_length(text: str, most: int) -> None:
    """Raise Problem `bad-query` for a text of more bytes, before it is parsed."""
    size = len(text.encode(errors="replace"))
    if size > most:
        raise bad_query(f"the query has {size} bytes; at most {most} are allowed (--max-sql)", 1, 1)


def parse(text: str, dialect: type[Dialect], rule: str) -> exp.Expr:
    """Parse a single statement with a dialect whose parser is Bounded; `rule` says why only one. Problem `bad-query` with `position`."""
    try:
        statements = [statement for statement in sqlglot.parse(text, read=dialect) if statement is not None]
    except _EndlessParse:
        raise bad_query("the query cannot be read in reasonable time: write ON or USING after each JOIN", 1, 1) from None
    except ParseError as error:
        raise _mistake(text, dialect, error.errors[0]) from None
    except TokenError as error:
        found = re.match(r"Missing (.+) from \d+:(\d+)", str(error.__context__))  # the second number counts from the text's beginning
        what, offset = (f"a {found[1]} is not closed", int(found[2])) if found else ("unexpected end of the text", len(text))
        raise bad_query(what, *line_and_column(text, offset)) from None
    if not statements:
        raise bad_query("the query is empty", 1, 1)
    if len(statements) > 1:
        raise bad_query(f"{len(statements)} statements: {rule}", 1, 1)
    if isinstance(statements[0], exp.Command | exp.Condition | exp.Alias):  # sqlglot also parses expressions and unknown commands
        raise no_select(text, dialect)
    return statements[0]


def write_in(tree: exp.Expr) -> None:
    """Write IN in place of = ANY (SELECT …), and NOT IN of <> ALL (SELECT …)."""
    for node in list(tree.find_all(exp.EQ, exp.NEQ)):
        is_equal, side = isinstance(node, exp.EQ), node.expression
        if isinstance(side, exp.Any if is_equal else exp.All) and isinstance(query := side.this.unnest(), exp.Query):
            found = exp.In(this=node.this, query=exp.Subquery(this=query))
            node.replace(found if is_equal else exp.Not(this=found))


def check_operators(tree: exp.Expr, source: Source) -> None:
    """Reject lists and comparisons that sqlglot reads, and PostgreSQL does not."""
    for node in tree.find_all(exp.In, *_ORDERED):
        parts = [node.this, node.args.get("expression")]
        if (alone := node.args.get("field")) is not None:
            with source.noting(alone):
                raise source.bad(alone, "the values after IN must be in parentheses: IN ('a', 'b')")
        if isinstance(node, _ORDERED) and any(isinstance(part, _COMPARED) for part in parts):
            with source.noting(node):
                raise source.bad(node, f"{node.sql('postgres')} compares a comparison: join two by AND, as in 1 < x AND x < 9")


def no_select(text: str, dialect: type[Dialect]) -> Problem:
    """Return `bad-query` for a statement other than a SELECT."""
    first = dialect().tokenize(text)[0]
    return bad_query(f"a query begins with SELECT, not with {_written(first, text)!r}", *line_and_column(text, first.start))


def _mistake(text: str, dialect: type[Dialect], error: dict[str, Any]) -> Problem:
    """Return `bad-query` for what the parser found: what is wrong, at the word where the error begins."""
    tokens = dialect().tokenize(text)
    if tokens[0].token_type in _NAMES:
        return no_select(text, dialect)
    last = len(tokens) - 1
    at = next((at for at, token in enumerate(tokens) if (token.line, token.col) == (error["line"], error["col"])), last)
    said = _TOKEN.sub("", error["description"]).rstrip(".")
    if said.startswith("Invalid expression"):
        return _unexpected(tokens, at, text)
    if (found := _misspelt(tokens, at, text)) is not None:
        return found
    what, is_after = f"{said[0].lower()}{said[1:]}", at == last and (said == "Expecting )" or tokens[at].token_type != TokenType.R_PAREN)
    if said.startswith("Required keyword"):
        what = "a name, a value or a condition is missing"
        if tokens[at].token_type in _OPERANDS:  # the preceding operator lacks an operand
            at, is_after = at - 1, False
    elif said == "Expecting )":
        what = "a ) is missing" if is_after else "a ), a comma or an operator is missing"
    return _bad_at(tokens[at], text, f"{what} {'after' if is_after else 'before'} %s")


def _unexpected(tokens: list[Token], at: int, text: str) -> Problem:
    """Return the problem for a token at which the parser could not continue."""
    token, before = tokens[at], tokens[at - 1]
    depths = accumulate((one.token_type == TokenType.L_PAREN) - (one.token_type == TokenType.R_PAREN) for one in tokens[: at + 1])
    if min(depths) < 0:
        return _bad_at(token, text, "%s has no matching (: add one before it, or remove it")
    if (second := _SECOND.get(before.text.upper())) is not None:
        return _bad_at(before, text, f"{second} is missing after %s")
    if (found := _misspelt(tokens, at, text)) is not None:
        return found
    if (second := _SECOND.get(token.text.upper())) is not None:
        return _bad_at(token, text, f"{second} is missing after %s")
    if token.token_type == TokenType.DOT and before.token_type in _NAMES:
        token, at = before, at - 1
    clause = next((one.token_type for one in reversed(tokens[:at]) if one.token_type in _MISSING), None)
    if clause is not None and token.token_type in _OPERANDS:
        return _bad_at(token, text, f"{_MISSING[clause]} is missing before %s")
    return _bad_at(token, text, "%s is not expected here")


def _misspelt(tokens: list[Token], at: int, text: str) -> Problem | None:
    """Return the problem for a word at or next to a position that resembles a keyword; names with an alias do not count."""
    for near in (at, at - 1, at + 1, at - 2):
        if not 0 <= near < len(tokens) or tokens[near].token_type != TokenType.VAR:
            continue
        if any(one.token_type == TokenType.DOT for one in tokens[max(near - 1, 0) : near + 2]):
            continue
        word = tokens[near].text.upper()
        meant = get_close_matches(word, [one for one in _KEYWORDS if one[0] == word[0] and one != word], 1, 0.74)
        if meant:
            return _bad_at(tokens[near], text, f"%s is not expected here: did you mean {meant[0]}?")
    return None


def _bad_at(token: Token, text: str, detail: str) -> Problem:
    return bad_query(detail % repr(_written(token, text)), *line_and_column(text, token.start))


def _written(token: Token, text: str) -> str:
    return text[token.start : token.end + 1][:100]
