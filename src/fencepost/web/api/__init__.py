"""REST: ``/api/v1``, with what the command line can ask and do. See docs/api.md.

Each subject has a module with its `ROUTES`. What a route may do is decided below, in `fencepost.access.Authorized`; the
guard of the application has found out who asks before a route is called.
"""

from __future__ import annotations
