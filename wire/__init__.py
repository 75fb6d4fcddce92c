"""Data types and clients that the controller, the agents, the command line and the terminal UI share. They
need only the standard library, and Python 3.9 or newer.
"""

VERSION = "0.1.0"

API_VERSION = "v1"
"""The version of the names, units and types of all fields in the API and in -o json, yaml and csv. A new
release of Corral may add fields to a version, but it changes and removes none.
"""
