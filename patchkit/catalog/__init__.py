"""What to patch, and why: manifests and patch headers, loaded, checked and matched to an image."""
