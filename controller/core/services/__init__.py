"""Services: keeps the wanted number of replicas running, restarts and moves replicas, and records their
health.
"""
