"""The certificate of the HTTPS server: from a folder that somebody keeps up to date, or made here; renewed in use.

A folder is what a mounted Secret of the type ``kubernetes.io/tls`` looks like, such as cert-manager writes. A made
certificate is signed by itself, as that of controller-runtime is: it keeps listeners off, and proves no identity.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
from pathlib import Path

from tightship.kube.credentials import as_file
from tightship.kube.host import monotonic
from tightship.objects.api_errors import one_line
from tightship.process.loop import any_of

LOOK = 30.0
"""Seconds between two looks at the folder. The kubelet itself takes a minute or so to update a Secret."""
VALID_DAYS, RENEWED_DAYS = 30, 10
"""Days for which a made certificate is valid, and after which another one replaces it."""

_DAY = 86400.0
_log = logging.getLogger(__name__)


class Certificate:
    """The certificate in *folder* (``tls.crt`` and ``tls.key``), or one made for the host *name*.

    New connections of *context* use the certificate that was read or made last.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._folder = folder
        self._name = name
        self._used = b""
        self._made_at = 0.0

    async def renew(self) -> bool:
        """Use the certificate that is due, and return whether that is another one.

        Raises :class:`OSError`, which names the folder or the program, if there is none; the last one stays in use.
        """
        if self._folder is None:
            if self._used and monotonic() < self._made_at + RENEWED_DAYS * _DAY:
                return False
            pair = await asyncio.to_thread(_made, self._name)
        else:
            pair = b"\n".join(self._folder.joinpath(name).read_bytes() for name in ("tls.crt", "tls.key"))
        if pair == self._used:
            return False
        with as_file(pair) as file:
            try:
                # A key that does not fit would leave half of the pair in use.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
                self.context.load_cert_chain(file)
            except ssl.SSLError as error:
                raise OSError(f"{self._folder or 'openssl'}: no certificate with its key: {error}") from error
        self._used, self._made_at = pair, monotonic()
        return True

    async def keep(self, stop: asyncio.Event) -> None:
        """Renew the certificate whenever another one is due, until *stop*."""
        trouble = ""
        while not await any_of(stop, timeout=LOOK):
            try:
                if await self.renew():
                    _log.info("new connections get the new certificate of %s", self._folder or self._name)
                trouble = ""
            except OSError as error:
                if trouble != str(error):
                    _log.warning("the last certificate stays in use: %s", one_line(error))
                trouble = str(error)


def _made(name: str) -> bytes:
    """Return a key and a certificate for *name*, made by the program openssl, which Debian's images have."""
    wanted = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(VALID_DAYS)]
    named = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},DNS:localhost"]
    command = ["openssl", "req", *wanted, *named, "-keyout", "-", "-out", "-"]
    try:
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split())[-200:]
        raise OSError(f"openssl made no certificate: {said}") from error
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        raise OSError(
            f"a certificate needs the program openssl, or a folder with tls.crt and tls.key: {error}"
        ) from error
