"""Keys, certificates and kubeconfigs of one plane; nothing here leaves its data directory."""

from __future__ import annotations

import datetime
import ipaddress
import json
from pathlib import Path

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
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tightship-e2e")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def write_kubeconfig(path: Path, *, server: str, ca_file: Path, token: str) -> Path:
    """Write a kubeconfig with one context. JSON is YAML, and every client reads it."""
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
    path.write_text(json.dumps(config, indent=2))
    path.chmod(0o600)
    return path
