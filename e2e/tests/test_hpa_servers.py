"""Several servers under one running hpa-scaler: what each of them asks for, and that none holds up another."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from fleets import GUARDED, PER_POD, Fleet, scraped
from floors import Open, Shop

from tightship_e2e.exporter import Exporter
from tightship_e2e.prometheus import SLOW, Prometheus
from tightship_testkit.credentials import Authority
from tightship_testkit.fault_proxy import Proxy
from tightship_testkit.faults import Plan, Verbatim, always, demanding
from tightship_testkit.floors import autoscaler, hpa_annotations

INTERVAL = 1.0

WEB = {**PER_POD, "prometheus_query": "sum(load)"}

ELSEWHERE = "http://127.0.0.2:9/api/v1/query"
CREDENTIALS = "http://169.254.169.254/latest"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Exporter, Prometheus]]:
    with scraped(load=72) as made:
        yield made


@contextlib.asynccontextmanager
async def proxies(
    prometheus: Prometheus, plans: Mapping[str, Plan | None], tls: ssl.SSLContext
) -> AsyncIterator[dict[str, Proxy]]:
    """Open a proxy for each plan, before the same Prometheus; that called ``mtls`` speaks TLS."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(Proxy(prometheus.url, plan, tls=tls if name == "mtls" else None))
            for name, plan in plans.items()
        }


def test_each_server_is_asked_with_what_it_needs_and_what_it_refuses_lowers_nothing(
    in_shop: Open, running: tuple[Exporter, Prometheus], tmp_path: Path
) -> None:
    exporter, prometheus = running
    token = tmp_path / "token"
    token.write_text("first\n")
    authority = Authority(tmp_path)
    cert, key = authority.issue("scaler")
    trust = {"caFile": str(authority.ca_file)}
    plans = {
        "bearer": demanding({"Authorization": "Bearer first"}),
        "tenant": demanding({"X-Scope-OrgID": "shop"}),
        "mtls": None,
        "moved": None,
    }

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        async with proxies(prometheus, plans, authority.server(demands_client=True)) as before:
            needs: Mapping[str, Mapping[str, object]] = {
                "bearer": {"bearerTokenFile": str(token)},
                "tenant": {"headers": {"X-Scope-OrgID": "shop"}},
                "mtls": {"tls": {**trust, "certFile": str(cert), "keyFile": str(key)}},
                "moved": {},
            }
            servers = {name: {"url": before[name].url, **each} for name, each in needs.items()}
            servers["stranger"] = {"url": before["mtls"].url, "tls": trust}
            servers["secretive"] = {"url": prometheus.url, "bearerTokenFile": str(tmp_path / "no-such-token")}
            await on.configured({**GUARDED, "prometheusServers": servers, "circuitBreakerFailures": 1000})
            on_default = ["plain", "mistaken", "untrusted", "linked"]
            names = [*needs, *on_default]
            own = {name: {"prometheus_server": name} for name in needs}
            await fleet.stand({name: {**WEB, **own.get(name, {})} for name in names})
            fleet.start(prometheus.url)
            await fleet.until_floors(dict.fromkeys(names, 8))
            shown = before["bearer"].log[-1].call.headers
            assert (shown["Authorization"], shown.get("X-Scope-OrgID")) == ("Bearer first", None)

            # Each is refused in its own way, and only the one that is not goes on.
            before["bearer"].plan = demanding({"Authorization": "Bearer second"})
            before["tenant"].plan = demanding({"X-Scope-OrgID": "other"})
            before["moved"].plan = always(Verbatim(307, headers={"Location": ELSEWHERE}))
            await on.annotate("mtls", prometheus_server="stranger")
            await on.annotate("mistaken", prometheus_server="no-such-server")
            await on.annotate("untrusted", prometheus_server="secretive")
            await on.annotate("linked", prometheus_server_url=CREDENTIALS)
            told = {
                "bearer": "HttpError",
                "tenant": "HttpError",
                "moved": "ServerNotAllowed",
                "mtls": "ConnectionFailed",
                "mistaken": "ServerUnknown",
                "untrusted": "CredentialsUnreadable",
                "linked": "ServerNotAllowed",
            }
            await fleet.until_told(told)
            exporter.set("load", 41)
            await fleet.until_floors({"plain": 5})
            exporter.set("load", 91)
            await fleet.until_floors({"plain": 10})
            await fleet.cycles()
            assert await fleet.floors(told) == dict.fromkeys(told, 8)
            assert fleet.lowered(told) == {}

            # A token that is renewed where it is mounted; the others are mended.
            token.write_text("second\n")
            before["tenant"].plan = before["moved"].plan = None
            await on.annotate("mtls", prometheus_server="mtls")
            await fleet.annotate(["mistaken", "untrusted"], prometheus_server=None)
            await on.annotate("linked", prometheus_server_url=None)
            await fleet.until_floors(dict.fromkeys(names, 10))
            assert before["bearer"].log[-1].call.headers["Authorization"] == "Bearer second"

    in_shop(work)


