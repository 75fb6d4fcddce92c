"""The controller's main loop: passes inputs to the engine, commits its events, then sends replies and
orders."""

from controller.daemon.daemon import Daemon, Stopping

__all__ = ["Daemon", "Stopping"]
