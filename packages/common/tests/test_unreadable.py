"""Texts from outside that nest without end: each reader says that it can't read them, and none breaks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from links import Direct, virtually

from tightship.draining.claims import CLAIMS_ANNOTATION, ClaimsUnreadable, claims_in, past_drains
from tightship.draining.lease_room import (
    ADDITIONS_ANNOTATION,
    HISTORY_ANNOTATION,
    SAVINGS_ANNOTATION,
)
from tightship.draining.ledger import Ledger
from tightship.kube.leases import LeaseStore
from tightship.objects import ObjectError, decode
from tightship.objects.api_errors import KubeError, api_error
from tightship.objects.drain_record import PastDrains, Phase, decode_record
from tightship.process.settings.loading import SettingsError, mapping_of
from tightship_testkit.simulated import Simulated

PRODUCT = ("common", "node-compactor", "node-refiner", "hpa-scaler", "tightship-cli")

DEEP = [
    pytest.param(lambda depth: "[" * depth, id="brackets"),
    pytest.param(lambda depth: "[" * depth + "]" * depth, id="closed"),
    pytest.param(lambda depth: '{"a":' * depth, id="braces"),
    pytest.param(lambda depth: '{"p":' + "[" * depth + "]" * depth + "}", id="within"),
]
Deep = Callable[[int], str]
DEPTHS = pytest.mark.parametrize("depth", [900, 1_100, 50_000])


def holding(api: Simulated, **notes: str) -> Any:
    meta = {"name": "tightship-claims", "namespace": "ns", "annotations": notes}
    api.add({"kind": "Lease", "metadata": meta, "spec": {}})
    return Direct(api.store)


@DEPTHS
@pytest.mark.parametrize("deep", DEEP)
def test_claims_are_unreadable_and_never_empty(deep: Deep, depth: int) -> None:
    async def work(api: Simulated) -> None:
        connection = holding(api, **{CLAIMS_ANNOTATION: deep(depth)})
        with pytest.raises(ClaimsUnreadable, match="is not a list of drain claims"):
            claims_in(await Ledger(connection, namespace="ns").read())

    virtually(work)


@DEPTHS
@pytest.mark.parametrize("deep", DEEP)
def test_history_counts_as_empty(deep: Deep, depth: int) -> None:
    names = (HISTORY_ANNOTATION, SAVINGS_ANNOTATION, ADDITIONS_ANNOTATION)

    async def work(api: Simulated) -> None:
        connection = holding(api, **dict.fromkeys(names, deep(min(depth, 10_000))))
        assert past_drains(await Ledger(connection, namespace="ns").read()) == PastDrains()

    virtually(work)


@DEPTHS
@pytest.mark.parametrize("deep", DEEP)
def test_a_record_is_unknown_and_a_configuration_is_refused(deep: Deep, depth: int) -> None:
    assert decode_record(deep(depth)).phase is Phase.UNKNOWN
    with contextlib.suppress(SettingsError):
        assert mapping_of(deep(depth), "config.yaml")


@DEPTHS
@pytest.mark.parametrize("kind", ["Node", "Pod", "CapacityBuffer", "NodePool", "VerticalPodAutoscaler"])
def test_an_object_is_an_unreadable_one_or_the_field_does_not_count(kind: str, depth: int) -> None:
    meta = '"metadata":{"name":"a","namespace":"b"}'
    nested = "[" * depth + "]" * depth
    for part in ("spec", "status", "else"):
        text = f'{{{meta},"{part}":{{"limits":{nested},"x":{nested}}}}}'
        with contextlib.suppress(ObjectError):
            assert decode(kind, text.encode())


@DEPTHS
def test_an_answer_of_the_api_server_is_a_bad_answer(depth: int) -> None:
    nested = "[" * depth + "]" * depth

    class Answers:
        server = "nowhere"

        async def request(self, *_: object, **__: object) -> bytes:
            return f'{{"metadata":{nested}}}'.encode()

    async def work(_: Simulated) -> None:
        connection: Any = Answers()
        with pytest.raises(KubeError, match="not a Lease"):
            await LeaseStore(connection, "ns", "l").get(1)

    virtually(work)
    assert api_error(500, f'{{"details":{nested}}}'.encode()).status == 500


def test_every_reader_of_the_product_knows_all_that_decoding_raises() -> None:
    """``UNREADABLE`` is written down once."""
    packages = Path(__file__).resolve().parents[2]
    paths = [each for package in PRODUCT for each in (packages / package / "src").rglob("*.py")]
    caught = re.compile(r"(except|suppress\().*\bDecodeError")
    found = {each.name for each in paths for line in each.read_text().splitlines() if caught.search(line)}
    assert found - {"documents.py", "sources.py", "config_maps.py", "past_source.py"} == set()
