"""Everything that can go wrong, by seed and in virtual time, and whether the promises hold all the same."""
