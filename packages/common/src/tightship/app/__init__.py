"""The process of a controller: settings, runtime, logs and metrics, command line."""
