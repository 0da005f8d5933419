"""An API server for an embedded cluster: a store of objects, and the Kubernetes API on it over HTTP.

:mod:`~tightship_simulator.api.store` is what behaviours in the same process use, :mod:`~tightship_simulator.api.server`
what the controllers and kubectl talk to; :class:`tightship_simulator.serve.EmbeddedCluster` runs both.
"""
