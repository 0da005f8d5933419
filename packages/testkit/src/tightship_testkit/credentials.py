"""Keys, certificates and kubeconfigs of tests; nothing here leaves their directories."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Make a P-256 key and write it as PEM: a fraction of the time an RSA key takes."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    path.write_bytes(pem)
    path.chmod(0o600)
    return key


def write_public_key(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Write the public half as PEM."""
    public = key.public_key()
    path.write_bytes(public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def write_serving_certificate(key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Write a self-signed certificate for the loopback addresses, valid for a week.

    It is its own CA, so the same file is what clients trust.
    """
    path.write_bytes(_pem(_certificate("tightship-e2e", key, issuer=None, ca=True)))


class Authority:
    """A CA of a test, which issues what mutual TLS on loopback needs; all files are in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.crt"
        self._folder = folder
        self._key = write_key(folder / "ca.key")
        self._certificate = _certificate("tightship-e2e-ca", self._key, issuer=None, ca=True)
        self.ca_file.write_bytes(_pem(self._certificate))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate called *name* and of its key; servers and clients alike can use them."""
        file = self._folder / f"{name}.crt"
        key_file = self._folder / f"{name}.key"
        certificate = _certificate(name, write_key(key_file), issuer=(self._certificate, self._key), ca=False)
        file.write_bytes(_pem(certificate))
        return file, key_file

    def server(self, *, demands_client: bool = False) -> ssl.SSLContext:
        """Return what a server on loopback listens with; it may take only clients with a certificate of this CA."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca_file))
        context.load_cert_chain(*self.issue("server"))
        context.verify_mode = ssl.CERT_REQUIRED if demands_client else ssl.CERT_NONE
        return context


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    ca: bool,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signer = issuer[1] if issuer else key
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(_usage(ca=ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    # Newer Pythons refuse a CA that does not say what it is for.
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_kubeconfig(path: Path, *, server: str, ca_file: Path, token: str) -> Path:
    """Write a kubeconfig with one context, in one step."""
    name = "tightship-e2e"
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return write_in_one_step(path, config)


def write_in_one_step(path: Path, kubeconfig: dict[str, Any]) -> Path:
    """Write *kubeconfig* to *path*, for its owner alone. JSON is YAML, and every client reads it.

    A process that reads the older file in the same moment, like a second replica, sees the older or the new one.
    """
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as written:
        json.dump(kubeconfig, written, indent=2)
    return Path(written.name).replace(path)
