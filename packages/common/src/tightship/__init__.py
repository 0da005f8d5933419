"""Tightship: what its three controllers share.

Each folder is a layer, and imports only from those before it (import-linter holds this):

* ``core``: values, objects decoded from the API's JSON, reasons. Pure.
* ``planning``: the snapshot of a cluster, and what becomes of its nodes and pods. Pure; the time is an argument.
* ``drain``: a drain's state machine, and its view of the node. Pure.
* ``report``: documents, and the formats they are printed in. Pure.
* ``kube``: the API server: connection, cache, Leases.
* ``drain_io``: drains as they are carried out: claims, patches, evictions.
* ``app``: settings, processes, logs, metrics, the command line.
* ``nodes``: what both controllers of nodes share.
"""

__version__ = "0.1.0"
