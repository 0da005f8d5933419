"""The process of a controller: settings, logs, metrics, HTTP, the loop of the leader. Import the modules themselves."""
