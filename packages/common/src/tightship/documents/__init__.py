"""The output for people: documents made from plans, and their formats. Does no I/O. Import the modules themselves."""
