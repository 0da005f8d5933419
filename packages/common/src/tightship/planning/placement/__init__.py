"""Where pods can go, by kube-scheduler's filters, and where they will likely go, by a model of its scoring."""

from tightship.planning.placement.fitting import Fit, Leaving, certain, fit_all, stuck_in_turn
from tightship.planning.placement.scoring import aligned, best_fit, scheduler_choice, scheduler_scores
from tightship.planning.placement.space import Ask, Space, fit_to_receive

__all__ = [
    "Ask",
    "Fit",
    "Leaving",
    "Space",
    "aligned",
    "best_fit",
    "certain",
    "fit_all",
    "fit_to_receive",
    "scheduler_choice",
    "scheduler_scores",
    "stuck_in_turn",
]
