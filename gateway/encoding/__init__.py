"""Images on their way to embeddings: placed, sent to their owners, kept."""
