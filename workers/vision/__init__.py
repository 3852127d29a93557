"""The vision owner: pixels in, embeddings out."""
