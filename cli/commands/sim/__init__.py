"""corral sim: the scheduler in virtual time."""
