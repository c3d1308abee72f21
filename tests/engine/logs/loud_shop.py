"""An application whose jobs write much, strangely, or at the wrong time: ``tests.engine.logs.loud_shop:app``."""

import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.engine.shop import Shop, say

app = Shop()
_threads: list[threading.Event] = []


@app.job
def speak(text: str = "spoken", times: int = 1) -> None:
    for _ in range(times):
        print(text)


@app.job
def silent() -> None:
    """Write nothing."""


@app.job
def all_ways() -> None:
    print("printed")
    print("printed to stderr", file=sys.stderr)
    os.write(1, b"written by os.write\n")
    libc = ctypes.CDLL(None)
    libc.write(1, b"written by C\n", 13)
    subprocess.run(["echo", "written by a child"], check=True)
    child = multiprocessing.get_context("fork").Process(
        target=print, args=("written by a fork",), kwargs={"flush": True}
    )
    child.start()
    child.join()
    logging.getLogger("shop.quiet").error("logged where nobody prints it")
    thread = threading.Thread(target=print, args=("printed by a thread",))
    thread.start()
    thread.join()
    os.write(2, b"\xff\xfe no text\n")
    print("without an end", end="")


@app.job
def flood(lines: int) -> None:
    for number in range(lines):
        print("line", number)


@app.job
def flood_by_child(size: str) -> None:
    subprocess.run(f"yes | head -c {size}", shell=True, check=True)


@app.job
def flood_by_c(mebibytes: int) -> None:
    """Write without giving the interpreter's lock back."""
    libc = ctypes.PyDLL(None)
    block = (b"c" * 63 + b"\n") * (1 << 14)
    for _ in range(mebibytes):
        left = block
        while left:
            left = left[libc.write(1, left, len(left)) :]


@app.job
def one_line(mebibytes: int) -> None:
    for _ in range(mebibytes):
        os.write(1, b"x" * (1 << 20))
    os.write(1, b" end\n")


@app.job
def leave_a_thread(mark: str) -> None:
    """Start a thread that goes on writing after the run, until `stop_threads`."""
    over = threading.Event()
    _threads.append(over)

    def go_on() -> None:
        while not over.is_set():
            os.write(1, f"{mark}\n".encode() * 100)

    threading.Thread(target=go_on, daemon=True).start()


@app.job
def stop_threads() -> None:
    for over in _threads:
        over.set()


@app.job
def speak_later(after_s: float, text: str) -> None:
    """Write when the run is over."""
    timer = threading.Timer(after_s, lambda: os.write(1, f"{text}\n".encode()))
    timer.daemon = True
    timer.start()


@app.job
def close_output() -> None:
    os.close(1)


@app.job
def replace_output(path: str) -> None:
    """Let descriptor 1 be a file, as a job that redirects it does."""
    print("before")
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 1)
    print("after")


@app.job
def leave_a_daemon(path: str) -> None:
    """Start a process that leaves the group, and keeps standard output and error."""
    code = "import os, sys, time\nopen(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n"
    code += "os.rename(sys.argv[1] + '.new', sys.argv[1])\ntime.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code, path], start_new_session=True)
    while not Path(path).exists():
        time.sleep(0.01)
    print("left a daemon")


@app.job
def die_in_a_line() -> None:
    os.write(1, b"whole\nhalf a li")
    os.kill(os.getpid(), 9)


@app.job
def speak_and_wait(path: str, text: str = "waiting") -> None:
    print(text)
    say(f"{path}.here")
    while not Path(path).exists():
        time.sleep(0.01)
    print("no longer", text)


logging.getLogger("shop.quiet").addHandler(logging.NullHandler())
logging.getLogger("shop.quiet").propagate = False
