"""Store URLs. `fencepost.core.urls` parses them, because those of the ledger have the same form."""

from fencepost.core.urls import COMMON_OPTIONS, DEFAULT_CALL_TIMEOUT_S, StoreUrl, sqlite_path

__all__ = ["COMMON_OPTIONS", "DEFAULT_CALL_TIMEOUT_S", "StoreUrl", "sqlite_path"]
