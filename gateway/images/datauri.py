"""A data URI in, the bytes of its image out; strict about what would give wrong bytes.

Taken: any parameters, white space anywhere in the payload, the url-safe alphabet, missing padding,
and percent escapes of what an encoder of URLs escapes. Refused: anything that is not base64, and
media types that are no image. What the bytes are is decided later, by the bytes.
"""

import binascii
from functools import partial

from gateway.errors import ImageRejected, ImageTooLarge

_SCHEME = "data:"
_UNTYPED = ("", "application/octet-stream")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_WHITE_SPACE = b" \t\r\n\f\v"
# A library that takes any escape needs a minute and gigabytes for a payload of nothing else.
_ESCAPES = {f"%{byte:02X}".encode(): bytes([byte]) for byte in b"+/=" + _WHITE_SPACE}
_MAX_HEADER_CHARS = 1024


def is_data_uri(url: str) -> bool:
    return url[: len(_SCHEME)].lower() == _SCHEME


def decode_data_uri(url: str, index: int, param: str, max_bytes: int) -> bytes:
    """Decode `url`; its size is checked before any of it is decoded.

    Raises:
        ImageRejected: it is no base64 data URI of an image; code invalid_data_uri,
            unsupported_media_type or invalid_base64.
        ImageTooLarge: it holds more than `max_bytes` bytes.
    """
    refuse = partial(ImageRejected, index=index, stage="fetch", param=param)
    header, _, payload = url[len(_SCHEME) :].partition(",")
    if len(header) > _MAX_HEADER_CHARS:
        raise refuse("the head of its data URI is too long", code="invalid_data_uri")
    media_type, *parameters = [field.strip().lower() for field in header.split(";")]
    if "base64" not in parameters[-1:] or not payload.strip():
        raise refuse(
            "a data URI should have the form data:image/...;base64,...", code="invalid_data_uri"
        )
    if not media_type.startswith("image/") and media_type not in _UNTYPED:
        raise refuse(
            "the media type of a data URI should be image/...", code="unsupported_media_type"
        )
    return decode_base64(payload, index, param, max_bytes)


def decode_base64(payload: str, index: int, param: str, max_bytes: int) -> bytes:
    """Decode the base64 of an image; its size is checked before any of it is decoded.

    Raises:
        ImageRejected: it is no base64; code invalid_base64.
        ImageTooLarge: it holds more than `max_bytes` bytes.
    """
    digits = _clean(payload)
    num_bytes = (len(digits) - digits.count(b"=", -2)) * 3 // 4
    if num_bytes > max_bytes:
        raise ImageTooLarge(
            f"{num_bytes} bytes; the limit is {max_bytes}", index=index, stage="fetch", param=param
        )
    try:
        if len(digits) % 4:
            raise binascii.Error("padding of a wrong length")
        return binascii.a2b_base64(digits, strict_mode=True)
    except binascii.Error as error:
        raise ImageRejected(
            "its base64 is not valid",
            index=index,
            stage="fetch",
            param=param,
            code="invalid_base64",
        ) from error


def _clean(payload: str) -> bytes:
    """The base64 digits of `payload` in the standard alphabet, padded if they were not."""
    # What is not ASCII becomes question marks, which are no base64 either.
    digits = payload.encode("ascii", "replace")
    if b"%" in digits:
        for escape, byte in _ESCAPES.items():
            digits = digits.replace(escape, byte).replace(escape.lower(), byte)
    digits = digits.translate(_URL_SAFE, delete=_WHITE_SPACE)
    return digits if digits.endswith(b"=") else digits + b"=" * (-len(digits) % 4)
