"""The typing rules of functions of times: parts of them, zones, bins, and texts."""

from __future__ import annotations

from livejoin.wire.kinds import decimal_kind
from livejoin.wire.values.local_times import is_zone
from service.errors import unsupported
from service.query import terms
from service.query.conditions import Term
from service.query.functions.formats import parts_of
from service.query.terms import LOCAL, is_elapsed, named

_SMALL, _YEARS = decimal_kind(2, 0), decimal_kind(7, 0)
_OF_DATES = {
    **dict.fromkeys(("year", "isoyear", "decade", "century", "millennium"), _YEARS),
    **dict.fromkeys(("quarter", "month", "week", "day", "dow", "isodow"), _SMALL),
    "doy": decimal_kind(3, 0),
    "epoch": decimal_kind(15, 0),
}
_OF_TIMES = {
    **dict.fromkeys(("hour", "minute"), _SMALL),
    "second": decimal_kind(8, 6), "milliseconds": decimal_kind(8, 3), "microseconds": decimal_kind(8, 0), "epoch": decimal_kind(19, 6),
}  # fmt: skip
_FIELDS = {
    "date": _OF_DATES,
    "time": _OF_TIMES,
    "timestamp": _OF_DATES | _OF_TIMES,
    LOCAL: _OF_DATES | _OF_TIMES,
    "int64": {"day": decimal_kind(9, 0), **_OF_TIMES},  # a difference of timestamps
}


def extracted(field: str, of: Term, as_float: bool) -> Term:
    """Return `extract(field FROM of)`, a decimal, or `date_part(field, of)`, a float64."""
    what = "date_part" if as_float else "extract"
    if of.kind not in _FIELDS or (of.kind == "int64" and not is_elapsed(of)):
        raise unsupported(f"{what} of {named(of.kind)}", "it takes a timestamp, a date, a time, or a difference of two timestamps")
    field = field.lower()
    field = field if field in _FIELDS[of.kind] else field.removesuffix("s") if field.removesuffix("s") in _FIELDS[of.kind] else f"{field}s"
    kind = _FIELDS[of.kind].get(field)
    if kind is None:
        raise unsupported(f"{what} of {field.removesuffix('s')} from {named(of.kind)}", f"its parts are {', '.join(_FIELDS[of.kind])}")
    term = Term("extract", kind, (of,), field)
    return terms.cast(term, "float64") if as_float else term


def in_zone(of: Term, zone: str) -> Term:
    """Return `of AT TIME ZONE zone`: of an instant the local time, of a local time the instant."""
    _check(zone)
    if of.kind == "date":
        of = terms.cast(of, "timestamp")
    if of.kind not in ("timestamp", LOCAL):
        raise unsupported(f"AT TIME ZONE of {named(of.kind)}", "it takes a timestamp")
    return Term("to_local", LOCAL, (of,), zone) if of.kind == "timestamp" else Term("from_local", "timestamp", (of,), zone)


def truncated_in(unit: str, of: Term, zone: str) -> Term:
    """Return `date_trunc(unit, of, zone)`."""
    _check(zone)
    of = terms.cast(of, "timestamp") if of.kind == "date" else of
    if of.kind != "timestamp":
        raise unsupported(f"date_trunc of {named(of.kind)} with a time zone", "it takes a timestamp")
    terms.truncated(unit, of)
    if unit in terms.OF_DAYS:
        return in_zone(terms.truncated(unit, in_zone(of, zone)), zone)
    return Term("date_trunc_there", "timestamp", (of,), (unit, zone))


def _check(zone: str) -> None:
    if not is_zone(zone):
        raise unsupported(f"the time zone {zone!r}", "write a name of the IANA database, such as 'Europe/Berlin' or 'UTC'")


def binned(micros: int, of: Term, origin: Term) -> Term:
    if not {of.kind, origin.kind} <= {"date", "timestamp", LOCAL}:
        raise unsupported(f"date_bin of {named(of.kind)} and {named(origin.kind)}", "it takes an interval and two timestamps")
    if micros <= 0:
        raise unsupported("date_bin with an interval that is not positive", "write one such as INTERVAL '15 minutes'")
    of, origin = terms.alike("date_bin", (of, origin))
    kind = LOCAL if of.kind == "date" else of.kind
    return Term("date_bin", kind, (terms.cast(of, kind), terms.cast(origin, kind)), micros)


def shown(of: Term, pattern: str) -> Term:
    """Return `to_char(of, pattern)`."""
    if of.kind not in ("timestamp", "date", LOCAL):
        raise unsupported(f"to_char of {named(of.kind)}", "it takes a timestamp or a date; write CAST(… AS text) for numbers")
    if not pattern:
        return Term("constant", "string", (), None)
    return Term("to_char", "string", (of,), parts_of(pattern))
