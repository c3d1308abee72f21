"""The lease contract on Lease objects of a Kubernetes API server."""

import json
from collections.abc import Iterator

import pytest

from fencepost.testing import LeaseStoreContract
from testbed.kubernetes import Kubernetes
from tests.leases.contract.networked import Networked

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture(scope="module")
def server() -> Iterator[Networked]:
    with Kubernetes() as kubernetes:

        def forget(name: str) -> None:
            for lease in json.loads(kubernetes.get(LEASES))["items"]:
                if lease["metadata"].get("annotations", {}).get("fencepost.dev/name") == name:
                    kubernetes.ask("DELETE", f"{LEASES}/{lease['metadata']['name']}")

        yield Networked(kubernetes, forget)


class TestKubernetes(LeaseStoreContract):
    store_name = "kubernetes"
    racers, grants_in_turn = 4, 100  # each grant takes ten times as long as on other stores, on both sides
