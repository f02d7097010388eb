"""What there is to find: documents, passages, vectors."""
