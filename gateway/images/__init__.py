"""Bytes of images: fetched, looked at, decoded."""
