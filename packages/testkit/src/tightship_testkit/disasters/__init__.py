"""Disasters by seed: a small cluster, a story of changes and faults on virtual time, and an observer of promises.

``make(seed)`` makes a :class:`~tightship_testkit.disasters.scenario.Scenario`, ``run(scenario)`` plays it with the real
controllers, and the :mod:`promises <tightship_testkit.disasters.promises>` say what was broken.
"""
