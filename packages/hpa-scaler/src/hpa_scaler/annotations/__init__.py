"""The annotations, queries and rules of an HPA. Pure."""
