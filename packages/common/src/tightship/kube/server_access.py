"""The access to a server that answers queries: headers, TLS and proxy.

Credentials are mounted files that change: whoever asks checks them before each round of queries, and rereads changed
files. If a file becomes unreadable, the last good content stays in use.
"""

from __future__ import annotations

import base64
import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from tightship.kube.connector import proxy_for
from tightship.objects.query_servers import Address, Server, Tls

_log = logging.getLogger(__name__)

_Signature = tuple[tuple[str, int, int, int], ...]


class CredentialsError(Exception):
    """Unreadable credentials; the text names the file."""


class ServerAccess(Struct, frozen=True, eq=False):
    """The headers and the TLS settings of a request."""

    headers: Mapping[str, str]
    tls: ssl.SSLContext | bool = True
    server_name: str | None = None


class ServerCredentials:
    """The access to one server, kept up to date with its files."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._signature: _Signature | None = None
        self._access: ServerAccess | None = None

    def access(self) -> ServerAccess:
        """Return the access to use now. Reads files, so call this in a thread.

        Raises :class:`CredentialsError` if the credentials have never been readable.
        """
        try:
            signature = self._signed()
            if self._access is None or signature != self._signature:
                self._access = self._read()
                self._signature = signature
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            text = " ".join(str(error).split())
            if self._access is None:
                raise CredentialsError(text) from error
            _log.warning("server %s: keeping the present credentials: %s", self._server.name, text)
        return self._access

    def _signed(self) -> _Signature:
        """Return a value that changes with the files; a mounted Secret changes through a symlink, which ``stat``
        follows.
        """
        server = self._server
        names = (server.token_file, server.password_file, server.tls.ca_file, server.tls.cert_file, server.tls.key_file)
        found = []
        for name in names:
            if name:
                stat = os.stat(name)  # noqa: PTH116 - follows links, one call
                found.append((name, stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(found)

    def _read(self) -> ServerAccess:
        server = self._server
        headers = dict(server.headers)
        if server.token_file:
            headers["Authorization"] = f"Bearer {_secret(server.token_file)}"
        elif server.username:
            password = _secret(server.password_file) if server.password_file else ""
            pair = base64.b64encode(f"{server.username}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        tls = _context(server.tls) if server.address.scheme == "https" else True
        return ServerAccess(headers, tls, server.tls.server_name or None)


def proxy_of(address: Address) -> str | None:
    """Return the environment's proxy for *address*. Raises :class:`~tightship.kube.connector.ProxyError`."""
    return proxy_for(str(address))


def _secret(name: str) -> str:
    text = Path(name).read_text(encoding="utf-8").strip()
    if not text or not text.isprintable():
        raise ValueError(f"{name}: {'is empty' if not text else 'holds control characters'}")
    return text


def _context(tls: Tls) -> ssl.SSLContext | bool:
    if tls == Tls():
        return True
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except ssl.SSLError as error:
        names = ", ".join(name for name in (tls.ca_file, tls.cert_file, tls.key_file) if name)
        raise ValueError(f"{names}: {error.reason or error}") from error
    return context
