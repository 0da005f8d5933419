"""The services of ``docs/hpa-scaler.md``, as they document themselves, asked with that page's settings.

Each stand-in answers only what its service would answer: this path, these credentials, these parameters.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from aiohttp import web
from msgspec import Struct

from hpa_scaler.annotations.queries import Failure, QueryAnswer
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.process.settings import ScalerSettings
from tightship.objects.query_servers import Server, parse_address
from tightship.process.settings.query_servers import ServerSettings, server_of

from .conftest import Prometheus, asking, body, one, says

PAGE = Path(__file__).parents[4] / "docs" / "hpa-scaler.md"
[BLOCK] = re.findall(r"```yaml\n(prometheusServers:\n.*?)```", PAGE.read_text(), re.DOTALL)
EXAMPLE = yaml.safe_load(BLOCK)
SERVERS = EXAMPLE["prometheusServers"]
TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Service(Struct, frozen=True):
    """Requests that a service answers: with the *headers* and the URL's *parameters*, below *path*.

    *refuses* is the status with which it refuses POST, 0 if it takes POST.
    """

    path: str = ""
    headers: Mapping[str, str] = {}
    parameters: Mapping[str, str] = {}
    refuses: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path != f"{self.path}/api/v1/query":
            return await says("not found", 404)(request)
        if any(request.headers.get(name) != text for name, text in self.headers.items()):
            return await says("unauthorized", 401)(request)
        if self.headers.keys().isdisjoint(["Authorization"]) and "Authorization" in request.headers:
            return await says("unexpected credentials", 401)(request)
        if any(request.query.get(name) != text for name, text in self.parameters.items()):
            return await says("bad request", 400)(request)
        if self.refuses and request.method == "POST":
            return await says("forbidden", self.refuses)(request)
        return await says(body("7"))(request)


# By the documentation that the page links to. Google's reference has only GET, though its frontend forwards POST.
# kube-rbac-proxy before OpenShift's port 9092 asks for the right to create pods.metrics.k8s.io where a POST comes,
# which ``view`` lacks.
SERVICES = {
    "default": Service(),
    "amazon": Service("/workspaces/ws-0123abcd"),
    "google-frontend": Service(),
    "google": Service("/v1/projects/my-project/location/global/prometheus", BEARER, refuses=405),
    "azure": Service("", BEARER),
    "grafana-cloud": Service("/api/prom", {"Authorization": f"Basic {b64encode(f'123456:{TOKEN}'.encode()).decode()}"}),
    "openshift": Service("", BEARER),
    "openshift-project": Service("", BEARER, {"namespace": "shop"}, refuses=403),
    "coralogix": Service("/metrics", BEARER),
    "chronosphere": Service("/data/metrics", BEARER),
    "mimir": Service("/prometheus", {"X-Scope-OrgID": "shop"}),
    "thanos": Service("", {}, {"dedup": "true", "partial_response": "false"}),
    "victoriametrics": Service("/select/0/prometheus"),
    "by-address": Service(),
}


def standing_in(name: str, given: Mapping[str, Any], url: str, token: Path) -> Server:
    """Return the server *name* with the settings *given*, at the stand-in's *url* and with its *token*."""
    read = ServerSettings.model_validate(given)
    own = {key: str(token) for key in ("bearerTokenFile",) if key in given}
    if read.basic_auth is not None:
        own["basicAuth"] = {"username": read.basic_auth.username, "passwordFile": str(token)}
    moved = ServerSettings.model_validate({**given, **own, "tls": {}})
    return server_of(name, moved, url + urlsplit(read.url).path)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


async def test_the_page_is_a_configuration_and_names_every_service() -> None:
    settings = ScalerSettings.model_validate(EXAMPLE)
    assert settings.servers.keys() == SERVICES.keys()
    assert parse_address(SERVERS["by-address"]["url"]).host == "fd00::1"


@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_is_reached_as_its_documentation_says(name: str, prometheus: Prometheus, token: Path) -> None:
    service = SERVICES[name]
    prometheus.otherwise = service.answer
    async with asking(standing_in(name, SERVERS[name], prometheus.url, token)) as client:
        for _ in range(2):
            found = await one(client, "sum(rate(x[5m]))", ServerRef(name=name))
            assert isinstance(found, QueryAnswer), found
            assert found.highest == 7
    assert [each.method for each in prometheus.seen] == (["POST", "GET", "GET"] if service.refuses else ["POST"] * 2)


def without(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    if key == "path":
        return {**given, "url": "http://" + urlsplit(given["url"]).netloc}
    return {name: each for name, each in given.items() if name != key}


@pytest.mark.parametrize(
    ("name", "key", "status"),
    [
        *((name, "path", 404) for name, each in SERVICES.items() if each.path),
        *((name, "bearerTokenFile", 401) for name, each in SERVERS.items() if "bearerTokenFile" in each),
        ("grafana-cloud", "basicAuth", 401),
        ("mimir", "headers", 401),
        ("openshift-project", "parameters", 400),
    ],
)
async def test_without_a_part_of_it_the_status_is_told(
    name: str, key: str, status: int, prometheus: Prometheus, token: Path
) -> None:
    prometheus.otherwise = SERVICES[name].answer
    async with asking(standing_in(name, without(SERVERS[name], key), prometheus.url, token)) as client:
        found = await one(client, "up", ServerRef(name=name))
    assert isinstance(found, Failure)
    assert f"HTTP {status}" in found.detail


async def test_several_servers_are_asked_each_with_its_own_credentials(
    prometheus: Prometheus, another: Prometheus, token: Path
) -> None:
    prometheus.otherwise, another.otherwise = SERVICES["coralogix"].answer, SERVICES["mimir"].answer
    servers = [
        standing_in(name, SERVERS[name], each.url, token)
        for name, each in (("coralogix", prometheus), ("mimir", another))
    ]
    async with asking(*servers) as client:
        for name in ("coralogix", "mimir"):
            assert isinstance(await one(client, "up", ServerRef(name=name)), QueryAnswer)
    assert "Authorization" not in another.seen[0].headers
    assert "X-Scope-OrgID" not in prometheus.seen[0].headers
