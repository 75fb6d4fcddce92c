"""Proposes moves of running jobs: defragment, drain, balance load."""
