"""Fair share: the fair-share tree, usage counters in which old usage counts less, and GPU usage outside of
jobs.
"""
