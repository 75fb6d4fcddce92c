"""The steps (srun commands) of jobs: their records, the socket for messages between srun and the agent, and
the task hosts.
"""
