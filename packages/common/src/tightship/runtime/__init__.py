"""What holds a running controller: its process, its loop, its pages. Import the modules themselves."""
