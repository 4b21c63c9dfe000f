"""Which certificates of a service are trusted."""

from __future__ import annotations

import ssl
from os import PathLike

from livejoin.problems import BadFile


def trusted(ca: str | PathLike[str] | None) -> ssl.SSLContext | bool:
    """The certificates in the PEM file `ca` and no others; without one, those that web browsers trust. Raises BadFile."""
    if ca is None:
        return True
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = "it contains no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise BadFile(f"the CA file {ca} cannot be used ({reason}): give a PEM file with the certificates to trust") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def is_distrust(error: BaseException | None) -> bool:
    """Whether a connection failed because the certificate of the service is not trusted, or is for another name."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
