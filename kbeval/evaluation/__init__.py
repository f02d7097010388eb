"""Many look-ups, with labels."""
