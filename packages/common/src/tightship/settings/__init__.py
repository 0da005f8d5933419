"""Settings that change while a controller runs. Import the modules themselves."""
