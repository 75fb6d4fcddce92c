"""Fair share: decayed usage, the share tree and off-queue usage."""
