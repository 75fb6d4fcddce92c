"""The scheduling decisions. This code is synchronous and deterministic, and changes nothing outside the
state.
"""
