"""A search for plans that remove more nodes than a greedy strategy does, with few moves."""
