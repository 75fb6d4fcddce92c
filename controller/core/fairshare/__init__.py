"""Fair share: the fair-share tree, use that counts less with age, and GPU use outside of jobs."""
