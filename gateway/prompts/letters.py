"""The letters in which byte-level vocabularies write bytes."""


def _byte_letters() -> dict[str, int]:
    """Visible letters of Latin-1 stand for themselves; other bytes, in order, for 256 onwards."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {chr(byte): byte for byte in visible}
    return letters | {chr(256 + index): byte for index, byte in enumerate(hidden)}


BYTES = _byte_letters()
LETTERS = {byte: letter for letter, byte in BYTES.items()}
