"""A drain as a state machine: its steps and events, its assessment of a node, the answers to evictions. Pure."""
