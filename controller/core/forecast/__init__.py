"""When jobs will start, and the smallest change that starts a job now: the engine run on a copy."""
