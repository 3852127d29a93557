"""The image library set up as the gateway sets it up at start."""

import pytest
from PIL import Image

from config.settings import ImageSettings
from gateway.images.header import set_up_pillow


@pytest.fixture
def pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set Pillow up for the default limits, and undo it after the test."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    set_up_pillow(ImageSettings())
