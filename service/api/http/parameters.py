"""Query parameters: what their models are made of, and what is strict about them: an unknown or repeated one is an error, never ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from livejoin.wire.wording import wording
from service.errors import Problem, bad_parameter

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TEXT_LIMIT = 200
_SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def integer(text: str) -> int:
    """Parse plain decimal digits; a number of very many digits becomes one beyond 64 bits."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("must be an integer")
    return int(text) if len(digits) < 30 else INT64_MIN - 1 if text[0] == "-" else INT64_MAX + 1


def _most(text: str) -> int:
    """Parse a maximum without upper bound: a value beyond 64 bits means all."""
    return min(integer(text), INT64_MAX)


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError("must be a number of seconds")
    value = float(text)
    if value < 0 or math.isinf(value):
        raise ValueError("must be a non-negative number of seconds")
    return value


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


Int64 = Annotated[int, Field(ge=INT64_MIN, le=INT64_MAX, json_schema_extra={"format": "int64"}), BeforeValidator(integer)]
Natural = Annotated[int, Field(ge=0, le=INT64_MAX), BeforeValidator(integer)]
Most = Annotated[int, Field(ge=0), BeforeValidator(_most)]
MostPositive = Annotated[int, Field(ge=1), BeforeValidator(_most)]
Seconds = Annotated[float, Field(ge=0), BeforeValidator(_seconds)]
Flag = Annotated[bool, BeforeValidator(_boolean)]
ShortText = Annotated[str, Field(max_length=TEXT_LIMIT)]


class Parameters(BaseModel):
    """The query parameters of an operation. A field whose alias ends with `.*` has all parameters that begin so, by their names."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, text in given.items():
            known = _find(name, names_of(cls))
            if known is not None and known.endswith(".*"):
                made.setdefault(known, {})[name] = text
            else:
                made[name] = text
        return made


def family(beginning: str, description: str, example: dict[str, str]) -> Any:
    """Return the field of all parameters that begin so, followed by more."""
    names: Any = {"propertyNames": {"pattern": f"^{re.escape(beginning)}"}}
    return Field(default_factory=dict, alias=f"{beginning}*", description=description, examples=[example], json_schema_extra=names)


M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=Parameters)


@cache
def names_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple([field.alias or name for name, field in model.model_fields.items()])


def pairs_of(query: bytes) -> list[tuple[str, str]]:
    """Return the decoded pairs of a query string, in order. Problem `bad-parameter` if it is not UTF-8."""
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise bad_parameter(_unreadable(query), "the query string is not percent-encoded UTF-8") from None


def _unreadable(query: bytes) -> str:
    """Return the name, as it was sent, of the first parameter that is not percent-encoded UTF-8."""
    for pair in query.split(b"&"):
        try:
            parse_qsl(pair.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError):
            break
    return pair.partition(b"=")[0][:TEXT_LIMIT].decode("latin-1")


def require_known(query: bytes, known: Sequence[str]) -> dict[str, str]:
    """Return the texts of a query string by name. Problem `bad-parameter`, naming the first parameter that is unknown or repeated."""
    texts: dict[str, str] = {}
    for name, text in pairs_of(query):
        if _find(name, known) is None:
            raise bad_parameter(name, f"unknown parameter (known: {', '.join(known) or 'none'})")
        if name in texts:
            raise bad_parameter(name, "is given twice")
        texts[name] = text
    return texts


def _find(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that this one is, or the prefix that it begins with, followed by more."""
    for one in known:
        if one == name or (one.endswith(".*") and name.startswith(one[:-1]) and name != one[:-1]):
            return one
    return None


def read(query: bytes, model: type[P]) -> P:
    """Return the parameters of a query string. Problem `bad-parameter`."""
    return checked(model, require_known(query, names_of(model)))


def checked(model: type[M], given: Any) -> M:
    """Return parameters, or the fields of a body that are such. Problem `bad-parameter`."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        unknown = [str(fault["loc"][0])[:TEXT_LIMIT] for fault in faults if fault["type"] == "extra_forbidden"]
        if unknown:
            raise bad_parameter(unknown[0], f"unknown field (known: {', '.join(names_of(model))})") from None
        raise refusal(faults[0], faults[0]["loc"]) from None


def refusal(fault: Any, path: Sequence[Any]) -> Problem:
    """Return Problem `bad-parameter` for pydantic's error at this path."""
    name, given = str(path[1] if path[0].endswith(".*") else path[0]), fault["input"]
    says_all = fault["type"] == "missing" or not isinstance(given, str | int | float)
    shown = given[:TEXT_LIMIT] if isinstance(given, str) else given
    return bad_parameter(name, wording(fault) if says_all else f"{wording(fault)}, not {shown!r}")
