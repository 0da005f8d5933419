"""Metrics, status and page by HTTPS, for whom a real API server lets read them."""

from __future__ import annotations

import aiohttp
import pytest
from floors import Open, Shop

from tightship_testkit.client import RESOURCES, wait_for
from tightship_testkit.replica import NAMESPACE, RBAC, SCALER, Replica

pytestmark = pytest.mark.takes(8)

DEADLINE = 60.0
REVIEWS = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
READS = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


async def bound(on: Shop, name: str, rules: object, account: str) -> None:
    """Grant *rules* to an account."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    for plural, body in (
        ("clusterroles", {"metadata": {"name": name}, "rules": rules}),
        ("clusterrolebindings", binding),
    ):
        await on.api.request("DELETE", f"{RBAC}/{plural}/{name}")
        await on.api.call("POST", f"{RBAC}/{plural}", body=body)


async def token(on: Shop, account: str) -> str:
    """A token of an account, which is made."""
    await on.api.request("POST", RESOURCES["ServiceAccount"].path(NAMESPACE), body={"metadata": {"name": account}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = await on.api.call("POST", RESOURCES["ServiceAccount"].path(NAMESPACE, account, "token"), body=body)
    return str(made["status"]["token"])


async def answered(replica: Replica, path: str, shown: str = "") -> int:
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    url = f"https://127.0.0.1:{replica.port}{path}"
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False, headers=headers) as answer:
            await answer.read()
            return answer.status
    except aiohttp.ClientError:
        return 0


def test_only_who_may_get_metrics_gets_them(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        scraper, stranger = await token(on, "scraper"), await token(on, "stranger")
        await bound(on, "scraper-reads", READS, "scraper")
        replica = on.start(HTTP_SECURE="true")

        async def until(path: str, shown: str, code: int) -> None:
            async def there() -> bool:
                return await answered(replica, path, shown) == code

            await wait_for(there, DEADLINE, f"{path} answers {code}")

        await until("/readyz", "", 200)
        # The controller itself may not ask yet.
        await until("/metrics", scraper, 503)
        await bound(on, f"{SCALER.name}-reviews", REVIEWS, SCALER.name)
        await until("/metrics", scraper, 200)
        assert await answered(replica, "/status", scraper) == 403
        assert await answered(replica, "/metrics", stranger) == 403
        assert await answered(replica, "/metrics", f"{scraper}x") == 401
        assert await answered(replica, "/metrics") == 401
        assert (await replica.get("/metrics"))[0] == 0, "plain HTTP"
        assert scraper not in replica.log

    in_shop(work)
