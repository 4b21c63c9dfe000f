"""PostgreSQL's dialect as sqlglot parses it, with `overlaps(x, y)`, and with what the tree would lose kept as it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from service.query.sql.output_names import CALLED
from service.query.sql.text import BoundedParser

T = TypeVar("T")
_KEPT = ("DATE_BIN", "DATE_PART", "TO_CHAR")
"""Functions that sqlglot rewrites: these remain as they are written."""


class _Parser(BoundedParser, PostgresParser):
    FUNC_TOKENS = {*PostgresParser.FUNC_TOKENS, TokenType.OVERLAPS}
    FUNCTIONS = {name: made for name, made in PostgresParser.FUNCTIONS.items() if name not in _KEPT}
    FUNCTIONS["GENERATE_SERIES"] = exp.ExplodingGenerateSeries.from_arg_list  # sqlglot's own fails on INTERVAL '1 month 1 day'
    FUNCTION_PARSERS = {name: made for name, made in PostgresParser.FUNCTION_PARSERS.items() if name not in _KEPT}
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {}  # doc -> 'key' as an argument

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        """Reject commas with nothing before or after them, which sqlglot ignores, as DuckDB does; in PostgreSQL they are errors."""
        return super()._parse_csv(lambda: self._beside_commas(parse_method()), sep)

    def _parse_interval(self, *args: Any, **options: Any) -> exp.Add | exp.Interval | None:
        """Keep the text of an interval: sqlglot takes a number and a unit out of it, whatever stands beside them (`.5 hours`)."""
        token = self._next
        made = super()._parse_interval(*args, **options)
        if isinstance(made, exp.Interval) and token and token.token_type == TokenType.STRING and made.this.name != token.text:
            made.set("this", exp.Literal.string(token.text))
            made.set("unit", None)
        return made

    def _parse_function(self, *args: Any, **options: Any) -> exp.Expr | None:
        """Keep the name of a function as it is written: the tree has `pow` and `power` as one."""
        token = self._curr
        made = super()._parse_function(*args, **options)
        called = made
        while isinstance(called, exp.Filter | exp.Window | exp.WithinGroup):
            called = called.this
        if called is not None and token is not None:
            called.meta[CALLED] = token.text.lower()
        return made

    def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
        return self._beside_commas(super()._parse_join(*args, **options))

    def _beside_commas(self, item: T | None) -> T | None:
        if item is None and any(token and token.token_type == TokenType.COMMA for token in (self._prev, self._curr)):
            self.raise_error("A name or a value is missing")
        return item


class Dialect(Postgres):
    """PostgreSQL, with `overlaps` as a function too: there it is only a keyword."""

    Parser = _Parser
