"""What a pod takes of a node: our sums against what kube-scheduler accepts, to the last milli-CPU and byte."""

from __future__ import annotations

import copy
import random
import re
from contextlib import suppress
from fractions import Fraction

import msgspec

from tightship.objects import Pod, decode, quantity
from tightship.objects.quantity import QuantityError
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE, scheduler_rests
from tightship_simulator import amounts
from tightship_testkit.client import Client, Json, wait_for

CARD = "example.com/card"


def container(name: str = "c", limits: Json | None = None, **more: object) -> Json:
    requests = more.pop("requests", None)
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "image": "none", "resources": resources, **more}


def asking(cpu: str, memory: str, name: str = "c", **more: object) -> Json:
    return container(name, None, requests={"cpu": cpu, "memory": memory}, **more)


ONE = [asking("100m", "64Mi")]
ALWAYS = {"restartPolicy": "Always"}
PODS: dict[str, Json] = {
    "one": {"containers": ONE},
    "several": {"containers": [asking("100m", "64Mi", "a"), asking("0.25", "1e8", "b"), asking("1", "0.5Gi", "c")]},
    "nothing-asked-in-one": {"containers": [container("a"), asking("7m", "1", "b")]},
    "limits-only": {"containers": [container(limits={"cpu": "300m", "memory": "200M"})]},
    "limits-fill-gaps": {
        "containers": [container(requests={"cpu": "100m"}, limits={"cpu": "2", "memory": "123456789"})]
    },
    "init-larger": {"containers": ONE, "initContainers": [asking("700m", "32Mi", "i"), asking("50m", "1Gi", "j")]},
    "sidecar": {"containers": ONE, "initContainers": [asking("30m", "50Mi", "s", **ALWAYS)]},
    "sidecar-before-init": {
        "containers": ONE,
        "initContainers": [asking("300m", "50Mi", "s", **ALWAYS), asking("500m", "70Mi", "i")],
    },
    "sidecar-after-init": {
        "containers": ONE,
        "initContainers": [asking("500m", "70Mi", "i"), asking("300m", "50Mi", "s", **ALWAYS)],
    },
    "sidecars-around-init": {
        "containers": ONE,
        "initContainers": [
            asking("1", "10Mi", "s", **ALWAYS),
            asking("1200m", "10Mi", "i"),
            asking("400m", "2Gi", "t", **ALWAYS),
            asking("5m", "1Gi", "j"),
        ],
    },
    "overhead": {
        "containers": ONE,
        "initContainers": [asking("200m", "10Mi", "i")],
        "runtimeClassName": "none",
        "overhead": {"cpu": "13m", "memory": "17Mi"},
    },
    "pod-level": {"containers": ONE, "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}},
    "pod-level-cpu-only": {
        "containers": [asking("100m", "64Mi", "a"), asking("100m", "64Mi", "b")],
        "resources": {"requests": {"cpu": "999m"}},
    },
    "pod-level-with-overhead": {
        "containers": ONE,
        "initContainers": [asking("2", "10Mi", "i")],
        "resources": {"requests": {"cpu": "2500m"}},
        "runtimeClassName": "none",
        "overhead": {"cpu": "1m", "memory": "1"},
    },
    "finer-than-milli": {"containers": [asking("500u", "1", "a"), asking("600u", "1", "b"), asking("1n", "1", "c")]},
    "odd": {"containers": [asking("0.0015", "1.5Ki", "a"), asking("1e-3", "3e2", "b"), asking("12E-1", "1e3", "c")]},
    "huge": {"containers": [asking("4000", "12Ti")]},
    "extended": {"containers": [container(limits={CARD: "3", "cpu": "10m", "memory": "1Ki"})]},
    "init-extended": {
        "containers": [container(limits={CARD: "1"})],
        "initContainers": [container("i", limits={CARD: "2"})],
    },
}


DRY = {"dryRun": "All"}


def machine(name: str, room: Json) -> Json:
    whole = {"pods": "3", **room}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": whole, "allocatable": whole, "conditions": [ready]}
    return {"kind": "Node", "metadata": {"name": name, "labels": {"only": name}}, "status": status}


def pod(name: str, spec: Json, node: str) -> Json:
    spec = {**copy.deepcopy(spec), "nodeSelector": {"only": node}}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def judged(item: Json) -> Pod:
    found = decode("Pod", msgspec.json.encode(item))
    assert isinstance(found, Pod)
    return found


def text(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def test_the_scheduler_takes_exactly_what_we_count(empty_plane: ControlPlane) -> None:
    """Each pod fits a node with our sum exactly, and none with one milli-CPU, byte or piece less of any resource."""

    async def work(api: Client) -> dict[str, tuple[bool, bool]]:
        expected: dict[str, bool] = {}
        for name, spec in PODS.items():
            completed = await api.call(
                "POST", "/api/v1/namespaces/default/pods", body=pod(name, spec, name), params=DRY
            )
            sums = dict(judged(completed).requests)
            if name != "finer-than-milli":  # each amount of which the server rounds up when it stores the pod
                assert dict(judged(pod(name, spec, name)).requests) == sums, f"{name} as the API server completes it"
            sums.pop("pods")
            rooms = {f"{name}-exact": sums}
            rooms |= {
                f"{name}-less-{resource.partition('/')[2] or resource}": {**sums, resource: amount - 1}
                for resource, amount in sums.items()
            }
            for node, room in rooms.items():
                await api.create(machine(node, {key: text(key, amount) for key, amount in room.items()}))
                await api.create(pod(node, spec, node))
                expected[node] = node.endswith("-exact")

        async def bound() -> dict[str, bool]:
            return {each["metadata"]["name"]: "nodeName" in each["spec"] for each in await api.list("Pod", "default")}

        async def placed() -> bool:
            found = await bound()
            return all(found[name] for name, want in expected.items() if want)

        with suppress(TimeoutError):  # what is wrong is named by the test
            await wait_for(placed, DEADLINE, "what fits is bound: the scheduler may see a pod before its node")
        await scheduler_rests(api, empty_plane)
        found = await bound()
        return {name: (want, found[name]) for name, want in expected.items()}

    outcome = empty_plane.run(work)
    assert len(outcome) > 3 * len(PODS) - 5
    assert {name: pair for name, pair in outcome.items() if pair[0] != pair[1]} == {}


def resized(allocated: str, actuated: str, pending: str = "") -> Json:
    """Return a status in which the kubelet has allocated and configured these amounts of CPU."""
    seen = {
        "name": "c",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "allocatedResources": {"cpu": allocated, "memory": "64Mi"},
        "resources": {"requests": {"cpu": actuated, "memory": "64Mi"}},
    }
    found: Json = {"containerStatuses": [seen]}
    if pending:
        found["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": pending}]
    return found


RESIZES: dict[str, Json] = {
    "shrinking": resized("300m", "800m"),
    "not-yet-allocated": resized("200m", "200m", "Deferred"),
    "infeasible": resized("200m", "200m", "Infeasible"),
    "being-actuated": resized("700m", "300m"),
}


def test_a_pod_in_the_middle_of_a_resize_holds_what_we_count(empty_plane: ControlPlane) -> None:
    """Beside it a pod finds room that fills its node by our sum, and none that asks for a milli-CPU more."""
    spec = {"containers": [asking("500m", "64Mi")]}

    async def resize(api: Client, node: str, state: Json, more: int) -> None:
        await api.create(machine(node, {"cpu": "2", "memory": "1Gi"}))
        resident = pod(f"resident-{node}", spec, node)
        resident["spec"]["nodeName"] = node
        # The kubelet is played here: kwok leaves a pod with this annotation alone.
        resident["metadata"]["annotations"] = {"e2e.tightship.dev/phase": "Pending"}
        await api.create(resident)
        body = {"status": {"phase": "Running", **state}}
        made = await api.patch("Pod", f"resident-{node}", body, "default", subresource="status")
        taken = judged(made).requests["cpu"]
        probe = {"containers": [asking(f"{2000 - taken + more}m", "1")]}
        await api.create(pod(f"probe-{node}", probe, node))

    async def work(api: Client) -> set[str]:
        for name, state in RESIZES.items():
            await resize(api, f"{name}-exact", state, 0)
            await resize(api, f"{name}-over", state, 1)

        async def bound() -> set[str]:
            pods = await api.list("Pod", "default")
            names = {each["metadata"]["name"] for each in pods if "nodeName" in each["spec"]}
            return {each.removeprefix("probe-") for each in names if each.startswith("probe-")}

        async def fit() -> bool:
            # Not at the first try, where the scheduler has seen it before its node.
            return {f"{name}-exact" for name in RESIZES} <= await bound()

        with suppress(TimeoutError):  # what is wrong is named by the test
            await wait_for(fit, DEADLINE, "the probes of the exact size are bound")
        await scheduler_rests(api, empty_plane)
        return await bound()

    assert empty_plane.run(work) == {f"{name}-exact" for name in RESIZES}


# Not among them: exponents of ten digits, on which the server itself computes until the request times out.
EDGES = (
    "", ".", "-", "+", "0", "00", "-0", "+1", "1.", ".5", "-.5", "5.5.5", "1e", "1e3", "1E3", "1e+3", "1e-3",
    "1E", "1Ei", "1e3m", "1ki", "1K", "1Mi", "1mi", "1 Gi", " 1", "1 ", "1_000", "0x10", "1n", "1.1n", "0.1n",
    "-0.1n", "1u", "999999u", "9223372036854775807", "9223372036854775808", "99999999999999999999", "8Ei",
    "7.9Ei", "10E", "9.3E", "1e18", "1e19", "1e100", "1e-100", "-", "+Ki", ".m", "E", "e", "Ki", "1e+",
    "\\t1\\n", "0.000000001", "0.0000000001", "1.0000000001", "123456789.123456789", "1.5Gi", "0.3Ki", "1.1Ki",
    "1000000000000000000000n", "Inf", "NaN", "1G1", "\uff11", "1µ",
)  # fmt: skip


def texts() -> list[str]:
    rng = random.Random(5)
    suffixes = [
        "",
        "",
        "n",
        "u",
        "m",
        "k",
        "M",
        "G",
        "T",
        "P",
        "E",
        "Ki",
        "Mi",
        "Gi",
        "Ti",
        "Pi",
        "Ei",
        "e3",
        "E-2",
        "e12",
    ]
    made = []
    for _ in range(560):
        whole = "".join(rng.choices("0123456789", k=rng.choice((0, 1, 2, 3, 6, 12, 19, 25))))
        part = rng.choice(("", "", ".", "." + "".join(rng.choices("0123456789", k=rng.choice((1, 3, 9, 12))))))
        made.append(rng.choice(("", "", "", "+", "-")) + whole + part + rng.choice(suffixes))
    return list(dict.fromkeys([*EDGES, *made]))


def test_quantities_mean_what_the_api_server_makes_of_them(control_plane: ControlPlane) -> None:
    """The server's canonical answers have our values, and what it can't parse we can't either."""
    wrong: list[str] = []
    counts = {"same": 0, "mended": 0, "negative": 0, "refused": 0}

    async def work(api: Client) -> None:
        async def one(written: str) -> None:
            # A plain quantity: in a list of resources the server would round it up to milli.
            body = {"metadata": {"name": "probe"}, "storageClassName": "none", "capacity": written}
            path = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
            answer_status, answer = await api.request("POST", path, body=body, params=DRY)
            try:
                ours: Fraction | None = Fraction(quantity.nano(written), quantity.NANO)
            except QuantityError:
                ours = None
            if answer_status == 201 and ours is not None:
                canonical = answer["capacity"]
                counts["same"] += 1
                # The server may keep a larger number as written; beyond 2**63 - 1 nothing counts any further.
                theirs = amounts.quantity(canonical)
                if ours != min(max(theirs, -Fraction(quantity.MAX_VALUE)), Fraction(quantity.MAX_VALUE)):
                    wrong.append(f"{written!r}: {canonical} there, {ours} here")
            elif answer_status == 201 and ours is None:
                # Stricter on purpose: a text without a digit in front, or with space around it, is a slip in a file
                # made by hand. The server stores it as 0, or trimmed, so that it never comes back from there.
                counts["mended"] += 1
                if re.fullmatch(r"[+-]?[.]?[0-9].*\S", written):
                    wrong.append(f"{written!r}: {answer['capacity']} there, refused here")
            elif answer_status == 422:
                # It was read, and then found below zero, which no capacity can be.
                counts["negative"] += 1
                if ours is None or ours >= 0:
                    wrong.append(f"{written!r}: negative there, {ours} here")
            else:
                counts["refused"] += 1
                if ours is not None:
                    wrong.append(f"{written!r}: {answer_status} there ({answer.get('message')}), {ours} here")

        await api.each(one, texts())

    control_plane.run(work)
    assert not wrong, "\n".join(wrong[:20])
    assert sum(counts.values()) >= 500
    assert min(counts.values()) >= 5, counts
