"""What is made of the charts' values and of the controllers' code: schemas, READMEs, dashboards. ``make charts``."""
