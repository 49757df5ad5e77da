"""Measurements, side by side in one run, told as ratios. `make bench` runs them all."""
