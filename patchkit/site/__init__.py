"""Python inside an image: how the serving process starts, where it looks, and which copy of a package it imports."""
