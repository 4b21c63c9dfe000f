"""The version of the software, for the service, which uses nothing else of the client but its wire format."""

from __future__ import annotations

from livejoin import __version__

VERSION = __version__
