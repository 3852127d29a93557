"""An HTTP load client that compares servers; talks to each like any caller."""
