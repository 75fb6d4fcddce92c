"""The parts of the processing of one batch of inputs: the inbox, scheduling cycles, the commit, the replies
and orders, and the quarantine of inputs that crash the engine.
"""
