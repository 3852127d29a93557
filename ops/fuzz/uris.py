"""Data URIs as inputs, held to a second reading of the same rules."""

import base64
import binascii
import re
from random import Random
from urllib.parse import quote

from gateway.errors import ImageRejected
from gateway.images.datauri import decode_data_uri, is_data_uri
from ops.fuzz.images import PARAM, check_refusal
from ops.fuzz.target import Wrong

MAX_BYTES = 1500
_HEADS = (
    "data:image/png;base64,",
    "DATA:IMAGE/PNG;BASE64,",
    "data:;base64,",
    "data:image/svg+xml;charset=utf-8;base64,",
    'data:image/png;name="a,b";base64,',
    "data:application/octet-stream;base64,",
    "data:text/html;base64,",
    "data:image/png,",
    "data:image/png;base64;x=y,",
    "data:image/png; base64 ,",
    "data:base64,",
    "data:",
)
_ODD: tuple[str, ...] = (
    *" \t\r\n\f\v\0%=,;-_+/\u00a0\u0661\uff21\U0001f600",
    "%0a",
    "%2B",
    "%2f",
    "%3D",
    "%41",
)
_TAKEN_ESCAPES = {f"%{ord(each):02X}": each for each in "+/= \t\r\n\f\v"}
_WHITE_SPACE = re.compile(r"[ \t\r\n\f\v]")


class DataUris:
    """Addresses that hold their image."""

    def make(self, chance: Random) -> bytes:
        """An address, in UTF-8."""
        data = chance.randbytes(chance.choice((0, 1, 2, 3, 40, MAX_BYTES, MAX_BYTES + 1)))
        payload = base64.b64encode(data).decode()
        payload = chance.choice((_same, _url_safe, _unpadded, quote, _wrapped))(payload)
        text = chance.choice(_HEADS) + payload
        for _ in range(chance.choice((0, 0, 1, 2, 5))):
            text = _damage(text, chance)
        return text.encode()

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        text = data.decode()
        if not is_data_uri(text):
            return "no data URI"
        try:
            decoded = decode_data_uri(text, 0, PARAM, MAX_BYTES)
        except ImageRejected as error:
            check_refusal(error)
            if (honest := read(text)) is not None and len(honest) <= MAX_BYTES:
                raise Wrong(f"good, but refused: {error.code}") from error
            return f"refused: {error.code}"
        if len(decoded) > MAX_BYTES:
            raise Wrong(f"{len(decoded)} bytes, above the limit")
        if decoded != read(text):
            raise Wrong("other bytes than by a second reading")
        return "decoded"

    def close(self) -> None:
        """Nothing is held."""


def read(text: str) -> bytes | None:
    """The bytes by a plain reading of `gateway.images.datauri`'s rules; none if it is refused."""
    head, comma, payload = text[len("data:") :].partition(",")
    media_type, *parameters = (each.strip().lower() for each in head.split(";"))
    is_image = media_type.startswith("image/") or media_type in ("", "application/octet-stream")
    if not comma or not parameters or parameters[-1] != "base64" or not is_image:
        return None
    for escape, letter in _TAKEN_ESCAPES.items():
        payload = payload.replace(escape, letter).replace(escape.lower(), letter)
    digits = _WHITE_SPACE.sub("", payload).replace("-", "+").replace("_", "/")
    digits += "" if digits.endswith("=") else "=" * (-len(digits) % 4)
    if len(digits) % 4:  # the library ignores a padding that is too long
        return None
    try:
        return base64.b64decode(digits.encode("ascii"), validate=True) or None
    except (UnicodeEncodeError, binascii.Error):
        return None


def _damage(text: str, chance: Random) -> str:
    place = chance.randrange(len(text) + 1)
    match chance.randrange(4):
        case 0:
            return text[:place] + chance.choice(_ODD) * chance.choice((1, 1, 3)) + text[place:]
        case 1:
            return text[:place] + text[place + 1 :]
        case 2:
            return text[:place]
        case _:
            return text[:place] + chr(chance.randrange(0x20, 0x2FF)) + text[place + 1 :]


def _same(payload: str) -> str:
    return payload


def _url_safe(payload: str) -> str:
    return payload.translate(str.maketrans("+/", "-_"))


def _unpadded(payload: str) -> str:
    return payload.rstrip("=")


def _wrapped(payload: str) -> str:
    return "\r\n".join(re.findall(".{1,76}", payload))
