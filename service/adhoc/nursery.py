"""The process that forks the children of queries: it has imported what they need, which takes longer than most queries.

`python -I -B -m service.adhoc.nursery FD` forks a child for each byte on the socket FD. Each byte carries two sockets: the child's, and one
on which this process reports the child's process id, with a pidfd, and finally its exit status. It ends when FD is closed and no child is
left.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress

from service.adhoc import child
from service.adhoc.process import STATUS

_MOST_FILES = 1 << 16


def main() -> None:
    asked = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    gc.freeze()  # a garbage collection in a child would copy the memory of all objects that it examines
    poll = select.poll()
    poll.register(asked, select.POLLIN)
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd: the process id, and the socket for its status
    is_asked = True
    while is_asked or running:
        for number, _ in poll.poll():
            if number in running:
                poll.unregister(number)
                pid, receiver = running.pop(number)
                _send_status(receiver, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                receiver.close()
                os.close(number)
                continue
            _, sockets, _, _ = socket.recv_fds(asked, 1, 2)
            if not sockets:
                poll.unregister(asked)
                is_asked = False
                continue
            receiver = socket.socket(fileno=sockets[1])
            try:
                pid, pidfd = _begin(sockets[0])
                _send_status(receiver, pid, pidfd)
                running[pidfd] = pid, receiver
                poll.register(pidfd, select.POLLIN)
            except OSError:  # no process is available: the socket is closed without a message
                receiver.close()
            os.close(sockets[0])
    os._exit(0)


def _begin(connected: int) -> tuple[int, int]:
    """Start a child; return its process id, and a pidfd. OSError: no further process is possible."""
    pid = _fork(connected)
    try:
        return pid, os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _fork(connected: int) -> int:
    """Return the child's process id; it has the socket and no other file of this process."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.closerange(3, connected)
        os.closerange(connected + 1, _MOST_FILES)
        child.run(socket.socket(fileno=connected))
    finally:
        os._exit(1)


def _send_status(receiver: socket.socket, number: int, *files: int) -> None:
    with suppress(OSError):  # nobody waits for it
        socket.send_fds(receiver, [STATUS.pack(number)], files)


if __name__ == "__main__":
    main()
