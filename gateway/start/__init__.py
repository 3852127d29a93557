"""What is looked at, and told, before the gateway serves."""
