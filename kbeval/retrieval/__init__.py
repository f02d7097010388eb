"""One look-up: exact keys, nearest passages, grading, session memory."""
