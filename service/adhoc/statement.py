"""Parses the text of an ad hoc query, and finds the relations and views that it names. Problems are raised before anything is run.

DuckDB parses the text once more, by its own rules: it has only the tables found here, so a text that the two parse differently is rejected
there, and reveals nothing that it must not.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NamedTuple

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.parsers.duckdb import DuckDBParser

from livejoin.wire.errors import cut
from livejoin.wire.wording import instead
from service.access.access_token import AccessToken
from service.access.rights import require_relation
from service.errors import Problem, unsupported
from service.query.sql.names import Text, bad_query, fold, is_public
from service.query.sql.text import BoundedParser, check_length, no_select, parse

Kind = Literal["relation", "view"]
RELATION: Kind = "relation"
VIEW: Kind = "view"


class _Parser(BoundedParser, DuckDBParser):
    pass


class Dialect(DuckDB):
    """DuckDB's dialect, parsed in bounded time."""

    Parser = _Parser


class QueriedTable(NamedTuple):
    """A relation or a view that a query names, and where."""

    kind: Kind
    name: str
    positions: tuple[exp.Table, ...]


class Statement(NamedTuple):
    """A SELECT as DuckDB gets it, and the tables that it reads."""

    text: str
    tables: list[QueriedTable]


class VisibleNames(NamedTuple):
    """The existing relations and views, and the token of the request."""

    relations: Collection[str]
    views: Collection[str]
    token: AccessToken


def read(text: str, known: VisibleNames, longest: int) -> Statement:
    """Read a SELECT. Problems `bad-query` (400, with its position), `unsupported-query`, `unknown-relation`, `forbidden`."""
    try:
        check_length(text, longest)
        tree = parse(text, Dialect, "send one at a time")
        if not isinstance(tree, exp.Query | exp.Values | exp.Pivot):
            raise no_select(text, Dialect)
        return Statement(_without_schema(tree, text), _tables(tree, text, known))
    except RecursionError:
        raise refused(bad_query("the query is nested too deeply", 1, 1)) from None
    except Problem as problem:
        raise refused(problem) from None


def refused(problem: Problem) -> Problem:
    """Set the status to 400 for an error in the query: here the query is the request itself."""
    if problem.type == "bad-query":
        problem.status = 400
    return problem


def _tables(tree: exp.Expr, text: str, known: VisibleNames) -> list[QueriedTable]:
    found, source = dict[str, QueriedTable](), Text(text)
    for node in tree.find_all(exp.Table, exp.Unnest, exp.Into):
        with source.noting(node):
            if isinstance(node, exp.Into):
                raise source.bad(node.parent or node, "SELECT INTO would write: omit INTO")
            if not isinstance(node, exp.Table):
                if isinstance(node.parent, exp.From | exp.Join | exp.Lateral):
                    raise no_functions()
            elif isinstance(node.this, exp.GenerateSeries) and not node.this.args.get("is_end_exclusive"):
                continue
            elif not isinstance(node.this, exp.Identifier) and not isinstance(node.this, exp.Dot):
                raise no_functions()
            elif _is_local(node):
                if node.db:
                    instead = f"{node.name} is a query in WITH, too: rename that"
                    raise source.bad(node, f"{'.'.join(part.name for part in node.parts)}: {instead}")
            else:
                kind, name = _resolve(node, known)
                found[name] = QueriedTable(kind, name, (*(found[name].positions if name in found else ()), node))
    source.finish()
    return list(found.values())


def no_functions() -> Problem:
    return unsupported("reading from functions, files and tables of DuckDB", "name relations and views in FROM, and use unnest in SELECT")


def _without_schema(tree: exp.Expr, text: str) -> str:
    """Return the text with blanks in place of the schema `public`, which DuckDB does not have: positions stay."""
    tables = {fold(table.this) for table in tree.find_all(exp.Table) if table.db and is_public(table)}
    columns = [one for one in tree.find_all(exp.Column) if tables and one.args.get("db") and fold(one.args["table"]) in tables]
    for node in [*tree.find_all(exp.Table), *columns]:
        if (schema := node.args.get("db")) is not None and is_public(node):
            start = schema.meta["start"]
            end = (node.this if isinstance(node, exp.Table) else node.args["table"]).meta["start"]
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


def _is_local(table: exp.Table) -> bool:
    """Return whether the name alone is that of a query in WITH."""
    name, inside, node = table.name.lower(), set[int](), table.parent
    while node is not None:
        inside.add(id(node))
        with_ = node.args.get("with_")
        if with_ is not None:
            for one in with_.expressions:  # those before the one that contains the table; that one itself, if it is recursive
                if id(one) in inside and not with_.args.get("recursive"):
                    break
                if one.alias.lower() == name:
                    return True
                if id(one) in inside:
                    break
        node = node.parent
    return False


def _resolve(table: exp.Table, known: VisibleNames) -> tuple[Kind, str]:
    """Return which relation or view it is. A token learns nothing about what it does not cover, whether that exists or not."""
    if not isinstance(table.this, exp.Identifier) or ((table.db or table.catalog) and not is_public(table)):
        raise _unknown(table, ": relations and views are in the schema public: write the name alone")
    name, token = fold(table.this), known.token
    if not token.covers_view(name):
        require_relation(token, name, "read")
    if name in known.relations and token.covers_relation(name):
        return RELATION, name
    if name in known.views and token.covers_view(name):
        return VIEW, name
    seen = [*filter(token.covers_relation, known.relations), *filter(token.covers_view, known.views)]
    raise _unknown(table, instead(name, seen) or ": there are none yet")


def _unknown(table: exp.Table, hint: str) -> Problem:
    name = cut(".".join(part.name for part in table.parts))
    return Problem("unknown-relation", f"there is no relation or view {name!r}{hint}")
