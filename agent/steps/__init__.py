"""The steps of srun in jobs: their records, and the socket on which srun and the agent exchange messages."""
