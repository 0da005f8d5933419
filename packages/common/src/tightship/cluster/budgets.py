"""All PodDisruptionBudgets of a snapshot, and the pods that they select."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from tightship.objects import PodDisruptionBudget, PodTemplate
from tightship.objects.selectors import SelectorIndex


class _Selection:
    """The keys of budgets by what they select."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self.index: SelectorIndex[str] = SelectorIndex()
        for budget in budgets:
            self.index.add(budget.namespace, budget.selector, budget.key)
        self.matches: WeakKeyDictionary[PodTemplate, tuple[str, ...]] = WeakKeyDictionary()


class Budgets:
    """The budgets in key order. Snapshots share this object while no budget changes.

    If nothing but statuses has changed since *before*, its matches still hold.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = (), before: Budgets | None = None) -> None:
        self.by_key = {budget.key: budget for budget in sorted(budgets, key=lambda each: each.key)}
        alike = None if before is None or not before.selects_like(self) else before._selection
        self._selection: _Selection = _Selection(self.by_key.values()) if alike is None else alike

    def of(self, template: PodTemplate) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets whose selector matches pods of *template*; in policy/v1 an empty selector matches all."""
        selection = self._selection
        found = selection.matches.get(template)
        if found is None:
            matching = selection.index.find(template.namespace, template.labels)
            found = selection.matches[template] = tuple(sorted(matching))
        return tuple(self.by_key[key] for key in found) if found else ()

    def selects_like(self, other: Budgets) -> bool:
        """Whether the budgets have the same keys and selectors as those of *other*."""
        mine, others = self.by_key, other.by_key
        return mine.keys() == others.keys() and all(
            budget is others[key] or budget.selector == others[key].selector for key, budget in mine.items()
        )

    def __iter__(self) -> Iterator[PodDisruptionBudget]:
        return iter(self.by_key.values())

    def __len__(self) -> int:
        return len(self.by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budgets) and self.by_key == other.by_key

    __hash__ = None  # type: ignore[assignment]
