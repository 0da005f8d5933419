"""Tightship: what its three controllers share.

Four layers, each importing only from those above it (import-linter holds this):

1. values: :mod:`~tightship.quantity`, :mod:`~tightship.resources`, :mod:`~tightship.selectors`,
   :mod:`~tightship.objects`, :mod:`~tightship.reasons`
2. judgement: :mod:`~tightship.cluster`, :mod:`~tightship.pools`, :mod:`~tightship.utilization`,
   :mod:`~tightship.evictability`, :mod:`~tightship.disruption`, :mod:`~tightship.placement`, :mod:`~tightship.plan`,
   :mod:`~tightship.facts`
3. the cluster's edge: :mod:`~tightship.kube`
4. running: :mod:`~tightship.report`, :mod:`~tightship.cli`
"""

__version__ = "0.1.0"
