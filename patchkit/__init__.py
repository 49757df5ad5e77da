"""Patch Python packages inside container images, provably."""

__version__ = "0.1.0"
