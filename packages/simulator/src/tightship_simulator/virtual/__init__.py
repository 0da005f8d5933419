"""Virtual time: controllers and their cluster in one process, on one event loop whose clock only counts."""
