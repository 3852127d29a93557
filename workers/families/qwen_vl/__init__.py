"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one geometry, one prompt form."""
