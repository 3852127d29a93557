"""The language engine: prompts and embeddings in, tokens out."""
