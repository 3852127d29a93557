"""Messages on their way to token ids: templates, vocabularies, what the checkpoint wishes."""
