"""The edge to the cluster: connection, lists and watches, the cache that they feed, and files in place of a cluster.

Import the modules themselves: nothing is re-exported here, so that reading a file imports neither aiohttp nor the
Kubernetes client (together about 1 s and 80 MB).
"""
