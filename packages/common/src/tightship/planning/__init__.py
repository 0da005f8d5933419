"""What a node is worth, what keeps it, and what a plan does with it. Pure: the time is an argument."""
