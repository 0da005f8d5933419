"""What lives in the embedded cluster: scheduler, workload controllers, kubelets, autoscalers, and a Prometheus."""
