"""What RECORD says of the files as a wheel shipped them.

Part of programs that travel into containers as text: Python 3.8 or newer, standard library only, ASCII, and as few
imports as the work needs.
"""

_LONGEST_ROW = 1024 * 1024


def parse_record(data: bytes) -> "dict[str, str]":
    """RECORD as path -> sha256 in hex; rows without a sha256 are left out, and so is what cannot be read. Of several
    rows for a path the last counts.

    Source: packaging.python.org, "Recording installed projects": CSV rows ``path,algorithm=digest,size`` whose digest
    is urlsafe base64 without padding.
    """
    import base64
    import binascii
    import csv
    import posixpath

    found = {}
    csv.field_size_limit(_LONGEST_ROW)
    try:
        for row in csv.reader(data.decode("utf-8", "surrogateescape").splitlines()):
            if len(row) < 2 or not row[1].startswith("sha256="):
                continue
            text = row[1][len("sha256=") :]
            try:
                digest = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            except (binascii.Error, ValueError):
                continue
            if len(digest) == 32:
                found[posixpath.normpath(row[0])] = digest.hex()
    except csv.Error:
        return found
    return found
