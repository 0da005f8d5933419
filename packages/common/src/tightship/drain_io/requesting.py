"""Sends the pods of one drain away: through an EvictionRequest (KEP-4563) where a pod has responders, else by eviction.

A request goes on for as long as the object exists: a drain that ends withdraws its requests by deleting them. Each
request belongs to its pod, so the API server's garbage collector removes what outlives the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from tightship.core.api_errors import Conflict, KubeError, NotFound, NotSent, one_line
from tightship.core.objects import Pod
from tightship.core.objects.eviction_requests import EVICTION_REQUEST, MANAGED_BY, EvictionRequest
from tightship.drain.answers import EvictionAnswer, Heard, classify
from tightship.drain.requests import request_for, request_name, requester, unheeded
from tightship.drain_io.tools import Tools
from tightship.drain_io.writing import send_away
from tightship.kube.connection import WRITE_TIMEOUT
from tightship.kube.resources import BY_KIND

_RESOURCE = BY_KIND[EVICTION_REQUEST]

WITHDRAWAL_TIMEOUT = 5.0
"""Seconds for one withdrawal at the end of a drain, whose node waits for its cordon to be lifted."""


class Requests:
    """The EvictionRequests of one drain by *controller*; *trouble* is told, once each, what went otherwise."""

    def __init__(self, tools: Tools, controller: str, trouble: Callable[[str], None]) -> None:
        self._tools = tools
        self._requester = requester(controller)
        self._trouble = trouble
        self._heeded = True
        # What this drive has asked for: the watch may not have shown it yet.
        self._asked: dict[str, Pod] = {}

    def asks(self, pod: Pod) -> bool:
        """Whether *pod* is asked to go through its responders, as far as is known now."""
        served = EVICTION_REQUEST not in self._tools.cache.missing
        past = self._tools.settings().rules.past_budgets
        return bool(pod.spec.responders) and self._heeded and served and not past

    async def send_away(self, pod: Pod) -> Heard | None:
        """Ask for the eviction of *pod*, and return the answer, like :func:`~tightship.drain_io.writing.send_away`."""
        tools = self._tools
        request = request_for(pod, tools.cache.snapshot())
        if request is not None and self._heeded and unheeded(request, tools.clock()):
            self._heeded = False
            self._trouble(
                f"no controller heeds EvictionRequest {request.key}: pods with responders are evicted directly"
            )
        if self.asks(pod):
            self._asked[pod.uid] = pod
            return await self._ask(pod)
        if request is not None:
            await self._withdraw(pod.namespace, request.name)
        past = tools.settings().rules.past_budgets
        return await send_away(tools.connection, pod, past_budgets=past, only_if=tools.leading)

    async def _ask(self, pod: Pod) -> Heard | None:
        label, value = MANAGED_BY
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        meta = {"name": request_name(pod), "namespace": pod.namespace, "labels": {label: value}}
        request = {
            "apiVersion": f"{_RESOURCE.group}/{_RESOURCE.version}",
            "kind": EVICTION_REQUEST,
            "metadata": {**meta, "ownerReferences": [owner]},
            "spec": {
                "target": {"pod": {"name": pod.name, "uid": pod.uid}},
                "requester": self._requester,
                "intent": "Eviction",
            },
        }
        path, tools = _RESOURCE.within(namespace=pod.namespace).path, self._tools
        try:
            await tools.connection.request(
                "POST", path, body=msgspec.json.encode(request), timeout=WRITE_TIMEOUT, only_if=tools.leading
            )
        except NotSent:
            return None
        except Conflict:
            pass  # The request of an earlier drive, or of this one, whose answer was lost.
        except NotFound as error:
            # Not the pod: the API, or the namespace. The watches tell soon which.
            return Heard(EvictionAnswer.SERVER_ERROR, one_line(error))
        except KubeError as error:
            return classify(error)
        return Heard(EvictionAnswer.REQUESTED, f"asked {', '.join(pod.spec.responders[:3])}")

    async def withdraw(self, node: str) -> None:
        """Withdraw all requests for pods on *node*. Never raises: :meth:`.Drainer.adopt` withdraws what is left."""
        snapshot = self._tools.cache.snapshot()
        view = snapshot.nodes.get(node)
        here = [pod for pod in view.pods if request_for(pod, snapshot) is not None] if view is not None else []
        pods = {**{pod.uid: pod for pod in here}, **self._asked}
        await asyncio.gather(*(self._withdraw(pod.namespace, request_name(pod)) for pod in pods.values()))
        self._asked.clear()

    async def _withdraw(self, namespace: str, name: str) -> None:
        error = await _withdraw(self._tools, namespace, name, WITHDRAWAL_TIMEOUT)
        if error is not None:
            self._trouble(one_line(error))


async def withdraw_all(tools: Tools, requests: Iterable[EvictionRequest]) -> list[KubeError]:
    """Withdraw *requests*, and return what went wrong."""
    answers = [await _withdraw(tools, each.namespace, each.name, WRITE_TIMEOUT) for each in requests]
    return [each for each in answers if each is not None]


async def _withdraw(tools: Tools, namespace: str, name: str, seconds: float) -> KubeError | None:
    path = f"{_RESOURCE.within(namespace=namespace).path}/{name}"
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions"})
    try:
        await tools.connection.request("DELETE", path, body=body, timeout=seconds, retry=False, only_if=tools.leading)
    except (NotFound, NotSent):
        return None
    except KubeError as error:
        return error
    return None


__all__ = ["Requests", "withdraw_all"]
