"""Pages for people: plain texts and numbers in, one HTML document out. Nothing here knows a controller."""
