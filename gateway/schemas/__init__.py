"""Bodies that come in and go out: how they are checked, and the document that describes them."""
