"""Tokens on their way to the client: text, thoughts, calls, frames."""
