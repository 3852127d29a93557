"""Kimi-K2.5: MoonViT tower, decoder with latent attention and experts."""
