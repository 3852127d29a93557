"""The form in which every image travels: `gateway.payload`'s rule, as flights ask for it."""

from functools import partial

from gateway.flight import Made, Picture
from gateway.header import ImageHeader
from gateway.payload import Form, as_payload, choose_form, choose_pixels, make_bytes, payload_bytes
from gateway.tensors import TensorHeader


class PayloadRule:
    """See `gateway.flight.Payloads`."""

    def __init__(self, max_resized_pixels: int) -> None:
        """`max_resized_pixels` is the family's bound, see its layout."""
        self._max_resized_pixels = max_resized_pixels

    def num_bytes(self, picture: Picture) -> int:
        """Room for the form that is chosen, and for the pixels if the owner cannot decode."""
        if isinstance(picture.header, TensorHeader):
            return len(picture.source.data)
        header, plan = _header(picture), picture.task.plan
        forms: set[Form] = {self._form(picture, decoded=decoded) for decoded in (False, True)}
        return max(payload_bytes(form, picture.source, header, plan) for form in forms)

    def make(self, picture: Picture, *, decoded: bool) -> Made:
        """Decode as far as the form asks for; tensors go on as they came."""
        if isinstance(picture.header, TensorHeader):
            return picture.source.data, picture.header.as_payload
        form, header, plan = (
            self._form(picture, decoded=decoded),
            _header(picture),
            picture.task.plan,
        )
        data = make_bytes(picture.source, header, plan, form)
        return data, partial(as_payload, form, header=header, plan=plan)

    def _form(self, picture: Picture, *, decoded: bool) -> Form:
        choose = choose_pixels if decoded else choose_form
        return choose(_header(picture), picture.task.plan, self._max_resized_pixels)


def _header(picture: Picture) -> ImageHeader:
    # What was only named never takes off, and tensors were sent on their way before.
    assert isinstance(picture.header, ImageHeader)
    return picture.header
