"""The address of the API server and our credentials, from kubeconfig files or from the pod that we run in.

The rules are those of client-go (``tools/clientcmd/client_config.go`` and ``rest/config.go``): with several files in
``KUBECONFIG`` the first ``current-context`` counts, data counts before the file beside it, a token file before a token,
and credentials that are written down before those of a plugin. A plugin that fails is an error and no anonymous
request. Nothing is written to a file.

What kubeconfig files say is checked: an error names the file, the key, the value and what is allowed. TLS contexts are
made of what is in memory: on a read-only root file system no key could be written to a file.

Exec plugins, programs named by a kubeconfig that give credentials, run as client-go runs them
(``plugin/pkg/client/auth/exec/exec.go``). As there, what a plugin writes to stderr reaches the user at once, because
that may be the code with which to log in. Its last line is also part of the error.

ID tokens of ``auth-provider: oidc`` are refreshed as client-go's ``plugin/pkg/client/auth/oidc/oidc.go`` does:
client-go has this provider still, beside the exec plugins that most people use instead. A refreshed token stays in
memory, because a kubeconfig may be a mounted Secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import json
import logging
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, quote, quote_plus, urlsplit

import aiohttp
import msgspec
import yaml
from msgspec import Struct

from tightship.kube.connector import ProxyError, checked, connector, obstacle, proxy_for
from tightship.kube.host import monotonic, wall
from tightship.objects.api_errors import ConfigError, one_line
from tightship.objects.quoting import quoted
from tightship.objects.times import parse_rfc3339


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


API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"
"""The name of a cluster's extension that a plugin gets as its ``config``."""

TIMEOUT = 300.0
"""Seconds for a plugin that nobody watches on a terminal: a controller whose requests wait longer counts as hung."""

_TAIL = 2000
"""Characters of stderr in which the last line is looked for."""


class Plugin(Struct, frozen=True):
    """A plugin; *place* is its place in the kubeconfig. *cluster* is ``spec.cluster``, if it wants that."""

    place: str
    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    interactive_mode: str = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, object] | None = None


