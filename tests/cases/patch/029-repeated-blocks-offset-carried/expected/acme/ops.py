# added 0
# added 1
# added 2
# added 3
# added 4
# added 5
# added 6
import ops

# handlers
# one
# two
MODE = 'b'
# three
# four
# five

    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return False
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
    try:
        step()
    except ValueError:
        return None
    finally:
        done()
    # --
