"""The output of a running controller: log lines, metrics, Events. Import the modules themselves."""
