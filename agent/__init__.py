"""What runs on a GPU host: standard library and pynvml, Python 3.9 and newer."""
