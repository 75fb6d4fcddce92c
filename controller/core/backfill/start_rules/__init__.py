"""The rules that can keep a waiting job from starting now: quotas and other limits, jobs with deadlines, and
reserved nodes.
"""
