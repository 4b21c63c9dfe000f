"""A cache of compiled kernels that can be copied, and that need not be writable: for images, and for environments that are packed for the
executors of Spark. `NUMBA_CACHE_LOCATOR_CLASSES=service.kernel_cache.Locator`, where it is made and where it is used.

Numba's own locator names a folder by the path of the sources, so that nothing is found from another place. Here the module's name does: the
folder above is named by a hash of the sources (`structures/core/kernel.py`), so no other code can be found. Numba tells processors apart:
for more than one kind of them, `NUMBA_CPU_NAME` and `NUMBA_CPU_FEATURES` are to be fixed as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import UserProvidedCacheLocator


class Locator(UserProvidedCacheLocator):
    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        if function.__module__.startswith("structures."):
            self._cache_path = os.path.join(numba.config.CACHE_DIR, function.__module__)

    def ensure_cache_path(self) -> None:
        if not Path(self.get_cache_path()).is_dir():
            super().ensure_cache_path()
