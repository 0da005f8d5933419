"""The address of the API server and our credentials, from kubeconfig files or from the pod that we run in.

The rules are those of client-go (``tools/clientcmd/client_config.go`` and ``rest/config.go``): with several files in
``KUBECONFIG`` the first ``current-context`` counts, data counts before the file beside it, a token file before a token,
and credentials that are written down before those of a plugin. A plugin that fails is an error and no anonymous
request. Nothing is written to a file.

ID tokens of ``auth-provider: oidc``, refreshed as client-go's ``plugin/pkg/client/auth/oidc/oidc.go`` does.

client-go has this provider still, beside the exec plugins that most people use instead. A refreshed token stays in
memory, because a kubeconfig may be a mounted Secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias
from urllib.parse import SplitResult, quote_plus, urlsplit

import aiohttp
import msgspec
from msgspec import Struct

from tightship.kube import kubeconfig
from tightship.kube.connector import ProxyError, connector, obstacle, proxy_for
from tightship.kube.host import monotonic, wall
from tightship.kube.kubeconfig import Documents, KubeconfigSection, Values
from tightship.kube.plugins import credential
from tightship.kube.tls import ClientTls
from tightship.objects.api_errors import ConfigError, one_line

MARGIN = 10.0
"""Seconds before its expiry at which a token no longer counts as valid."""
_TIMEOUT = 30.0


class IdToken(Struct, frozen=True):
    """A token; *expires* is in seconds since 1970."""

    text: str
    expires: float


class IdTokens:
    """The ID tokens of one kubeconfig, with the last refresh token: a provider may take each only once."""

    def __init__(self) -> None:
        self._token: IdToken | None = None
        self._refresh: dict[str, str] = {}

    async def current(self, user: KubeconfigSection) -> IdToken:
        """Return a valid token of *user*. Raises :class:`ConfigError`."""
        place = user.key("auth-provider")
        provider = user.values.get("auth-provider")
        settings = provider.get("config") if isinstance(provider, dict) else None
        if not isinstance(settings, dict) or not settings.get("idp-issuer-url") or not settings.get("client-id"):
            raise ConfigError(f"{place}: oidc needs idp-issuer-url and client-id in its config")
        written = str(settings.get("id-token") or "")
        try:
            for token in (_read(written) if written else None, self._token):
                if token is not None and token.expires > wall() + MARGIN:
                    return token
            first = str(settings.get("refresh-token") or "")
            if not first:
                raise ValueError("the id-token is not valid any more, and there is no refresh-token")
            async with asyncio.timeout(_TIMEOUT):
                answer = await _refreshed(user, settings, self._refresh.get(first, first))
            if not answer.get("id_token"):
                raise ValueError("the answer to the refresh-token holds no id_token; was the login for scope openid?")
            self._token = _read(str(answer["id_token"]))
        except TimeoutError as error:
            raise ConfigError(f"{place}: oidc: no answer in {_TIMEOUT:g} s") from error
        except aiohttp.ClientError as error:
            raise ConfigError(f"{place}: oidc: {obstacle(error)}") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"{place}: oidc: {one_line(error)}") from error
        self._refresh = {first: str(answer.get("refresh_token") or self._refresh.get(first, first))}
        return self._token


def _read(text: str) -> IdToken:
    """Return the ID token in *text*, whose signature only the API server checks. Raises :class:`ValueError`."""
    parts = text.strip().split(".")
    if len(parts) != 3:
        raise ValueError("the id-token is no JWT")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = float(claims["exp"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("the id-token has no readable exp") from error
    return IdToken(text.strip(), expires)


async def _refreshed(user: KubeconfigSection, settings: Values, refresh_token: str) -> Values:
    """Return the provider's answer to *refresh_token*. Raises :class:`aiohttp.ClientError` and :class:`ValueError`."""
    files = {key: settings.get(f"idp-{key}") for key in ("certificate-authority", "certificate-authority-data")}
    authority = KubeconfigSection(user.path, user.kind, user.name, files).content("certificate-authority")
    issuer = str(settings["idp-issuer-url"]).removesuffix("/")
    client, secret = str(settings["client-id"]), str(settings.get("client-secret") or "")
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
    async with aiohttp.ClientSession(connector=connector(tls=ClientTls(authority=authority).context())) as session:
        status, found = await _asked(session, "GET", f"{issuer}/.well-known/openid-configuration")
        endpoint = found.get("token_endpoint")
        if status != 200 or not isinstance(endpoint, str):
            raise ValueError(f"{issuer} answered {status}, and names no token_endpoint")
        # As golang.org/x/oauth2, which doesn't know either which of the two a provider takes.
        status, answer = await _asked(session, "POST", endpoint, form, _basic(client, secret))
        if status >= 400:
            both = {**form, "client_id": client, **({"client_secret": secret} if secret else {})}
            status, answer = await _asked(session, "POST", endpoint, both)
    if status >= 300:
        why = " ".join(str(answer[each]) for each in ("error", "error_description") if answer.get(each))
        raise ValueError(f"{endpoint} answered {status} to the refresh-token{f': {why}' if why else ''}")
    return answer


