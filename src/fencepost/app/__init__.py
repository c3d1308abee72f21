"""What users import: the application and its jobs."""

from fencepost.app.application import App
from fencepost.app.declaring import JobFunction, JobHandle
from fencepost.app.schedules import Schedules

__all__ = ["App", "JobFunction", "JobHandle", "Schedules"]
