"""Credentials: from files, kept up to date with them, and sent."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hpa_scaler.prometheus.servers import CredentialsError, ServerCredentials, Tls
from hpa_scaler.spec.queries import Failure, QueryAnswer
from tightship.core.reasons import Reason

from .conftest import Prometheus, answering_one, asking, one, server, serving


def authorization(credentials: ServerCredentials) -> str:
    return credentials.access().headers["Authorization"]


def test_a_bearer_token_is_read_from_its_file_and_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = ServerCredentials(server("http://p", token_file=str(file)))
    first = credentials.access()
    assert first.headers == {"Authorization": "Bearer one"}
    assert credentials.access() is first
    file.write_text("another")
    assert authorization(credentials) == "Bearer another"


def test_a_mounted_secret_changes_by_its_link(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "token").write_text(version)
        os.utime(tmp_path / version / "token", (1, 1))
    link = tmp_path / "..data"
    link.symlink_to("v1")
    (tmp_path / "token").symlink_to("..data/token")
    credentials = ServerCredentials(server("http://p", token_file=str(tmp_path / "token")))
    assert authorization(credentials) == "Bearer v1"
    link.unlink()
    link.symlink_to("v2")
    assert authorization(credentials) == "Bearer v2"


def test_a_password_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s\u00e9cret\n")
    credentials = ServerCredentials(server("http://p", username="me", password_file=str(file)))
    assert authorization(credentials) == "Basic bWU6c8OpY3JldA=="


@pytest.mark.parametrize("content", [None, "", "  \n", "a\nb", "a\x00b"])
def test_a_secret_that_can_not_be_used_is_named_by_its_file(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CredentialsError) as refused:
        ServerCredentials(server("http://p", token_file=str(file))).access()
    assert str(file) in str(refused.value)
    assert content is None or not content.strip() or content not in str(refused.value)


def test_a_secret_that_vanishes_leaves_the_last_good_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    file.write_text("good")
    credentials = ServerCredentials(server("http://p", token_file=str(file)))
    assert authorization(credentials) == "Bearer good"
    file.write_text("")
    assert authorization(credentials) == "Bearer good"
    file.unlink()
    assert authorization(credentials) == "Bearer good"
    assert "keeping the present credentials" in caplog.text
    assert "good" not in caplog.text
    file.write_text("better")
    assert authorization(credentials) == "Bearer better"


@pytest.mark.asyncio
async def test_credentials_that_were_never_there_are_a_failure_of_each_query(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    async with asking(server(prometheus.url, token_file=str(tmp_path / "token"))) as client:
        found = await one(client)
        assert isinstance(found, Failure)
        assert found.reason is Reason.CREDENTIALS_UNREADABLE
        assert str(tmp_path / "token") in found.detail
        (tmp_path / "token").write_text("late")
        assert isinstance(await one(client), QueryAnswer)
    assert prometheus.seen[0].headers["Authorization"] == "Bearer late"


# TLS, with certificates made for the test.

Key = ec.EllipticCurvePrivateKey


class Issued(NamedTuple):
    certificate: x509.Certificate
    key: Key


def issue(name: str, issuer: Issued | None = None, *, address: str | None = None) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    signer = key if issuer is None else issuer.key
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if issuer is None:
        usage = dict.fromkeys(
            [
                "digital_signature",
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ],
            False,
        )
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
    else:
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        if address is not None:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(builder.sign(signer, hashes.SHA256()), key)


class Files(NamedTuple):
    ca: str
    certificate: str
    key: str


def write(folder: Path, name: str, issued: Issued, ca: Issued) -> Files:
    pem = serialization.Encoding.PEM
    files = Files(*(str(folder / f"{name}-{part}.pem") for part in ("ca", "cert", "key")))
    Path(files.ca).write_bytes(ca.certificate.public_bytes(pem))
    Path(files.certificate).write_bytes(issued.certificate.public_bytes(pem))
    private = issued.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    Path(files.key).write_bytes(private)
    return files


@pytest.fixture(scope="module")
def issued_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """Those of the server, which is called prometheus.example.com at 127.0.0.1, and those of a client."""
    folder = tmp_path_factory.mktemp("tls")
    ca = issue("test authority")
    named = issue("prometheus.example.com", ca)
    return write(folder, "server", named, ca), write(folder, "client", issue("hpa-scaler", ca), ca)


@pytest_asyncio.fixture
async def secure(issued_files: tuple[Files, Files]) -> AsyncIterator[Prometheus]:
    """A server that wants to see a client's certificate."""
    files, _ = issued_files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    context.load_cert_chain(files.certificate, files.key)
    context.verify_mode = ssl.CERT_REQUIRED
    async with serving(answering_one(), context) as fake:
        yield fake


@pytest.mark.asyncio
async def test_both_sides_show_their_certificates(secure: Prometheus, issued_files: tuple[Files, Files]) -> None:
    ours = issued_files[1]
    tls = Tls(ours.ca, ours.certificate, ours.key, "prometheus.example.com")
    async with asking(server(secure.url, tls=tls)) as client:
        assert isinstance(await one(client), QueryAnswer)


@pytest.mark.asyncio
@pytest.mark.parametrize("lacking", ["ca", "name", "certificate"])
async def test_what_is_not_shown_or_not_trusted_is_no_connection(
    secure: Prometheus, issued_files: tuple[Files, Files], lacking: str
) -> None:
    ours = issued_files[1]
    tls = Tls(
        "" if lacking == "ca" else ours.ca,
        "" if lacking == "certificate" else ours.certificate,
        "" if lacking == "certificate" else ours.key,
        "" if lacking == "name" else "prometheus.example.com",
    )
    async with asking(server(secure.url, tls=tls)) as client:
        found = await one(client)
    assert isinstance(found, Failure)
    assert found.reason is Reason.CONNECTION_FAILED
    assert secure.seen == []


@pytest.mark.asyncio
async def test_insecure_trusts_anybody(secure: Prometheus, issued_files: tuple[Files, Files]) -> None:
    ours = issued_files[1]
    tls = Tls("", ours.certificate, ours.key, "", insecure=True)
    async with asking(server(secure.url, tls=tls)) as client:
        assert isinstance(await one(client), QueryAnswer)


def test_a_certificate_that_is_none_is_named_by_its_files(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(CredentialsError, match=r"ca\.pem: "):
        ServerCredentials(server("https://p", tls=Tls(ca_file=str(file)))).access()
