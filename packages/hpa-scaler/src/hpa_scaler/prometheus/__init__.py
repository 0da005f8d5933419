"""The edge to Prometheus, and to what speaks its API: Thanos, Mimir, VictoriaMetrics. Import the modules themselves."""
