"""Mutants: small faults put into the product on purpose. A test that detects something kills some of them.

:mod:`~tightship_testkit.mutants.code` changes functions of pure modules and runs their tests;
:mod:`~tightship_testkit.mutants.edges` leaves out what keeps the edges safe and runs disasters.
"""
