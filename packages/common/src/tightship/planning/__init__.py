"""Plans and their evaluation: demand, the planner, strategies. Pure: the time is an argument."""
