"""Slurm's commands about nodes, partitions and the cluster: sinfo, scontrol show, sacctmgr, sshare."""
