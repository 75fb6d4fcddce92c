"""Data types and clients that the controller, the agents, the command line and the terminal UI share. They
need only the standard library, and Python 3.9 or newer.
"""

VERSION = "0.1.0"
