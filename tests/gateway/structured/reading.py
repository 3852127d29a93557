"""Have schemas read in a test's own process, where they are known to do no harm."""

from gateway.structured.json_grammar import SchemaRule, refusal, why_refused


def read(*rules: SchemaRule) -> None:
    """Raise what a caller is told of the first rule that the library cannot take."""
    for rule in rules:
        if reason := why_refused(rule.text):
            raise refusal(rule, reason)
