"""What RBAC says to an eviction means what the drain takes it for; all other answers are in the contract suite."""

from __future__ import annotations

import asyncio

import msgspec

from tightship.drain.answers import FATAL, GOING, EvictionAnswer
from tightship.draining.writing import send_away
from tightship.kube.connection import connect
from tightship.objects import Pod, decode
from tightship.objects.reasons import Reason
from tightship_e2e import ControlPlane, load
from tightship_testkit.client import Client
from tightship_testkit.manifests import as_list, node, replicas


def test_an_eviction_without_the_right_to_it(empty_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        await load(api, as_list(node("n1"), *replicas("web", ["n1", "n1"], app="web")))
        pod = decode("Pod", msgspec.json.encode(await api.get("Pod", "web-0", "shop")))
        assert isinstance(pod, Pod)
        file = await asyncio.to_thread(empty_plane.service_account_kubeconfig, "default", "default")
        async with await connect(file) as nobody:
            result = await send_away(nobody, pod, past_budgets=False, only_if=lambda: True)
        assert result.answer is EvictionAnswer.FORBIDDEN
        assert FATAL.get(result.answer) is Reason.EVICTION_FORBIDDEN
        assert result.retry_after is None
        assert result.answer not in GOING

    empty_plane.run(work)
