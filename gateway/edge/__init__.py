"""What stands before the routes: connections, keys, limits, admission."""
