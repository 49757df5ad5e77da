def a():
    return 100


def c():
    return 3
