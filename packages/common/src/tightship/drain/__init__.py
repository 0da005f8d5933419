"""A drain as a state machine: its events, its assessment of a node, the answers to evictions. Pure."""
