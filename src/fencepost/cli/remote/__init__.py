"""Commands against REST: ``fencepost --server URL``. They need an API token, and no password of the database."""

from __future__ import annotations
