"""The frame of a running controller: its process, its loop, its pages. Import the modules themselves."""
