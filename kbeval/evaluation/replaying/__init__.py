"""Sessions through the tool again: what each memory policy would have handed out (method.md 11)."""
