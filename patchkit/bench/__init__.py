"""Benchmarks of a serving model: measure, keep, compare, with verdicts that follow from the data."""
