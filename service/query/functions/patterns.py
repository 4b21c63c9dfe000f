"""Regular expressions, as far as PostgreSQL's mean the same as those of RE2, which matches in linear time.

RE2's classes `\\w`, `\\s` and `[[:alpha:]]` are of ASCII: they are written as classes of Unicode, as PostgreSQL understands them with a
locale of UTF-8.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from service.query.filters import LONGEST_PATTERN
from service.query.literals import BadLiteral

_SPACE = r" \t\n\x0b\f\r\x{85}\x{1680}\x{2000}-\x{2006}\x{2008}-\x{200a}\x{2028}\x{2029}\x{205f}\x{3000}"
_CLASSES = {"d": "0-9", "w": r"\p{L}\p{M}\p{N}_", "s": _SPACE}
_NAMED = {
    "digit": _CLASSES["d"], "space": _CLASSES["s"], "alpha": r"\p{L}", "alnum": r"\p{L}\p{M}\p{N}", "upper": r"\p{Lu}", "lower": r"\p{Ll}",
}  # fmt: skip
_TOKEN = re.compile(
    r"\\(?P<class>[dwsDWS])|(?P<plain>\\[nrtfv]|\\[^A-Za-z0-9]|\\A)|(?P<end>\\Z)|(?P<group>\(\?:|\((?!\?)|\))|(?P<open>\[\^?\]?)"
    r"|(?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,(?:[0-9]{1,3})?)?\})\??)|(?P<other>[^\\(\[{*+?]|\{(?![0-9]))",
    re.DOTALL,
)
_IN_CLASS = re.compile(
    r"\\(?P<class>[dws])|(?P<plain>\\[nrtfv]|\\[^A-Za-z0-9])|\[:(?P<named>[a-z]+):\]|(?P<close>\])|(?P<other>[^\\\[]|\[(?![:.=]))",
    re.DOTALL,
)
_SUPPORTED = (
    "a pattern has characters, . ^ $ | ( ) (?: ), [ ] with [:alpha:] and the like, * + ? {m,n}, and \\d \\w \\s \\D \\W \\S \\A \\Z; "
    "neither references nor conditions on what follows"
)


_MOST_REPEATED = 300
"""Characters of a pattern whose repetitions are written out: RE2 takes as many steps for each character of a text."""


def regular(text: str, ignore_case: bool) -> str:
    """Return a pattern of `~` in the syntax of RE2. `BadLiteral` if it is wrong, or may mean something else there."""
    if len(text) > LONGEST_PATTERN:
        raise BadLiteral(f"the pattern has {len(text)} characters; at most {LONGEST_PATTERN} are allowed")
    made, at, repeated = [], 0, True  # nothing can be repeated at the beginning
    sizes, last = [0], 0  # with repetitions written out: of the groups that are open, and of what was read last
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (found["repeat"] and repeated):
            raise BadLiteral(f"the pattern {text!r} at {text[at : at + 10]!r}: {_SUPPORTED}")
        at = found.end()
        if found["class"]:
            letter = found["class"]
            made.append(f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]")
        elif found["open"]:
            piece, at = _class(text, at, found["open"], ignore_case)
            made.append(piece)
        else:
            made.append(r"\z" if found["end"] else found[0])
        if found[0] in ("(", "(?:"):
            sizes.append(0)
        else:
            more = last * (_times(found["repeat"]) - 1) if found["repeat"] else sizes.pop() if found[0] == ")" and len(sizes) > 1 else 1
            last = last + more if found["repeat"] else more
            sizes[-1] += more
        repeated = found[0] in ("^", "|", "(", "(?:", "\\A", "$", "\\Z") or found["repeat"] is not None
    if sum(sizes) > max(_MOST_REPEATED, len(text)):
        said = f"it has {sum(sizes)} characters when its repetitions are written out, and at most {_MOST_REPEATED} are possible"
        raise BadLiteral(f"the pattern {text!r}: {said}")
    written = f"(?s{'i' if ignore_case else ''}:{''.join(made)})"
    try:
        pc.match_substring_regex(pa.array([""]), written)
    except pa.ArrowInvalid as error:
        raise BadLiteral(f"the pattern {text!r}: {str(error).removeprefix('Invalid regular expression: ')}") from None
    return written


def _times(repeat: str) -> int:
    """Return how often what is repeated is written out."""
    counts = [int(count) for count in re.findall("[0-9]+", repeat)]
    return max(counts, default=1) + ("," in repeat and len(counts) == 1)


def _class(text: str, at: int, opened: str, ignore_case: bool) -> tuple[str, int]:
    """Return a class in brackets, from behind its beginning on, and where it ends."""
    made = [opened.replace("]", "\\]")]
    while True:
        found = _IN_CLASS.match(text, at)
        if found is None or (found["named"] and found["named"] not in _NAMED):
            raise BadLiteral(f"the pattern {text!r} at {text[at : at + 10]!r}: {_SUPPORTED}")
        at = found.end()
        if found["close"]:
            return "".join(made) + "]", at
        if found["class"] or found["named"]:
            named = "alpha" if ignore_case and found["named"] in ("upper", "lower") else found["named"]
            made.append(_CLASSES[found["class"]] if found["class"] else _NAMED[named])
        else:
            made.append("\\[" if found[0] == "[" else found[0])
