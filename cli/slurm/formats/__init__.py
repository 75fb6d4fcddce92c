"""The formats of Slurm's outputs: columns, states, resources, times and the options -o and -O."""
