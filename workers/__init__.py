"""Worker processes: the light half that the gateway shares, and the halves that hold a model."""
