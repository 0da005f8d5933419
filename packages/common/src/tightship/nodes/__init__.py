"""What both controllers of nodes share."""
