"""The routes that answer without a credential. There are no others: a test compares this list with the router.

An exemption is a route of this list, method and path as they were declared; never a prefix, an ending or a pattern.
"""

from __future__ import annotations

OPEN_ROUTES = frozenset(
    {
        "GET /health",
        "GET /login",
        "POST /login",
        "GET /enter",
        "POST /enter",
        "GET /static/{name}",
    }
)
