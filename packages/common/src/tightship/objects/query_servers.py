"""Servers that answer queries as Prometheus does, as they are configured. Pure."""

from __future__ import annotations

from msgspec import Struct

from tightship.objects.addresses import Address

TIMEOUT = 10.0
CONCURRENCY = 8
"""Concurrent queries to one server; Prometheus itself runs 20 at a time by default."""


class Tls(Struct, frozen=True):
    """Paths of the certificate files; *server_name* is the name in the server's certificate, if not the host name."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure: bool = False


class Server(Struct, frozen=True):
    """One server. Each query has the *parameters*, and *timeout* seconds."""

    name: str
    address: Address
    headers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    token_file: str = ""
    username: str = ""
    password_file: str = ""
    tls: Tls = Tls()
    timeout: float = TIMEOUT
    concurrency: int = CONCURRENCY
