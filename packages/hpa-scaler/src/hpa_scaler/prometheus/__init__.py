"""The client for Prometheus and servers with the same API: Thanos, Mimir, VictoriaMetrics. Import the modules."""
