"""Kimi-K2.5 and its like: a MoonViT tower in front of a DeepSeek-V3 decoder."""