def test_a_server_that_is_slow_or_hangs_holds_up_nobody_who_asks_another(
    in_shop: Open, running: tuple[Exporter, Prometheus]
) -> None:
    """One place for all queries, three that never leave it; then nothing at all from it, and many who ask."""
    exporter, prometheus = running
    exporter.set("load", 72)
    flags = ["--query.max-concurrency=1", "--query.timeout=10s"]
    hogs = ["hog-1", "hog-2", "hog-3"]
    starved = [*hogs, "behind"]
    crowd = [f"crowd-{number}" for number in range(50)]
    with Prometheus(exporter.target, interval=INTERVAL, flags=flags) as slow:
        slow.wait_for_value("sum(load)", 72)
        prometheus.wait_for_value("sum(load)", 72)

        async def work(on: Shop) -> None:
            fleet = Fleet(on)
            servers = {"slow": {"url": slow.url, "timeout": 1}}
            await on.configured(
                {**GUARDED, "prometheusServers": servers, "circuitBreakerFailures": 1000, "queryDeadline": 3}
            )
            on_slow = {**WEB, "prometheus_server": "slow"}
            await fleet.stand({"plain": WEB, **dict.fromkeys(starved, on_slow)})
            fleet.start(prometheus.url)
            await fleet.until_floors(dict.fromkeys(["plain", *starved], 8))

            await fleet.annotate(hogs, prometheus_query=SLOW)
            await fleet.until_told(dict.fromkeys(starved, "TimedOut"))
            exporter.set("load", 41)
            await fleet.until_floors({"plain": 5})
            # Its places being taken is nobody's bad query.
            outcomes = {labels for labels in await fleet.samples("tightship_hpa_queries_total") if "slow" in labels}
            assert outcomes == {("answered", "slow"), ("TimedOut", "slow")}
            assert fleet.lowered(hogs) == {}

            slow.pause()
            for name in crowd:
                query = {**on_slow, "prometheus_query": f"sum(load) # {name}"}
                await on.api.create(autoscaler(name, 8, 30, hpa_annotations(**query)))
            await fleet.until_told({"crowd-1": "TimedOut", "behind": "TimedOut"})

            async def asked() -> float:
                return (await fleet.samples("tightship_hpa_queries_total"))["TimedOut", "slow"]

            asked_before, cycles_before = await asked(), fleet.replica.log.count('"judged"')
            exporter.set("load", 91)
            await fleet.until_floors({"plain": 10})
            await fleet.cycles(2)
            assert fleet.lowered([*hogs, *crowd]) == {}
            # Eight at once, and 2 s for each: after two rounds a cycle is done with it. All of them would be 12 s.
            more = await asked() - asked_before
            assert 0 < more <= 2 * 8 * (fleet.replica.log.count('"judged"') - cycles_before + 1)

        in_shop(work)
