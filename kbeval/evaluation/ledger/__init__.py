"""What a memory saves in tokens and look-ups, and what it hides that was needed (method.md 12)."""
