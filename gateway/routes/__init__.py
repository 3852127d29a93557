"""What each route adds to an exchange: how its bodies are read and its answers written."""
