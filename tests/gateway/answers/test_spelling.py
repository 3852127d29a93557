"""Names of tokens tell any two apart, and places are those of the text that they come to."""

import random

from gateway.answers.spelling import Ruler, name_of


def test_whole_characters_are_named_by_themselves_and_others_by_their_bytes() -> None:
    assert name_of("é日🦊 \n".encode()) == "é日🦊 \n"
    assert name_of(b"") == ""
    assert name_of(b"\xf0\x9f") == "bytes:\\xf0\\x9f"
    assert name_of(b" \xe6\x97") == "bytes:\\x20\\xe6\\x97"
    assert name_of(b"\x80") != name_of(b"\x81")


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    pieces = []
    while data:
        length = chance.randint(0, 3)
        pieces.append(data[:length])
        data = data[length:]
    return pieces


def test_a_piece_begins_at_the_character_that_its_first_byte_is_of() -> None:
    chance = random.Random(5)
    for number in range(3000):
        data = "".join(chance.choices("ab é日🦊\n", k=7)).encode()
        if number % 2:  # characters that break off, and bytes that begin none
            data = bytes(chance.choices(data + b"\xff\x80\xf0", k=9))
        text, start, at = data.decode(errors="replace"), 7, 0
        ruler = Ruler(start)
        for piece in cut(data, chance):
            place = ruler.place(piece)
            if piece:
                # What is decoded of all before and one byte more, its last character is the byte's.
                shown = data[: at + 1].decode(errors="replace")
                assert place == start + len(shown) - 1
                assert text.startswith(shown[:-1])
            at += len(piece)
