"""Acting on nodes: who may drain which node, and the state machine that does it step by step."""
