"""Acting on nodes: who may drain which, and the machine that does it step by step."""
