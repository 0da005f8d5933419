"""What may not go, and why: rules of pods, nodes, node groups, health and Karpenter. Pure."""
