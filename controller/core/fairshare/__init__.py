"""Fair share: the fair-share tree, usage that counts less with age, and GPU usage outside of jobs."""
