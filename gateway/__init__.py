"""The HTTP side: one process, one event loop, no torch."""
