"""The demo: three real controllers at work on an embedded cluster for one night, on a terminal screen."""
