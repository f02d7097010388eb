"""The knowledge base's own memory: documents, domains and look-ups in one database (FS-6)."""
