"""The client for Prometheus and for servers with the same API: Thanos, Mimir, VictoriaMetrics. Import the modules
themselves.
"""
