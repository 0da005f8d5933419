"""All PodDisruptionBudgets of a snapshot, and the pods that they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from tightship.core.objects import PodDisruptionBudget, PodTemplate
from tightship.core.selectors import SelectorIndex


class Budgets:
    """The budgets in key order. Snapshots share this object, and its matches, while no budget changes."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        self.by_key = {budget.key: budget for budget in sorted(budgets, key=lambda each: each.key)}
        self._selecting: SelectorIndex[PodDisruptionBudget] = SelectorIndex()
        for budget in self.by_key.values():
            self._selecting.add(budget.namespace, budget.selector, budget)
        self._matches: WeakKeyDictionary[PodTemplate, tuple[PodDisruptionBudget, ...]] = WeakKeyDictionary()

    def of(self, template: PodTemplate) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector matches pods of *template*; in policy/v1 an empty selector matches all."""
        found = self._matches.get(template)
        if found is None:
            matching = self._selecting.find(template.namespace, template.labels)
            found = self._matches[template] = tuple(sorted(matching, key=lambda budget: budget.key))
        return found

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budgets) and self.by_key == other.by_key

    __hash__ = None  # type: ignore[assignment]
