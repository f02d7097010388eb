"""Runs people keep: notebooks, tables, pictures."""
