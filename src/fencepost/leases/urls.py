"""Store URLs, which are read by `fencepost.core.urls`: the ledger's look the same."""

from fencepost.core.urls import COMMON_OPTIONS, DEFAULT_CALL_TIMEOUT_S, StoreUrl, sqlite_path

__all__ = ["COMMON_OPTIONS", "DEFAULT_CALL_TIMEOUT_S", "StoreUrl", "sqlite_path"]
