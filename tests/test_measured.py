"""What tests measure: a slow machine is not held against what they claim to be quick."""

import os
import signal
import subprocess
import sys
import time

MEASURING = """
import os, signal, time
from fencepost.testing import Stopwatch
with Stopwatch() as took:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGSTOP)
print(took.whole_s, took.awake_s)
"""


def test_what_a_machine_stood_still_for_is_not_held_against_a_call() -> None:
    with subprocess.Popen([sys.executable, "-c", MEASURING], stdout=subprocess.PIPE, text=True) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        time.sleep(0.5)  # it stands still
        process.send_signal(signal.SIGCONT)
        whole_s, awake_s = map(float, process.communicate()[0].split())
    assert whole_s >= 0.8
    assert 0.1 < awake_s <= whole_s - 0.4
