"""What a controller is told: by flags and environment once, by its ConfigMap live. Import the modules themselves."""
