"""The log of decisions, which can repeat each of them. Pure.

The log has one JSON object per line: a decision with all of its inputs, or the end of a cycle with its verdict on
correlated drops. A replay must give the same result for each line; a difference names the HPA, the logged value and the
new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import (
    Expected,
    Outcome,
    Query,
)
from hpa_scaler.annotations.spec import FloorSpec, Problems, Rollout, Rules
from hpa_scaler.judge.decision import (
    DropCount,
    DropState,
    DropVerdict,
    FloorDecision,
    Subject,
    count_drops,
    judge_drops,
)
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import Cycle, judge_one
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.meta import EMPTY
from tightship.objects.reasons import Refusal
from tightship.objects.unreadable import UNREADABLE

VERSION = 1
_encoder = msgspec.json.Encoder()


class Result(Struct, frozen=True, rename="camel"):
    """The result of a decision."""

    action: str
    target: int
    target_maximum: int
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, decision: FloorDecision) -> Result:
        """Return the result of *decision*."""
        reasons = tuple(cause.reason.value for cause in decision.causes)
        return cls(decision.action, decision.target, decision.target_maximum, reasons)


class DecisionLine(Struct, frozen=True, rename="camel", tag="decision", tag_field="kind", omit_defaults=True):
    """One decision; all decisions of a cycle share *cycle*. *drop* is the breaker's reason to hold lowering, if any."""

    v: int
    cycle: str
    now: float
    hpa: HorizontalPodAutoscaler
    result: Result
    rules: Rules
    spec: FloorSpec | None = None
    problems: tuple[str, ...] = ()
    outcomes: tuple[tuple[Query, Outcome], ...] = ()
    rollout: Rollout | None = None
    history: FloorHistory = FloorHistory()
    state_problem: str = ""
    expected: tuple[Expected, ...] = ()
    drop: Refusal | None = None


class CycleLine(Struct, frozen=True, rename="camel", tag="cycle", tag_field="kind", omit_defaults=True):
    """The end of a cycle: its *decisions*, the *count* of drops, the state *before*, whether lowering was *held*."""

    v: int
    cycle: str
    now: float
    decisions: int
    count: DropCount
    before: DropState
    held: bool
    rules: Rules


Line: TypeAlias = DecisionLine | CycleLine

_decoder = msgspec.json.Decoder(Line)


class LogError(ValueError):
    """An unreadable line."""


class Difference(Struct, frozen=True):
    """A line whose result differs: its number from 1, its subject, the logged value and the new one."""

    line: int
    about: str
    logged: str
    now: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.about}: logged {self.logged}, now {self.now}"


class Replay(Struct, frozen=True):
    """The result of a replay. *unended* cycles have no end in the log, so their drops were not counted again."""

    decisions: int
    cycles: int
    unended: int
    differences: tuple[Difference, ...]


def decision_line(cycle: str, decision: FloorDecision, drop: Refusal | None = None) -> bytes:
    """Return the line of *decision*, with a line end; *drop* is the breaker's reason to hold lowering, if any."""
    subject = decision.subject
    asked = subject.asked
    line = DecisionLine(
        v=VERSION,
        cycle=cycle,
        now=subject.now,
        # The spec has all that the judgement needs of these.
        hpa=msgspec.structs.replace(subject.hpa, annotations=EMPTY, labels=EMPTY),
        result=Result.of(decision),
        spec=asked if isinstance(asked, FloorSpec) else None,
        problems=asked.lines if isinstance(asked, Problems) else (),
        outcomes=tuple(sorted(subject.outcomes.items(), key=lambda item: item[0])),
        rollout=subject.rollout,
        history=subject.history,
        state_problem=subject.state_problem,
        expected=subject.expected,
        rules=subject.rules,
        drop=drop,
    )
    return _encoder.encode(line) + b"\n"


def cycle_line(cycle: str, now: float, decisions: Iterable[FloorDecision], before: DropState, rules: Rules) -> bytes:
    """Return the line that ends a cycle of *decisions*."""
    made = list(decisions)
    count = count_drops(made, rules)
    held = judge_drops(count, before, rules, now).cause is not None
    line = CycleLine(
        v=VERSION, cycle=cycle, now=now, decisions=len(made), count=count, before=before, held=held, rules=rules
    )
    return _encoder.encode(line) + b"\n"


def log_lines(cycle: Cycle, name: str, before: DropState, rules: Rules, now: float) -> list[bytes]:
    """Return the lines of a decision log for *cycle*, which the log calls *name*."""
    lines = [decision_line(name, each, cycle.verdict.cause) for each in cycle.decisions]
    lines.append(cycle_line(name, now, cycle.decisions, before, rules))
    return lines


def _logged_subject(line: DecisionLine) -> Subject:
    asked = line.spec if line.spec is not None else Problems(line.problems) if line.problems else None
    return Subject(
        hpa=line.hpa,
        asked=asked,
        outcomes=dict(line.outcomes),
        rollout=line.rollout,
        history=line.history,
        state_problem=line.state_problem,
        expected=line.expected,
        rules=line.rules,
        now=line.now,
    )


def replay(lines: Iterable[bytes]) -> Replay:
    """Repeat every decision of a log. Raises :class:`LogError` for an unreadable line."""
    differences: list[Difference] = []
    decisions = cycles = 0
    going: dict[str, list[FloorDecision]] = {}
    for number, line in read_log(lines):
        if isinstance(line, DecisionLine):
            decision = judge_one(_logged_subject(line), DropVerdict(line.drop))
            going.setdefault(line.cycle, []).append(decision)
            decisions += 1
            result = Result.of(decision)
            if result != line.result:
                about = f"HPA {line.hpa.key}"
                differences.append(Difference(number, about, _shown(line.result), _shown(result)))
        else:
            cycles += 1
            differences += _compared_cycle(number, line, going.pop(line.cycle, []))
    return Replay(decisions, cycles, len(going), tuple(differences))


def read_log(lines: Iterable[bytes]) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a decision log with their numbers. Raises :class:`LogError` for an unreadable one."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = _decoder.decode(raw)
        except (*UNREADABLE, UnicodeError) as error:
            raise LogError(f"line {number}: not a line of a decision log: {error}") from error
        if line.v != VERSION:
            raise LogError(f"line {number}: version {line.v} is not known, only {VERSION}")
        yield number, line


def _compared_cycle(number: int, line: CycleLine, made: list[FloorDecision]) -> Iterator[Difference]:
    about = f"cycle {line.cycle}"
    if len(made) == line.decisions:
        count = count_drops(made, line.rules)
        if count != line.count:
            yield Difference(number, about, str(line.count), str(count))
    held = judge_drops(line.count, line.before, line.rules, line.now).cause is not None
    if held != line.held:
        yield Difference(number, about, f"held {line.held}", f"held {held}")


def _shown(result: Result) -> str:
    return f"{result.action} to {result.target} of {result.target_maximum} ({', '.join(result.reasons)})"
