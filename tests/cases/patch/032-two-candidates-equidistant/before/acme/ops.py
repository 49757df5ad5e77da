A = 1
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
B = 2
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
D = 4
