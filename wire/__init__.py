"""The words everybody shares. Standard library only, Python 3.9 and newer."""

VERSION = "0.1.0"
