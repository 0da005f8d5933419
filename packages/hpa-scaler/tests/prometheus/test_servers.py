"""Credentials: from files, kept up to date with them, and sent."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hpa_scaler.annotations.queries import Failure, QueryAnswer
from tightship.kube.connector import CredentialsError, ServerCredentials
from tightship.objects.query_servers import Tls
from tightship.objects.reasons import Reason
from tightship_testkit.credentials import Authority

from .conftest import Prometheus, answering_one, asking, failure_of, one, server, serving


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


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture
async def secure(authority: Authority) -> AsyncIterator[Prometheus]:
    """A server called localhost that wants to see a client's certificate."""
    async with serving(answering_one(), authority.server(demands_client=True)) as fake:
        yield fake


@pytest.mark.asyncio
@pytest.mark.parametrize("insecure", [False, True], ids=["both show their certificates", "insecure trusts anybody"])
async def test_a_server_that_is_trusted_is_asked(secure: Prometheus, authority: Authority, insecure: bool) -> None:
    certificate, key = map(str, authority.issue("hpa-scaler"))
    ca, name = ("", "elsewhere.example.com") if insecure else (str(authority.ca_file), "localhost")
    async with asking(server(secure.url, tls=Tls(ca, certificate, key, name, insecure))) as client:
        assert isinstance(await one(client), QueryAnswer)


@pytest.mark.asyncio
@pytest.mark.parametrize("lacking", ["ca", "name", "certificate"])
async def test_what_is_not_shown_or_not_trusted_is_no_connection(
    secure: Prometheus, authority: Authority, lacking: str
) -> None:
    certificate, key = ("", "") if lacking == "certificate" else map(str, authority.issue("hpa-scaler"))
    name = "elsewhere.example.com" if lacking == "name" else "localhost"
    tls = Tls("" if lacking == "ca" else str(authority.ca_file), certificate, key, name)
    found = await failure_of(server(secure.url, tls=tls))
    assert found.reason is Reason.CONNECTION_FAILED
    assert secure.seen == []


def test_a_certificate_that_is_none_is_named_by_its_files(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(CredentialsError, match=r"ca\.pem: "):
        ServerCredentials(server("https://p", tls=Tls(ca_file=str(file)))).access()
