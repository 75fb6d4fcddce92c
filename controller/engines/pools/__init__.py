"""Machine pools: machines that Corral starts for waiting jobs and ends when idle, such as cloud VMs."""
