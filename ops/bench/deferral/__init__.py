"""What it brings that owners preprocess: the same images with patches made in the gateway."""
