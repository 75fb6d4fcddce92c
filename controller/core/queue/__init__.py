"""The queue of waiting jobs. It is divided into lanes (lists of jobs with equal requests). An order plugin
sorts the jobs.
"""
