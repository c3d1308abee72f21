"""``fencepost chaos``: real nodes and lock holders on your own store, under faults; then everything is checked.

`namespace` keeps it apart from everything else in the store, and removes it again. `application` and `contender` are
what is run, `cast` starts, kills and stops it, `proxy` is the network between it and the servers, `director` decides
what goes wrong when, `course` is the whole of it. `takeovers` and `gathering` read afterwards what was written down.
"""
