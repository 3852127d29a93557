"""Hostile inputs by the hundred thousand, held to what is promised; see `__main__`."""
