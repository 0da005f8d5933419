"""The address of the API server and our credentials, from kubeconfig files or from the pod that we run in.

``kubernetes.aio`` reads the files; only code that reaches a cluster imports it. This module corrects its loader: with
several files in ``KUBECONFIG`` the first ``current-context`` counts (as for kubectl), a token file overrides a token
beside it and loses its line end, a failing exec plugin is an error rather than an anonymous request, and impersonation
works.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct

from tightship.core.api_errors import ConfigError, one_line
from tightship.kube import kubeconfig
from tightship.kube.host import monotonic, wall
from tightship.kube.kubeconfig import Documents

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

_log = logging.getLogger(__name__)

TOKEN_FILE_PERIOD = 60.0
"""Seconds after which we read a token file again. The kubelet rotates it at 80 % of its life of at most an hour."""

_CERTIFICATES = "certificates (of certificate-authority, client-certificate, client-key, or their -data)"

EXPIRY_MARGIN = 60.0
"""Seconds before its expiry at which we replace a token of an exec plugin."""

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


def find(
    file: str | os.PathLike[str] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ClusterCredentials:
    """Return the credentials for the kubeconfig *file*, else ``$KUBECONFIG``, ``~/.kube/config``, those of our pod.

    Raises :class:`ConfigError` if none of these exists, or if the file or *context* does not exist.
    """
    if file is not None:
        return _from_files([Path(file).expanduser()], context, must_exist=True)
    named = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = named or [Path("~/.kube/config").expanduser()]
    if any(path.exists() for path in files):
        return _from_files(files, context, must_exist=False)
    if environ.get("KUBERNETES_SERVICE_HOST") and context is None and not named:
        return in_cluster(environ=environ)
    looked = os.pathsep.join(str(path) for path in files)
    raise ConfigError(f"no cluster to talk to: {looked} does not exist and this is not a pod; name one by --kubeconfig")


def in_cluster(mount: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> ClusterCredentials:
    """Return the credentials of the service account *mount*-ed into our pod."""

    async def load() -> LoadedAccess:
        from kubernetes.aio.client import Configuration
        from kubernetes.aio.config.config_exception import ConfigException
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader

        configuration = Configuration()
        loader = InClusterConfigLoader(
            str(mount / "token"), str(mount / "ca.crt"), try_refresh_token=False, environ=environ
        )
        try:
            loader.load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise ConfigError(f"{mount}: {one_line(error)}") from error
        return LoadedAccess(builder.access(configuration), TOKEN_FILE_PERIOD)

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

    async def load() -> LoadedAccess:
        return await _load(kubeconfig.read(files, must_exist=must_exist), chosen, where, builder)

    return ClusterCredentials(chosen, load)


async def _load(documents: Documents, context: str, where: str, builder: _AccessBuilder) -> LoadedAccess:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    cluster, user = kubeconfig.sections(documents, context, where)
    plugin = user.values.get("exec")
    if user.values.get("tokenFile"):
        user.values.pop("token", None)
    # One context with absolute paths: the loader knows one base directory only when it is handed a dictionary.
    merged = {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster.values}],
        "users": [{"name": "it", "user": user.values}],
    }
    configuration = Configuration()
    with _Complaints() as complaints:
        try:
            loader = KubeConfigLoader(merged)
            await loader.load_and_set(configuration)
        except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"kubeconfig {where}, context {context!r}: {one_line(error)}") from error
    if plugin and not configuration.api_key and not configuration.cert_file:
        told = "; ".join(complaints.texts) or "it gave neither a token nor a certificate"
        raise ConfigError(f"{user.key('exec')}: the exec plugin failed: {told}")
    valid_for = TOKEN_FILE_PERIOD if user.values.get("tokenFile") else None
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if expiry is not None:
        valid_for = max(expiry.timestamp() - wall() - EXPIRY_MARGIN, EXPIRY_MARGIN / 6)
    return LoadedAccess(builder.access(configuration, _impersonation(user.values)), valid_for)


def _impersonation(user: kubeconfig.Values) -> tuple[tuple[str, str], ...]:
    names = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
    headers = [(name, str(user[key])) for key, name in names if user.get(key)]
    groups = user.get("as-groups")
    headers += [("Impersonate-Group", str(group)) for group in (groups if isinstance(groups, list) else ())]
    return tuple(headers)


class _Complaints(logging.Handler):
    """Collects the loader's log: the loader ignores the failure of an exec plugin and goes on without credentials."""

    _logger = logging.getLogger("kubernetes.aio.config.kube_config")

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(" ".join(record.getMessage().split()))

    def __enter__(self) -> _Complaints:
        self._propagate, self._logger.propagate = self._logger.propagate, False
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagate


class _AccessBuilder:
    """Makes accesses from configurations. The TLS context, and so the open connections, lasts until a file changes."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._key: bytes | None = None
        self._tls: ssl.SSLContext | None = None

    def access(self, configuration: Configuration, headers: tuple[tuple[str, str], ...] = ()) -> ClusterAccess:
        """Return the access that *configuration* describes. Raises :class:`ConfigError` for unusable certificates."""
        server = str(configuration.host).rstrip("/")
        parts = _parts(server)
        if parts is None:
            raise ConfigError(f"{self._where}: server {server!r} is not an http or https address")
        written = configuration.api_key.get("BearerToken")
        if written:
            # The loaders keep the line end of a token file, which a header can't hold.
            scheme, _, token = written.strip().partition(" ")
            headers = (("Authorization", f"{scheme.capitalize()} {token.strip()}"), *headers)
        return ClusterAccess(
            server=server,
            headers=headers,
            tls=self._context(configuration) if parts.scheme == "https" else None,
            tls_server_name=configuration.tls_server_name or None,
            proxy=configuration.proxy or proxy_for(parts.scheme, parts.netloc.rpartition("@")[2]),
        )

    def _context(self, configuration: Configuration) -> ssl.SSLContext:
        from kubernetes.aio.client.rest import RESTClientObject

        # Python 3.13 refuses CA certificates without a key identifier by default; kubectl and old clusters do not.
        configuration.disable_strict_ssl_verification = True
        configuration.retries = None
        files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
        try:
            digest = hashlib.sha256(repr((files, configuration.verify_ssl)).encode())
            for name in files:
                digest.update(Path(name).read_bytes() if name else b"")
            if self._tls is None or digest.digest() != self._key:
                self._tls = RESTClientObject(configuration).ssl_context
                self._key = digest.digest()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError(f"{self._where}: {_CERTIFICATES}: {one_line(error)}") from error
        return self._tls


def _parts(server: str) -> SplitResult | None:
    """Return the parts of the address *server*, ``None`` if no request can go there."""
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # also a port that is none
        return None
    return parts if usable else None


def proxy_for(scheme: str, host: str) -> str | None:
    """Return the environment's proxy for *host* (by ``HTTPS_PROXY``, ``NO_PROXY`` and the like), if any."""
    # aiohttp's trust_env would also let an entry of ~/.netrc replace the Authorization header.
    return None if proxy_bypass(host) else getproxies().get(scheme)
