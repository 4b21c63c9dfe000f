"""A cache of compiled kernels that is only read, as in an image: `NUMBA_CACHE_LOCATOR_CLASSES=service.kernel_cache.Locator`."""

from __future__ import annotations

from pathlib import Path

from numba.core.caching import UserProvidedCacheLocator


class Locator(UserProvidedCacheLocator):
    """Numba's own for a given folder, except that a folder that exists need not be writable: what is in it is used."""

    def ensure_cache_path(self) -> None:
        if not Path(self.get_cache_path()).is_dir():
            super().ensure_cache_path()
