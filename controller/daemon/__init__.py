"""The controller's main loop: passes inputs (commands and reports) to the engine, commits the resulting
events, then sends replies to callers and orders to agents.
"""

from controller.daemon.daemon import Daemon
from controller.daemon.refusals import NotLeading, Stopping

__all__ = ["Daemon", "NotLeading", "Stopping"]
