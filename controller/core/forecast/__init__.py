"""Finds out when jobs will start, and which small change would start a job now, by simulations on copies of
the engine.
"""
