"""Engines that run each job as one call of a serverless function, for short jobs without GPUs."""
