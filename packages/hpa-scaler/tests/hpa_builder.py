"""HPAs, answers and judgements in a few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.queries import Failure, Outcome, Query, QueryAnswer, answer_of
from hpa_scaler.annotations.spec import ENABLE, PREFIX, FloorSpec, Rules
from hpa_scaler.annotations.values import parse_float
from hpa_scaler.judge.decision import FloorDecision, Subject
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import judge_one
from tightship.objects import HorizontalPodAutoscaler, Owner
from tightship.objects.autoscaling import FieldManager, ScaleTargetRef, ScalingPolicy, ScalingRules
from tightship.objects.node import Condition
from tightship.objects.reasons import Reason

NOW = 1_800_000_000.0
CYCLE = 75.0

QUERY = "requests"
"""A query that is believed at once, also with a number behind it: see :func:`spec`."""

FREE = Rules(rise_factor=0, maximum_factor=0)
"""Rules without a limit for sudden rises, which ``test_sudden_rises.py`` is about."""

NO_AGE = msgspec.structs.replace(FREE, age_query="")
"""The rules of a server that nobody can ask for the age of its data."""

DISABLED = ScalingRules(select_policy="Disabled")


def annotated(**named: str) -> dict[str, str]:
    """The annotations of an HPA that is opted in, by their names after ``hpa-scaler-``, with ``_`` for ``-``."""
    own = {f"{PREFIX}/{ENABLE}-{name.replace('_', '-')}": text for name, text in named.items()}
    return {f"{PREFIX}/{ENABLE}": "true", **own}


def spec(**named: str) -> FloorSpec:
    if re.fullmatch(rf"{QUERY}[0-9]*", named.get("prometheus_query", "")):
        named = {"query_range": "0", "lowering_window": "0"} | named
    found = parse_spec(annotated(**named))
    assert isinstance(found, FloorSpec), found
    return found


def hpa(minimum: int = 5, maximum: int = 50, replicas: int | None = 10, **more: Any) -> HorizontalPodAutoscaler:
    """An HPA of a Deployment, with the fields *more*."""
    given: dict[str, Any] = {
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
        "labels": {},
        "annotations": annotated(),
        "owner": None,
        "deletion": None,
        "min_replicas": minimum,
        "max_replicas": maximum,
        "target": ScaleTargetRef("Deployment", "web", "apps/v1"),
        "scale_up": None,
        "scale_down": None,
        "current_replicas": replicas,
        "desired_replicas": replicas or 0,
        "conditions": (Condition("AbleToScale", "True"), Condition("ScalingActive", "True")),
        "managers": (),
    }
    return HorizontalPodAutoscaler(**(given | more))


def policies(*written: tuple[str, int, int], select: str | None = None) -> ScalingRules:
    return ScalingRules(tuple(ScalingPolicy(*each) for each in written), select)


def manager(name: str, *, operation: str = "Update", time: int = 0) -> FieldManager:
    return FieldManager(name, operation, time, sets_min=True, sets_max=False)


def owner(kind: str = "ScaledObject") -> Owner:
    return Owner(kind, "web", "u9")


def answer(*values: float | str, warnings: tuple[str, ...] = ()) -> QueryAnswer:
    """The answer with one series for each of *values*, which may be written as Prometheus writes them."""
    numbers = [parse_float(each) if isinstance(each, str) else float(each) for each in values]
    floats = [each for each in numbers if each is not None]
    assert len(floats) == len(values)
    return answer_of(floats, warnings)


def failure(reason: Reason = Reason.CONNECTION_FAILED, detail: str = "refused") -> Failure:
    return Failure(reason, detail)


def judge(
    thing: HorizontalPodAutoscaler,
    asked: FloorSpec,
    outcome: Outcome | float | str | None = None,
    *,
    others: Mapping[Query, Outcome] | None = None,
    **more: Any,
) -> FloorDecision:
    """The decision where the first query came to *outcome*, and the *others* to theirs."""
    outcomes: dict[Query, Outcome] = dict(others or {})
    if outcome is not None:
        first = asked.queries[0]
        answered = answer(outcome) if isinstance(outcome, float | int | str) else outcome
        outcomes[Query(first.text, first.server)] = answered
    return judge_one(Subject(hpa=thing, asked=asked, outcomes=outcomes, **({"now": NOW, "rules": FREE} | more)))


def reasons(decision: FloorDecision) -> list[str]:
    return [cause.reason.value for cause in decision.causes]


class HpaCycles:
    """One HPA over time: what is decided is written, and the HPA is what was written."""

    def __init__(self, thing: HorizontalPodAutoscaler, asked: FloorSpec, rules: Rules = NO_AGE) -> None:
        self.hpa = thing
        self.asked = asked
        self.rules = rules
        self.history = FloorHistory()
        self.now = NOW

    def cycle(self, outcome: Outcome | float | str | None = None, **more: Any) -> FloorDecision:
        """Judge, write, and let the time of a cycle pass."""
        decision = judge(self.hpa, self.asked, outcome, history=self.history, rules=self.rules, now=self.now, **more)
        if decision.changes:
            self.set(minimum=decision.target, maximum=decision.target_maximum)
            self.history = decision.written
        else:
            self.history = decision.history
        self.now += CYCLE
        return decision

    def set(self, minimum: int | None = None, maximum: int | None = None, replicas: int | None = None) -> None:
        """Change the HPA."""
        changes = {"min_replicas": minimum, "max_replicas": maximum, "current_replicas": replicas}
        given = {name: value for name, value in changes.items() if value is not None}
        self.hpa = msgspec.structs.replace(self.hpa, **given)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.hpa.min_replicas, self.hpa.max_replicas
