"""Tightship: what its three controllers share.

Each folder is a layer, and imports only from those before it (import-linter holds this):

* ``objects``: Kubernetes objects as slim structs, quantities, selectors, times, reasons. Pure.
* ``cluster``: the snapshot of a cluster, and the state that makes it. Pure.
* ``scheduler``: the model of kube-scheduler. Pure.
* ``rules``: what may not go, and why. Pure.
* ``planning``: demand, the planner, ``evaluate``. Pure; the time is an argument.
* ``drain``: a drain's state machine, and its view of the node. Pure.
* ``documents``: documents, and the formats they are printed in. Pure.
* ``kube``: the API server: connection, cache, Leases.
* ``draining``: drains as they are carried out: claims, patches, evictions.
* ``process``: settings, logs, metrics, HTTP, the leader's loop.
* ``search``, ``advice``, ``prices``: annexes, of which only ``nodes/annexes.py`` imports anything.
* ``nodes``: what both controllers of nodes share.
* ``cli``: the commands, and clusters from files.
"""

__version__ = "0.1.0"
