"""Lint of how a model server is started: compose files, shell scripts, argument lists, environment.

``words`` cuts text into commands, with the place of every word; ``sources`` finds the commands in a file; ``shape``
and ``rules`` look for faults; ``run`` is the way through.
"""
