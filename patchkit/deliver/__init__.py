"""Delivery of a plan: derived image, bind mounts, a running container, a plain folder."""
