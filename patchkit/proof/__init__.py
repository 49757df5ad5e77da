"""What is checked after a delivery, level by level."""
