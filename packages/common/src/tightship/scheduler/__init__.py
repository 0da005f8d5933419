"""Where pods can go, by kube-scheduler's filters, and where they will likely go, by a model of its scoring."""
