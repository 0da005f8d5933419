"""The edge to the cluster: connection, lists and watches, the cache that they feed, and files in place of a cluster.

Import the modules themselves. This package re-exports nothing, so reading a file does not load aiohttp.
"""
