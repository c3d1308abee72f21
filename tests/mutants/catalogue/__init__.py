"""All mutants, by what they break."""

from __future__ import annotations

from tests.mutants.catalogue.bulk import BULK
from tests.mutants.catalogue.claims import CLAIMS
from tests.mutants.catalogue.deaths import DEATHS
from tests.mutants.catalogue.deploys import DEPLOYS
from tests.mutants.catalogue.endings import ENDINGS
from tests.mutants.catalogue.fences import FENCES
from tests.mutants.catalogue.keys import KEYS
from tests.mutants.catalogue.leases import LEASES
from tests.mutants.catalogue.ledgers import LEDGERS
from tests.mutants.catalogue.lives import LIVES
from tests.mutants.catalogue.operating import OPERATING
from tests.mutants.catalogue.requests import REQUESTS
from tests.mutants.catalogue.ticks import TICKS

MUTANTS = {
    each.name: each
    for each in (
        *LEASES,
        *TICKS,
        *CLAIMS,
        *KEYS,
        *ENDINGS,
        *DEATHS,
        *REQUESTS,
        *FENCES,
        *BULK,
        *DEPLOYS,
        *LEDGERS,
        *LIVES,
        *OPERATING,
    )
}
