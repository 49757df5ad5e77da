def a():
    return 11


def c():
    return 3
