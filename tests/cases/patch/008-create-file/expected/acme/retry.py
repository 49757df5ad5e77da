"""Retry helpers."""


def backoff(n):
    return min(2 ** n, 8)
