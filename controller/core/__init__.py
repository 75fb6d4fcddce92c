"""The scheduling decisions. The code here is synchronous and deterministic, and has no side effects outside
the state.
"""
