"""The changes of settings that advice may name: those that every controller of nodes knows, and the base for its own.

A change works on settings that others have changed already, so that several make one bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tightship.objects.reasons import Reason
from tightship.objects.times import format_duration
from tightship.planning.changes import Change
from tightship.planning.evaluate import Evaluation, Judge
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Plan
from tightship.planning.plan.model import subjects
from tightship.process.settings.loading import flags_of, nested, wire, wire_keys
from tightship.process.settings.sections import NodeSettings
from tightship.rules.evictability import ENDS_BY_ITSELF

AWAITED = 3600.0
"""Seconds for which advice would have drains wait for pods that end by themselves."""

_SWITCHED: Mapping[Reason, str] = {
    Reason.OTHER_SCHEDULER: "only if that scheduler filters nodes as kube-scheduler does",
}
"""Rules that advice may switch off, and when that is right."""


class SettingChanges:
    """The changes of *settings*; see :class:`tightship.planning.changes.Tunable`.

    *judged* makes a judge of settings. *given* are the fields that flags of this command set.
    """

    def __init__(
        self,
        settings: NodeSettings,
        judged: Callable[[Any], Judge],
        given: Collection[str] = (),
    ) -> None:
        self.settings = settings
        self.judge = judged
        self.values = wire
        self._keys = wire_keys(type(settings))
        self._given = given

    def own(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation) -> Change | None:
        """Return the change of a setting of this controller alone, as :meth:`change` does."""
        raise NotImplementedError

    def change(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation) -> Change | None:
        """See :class:`tightship.planning.changes.Tunable`."""
        if reason in _SWITCHED:
            return self.without(reason)
        if reason in ENDS_BY_ITSELF:
            note = f"a drain then waits up to {format_duration(AWAITED)} for such pods to end"
            return self.setting(reason, "await_timeout", AWAITED, note=note)
        if reason is Reason.GRACE_PERIOD_TOO_LONG:
            return self._grace(evaluation)
        if reason is Reason.MAX_NODES_REACHED:
            return self._longer(len(evaluation.facts))
        if reason is Reason.SAVING_TOO_SMALL:
            return self.setting(reason, "minimum_saving", 0.0, flag="--min-saving-per-eviction 0")
        return self.own(reason, fact, evaluation)

    def winning(self, values: Mapping[str, Any]) -> Sequence[str]:
        """See :class:`tightship.planning.changes.Tunable`."""
        return tuple(sorted(set(self._winning(type(self.settings), values))))

    def _winning(self, model: type[BaseModel], values: Mapping[str, Any]) -> Iterator[str]:
        flags = flags_of(model)
        for field, key in wire_keys(model).items():
            inner = nested(model.model_fields[field])
            if key in values and inner is not None and isinstance(values[key], Mapping):
                for each in values[key].values() if inner[1] else (values[key],):
                    yield from self._winning(inner[0], each)
            elif key in values and field in self._given and field in flags:
                yield flags[field].name

    def without(self, reason: Reason) -> Change:
        """Return the change that switches the rule of *reason* off."""
        off = self.settings.disabled_rules | {reason}

        def tune(settings: NodeSettings) -> NodeSettings:
            return settings.without_rule(reason)

        flags = tuple(f"--disable-rule {each}" for each in sorted(off))
        return Change(reason, f"the rule {reason}", tune=tune, flags=flags, note=_SWITCHED.get(reason, ""))

    def setting(
        self,
        reason: Reason,
        field: str,
        value: object,
        *,
        flag: str = "",
        note: str = "",
        tighter: Callable[[Plan], Sequence[Change]] | None = None,
        only: Callable[[NodeFacts], Change] | None = None,
    ) -> Change:
        """Return the change of *field* to *value*; *flag* makes the same change for one plan."""
        return Change(
            reason,
            f"the setting {self._keys[field]}",
            tune=lambda settings: settings.model_copy(update={field: value}),
            flags=(flag,) if flag else (),
            note=note,
            tighter=tighter,
            only=only,
        )

    def _longer(self, most: int) -> Change:
        def change(nodes: int) -> Change:
            return self.setting(
                Reason.MAX_NODES_REACHED,
                "max_nodes",
                max(1, nodes),
                flag=f"--max-nodes {max(1, nodes)}",
                tighter=lambda plan: (change(len(plan.removals)),),
            )

        return change(most)

    def _grace(self, evaluation: Evaluation) -> Change:
        reason = Reason.GRACE_PERIOD_TOO_LONG

        def change(seconds: float) -> Change:
            return self.setting(reason, "node_timeout", seconds, only=lambda fact: change(_longest(fact)))

        kept = {name for name, _ in subjects(evaluation.plan.refusals, reason)}
        return change(max(_longest(evaluation.facts[name]) for name in sorted(kept)))


def _longest(fact: NodeFacts) -> float:
    """Return the longest grace period of the pods that a drain of the node evicts, in seconds."""
    return float(max((pod.spec.grace for pod in fact.evict), default=0))
