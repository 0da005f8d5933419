"""HTML pages for people, made of plain texts and numbers. Nothing here knows a controller."""
