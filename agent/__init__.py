"""The agent, which runs jobs on a GPU host. It needs only the standard library and pynvml, and Python 3.9 or
newer.
"""
