"""Recorded look-ups of a running tool: read into sessions, and what can be read off them."""
