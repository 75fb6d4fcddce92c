"""API bodies of the policy: shares, quotas, queues, licences, reservations, scheduler profiles, moves,
services.
"""
