"""Data types and clients that the controller, the agents, the command line and the terminal UI share.
Standard library only, Python 3.9 and newer.
"""

VERSION = "0.1.0"
