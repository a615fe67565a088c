"""Settings of the trackers that show a run's metrics beside the store."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stages.strict import Strict

Text = Annotated[str, Field(min_length=1)]


class TensorboardTracker(Strict):
    """Event files for TensorBoard; they need no package."""

    name: ClassVar[str] = "tensorboard"

    folder: Text
    """Local folder; each stage has one of its own in it."""


class WandbTracker(Strict):
    """Runs of Weights & Biases, one for each stage; its package belongs to the extra `trackers`."""

    name: ClassVar[str] = "wandb"

    project: Text
    """Where the runs appear; `WANDB_API_KEY` in `resources.env` says for whom."""
    entity: Text | None = None
    """User or team; none is that of the key."""
    mode: Literal["online", "offline"] = "online"
    """Whether runs are sent at once, or kept until `wandb sync` sends them."""
    folder: Text | None = None
    """Local folder of the runs; without one they are kept until they are sent."""

    @model_validator(mode="after")
    def _check_folder(self) -> Self:
        if self.mode == "offline" and self.folder is None:
            raise ValueError("mode offline needs a `folder` that the runs are kept in")
        return self


class MlflowTracker(Strict):
    """Runs on an MLflow server, one for each stage; its package belongs to the extra `trackers`."""

    name: ClassVar[str] = "mlflow"

    uri: Text
    """Tracking server, such as http://localhost:5000; `MLFLOW_TRACKING_TOKEN` and the like go into `resources.env`."""
    experiment: Text
    """Where the runs appear; it is created if there is none of this name."""


Tracker = TensorboardTracker | WandbTracker | MlflowTracker


class Trackers(Strict):
    """What shows metrics beside the store; none of them can stop or fail a stage."""

    tensorboard: TensorboardTracker | None = None
    """Event files for TensorBoard."""
    wandb: WandbTracker | None = None
    """Weights & Biases."""
    mlflow: MlflowTracker | None = None
    """An MLflow server."""

    @property
    def chosen(self) -> tuple[Tracker, ...]:
        """Those that are set."""
        return tuple(tracker for tracker in (self.tensorboard, self.wandb, self.mlflow) if tracker is not None)


class Tracking(Strict):
    """Trackers of a stage, and the pipeline that its runs are grouped under."""

    pipeline: str
    trackers: Trackers
