"""Models that the tests of the engine share."""

from collections.abc import Callable
from functools import cache

import pytest
import torch

from config.settings import DEMO_MODEL
from tests.checkpoints import MODEL_TYPES, make_checkpoint
from tests.workers.language.models import LentArenas, Model, load_model, make_kimi_model

KIMI = "kimi_k25"
NAMES = (*MODEL_TYPES, KIMI, "demo")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """Gives the model of a name: random weights for each model type, and the demo model."""
    folder = tmp_path_factory.mktemp("checkpoints")

    @cache
    def load(name: str) -> Model:
        if name == KIMI:
            return make_kimi_model()
        return load_model(DEMO_MODEL if name == "demo" else make_checkpoint(folder, name))

    return load


@pytest.fixture(params=NAMES)
def model(request: pytest.FixtureRequest, model_of: Callable[[str], Model]) -> Model:
    """Each of the models in turn."""
    return model_of(request.param)


@pytest.fixture
def deep_model(model_of: Callable[[str], Model]) -> Model:
    """The random model with deepstack."""
    return model_of("qwen3_vl")


@pytest.fixture
def arenas() -> LentArenas:
    """Shared memory that a test lays embeddings down in."""
    return LentArenas()
