"""The base of all groups of settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Settings that belong together; each field is read from FOVEA_ plus its name in capitals."""

    model_config = ConfigDict(frozen=True, extra="forbid")
