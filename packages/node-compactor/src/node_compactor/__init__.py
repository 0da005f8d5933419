"""node-compactor: empties the least utilized nodes of a pool, so that the Cluster Autoscaler can take them away."""

__version__ = "0.1.0"
