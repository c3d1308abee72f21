"""Who may operate jobs: accounts, permissions, API tokens, logins. The layer between people and `Operations`.

`Authentication` finds out who asks, and returns `Authorized` operations: the only way to them for pages and REST.
"""

from __future__ import annotations

from fencepost.access.access import Access
from fencepost.access.authentication import Authentication, HostPrincipal, NewLogin, authorize
from fencepost.access.authorized import Authorized

__all__ = ["Access", "Authentication", "Authorized", "HostPrincipal", "NewLogin", "authorize"]
