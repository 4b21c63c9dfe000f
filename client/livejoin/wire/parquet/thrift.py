"""Structs in Thrift's compact protocol, used by Parquet in its footer and before each page.

Fields are identified by number and type, as in Arrow: one of another type is ignored.
"""

from __future__ import annotations

from typing import Any

Struct = dict[tuple[int, int], Any]
"""By (number, type): integers, bytes, structs; a list as the type of its elements and the elements; True for a boolean: its type is its
value."""

TRUE, FALSE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12

_MAX_DEPTH = 16  # of nested structs and lists


def read_struct(data: bytes, at: int, depth: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at `at`, and its end. Raises ValueError and IndexError if it is damaged, or has a duplicate field."""
    if depth > _MAX_DEPTH:
        raise ValueError("structs are nested too deeply")
    found: Struct = {}
    numbers = set[int]()
    field = 0
    while (head := data[at]) != 0:
        at, kind = at + 1, head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = _zigzag(data, at)
        if field in numbers:
            raise ValueError(f"field {field} is there twice")
        numbers.add(field)
        found[field, kind], at = (True, at) if kind in (TRUE, FALSE) else _value(data, at, kind, depth)
    return found, at + 1


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned integer, and its end. Raises as `read_struct`."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError("an integer is too long")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 4 | 5 | 6:
            return _zigzag(data, at)
        case 8:
            length, at = read_varint(data, at)
            return data[at : at + length], at + length
        case 12:
            return read_struct(data, at, depth + 1)
        case 9:
            return _list(data, at, depth + 1)
        case 1 | 2 | 3:  # an element of a list, or a byte
            return data[at], at + 1
        case 7:
            return None, at + 8
    raise ValueError(f"type {kind} is unknown")


def _list(data: bytes, at: int, depth: int) -> tuple[tuple[int, list[Any]], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("lists are nested too deeply")
    head, at = data[at], at + 1
    length, kind = head >> 4, head & 15
    if length == 15:
        length, at = read_varint(data, at)
    if length > len(data) - at:  # an element has at least one byte
        raise ValueError("a list is too long")
    elements = []
    for _ in range(length):
        element, at = _value(data, at, kind, depth)
        elements.append(element)
    return (kind, elements), at
