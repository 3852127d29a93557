"""The routes /v1/models and /v1/models/NAME: what is served, what it takes and how much of it."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import UnknownModel
from gateway.images.header import FORMATS
from gateway.routes.replies import error_response, json_response
from gateway.services import Services


class Models:
    """The one model that is served."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        """The one model, in OpenAI's list form."""
        return json_response({"object": "list", "data": [self._card()]})

    async def show(self, request: Request) -> Response:
        """The one model, asked for by its name."""
        name = request.path_params["name"]
        if name != self._services.served_model_name:
            error = UnknownModel(f"the model {name[:80]!r} is not served here")
            return error_response(error, request.scope)
        return json_response(self._card())

    def _card(self) -> dict[str, Any]:
        """OpenAI's model object, then what the model takes; tokens, bytes and pixels."""
        context = self._services.stated_context_tokens()
        limits = self._services.settings.images
        return {
            "id": self._services.served_model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "fovea",
            "max_model_len": context,
            "max_output_tokens": context - 1,  # a prompt has at least one token
            "input_modalities": ["text", "image"] if limits.max_images else ["text"],
            "output_modalities": ["text"],
            "image_limits": self._image_limits(),
        }

    def _image_limits(self) -> dict[str, Any]:
        limits, layout = self._services.settings.images, self._services.checkpoint.layout
        most = layout.max_resized_pixels
        return {
            "max_images": limits.max_images,
            "max_bytes": limits.max_image_bytes,
            "max_pixels": limits.max_image_pixels,
            "max_side": limits.max_image_side,
            "formats": [name.lower() for name in FORMATS],
            "max_resized_pixels": min(limits.max_resized_pixels or most, most),
            "low_detail_pixels": min(limits.low_detail_pixels, most),
            "tensors": limits.allow_tensor_inputs,
        }
