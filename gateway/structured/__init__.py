"""Forms that an answer has to have, as grammars."""
