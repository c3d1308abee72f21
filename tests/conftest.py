"""What all tests share: servers that are not there are left out, plainly; and the table of the lease contract."""

import os
from collections.abc import Iterator

import pytest

from testbed.server import Missing

pytest_plugins = ["fencepost.testing.table"]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Iterator[None]:
    """Leave out the tests of a server that is not on this machine; with FENCEPOST_TEST_ALL nothing may be left out."""
    try:
        return (yield)
    except Missing as missing:
        if os.environ.get("FENCEPOST_TEST_ALL"):
            raise
        pytest.skip(f"left out: {missing}")
