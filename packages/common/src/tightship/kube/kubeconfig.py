"""What kubeconfig files say, checked: an error names the file, the key, the value and what is allowed."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

from tightship.kube.connector import ProxyError, checked
from tightship.kube.plugins import API_VERSIONS, CLUSTER_EXTENSION, INTERACTIVE_MODES, Plugin
from tightship.objects.api_errors import ConfigError, one_line
from tightship.objects.quoting import quoted

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


def read(files: list[Path], *, must_exist: bool) -> Documents:
    """Return the contents of *files*; unless they *must_exist*, those that don't are left out.

    Raises :class:`ConfigError`.
    """
    documents: Documents = []
    for path in files:
        if not must_exist and not path.exists():
            continue
        try:
            raw = path.read_bytes()
            _check_depth(raw)
            document = yaml.safe_load(raw)
        except OSError as error:
            raise ConfigError(f"kubeconfig {path}: {error.strerror or error}") from error
        except RecursionError as error:
            raise ConfigError(f"kubeconfig {path}: nested too deeply") from error
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(f"kubeconfig {path}: not YAML: {one_line(error)}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"kubeconfig {path}: holds no configuration")
        documents.append((path, document))
    if not documents:
        raise ConfigError(f"kubeconfig {os.pathsep.join(map(str, files))}: no such file")
    return documents


def _check_depth(raw: bytes) -> None:
    """Raise :class:`RecursionError` for brackets in brackets, over which the parser would take long to despair."""
    depth = 0
    for each in raw.translate(None, bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if each in b"[{" else -1
        if depth > _DEEPEST:
            raise RecursionError


def sections(documents: Documents, context: str, where: str) -> tuple[KubeconfigSection, KubeconfigSection]:
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
    """Return *section* with absolute paths, relative to its file. Raises :class:`ConfigError`."""
    values = {key: value for key, value in section.values.items() if value is not None}
    for key in texts:
        if not isinstance(values.get(key, ""), str):
            raise ConfigError(f"{section.key(key)}: {quoted(values[key])} is not text")
    for key in _FILES:
        if values.get(key):
            values[key] = str(section.path.resolve().parent / str(values[key]))
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


def plugin(user: KubeconfigSection, cluster: KubeconfigSection) -> Plugin | None:
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
        command = str(user.path.resolve().parent / command)
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
        (each.get("name"), each.get("value", "")) for each in variables if isinstance(each, dict)
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
