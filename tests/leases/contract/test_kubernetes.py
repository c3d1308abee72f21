"""The lease contract on Lease objects of a Kubernetes API server."""

from collections.abc import Iterator

import pytest

from fencepost.testing import LeaseStoreContract
from testbed.kubernetes import Kubernetes
from tests.leases.contract.networked import Networked


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with Kubernetes() as kubernetes:
        yield Networked(kubernetes, kubernetes.delete_lease_of)


class TestKubernetes(LeaseStoreContract):
    store_name = "kubernetes"
