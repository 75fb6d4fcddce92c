"""Forecasts when jobs will start, and finds a small change that would start a job now. The forecast and the
search simulate on copies of the engine.
"""
