"""Forecasts when jobs will start, and finds a small change that would start a job now. Both simulate on
copies of the engine.
"""
