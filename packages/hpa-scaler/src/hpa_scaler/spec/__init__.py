"""What an HPA asks for: annotations, queries, rules. Pure."""
