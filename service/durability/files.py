"""Files: free space, checksums, links, and copies that are on disk on return."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from service.durability.folder import DamagedFolder, private, sync

_PIECE = 1 << 20
_SYNC_BYTES = 16 << 20  # written before they are synced: a sync of another file then need not wait for all of them

Look = Callable[[int], None]  # called with the bytes of each piece; raises an exception to end the work


class Digest(NamedTuple):
    """The size and checksums of a file's content."""

    bytes: int
    crc: int  # CRC-32
    sha256: str  # in hex


def free_bytes(path: Path | int) -> int:
    """Return the free space on the disk of a path, or of an open file, for users other than root. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def digest(path: Path, look: Look = lambda count: None) -> Digest:
    """Return the digest of a file. Raises Damaged if it cannot be read, OSError if it cannot be opened. Cost: the file is read once."""
    size, crc, sha = 0, 0, hashlib.sha256()
    with open(path, "rb") as file:
        while piece := _read(file):
            look(len(piece))
            size, crc = size + len(piece), zlib.crc32(piece, crc)
            sha.update(piece)
    return Digest(size, crc, sha.hexdigest())


def copy_file(source: BinaryIO, copy: Path, look: Look = lambda count: None) -> None:
    """Copy the rest of an open file to a new one, which is on disk on return. Raises Damaged if the source cannot be read, OSError if the
    copy cannot be written."""
    pending = 0
    with open(copy, "wb", opener=private) as made:
        while piece := _read(source):
            look(len(piece))
            made.write(piece)
            pending += len(piece)
            if pending >= _SYNC_BYTES:
                made.flush()
                sync(made.fileno(), copy)
                pending = 0
        made.flush()
        sync(made.fileno(), copy)


def copy_path(source: Path, target: Path) -> None:
    """Copy a file; it is on disk on return. Raises as `copy_file`; OSError if the source cannot be opened."""
    with open(source, "rb") as file:
        copy_file(file, target)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file another name, or copy it if that is impossible. Raises as `link` and `copy_path`."""
    if not link(source, target):
        copy_path(source, target)


def _read(source: BinaryIO) -> bytes:
    try:
        return source.read(_PIECE)
    except OSError as error:
        raise DamagedFolder(f"a file that cannot be read ({error.strerror})", Path(source.name)) from error


def link(path: Path, copy: Path) -> bool:
    """Give a file another name. Return False if that is impossible: on another disk, or without links in the file system. Raises
    OSError."""
    try:
        os.link(path, copy)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EEXIST, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise
        return False
    return True
