"""Fair share: the fair-share tree, usage counters in which old usage counts less, and usage of GPUs
outside of jobs.
"""
