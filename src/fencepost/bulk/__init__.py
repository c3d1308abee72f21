"""Bulk work: much input, in chunks that land once, from checkpoints that a killed job resumes from by itself.

::

    from fencepost.bulk import copy, csv_file, keyset

Declared by ``@app.bulk``; see docs/bulk.md.
"""

from fencepost.bulk.readers.keyset import keyset
from fencepost.bulk.writers.copying import copy
from fencepost.bulk.writers.many import executemany
from fencepost.bulk.writers.unnesting import unnest

__all__ = ["copy", "executemany", "keyset", "unnest"]
