"""300 manifests in the shape of estafette-extension-gke's, and what the older controller's own binary made of them.

The texts of the annotations are those that its template writes for its parameters (``templates/
horizontalpodautoscaler.yaml``, ``api/params.go``: no ``delta`` is the empty text), and those that users wrote by hand.
``data/older_floors.txt`` has a line for each manifest: the bounds that estafette-k8s-hpa-scaler 1.2.7 left the HPA
with, after one cycle against an API server and a Prometheus that answered with the value of the manifest.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import yaml
from hpa_builder import NO_AGE, judge
from msgspec import Struct

from hpa_scaler.annotations.parsing import BY_NAME, OLDER_PREFIX, name_of, parse_spec
from hpa_scaler.annotations.spec import Problems, Rollout
from tightship.objects import HorizontalPodAutoscaler, decode

FLOORS = Path(__file__).parent / "data" / "older_floors.txt"
MANIFESTS = 300
RULES = msgspec.structs.replace(NO_AGE, cold_guard=False)

ABSENT = None
_DEFAULT = "sum(rate(nginx_http_requests_total{app='web'}[5m])) by (app)"
QUERIES = (
    _DEFAULT,
    _DEFAULT,
    _DEFAULT,
    r"sum(rate(nginx_http_requests_total{app=\"web\",host!~\"^(?:[0-9.]+)$\"}[5m])) by (app)",
    "",
    ABSENT,
)
"""As the template writes them between double quotes."""
PER_REPLICA = (ABSENT, "", *["1", "2.5"] * 6, "0.25", "20", "20", "1e1", "+4", "0", "0.00", "2,5")
DELTAS = (ABSENT, *[""] * 10, "0", "0", "0.00", "-0.5", "-0.5", "-2.7584", "1", "1", "4", ".5", "1,5")
RATIOS = (ABSENT, "", *["1"] * 14, "0.2", "0.2", "0.5", "0", "0.00", "2", "1.0", "-0.5", "20%")
CHECKS = (*[ABSENT] * 20, "", "false", "true", "True")
REFUSED = {
    "requests-per-replica": ("0", "0.00", "2,5"),
    "delta": ("1,5",),
    "scale-down-max-ratio": ("-0.5", "20%"),
    "enable-scale-down-ratio-deployment-checking": ("True",),
}
"""Where the older controller silently used another number, nothing is done."""
VALUES = ("0", "3", "60", "101", "225.4068155675859", "999.9", "20", "9.5", "33", "NaN", "-100", "2147483648")


class Manifest(Struct, frozen=True):
    """The text of an HPA, and the value that its query has."""

    text: str
    value: str


def manifests() -> Iterator[Manifest]:
    chance = random.Random(33)

    def one(choices: Sequence[str | None]) -> str | None:
        return choices[int(chance.random() * len(choices))]

    def whole(least: int, most: int) -> int:
        return least + int(chance.random() * (most - least + 1))

    for number in range(MANIFESTS):
        given = {
            "prometheus-query": one(QUERIES),
            "requests-per-replica": one(PER_REPLICA),
            "delta": one(DELTAS),
            "scale-down-max-ratio": one(RATIOS),
            "enable-scale-down-ratio-deployment-checking": one(CHECKS),
        }
        written = [
            f'    estafette.io/hpa-scaler-{name}: "{text}"' for name, text in given.items() if text is not ABSENT
        ]
        small = whole(1, 8) == 1
        minimum, replicas = (whole(1, 2), whole(1, 3)) if small else (whole(1, 40), whole(1, 60))
        lines = [
            "apiVersion: autoscaling/v2",
            "kind: HorizontalPodAutoscaler",
            "metadata:",
            f"  name: web-{number}",
            "  namespace: shop",
            f"  uid: u{number}",
            '  labels: {"app": "web"}',
            "  annotations:",
            '    estafette.io/hpa-scaler: "true"',
            *written,
            "spec:",
            "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}",
            f"  minReplicas: {minimum}",
            f"  maxReplicas: {3 if small else max(minimum, replicas) + whole(0, 40)}",
            "status:",
            f"  currentReplicas: {replicas}",
            f"  desiredReplicas: {replicas}",
            '  conditions: [{type: AbleToScale, status: "True"}, {type: ScalingActive, status: "True"}]',
        ]
        yield Manifest("\n".join(lines), str(one(VALUES)))


def difference(manifest: Manifest, older: tuple[int, int]) -> str:
    """Return why our bounds are others than the *older* ones, an empty text for the same bounds.

    Fails with any difference that ``docs/moving.md`` does not list. The windows before lowering, which
    the older controller lacks, are off.
    """
    hpa = decode("HorizontalPodAutoscaler", json.dumps(yaml.safe_load(manifest.text)).encode())
    assert isinstance(hpa, HorizontalPodAutoscaler)
    given = {name: hpa.annotations.get(name_of(OLDER_PREFIX, name)) for name in BY_NAME}
    refused = {name for name, texts in REFUSED.items() if given[name] in texts}
    if given["prometheus-query"] == "":
        refused -= {"requests-per-replica", "delta"}  # They count for nothing.
    asked = parse_spec({**hpa.annotations, name_of(OLDER_PREFIX, "lowering-window"): "0"})
    if isinstance(asked, Problems):
        assert {each.partition(":")[0] for each in asked.lines} == {name_of(OLDER_PREFIX, name) for name in refused}
        return "refused"
    assert not refused
    found = judge(hpa, asked, manifest.value if asked.queries else None, rules=RULES, rollout=Rollout("steady"))
    now, ours = (hpa.min_replicas, hpa.max_replicas), (found.target, found.target_maximum)
    if ours == older:
        return ""
    if found.reason in ("NotANumber", "Negative", "OutOfRange"):
        assert ours == now
        return "held"
    assert (ours, older) == ((older[0], now[1]), (now[1], now[1] + 1)), found
    return "no maximum raised that the floor equals"


def older_floors() -> list[tuple[int, int]]:
    lines = FLOORS.read_text().splitlines()
    return [(int(minimum), int(maximum)) for minimum, maximum in (line.split() for line in lines)]


def test_what_the_older_controllers_generators_write_comes_to_the_older_floor() -> None:
    pairs = list(zip(manifests(), older_floors(), strict=True))
    assert len(pairs) == MANIFESTS
    assert Counter(difference(*pair) for pair in pairs) == {
        "": 203,
        "refused": 66,
        "held": 17,
        "no maximum raised that the floor equals": 14,
    }
