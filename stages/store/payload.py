"""What an identity payload says, as far as the store's own readers ask: settings, and what it takes from where."""

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class PayloadInput(BaseModel):
    """One input: an output of another stage, or content from outside."""

    model_config = ConfigDict(extra="forbid")

    key: str | None = None
    output: str | None = None
    digest: str | None = None


class Payload(BaseModel):
    """The parts of `spec.json` that lineage and reachability need; others are left alone."""

    model_config = ConfigDict(extra="ignore")

    version: int = 0
    rev: int = 1
    settings: dict[str, JsonValue] = Field(default_factory=dict, validation_alias="with")
    inputs: dict[str, PayloadInput] = Field(default_factory=dict)