def _basic(client: str, secret: str) -> Mapping[str, str]:
    pair = base64.b64encode(f"{quote_plus(client)}:{quote_plus(secret)}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


async def _asked(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, Values]:
    async with session.request(method, url, data=form, headers=headers, proxy=proxy_for(url)) as response:
        body = await response.read()
    try:
        found = json.loads(body)
    except ValueError:
        found = {}
    return response.status, found if isinstance(found, dict) else {}


_log = logging.getLogger(__name__)

TOKEN_FILE_PERIOD = 60.0
"""Seconds after which we read a token file again. The kubelet rotates it at 80 % of its life of at most an hour."""

_CERTIFICATES = "certificates (of certificate-authority, client-certificate, client-key, or their -data)"

EXPIRY_MARGIN = 60.0
"""Seconds before its expiry at which we replace the credential of an exec plugin."""

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterAccess(Struct, frozen=True, eq=False):
    """Everything that one request needs. *server* has no trailing slash; *tls* is ``None`` for plain HTTP."""

    server: str
    headers: tuple[tuple[str, str], ...] = ()
    tls: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None

    @property
    def origin(self) -> str:
        """Scheme, host, port and path of the server, without user name or password."""
        parts = urlsplit(self.server)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class LoadedAccess(Struct, frozen=True):
    """An access, and the seconds for which it is valid; ``None`` means until the server refuses it."""

    access: ClusterAccess
    valid_for: float | None = None


class ClusterCredentials:
    """The present access to one cluster. It is reloaded when it expires or the server refuses it."""

    def __init__(
        self, context: str, load: Callable[[], Awaitable[LoadedAccess]], clock: Callable[[], float] = monotonic
    ) -> None:
        self.context = context
        self._load = load
        self._clock = clock
        self._access: ClusterAccess | None = None
        self._expires: float | None = None
        self._lock = asyncio.Lock()

    async def access(self, refused: ClusterAccess | None = None) -> ClusterAccess:
        """Return the access to use now.

        *refused* is an access that the server answered with 401; it is replaced unless another task has already done
        so. Raises :class:`ConfigError` if none could be loaded. A loaded access stays in use when a later load fails.
        """
        if self._access is not None and not self._outdated(refused):
            return self._access
        async with self._lock:
            if self._access is None or self._outdated(refused):
                await self._renew()
            assert self._access is not None
            return self._access

    def _outdated(self, refused: ClusterAccess | None) -> bool:
        aged = self._expires is not None and self._clock() >= self._expires
        return aged or (refused is not None and refused is self._access)

    async def _renew(self) -> None:
        try:
            loaded = await self._load()
        except ConfigError as error:
            if self._access is None:
                raise
            # Somebody may be replacing the file right now, or the plugin fails for a moment.
            _log.warning("keeping the present credentials: %s", error)
            self._expires = self._clock() + TOKEN_FILE_PERIOD
            return
        self._access = loaded.access
        self._expires = None if loaded.valid_for is None else self._clock() + loaded.valid_for


def contexts(file: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the contexts in the kubeconfig files that :func:`find` reads. Raises :class:`ConfigError`."""
    files, must_exist = _files(file, environ)
    documents = kubeconfig.read(files, must_exist=must_exist)
    entries = (each for _, document in documents if isinstance(each := document.get("contexts"), list))
    named = (entry["name"] for each in entries for entry in each if isinstance(entry, dict) and entry.get("name"))
    return list(dict.fromkeys(map(str, named)))


def _files(file: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> tuple[list[Path], bool]:
    """Return the kubeconfig files, and whether they must exist."""
    if file is not None:
        return [Path(file).expanduser()], True
    named = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path("~/.kube/config").expanduser()], False


def find(
    file: str | os.PathLike[str] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClusterCredentials:
    """Return the credentials for the kubeconfig *file*, else ``$KUBECONFIG``, ``~/.kube/config``, those of our pod.

    Raises :class:`ConfigError` if none of these exists, or if the file or *context* does not exist.
    """
    files, must_exist = _files(file, environ)
    if must_exist or any(path.exists() for path in files):
        return _from_files(files, context, must_exist=must_exist)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None and not environ.get("KUBECONFIG"):
        return in_cluster(environ=environ)
    looked = os.pathsep.join(str(path) for path in files)
    raise ConfigError(f"no cluster to talk to: {looked} does not exist and this is not a pod; name one by --kubeconfig")


def in_cluster(mount: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> ClusterCredentials:
    """Return the credentials of the service account *mount*-ed into our pod."""

    async def load() -> LoadedAccess:
        host, port = (environ.get(f"KUBERNETES_SERVICE_{each}", "") for each in ("HOST", "PORT"))
        if not host or not port:
            raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set in a pod")
        try:
            headers = _bearer((mount / "token").read_text(encoding="utf-8"), str(mount / "token"))
            tls = ClientTls(authority=(mount / "ca.crt").read_bytes())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{mount}: {one_line(error)}") from error
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return LoadedAccess(builder.access(server, headers, tls), TOKEN_FILE_PERIOD)

    builder = _AccessBuilder(str(mount))
    return ClusterCredentials(IN_CLUSTER, load)


def _from_files(files: list[Path], context: str | None, *, must_exist: bool) -> ClusterCredentials:
    documents = kubeconfig.read(files, must_exist=must_exist)
    if context is None:
        named = (document.get("current-context") for _, document in documents)
        context = next((name for name in named if isinstance(name, str) and name), None)
    where = os.pathsep.join(str(path) for path, _ in documents)
    if context is None:
        raise ConfigError(f"{where}: no current-context is set; name one by --context")
    chosen = context
    builder = _AccessBuilder(where)
    tokens = IdTokens()

    async def load() -> LoadedAccess:
        return await _load(kubeconfig.read(files, must_exist=must_exist), chosen, where, builder, tokens)

    return ClusterCredentials(chosen, load)


async def _load(
    documents: Documents, context: str, where: str, builder: _AccessBuilder, tokens: IdTokens
) -> LoadedAccess:
    cluster, user = kubeconfig.sections(documents, context, where)
    plugin = kubeconfig.plugin(user, cluster)
    valid_for = TOKEN_FILE_PERIOD if user.text("tokenFile") else None
    try:
        headers = _written(user)
        tls = ClientTls(
            authority=cluster.content("certificate-authority"),
            certificate=user.content("client-certificate"),
            key=user.content("client-key"),
            insecure=bool(cluster.values.get("insecure-skip-tls-verify")),
        )
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {where}, context {context!r}: {one_line(error)}") from error
    if plugin is not None and not headers and not tls.certificate:
        found = await credential(plugin)
        headers = _bearer(found.token, plugin.place) if found.token else ()
        tls = msgspec.structs.replace(tls, certificate=found.certificate, key=found.key)
        if found.expires is not None:
            valid_for = max(found.expires - wall() - EXPIRY_MARGIN, EXPIRY_MARGIN / 6)
    elif user.values.get("auth-provider") and not headers:
        token = await tokens.current(user)
        headers = _bearer(token.text, user.key("auth-provider"))
        valid_for = max(token.expires - wall() - EXPIRY_MARGIN, EXPIRY_MARGIN / 6)
    access = builder.access(
        cluster.text("server"),
        (*headers, *_impersonation(user.values)),
        tls,
        server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
    )
    return LoadedAccess(access, valid_for)


Headers: TypeAlias = tuple[tuple[str, str], ...]


def _written(user: KubeconfigSection) -> Headers:
    """Return the headers for what *user* has written down: a token, or a user name and a password."""
    if path := user.text("tokenFile"):
        return _bearer(Path(path).read_text(encoding="utf-8"), user.key("tokenFile"))
    if token := user.text("token"):
        return _bearer(token, user.key("token"))
    name, password = user.text("username"), user.text("password")
    if not name and not password:
        return ()
    return (("Authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"),)


def _bearer(text: str, place: str) -> Headers:
    """Return the header for the token *text*, which may have a line end. Raises :class:`ConfigError`."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{place}: {'is empty' if not token else 'holds characters that no token has'}")
    return (("Authorization", f"Bearer {token}"),)


def _impersonation(user: kubeconfig.Values) -> Headers:
    names = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
    headers = [(name, str(user[key])) for key, name in names if user.get(key)]
    groups = user.get("as-groups")
    headers += [("Impersonate-Group", str(group)) for group in (groups if isinstance(groups, list) else ())]
    return tuple(headers)


class _AccessBuilder:
    """Makes accesses. The TLS context, and so the open connections, lasts until a certificate or key changes."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._tls: tuple[ClientTls, ssl.SSLContext] | None = None

    def access(
        self, server: str, headers: Headers, tls: ClientTls, *, server_name: str = "", proxy: str = ""
    ) -> ClusterAccess:
        """Return the access. Raises :class:`ConfigError` for an address, certificate or proxy that can't be used."""
        server = server.rstrip("/")
        parts = _parts(server)
        if parts is None:
            raise ConfigError(f"{self._where}: server {server!r} is not an http or https address")
        try:
            through = proxy or proxy_for(server)
        except ProxyError as error:
            raise ConfigError(str(error)) from error
        return ClusterAccess(
            server=server,
            headers=headers,
            tls=self._context(tls) if parts.scheme == "https" else None,
            tls_server_name=server_name or None,
            proxy=through,
        )

    def _context(self, tls: ClientTls) -> ssl.SSLContext:
        if self._tls is None or self._tls[0] != tls:
            try:
                self._tls = tls, tls.context()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise ConfigError(f"{self._where}: {_CERTIFICATES}: {one_line(error)}") from error
        return self._tls[1]


def _parts(server: str) -> SplitResult | None:
    """Return the parts of the address *server*, ``None`` if no request can go there."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # also a port that is none
        return None
    return parts if usable else None
