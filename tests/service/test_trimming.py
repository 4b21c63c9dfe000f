from __future__ import annotations

import subprocess
import sys

import pytest

from tests.server_process import ROOT

# Free memory between used blocks is not returned by itself: every hundredth block is kept.
_PROGRAM = """
import numpy as np, psutil
from service.trimming import give_back, use_one_allocator
use_one_allocator()
blocks = [np.ones(100_000, np.uint8) for _ in range(2_000)]
kept = blocks[::100]
del blocks
before = psutil.Process().memory_info().rss
give_back()
print(before - psutil.Process().memory_info().rss)
"""


def test_what_is_free_goes_back() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(found.stdout) > 150e6


# Each of these threads frees blocks at the end of its arena: after that of a large block, they would stay there.
_THREADS = """
import ctypes, sys, threading, psutil
from service.trimming import give_back, use_one_allocator
use_one_allocator()
threads, blocks_each, size = map(int, sys.argv[1:])
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes, c.memset.argtypes = ctypes.c_void_p, [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
c.free(c.malloc(30_000_000))
all_have = threading.Barrier(threads + 1)

def work():
    blocks = [c.malloc(size) for _ in range(blocks_each)]
    for block in blocks:
        c.memset(block, 1, size)
    for block in blocks:
        c.free(block)
    all_have.wait()
    all_have.wait()

before = psutil.Process().memory_info().rss
for _ in range(threads):
    threading.Thread(target=work).start()
all_have.wait()
for _ in range(2):
    give_back()
    print(psutil.Process().memory_info().rss - before)
all_have.wait()
"""


@pytest.mark.parametrize(("threads", "blocks", "size"), [(12, 20, 100_000), (4, 3, 10_000_000)])
def test_threads_keep_little(threads: int, blocks: int, size: int) -> None:
    command = [sys.executable, "-c", _THREADS, *map(str, (threads, blocks, size))]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    first, second = map(int, found.stdout.split())
    assert first < 2e6 and second < 2e6
