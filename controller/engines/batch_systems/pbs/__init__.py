"""The dialect of PBS: scripts for qsub, and the outputs of qstat and pbsnodes."""
