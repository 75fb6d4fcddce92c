"""The lists that the screens show: their rows, filters and sort orders, and which jobs are folded into one
row.
"""
