"""What the controllers of nodes share: they judge, show, steer, claim and drain. Import the modules themselves."""
