"""Looks for everything that can make a patch a silent no-op: small checks, each with an id, a finding and a remedy."""
