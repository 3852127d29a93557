"""Models that the tests of the engine share."""

from pathlib import Path

import pytest
import torch

from config.settings import DEMO_MODEL
from tests.checkpoints import MODEL_TYPES, make_checkpoint
from tests.workers.language.models import Model, load_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """One model per model type with random weights, and the demo model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    paths: dict[str, Path] = {name: make_checkpoint(folder, name) for name in MODEL_TYPES}
    return {name: load_model(path) for name, path in (paths | {"demo": DEMO_MODEL}).items()}


@pytest.fixture(params=[*MODEL_TYPES, "demo"])
def model(request: pytest.FixtureRequest, models: dict[str, Model]) -> Model:
    """Each of the models in turn."""
    return models[request.param]
