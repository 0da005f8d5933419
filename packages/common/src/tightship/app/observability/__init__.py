"""What a running controller tells: log lines, metrics, Events. Import the modules themselves."""
