"""Typed settings and logging; imports nothing else of this project."""
