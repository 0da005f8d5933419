"""A server that answers queries as Prometheus does, as a part of settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tightship.objects.query_servers import CONCURRENCY, TIMEOUT, Server, Tls, parse_address, parse_server
from tightship.process.settings.loading import Seconds

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


def _address(text: str) -> str:
    return str(parse_server(text)) if text else ""


def _plain_texts(value: object) -> object:
    """Return a mapping with numbers as texts: YAML reads ``X-Scope-OrgID: 1`` as a number."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: str(each) if isinstance(each, int) and not isinstance(each, bool) else each for key, each in value.items()
    }


def _header_name(name: str) -> str:
    if name.lower() in _SECRET_HEADERS:
        raise ValueError("has no place in a ConfigMap; allowed are bearerTokenFile and basicAuth")
    if not _HEADER.fullmatch(name):
        raise ValueError("is not the name of a header")
    return name


def _header_text(text: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise ValueError("contains characters that are not allowed in a header")
    return text


ServerAddress = Annotated[str, AfterValidator(_address)]
"""The address of a server in its canonical form, or an empty text for none."""
Texts = Annotated[Mapping[str, str], BeforeValidator(_plain_texts)]
Headers = Annotated[
    Mapping[Annotated[str, AfterValidator(_header_name)], Annotated[str, AfterValidator(_header_text)]],
    BeforeValidator(_plain_texts),
]


class _ServerPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class BasicAuth(_ServerPart):
    """A user name, and the file that holds the password."""

    username: str = Field(min_length=1)
    password_file: str = Field(default="", alias="passwordFile")


class TlsSettings(_ServerPart):
    """Paths of the certificate files."""

    ca_file: str = Field(default="", alias="caFile")
    """CA certificates that may sign the server's certificate; without a file, the system's CAs."""
    cert_file: str = Field(default="", alias="certFile")
    key_file: str = Field(default="", alias="keyFile")
    """The client certificate and its key, if the server requires one."""
    server_name: str = Field(default="", alias="serverName")
    """The name in the server's certificate, if not the host name."""
    insecure: bool = Field(default=False, alias="insecureSkipVerify")

    @model_validator(mode="after")
    def _paired(self) -> TlsSettings:
        if bool(self.cert_file) != bool(self.key_file):
            raise ValueError("certFile and keyFile go together")
        return self


class ServerSettings(_ServerPart):
    """One server. Only ``default`` may omit its URL, which is then ``PROMETHEUS_SERVER_URL``."""

    url: ServerAddress = ""
    bearer_token_file: str = Field(default="", alias="bearerTokenFile")
    basic_auth: BasicAuth | None = Field(default=None, alias="basicAuth")
    tls: TlsSettings = TlsSettings()
    headers: Headers = {}
    """HTTP headers of each query, such as ``X-Scope-OrgID``."""
    parameters: Texts = {}
    """URL parameters of each query, such as ``dedup``."""
    timeout: Seconds = Field(default=TIMEOUT, gt=0, le=120)
    """Timeout of one query. The controller sends the timeout to the server, and waits slightly longer."""
    concurrency: int = Field(default=CONCURRENCY, ge=1, le=100, alias="maximumConcurrency")
    """Concurrent queries to the server."""

    @model_validator(mode="after")
    def _one_way(self) -> ServerSettings:
        if self.bearer_token_file and self.basic_auth is not None:
            raise ValueError("bearerTokenFile and basicAuth are mutually exclusive")
        return self


def server_of(name: str, given: ServerSettings, url: str) -> Server:
    """Return the server that the settings *given* describe, at *url*."""
    tls, basic = given.tls, given.basic_auth
    return Server(
        name=name,
        address=parse_address(url),
        headers=tuple(sorted(given.headers.items())),
        parameters=tuple(sorted(given.parameters.items())),
        token_file=given.bearer_token_file,
        username=basic.username if basic is not None else "",
        password_file=basic.password_file if basic is not None else "",
        tls=Tls(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name, tls.insecure),
        timeout=given.timeout,
        concurrency=given.concurrency,
    )
