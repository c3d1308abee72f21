"""Bulk jobs: large inputs, processed in chunks that land once. A killed job resumes from its checkpoints.

::

    from fencepost.bulk import copy, csv_file, keyset

Declared by ``@app.bulk``; see docs/bulk.md.
"""

from fencepost.bulk.readers.covering import covering
from fencepost.bulk.readers.csv_file import csv_file
from fencepost.bulk.readers.id_range import id_range
from fencepost.bulk.readers.iterable import iterable
from fencepost.bulk.readers.json_lines import json_lines
from fencepost.bulk.readers.keyset import keyset
from fencepost.bulk.readers.parquet import parquet
from fencepost.bulk.writers.copying import copy
from fencepost.bulk.writers.many import executemany
from fencepost.bulk.writers.unnesting import unnest

__all__ = [
    "copy",
    "covering",
    "csv_file",
    "executemany",
    "id_range",
    "iterable",
    "json_lines",
    "keyset",
    "parquet",
    "unnest",
]
