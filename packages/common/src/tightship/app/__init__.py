"""What makes a process of a controller: settings, runtime, logs and metrics, the command line."""
