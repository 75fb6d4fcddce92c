"""Types shared by controller, agents and clients. Standard library only, Python 3.9 and newer."""

VERSION = "0.1.0"
