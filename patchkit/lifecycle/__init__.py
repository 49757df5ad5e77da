"""The life of a patch: made, imported, rehearsed on other releases, rebased, retired."""
