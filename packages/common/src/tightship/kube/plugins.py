"""Exec plugins: programs named by a kubeconfig that give credentials, run as client-go runs them.

The source is ``plugin/pkg/client/auth/exec/exec.go`` of client-go. As there, what a plugin writes to stderr reaches the
user at once, because that may be the code with which to log in. Its last line is also part of the error.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from tightship.objects.api_errors import ConfigError, one_line
from tightship.objects.quoting import quoted
from tightship.objects.times import parse_rfc3339

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
