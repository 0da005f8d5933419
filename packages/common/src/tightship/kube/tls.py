"""TLS contexts made of what is in memory: on a read-only root file system no key could be written to a file."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct


class ClientTls(Struct, frozen=True):
    """Whom a client trusts and who it is, in PEM. Without *authority* the system's authorities count."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Return a context of these. Raises :class:`ssl.SSLError` or :class:`ValueError`."""
        # A bundle may have comments in any encoding. As bytes it would count as DER.
        context = ssl.create_default_context(cadata=self.authority.decode("ascii", "ignore") or None)
        # As in Go: any given certificate is an anchor, and old authorities without a key identifier are good.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            with as_file(self.certificate + b"\n" + self.key) as file:
                context.load_cert_chain(file, password=_no_password)
        return context


def _no_password() -> str:
    # OpenSSL would ask for one on the terminal.
    raise ValueError("the key is encrypted; allowed is one without a password")


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Return the path of a file with *content*: in memory if possible, as the root file system may be read-only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
