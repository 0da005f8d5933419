"""A log of judgements, one JSON object a line, from which each judgement can be repeated. Pure.

A line is a decision with all of its inputs, or the end of a cycle with its verdict on correlated drops. Repeated, each
line has to give the same result; a difference names the HPA, then the logged value and the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hpa_scaler.decide.correlated import DropCount, DropState, count_drops, hold_lowering, judge_drops
from hpa_scaler.decide.history import History
from hpa_scaler.decide.policy import Decision, Subject, decide
from hpa_scaler.spec.queries import Outcome, Query
from hpa_scaler.spec.rollout import Rollout
from hpa_scaler.spec.rules import Rules
from hpa_scaler.spec.spec import Problems, Spec
from tightship.core.objects import HorizontalPodAutoscaler
from tightship.core.objects.meta import EMPTY
from tightship.core.reasons import Refusal

VERSION = 1


class Result(Struct, frozen=True, rename="camel"):
    """The result of a decision."""

    action: str
    target: int
    target_maximum: int
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, decision: Decision) -> Result:
        """Return the result of *decision*."""
        reasons = tuple(cause.reason.value for cause in decision.causes)
        return cls(decision.action, decision.target, decision.target_maximum, reasons)


class DecisionLine(Struct, frozen=True, rename="camel", tag="decision", tag_field="kind", omit_defaults=True):
    """One decision; *cycle* is the same for all of one cycle. *drop* is why the verdict on the whole cycle held its
    lowering.
    """

    v: int
    cycle: str
    now: float
    hpa: HorizontalPodAutoscaler
    result: Result
    rules: Rules
    spec: Spec | None = None
    problems: tuple[str, ...] = ()
    outcomes: tuple[tuple[Query, Outcome], ...] = ()
    rollout: Rollout | None = None
    history: History = History()
    state_problem: str = ""
    drop: Refusal | None = None


class CycleLine(Struct, frozen=True, rename="camel", tag="cycle", tag_field="kind", omit_defaults=True):
    """The end of a cycle of *decisions*: the *count* of drops, the state *before*, whether all lowering was *held*."""

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
_encoder = msgspec.json.Encoder()


class LogError(ValueError):
    """A line that can't be read."""


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


def decision_line(cycle: str, subject: Subject, decision: Decision, drop: Refusal | None = None) -> bytes:
    """Return the line of *decision*, with a line end; *drop* is why the verdict on the whole cycle
    held its lowering.
    """
    asked = subject.asked
    line = DecisionLine(
        v=VERSION,
        cycle=cycle,
        now=subject.now,
        # What the judgement looks at is in the spec.
        hpa=msgspec.structs.replace(subject.hpa, annotations=EMPTY, labels=EMPTY),
        result=Result.of(decision),
        spec=asked if isinstance(asked, Spec) else None,
        problems=asked.lines if isinstance(asked, Problems) else (),
        outcomes=tuple(sorted(subject.outcomes.items(), key=lambda item: item[0])),
        rollout=subject.rollout,
        history=subject.history,
        state_problem=subject.state_problem,
        rules=subject.rules,
        drop=drop,
    )
    return _encoder.encode(line) + b"\n"


def cycle_line(cycle: str, now: float, decisions: Iterable[Decision], before: DropState, rules: Rules) -> bytes:
    """Return the line that ends a cycle of *decisions*, as they were before the verdict on the whole cycle."""
    made = list(decisions)
    count = count_drops(made, rules)
    held = judge_drops(count, before, rules, now).cause is not None
    line = CycleLine(
        v=VERSION, cycle=cycle, now=now, decisions=len(made), count=count, before=before, held=held, rules=rules
    )
    return _encoder.encode(line) + b"\n"


def subject_of(line: DecisionLine) -> Subject:
    """Return the subject from which the decision of *line* was made."""
    asked = line.spec if line.spec is not None else Problems(line.problems) if line.problems else None
    return Subject(
        hpa=line.hpa,
        asked=asked,
        outcomes=dict(line.outcomes),
        rollout=line.rollout,
        history=line.history,
        state_problem=line.state_problem,
        rules=line.rules,
        now=line.now,
    )


def _nothing(line: DecisionLine, decision: Decision) -> None:
    del line, decision


def replay(lines: Iterable[bytes], tell: Callable[[DecisionLine, Decision], None] = _nothing) -> Replay:
    """Repeat every decision of a log, and *tell* each. Raises :class:`LogError` for an unreadable line."""
    differences: list[Difference] = []
    decisions = cycles = 0
    going: dict[str, list[Decision]] = {}
    for number, line in _read(lines):
        if isinstance(line, DecisionLine):
            decision = decide(subject_of(line))
            going.setdefault(line.cycle, []).append(decision)
            decisions += 1
            final = decision if line.drop is None else hold_lowering(decision, line.drop)
            tell(line, final)
            differences += _compared(number, line, Result.of(final))
        else:
            cycles += 1
            differences += _compared_cycle(number, line, going.pop(line.cycle, []))
    return Replay(decisions, cycles, len(going), tuple(differences))


def _read(lines: Iterable[bytes]) -> Iterator[tuple[int, Line]]:
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = _decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise LogError(f"line {number}: not a line of a decision log: {error}") from error
        if line.v != VERSION:
            raise LogError(f"line {number}: version {line.v} is not known, only {VERSION}")
        yield number, line


def _compared(number: int, line: DecisionLine, now: Result) -> Iterator[Difference]:
    if now != line.result:
        yield Difference(number, f"HPA {line.hpa.key}", _shown(line.result), _shown(now))


def _compared_cycle(number: int, line: CycleLine, made: list[Decision]) -> Iterator[Difference]:
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


__all__ = [
    "CycleLine",
    "DecisionLine",
    "Difference",
    "LogError",
    "Replay",
    "Result",
    "cycle_line",
    "decision_line",
    "replay",
    "subject_of",
]
