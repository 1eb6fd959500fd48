"""primacy as process 1 of a container: what an init must do, in a process of its own that does nothing else.

Process 1 gets every orphan of its pid namespace and must reap it; the kernel drops signals for it that it has no
handler for; and when it ends, the kernel kills all others. An agent that is process 1 itself does not know the orphans
that a killed guard leaves behind, so that they stay as zombies, and its own death takes its guard along, which then
cannot release. So process 1 forks, before anything else is imported, and stays behind:

    process 1 ── waits, passes signals on, reaps ──► the agent ── its guard ── the command

It ends with the code of the agent, once nobody else is left (a guard that was left behind confirms the end of its tree,
and releases) or after `LINGER_S`. Its own end is the kernel's kill of all that is left.
"""

from __future__ import annotations

import os
import signal
import time

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to all processes of its group, the agent among them: passed on, they would come twice."""
FROM_KERNEL = 0x80
"""SI_KERNEL: no process sent it."""
LINGER_S = 10.0
"""For what the agent leaves behind: its guard needs milliseconds, a release to a database that is slow some seconds.
Less would cost the others a hold to wait for, more would only keep a container that has nothing to do any more."""


def stay_behind() -> None:
    """Returns in a new process, which goes on. This one stays, and never returns."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*PASSED_ON, signal.SIGCHLD))
    agent = os.fork()
    if agent == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_code_of(agent))


def _code_of(agent: int) -> int:
    """Until it has ended, and the others have, or the time for that is over."""
    ended: int | None = None
    last_s = float("inf")
    while True:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == agent:
                    ended, last_s = os.waitstatus_to_exitcode(found[1]), time.monotonic() + LINGER_S
        except ChildProcessError:
            break
        left_s = last_s - time.monotonic()
        if left_s <= 0:
            break
        _wait(agent if ended is None else 0, min(left_s, 3600.0))
    assert ended is not None, "all children are gone, and the agent is one of them"
    return ended if ended >= 0 else 128 - ended


def _wait(agent: int, within_s: float) -> None:
    """For one signal. A child's end is only a reason to look; one that is for the agent is passed on, if it lives."""
    came = signal.sigtimedwait((*PASSED_ON, signal.SIGCHLD), within_s)
    if came is None or came.si_signo == signal.SIGCHLD or not agent:
        return
    if came.si_signo in FROM_TERMINAL and came.si_code == FROM_KERNEL:
        return
    os.kill(agent, came.si_signo)  # not reaped yet, so that the number is still its own
