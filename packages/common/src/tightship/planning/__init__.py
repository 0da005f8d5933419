"""A node's utilization, everything that keeps it, and its part in a plan. Pure: the time is an argument."""
