"""The patterns of `to_char` for times: PostgreSQL's, without those that depend on a language, and without suffixes."""

from __future__ import annotations

import re

from service.errors import unsupported

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBERS = {
    "YYYY": ("year", 4), "IYYY": ("isoyear", 4), "Q": ("quarter", 1), "MM": ("month", 2), "WW": ("week_of_year", 2), "IW": ("week", 2),
    "DDD": ("doy", 3), "DD": ("day", 2), "ID": ("isodow", 1), "D": ("weekday", 1), "HH24": ("hour", 2), "HH12": ("hour12", 2),
    "HH": ("hour12", 2), "MI": ("minute", 2), "SS": ("second", 2), "MS": ("milliseconds", 3), "US": ("microseconds", 6),
}  # fmt: skip
"""By pattern, the field and the digits."""
_NAMES = {"MONTH": ("month_name", 9), "MON": ("month_name", 3), "DAY": ("day_name", 9), "DY": ("day_name", 3)}
_HALVES = ("AM", "PM")
LONGEST_PATTERN = 1000  # characters


def _forms(word: str) -> tuple[str, ...]:
    return (word, word.lower(), word.capitalize()) if word in _NAMES else (word, word.lower())


_WORDS = sorted((*_NUMBERS, *_NAMES, *_HALVES), key=len, reverse=True)
_TOKEN = re.compile(
    rf'"((?:[^"\\]|\\.)*)"|(FM|fm)?(?!IDDD|iddd|SSSS|ssss)({"|".join(form for word in _WORDS for form in _forms(word))})'
    r"|([^A-Za-z\"\\])",
    re.DOTALL,
)

Part = str | tuple[str, str]
"""A literal text, or a field and the format of its value."""


def parts_of(pattern: str) -> tuple[Part, ...]:
    if len(pattern) > LONGEST_PATTERN:
        raise unsupported(f"a pattern of {len(pattern)} characters", f"to_char takes at most {LONGEST_PATTERN}")
    parts, at = list[Part](), 0
    while at < len(pattern):
        found = _TOKEN.match(pattern, at)
        if found is None:
            known = ", ".join((*_NUMBERS, *_NAMES, *_HALVES))
            said = f"its patterns are {known}, with FM before them; other letters are written in double quotes"
            raise unsupported(f"{pattern[at : at + 10]!r} in a pattern of to_char", said)
        quoted, fill, word, other = found.groups()
        parts.append(_part(word, bool(fill)) if word else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if other is None else other)
        at = found.end()
    return tuple(parts)


def _part(word: str, bare: bool) -> Part:
    upper = word.upper()
    if upper in _NUMBERS:
        field, digits = _NUMBERS[upper]
        return field, "{}" if bare else f"{{:0{digits}d}}"
    if upper in _HALVES:
        return "half" if word == upper else "half_lower", "{}"
    field, width = _NAMES[upper]
    field += "" if word not in (upper, word.lower()) else "_upper" if word == upper else "_lower"
    return field, "{:.3}" if width == 3 else "{}" if bare else "{:9}"
