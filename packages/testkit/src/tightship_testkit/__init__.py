"""What tests of all packages share: builders of objects, a client, processes, faults, the observer of invariants."""
