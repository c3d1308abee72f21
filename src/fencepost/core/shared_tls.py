"""One TLS context for all connections of PyMySQL that verify nobody.

Unless told otherwise, PyMySQL uses TLS where the server offers it, and verifies no certificate. All the same it reads
all certificates of the machine for that, anew for each connection: tens of milliseconds of the processor, which delay
everybody in the process, just when a server has come back and everybody connects.
"""

from __future__ import annotations

from typing import Any

_shared: list[Any] = []


class SharedTls:
    """Goes before PyMySQL's connection among the bases of a class. With options of TLS, nothing is shared."""

    def _create_ssl_ctx(self, options: Any) -> Any:
        make: Any = super()._create_ssl_ctx  # type: ignore[misc]
        if options:
            return make(options)
        if not _shared:
            _shared.append(make(options))
        return _shared[0]
