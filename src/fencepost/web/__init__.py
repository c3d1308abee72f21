"""Web pages for those who operate jobs: ``from fencepost.web import web``. Needs the extra ``web``.

**Promises.** Nothing is answered without a credential but the routes in `fencepost.web.open_routes`. The pages reach
the ledger only through `fencepost.access.Authorized`: they show and do what the caller is allowed to, nothing else.
"""

from __future__ import annotations

from fencepost.errors import MissingExtra

try:
    import fastapi  # noqa: F401
    import jinja2  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra("the pages need FastAPI and Jinja2: pip install './fencepost[web]' from a clone") from None

from fencepost.access import HostPrincipal
from fencepost.web.application import web
from fencepost.web.doors import ProxyHeader

__all__ = ["HostPrincipal", "ProxyHeader", "web"]