class PluginCredential(Struct, frozen=True):
    """A *token*, or a *certificate* with its *key* in PEM, or both. *expires* is in seconds since 1970."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires: float | None = None


async def credential(plugin: Plugin) -> PluginCredential:
    """Run *plugin*, and return its credential. If cancelled, kill it. Raises :class:`ConfigError`."""
    terminal = _is_terminal()
    if plugin.interactive_mode == "Always" and not terminal:
        raise ConfigError(f"{plugin.place}.interactiveMode: Always, but standard input is not a terminal")
    interactive = terminal and plugin.interactive_mode != "Never"
    spec: dict[str, object] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec = {"cluster": plugin.cluster, **spec}
    asked = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {**os.environ, **plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(asked, default=str)}
    if shutil.which(plugin.command) is None:
        hint = _line(plugin.install_hint)
        more = f"; {hint}" if hint else ""
        raise ConfigError(f"{plugin.place}.command: {plugin.command}: there is no such program{more}")
    try:
        running = _Running([plugin.command, *plugin.arguments], environment, interactive=interactive)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{plugin.place}.command: {plugin.command}: {one_line(error)}") from error
    failed = f"{plugin.place}: the exec plugin {plugin.command}"
    try:
        async with asyncio.timeout(None if sys.stderr is not None and sys.stderr.isatty() else TIMEOUT):
            code, answer = await asyncio.shield(running.ended)
    except TimeoutError as error:
        raise ConfigError(f"{failed} did not end within {TIMEOUT:g} s{running.last_line()}") from error
    finally:
        running.kill()
    if code:
        how = f"failed with exit code {code}" if code > 0 else f"was killed by signal {-code}"
        raise ConfigError(f"{failed} {how}{running.last_line()}")
    try:
        return _understood(plugin, answer)
    except ValueError as error:
        raise ConfigError(f"{failed} {error}{running.last_line()}") from error


def _is_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


class _Running:
    """A program that runs; *ended* becomes its exit code and its stdout.

    Threads that the end of the process does not wait for read the pipes, so any amount fits. As in client-go, children
    that the program leaves behind delay the end only while they hold its stdout.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], *, interactive: bool) -> None:
        self._tail = ""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        self._stderr = threading.Thread(target=self._relay_stderr, name="stderr of a plugin", daemon=True)
        self._stderr.start()
        threading.Thread(target=self._read, name="stdout of a plugin", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            answer = stdout.read()
        code = self._process.wait()
        self._stderr.join(0.5)
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            self._loop.call_soon_threadsafe(self._end, code, answer)

    def _end(self, code: int, answer: bytes) -> None:
        if not self.ended.done():
            self.ended.set_result((code, answer))

    def _relay_stderr(self) -> None:
        assert self._process.stderr is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self._process.stderr as stderr:
            while piece := os.read(stderr.fileno(), 1 << 16):
                text = decoder.decode(piece)
                self._tail = (self._tail + text)[-_TAIL:]
                with suppress(OSError, ValueError, AttributeError):  # no stderr, or a closed one
                    sys.stderr.write(text)
                    sys.stderr.flush()

    def last_line(self) -> str:
        """Return the last line on stderr after a colon, nothing if there is none."""
        last = next((line for each in reversed(self._tail.splitlines()) if (line := _line(each))), "")
        return f": {last}" if last else ""

    def kill(self) -> None:
        """Kill the program if it still runs."""
        if not self.ended.done():
            self.ended.cancel()
            self._process.kill()


def _understood(plugin: Plugin, answer: bytes) -> PluginCredential:
    """Return the credential in *answer*. Raises :class:`ValueError`, whose text follows the plugin's name."""
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise ValueError("printed no JSON") from error
    if not isinstance(found, dict) or found.get("kind") != "ExecCredential":
        raise ValueError("printed no ExecCredential")
    if found.get("apiVersion") != plugin.api_version:
        raise ValueError(f"is configured for {plugin.api_version}, and returned {quoted(found.get('apiVersion'))}")
    status = found.get("status")
    if not isinstance(status, dict):
        raise ValueError("returned no status")  # noqa: TRY004
    token, certificate, key = (status.get(each) or "" for each in ("token", "clientCertificateData", "clientKeyData"))
    if not all(isinstance(each, str) for each in (token, certificate, key)):
        raise ValueError("returned a token, certificate or key that is not text")
    if not (token or certificate or key):
        raise ValueError("returned neither a token nor a certificate with its key")
    if bool(certificate) != bool(key):
        raise ValueError("returned only a certificate or only a key, not both")
    expiry = status.get("expirationTimestamp")
    try:
        expires = None if expiry is None else parse_rfc3339(expiry)
    except (ValueError, TypeError) as error:
        raise ValueError(f"returned the expirationTimestamp {quoted(expiry)}, which is no time") from error
    return PluginCredential(token, certificate.encode(), key.encode(), expires)


def _line(text: str) -> str:
    """Return *text* on one line, without what could change a terminal."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


Values: TypeAlias = dict[str, object]
Documents: TypeAlias = list[tuple[Path, Values]]
"""Files with what they hold, the first of which counts where several say the same."""

_TEXTS = ("server", "certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url")
_USER_TEXTS = (
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "tokenFile",
    "token",
    "username",
    "password",
)
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_DATA = ("certificate-authority-data", "client-certificate-data", "client-key-data")

_REMOVED = {
    "azure": "the exec plugin of https://github.com/Azure/kubelogin by: kubelogin convert-kubeconfig",
    "gcp": "the exec plugin gke-gcloud-auth-plugin by: gcloud container clusters get-credentials",
    "openstack": "the exec plugin client-keystone-auth of https://github.com/kubernetes/cloud-provider-openstack",
}
"""What replaces the ``auth-provider`` that client-go has removed (its ``azure_stub.go`` and ``gcp_stub.go``)."""

_DEEPEST = 100


class KubeconfigSection(Struct, frozen=True):
    """The cluster or the user called *name*, with absolute paths; *kind* is ``cluster`` or ``user``."""

    path: Path
    kind: str
    name: str
    values: Values

    def key(self, key: str) -> str:
        """Return *key* with the file and the place, for messages."""
        return f"kubeconfig {self.path}: {self.kind}s[{self.name}].{self.kind}.{key}"

    def text(self, key: str) -> str:
        """Return the text of *key*, empty if there is none."""
        return str(self.values.get(key) or "")

    def content(self, key: str) -> bytes:
        """Return what *key*-data holds, else the file that *key* names, else nothing. Raises :class:`OSError`."""
        data = self.text(f"{key}-data")
        if data:
            return base64.b64decode("".join(data.split()))
        path = self.text(key)
        return Path(path).read_bytes() if path else b""


def read_kubeconfigs(files: list[Path], *, must_exist: bool) -> Documents:
    """Return the contents of *files*; unless they *must_exist*, those that don't are left out, and empty ones always.

    Raises :class:`ConfigError`.
    """
    there = [path for path in files if must_exist or path.exists()]
    found = [(path, document) for path in there if (document := _document(path)) is not None]
    if not found:
        problem = "holds no configuration" if there else "no such file"
        raise ConfigError(f"kubeconfig {os.pathsep.join(map(str, there or files))}: {problem}")
    return found


def _document(path: Path) -> Values | None:
    """Return what the file *path* holds, ``None`` if it is empty. Raises :class:`ConfigError`."""
    try:
        raw = path.read_bytes()
        _check_depth(raw)
        document, *more = list(yaml.safe_load_all(raw)) or [None]
    except OSError as error:
        raise ConfigError(f"kubeconfig {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise ConfigError(f"kubeconfig {path}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"kubeconfig {path}: not YAML: {one_line(error)}") from error
    if any(more):
        raise ConfigError(f"kubeconfig {path}: holds several documents; allowed is one, with all contexts in it")
    if document is None:
        return None
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: holds no configuration")
    # client-go's clientcmd.Load decodes a file without a kind as a Config, and refuses every other kind.
    if (kind := document.get("kind") or "Config") != "Config":
        raise ConfigError(f"kubeconfig {path}: kind {quoted(kind)}: allowed is Config; plan -f reads snapshots")
    for section in ("contexts", "clusters", "users"):
        _check_unique(path, section, document.get(section))
    return document


def _check_depth(raw: bytes) -> None:
    """Raise :class:`RecursionError` for brackets in brackets, over which the parser would take long to despair."""
    depth = 0
    for each in raw.translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if each in b"[{" else -1
        if depth > _DEEPEST:
            raise RecursionError


def _check_unique(path: Path, section: str, entries: object) -> None:
    """Raise :class:`ConfigError` if two *entries* of one file have the same name, since either may be meant.

    client-go refuses such a file too (``tools/clientcmd/api/v1/conversion.go``). Between files the first counts.
    """
    named = [str(each.get("name")) for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    twice = next((each for each in named if named.count(each) > 1), None)
    if twice is not None:
        raise ConfigError(f"kubeconfig {path}: {section} has {quoted(twice)} twice; allowed is each name once")


def sections_of(documents: Documents, context: str, where: str) -> tuple[KubeconfigSection, KubeconfigSection]:
    """Return the cluster and the user of *context*; *where* names the files.

    Raises :class:`ConfigError` for what can't be used.
    """
    chosen = _named(documents, "contexts", context)
    if chosen is None:
        raise ConfigError(f"kubeconfig {where}: there is no context {context!r}")
    named = chosen[1].get("cluster")
    cluster = _named(documents, "clusters", named)
    if cluster is None or not cluster[1].get("server"):
        raise ConfigError(f"kubeconfig {where}: context {context!r} names no cluster with a server")
    named_user = chosen[1].get("user")
    user = _named(documents, "users", named_user)
    if user is None and named_user:
        raise ConfigError(f"kubeconfig {where}: context {context!r} names the user {named_user!r}, which is not there")
    of_user = (cluster[0], {}) if user is None else user
    return (
        _checked(KubeconfigSection(cluster[0], "cluster", str(named), cluster[1]), _TEXTS),
        _checked(KubeconfigSection(of_user[0], "user", str(named_user), of_user[1]), _USER_TEXTS),
    )


def _named(documents: Documents, section: str, name: object) -> tuple[Path, Values] | None:
    """Return the first entry of *section* called *name*, and its file, which is kubectl's rule for several files."""
    singular = section.removesuffix("s")
    for path, document in documents:
        entries = document.get(section)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(singular)
                return path, dict(found) if isinstance(found, dict) else {}
    return None


def _checked(section: KubeconfigSection, texts: tuple[str, ...]) -> KubeconfigSection:
    """Return *section* with absolute paths, relative to its file. Raises :class:`ConfigError`.

    As for client-go (``ResolveLocalPaths``), a file that is a link is where the link is.
    """
    values = {key: value for key, value in section.values.items() if value is not None}
    for key in texts:
        if not isinstance(values.get(key, ""), str):
            raise ConfigError(f"{section.key(key)}: {quoted(values[key])} is not text")
    for key in _FILES:
        if values.get(key):
            values[key] = str(section.path.absolute().parent / str(values[key]))
            _check_readable(section.key(key), str(values[key]))
    for key in _DATA:
        if values.get(key):
            _check_base64(section.key(key), str(values[key]))
    skip = values.get("insecure-skip-tls-verify", False)
    if not isinstance(skip, bool):
        raise ConfigError(f"{section.key('insecure-skip-tls-verify')}: {quoted(skip)}: allowed are true and false")
    if values.get("proxy-url"):
        try:
            checked(str(values["proxy-url"]), section.key("proxy-url"))
        except ProxyError as error:
            raise ConfigError(str(error)) from error
    if values.get("auth-provider"):
        _check_provider(section, values["auth-provider"])
        if values.get("exec"):
            raise ConfigError(f"{section.key('auth-provider')}: beside exec; allowed is one of the two")
    return KubeconfigSection(section.path, section.kind, section.name, values)


def _check_readable(key: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror or error}") from error


def _check_base64(key: str, text: str) -> None:
    try:
        base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{key}: not base64: {error}") from error


def _check_provider(section: KubeconfigSection, provider: object) -> None:
    name = provider.get("name") if isinstance(provider, dict) else None
    if name != "oidc":
        instead = _REMOVED.get(str(name))
        why = f"kubectl has removed it; use {instead}" if instead else "allowed is oidc, or an exec plugin instead"
        raise ConfigError(f"{section.key('auth-provider')}: {quoted(name)}: {why}")


def plugin_of(user: KubeconfigSection, cluster: KubeconfigSection) -> Plugin | None:
    """Return the exec plugin of *user*, if any; like client-go, a command with a slash is relative to the kubeconfig.

    Raises :class:`ConfigError`.
    """
    given = user.values.get("exec")
    if given is None:
        return None
    command = given.get("command") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(command, str) or not command:
        raise ConfigError(f"{user.key('exec.command')}: names no command")
    if os.sep in command:
        command = str(user.path.absolute().parent / command)
    version = given.get("apiVersion")
    if version not in API_VERSIONS:
        raise ConfigError(f"{user.key('exec.apiVersion')}: {quoted(version)}: allowed are {' and '.join(API_VERSIONS)}")
    # Only v1 demands a choice.
    mode = given.get("interactiveMode") or ("IfAvailable" if version != API_VERSIONS[0] else None)
    if mode not in INTERACTIVE_MODES:
        raise ConfigError(
            f"{user.key('exec.interactiveMode')}: {quoted(mode)}: allowed are {', '.join(INTERACTIVE_MODES)}"
        )
    arguments = given.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise ConfigError(f"{user.key('exec.args')}: {quoted(arguments)} is not a list of texts")
    variables = given.get("env") or []
    pairs: list[tuple[Any, Any]] = [
        (each.get("name"), each.get("value") or "") for each in variables if isinstance(each, dict)
    ]
    if not isinstance(variables, list) or len(pairs) < len(variables) or not all(map(_is_variable, pairs)):
        raise ConfigError(f"{user.key('exec.env')}: allowed is a list with the texts name and value")
    wanted = given.get("provideClusterInfo") or False
    if not isinstance(wanted, bool):
        raise ConfigError(f"{user.key('exec.provideClusterInfo')}: {quoted(wanted)}: allowed are true and false")
    return Plugin(
        user.key("exec"),
        version,
        command,
        tuple(arguments),
        dict(pairs),
        mode,
        str(given.get("installHint") or ""),
        _cluster_info(cluster) if wanted else None,
    )


def _is_variable(pair: tuple[object, object]) -> bool:
    name, value = pair
    return isinstance(name, str) and bool(name) and isinstance(value, str)


def _cluster_info(cluster: KubeconfigSection) -> Values:
    """Return *cluster* as plugins are told of it (``ConfigToExecCluster`` of client-go's ``rest/exec.go``)."""
    extensions = cluster.values.get("extensions")
    named = [each for each in extensions if isinstance(each, dict)] if isinstance(extensions, list) else []
    info = {
        **{key: cluster.values.get(key) for key in ("tls-server-name", "insecure-skip-tls-verify")},
        "certificate-authority-data": base64.b64encode(cluster.content("certificate-authority")).decode(),
        **{key: cluster.values.get(key) for key in ("proxy-url", "disable-compression")},
    }
    return {
        "server": cluster.text("server"),
        **{key: value for key, value in info.items() if value},
        "config": next((each.get("extension") for each in named if each.get("name") == CLUSTER_EXTENSION), None),
    }


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


def contexts(file: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the names of the contexts in the kubeconfig files that :func:`find` reads. Raises :class:`ConfigError`."""
    files, must_exist = _files(file, os.environ)
    documents = read_kubeconfigs(files, must_exist=must_exist)
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
    documents = read_kubeconfigs(files, must_exist=must_exist)
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
        return await _load(read_kubeconfigs(files, must_exist=must_exist), chosen, where, builder, tokens)

    return ClusterCredentials(chosen, load)


async def _load(
    documents: Documents, context: str, where: str, builder: _AccessBuilder, tokens: IdTokens
) -> LoadedAccess:
    cluster, user = sections_of(documents, context, where)
    plugin = plugin_of(user, cluster)
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


def _impersonation(user: Values) -> Headers:
    names = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
    headers = [(name, str(user[key])) for key, name in names if user.get(key)]
    groups = user.get("as-groups")
    headers += [("Impersonate-Group", str(group)) for group in (groups if isinstance(groups, list) else ())]
    extra = user.get("as-user-extra")
    for key, texts in (extra if isinstance(extra, dict) else {}).items():
        # Escaped as by client-go (transport/round_trippers.go, headerKeyEscape).
        name = f"Impersonate-Extra-{quote(str(key), safe=_HEADER)}"
        headers += [(name, str(text)) for text in (texts if isinstance(texts, list) else ())]
    return tuple(headers)


_HEADER = "!#$&'*+-.^_`|~"
"""What may stand in the name of a header beside letters and digits (RFC 9110, 5.6.2), but for the percent sign."""


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
