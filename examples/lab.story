# What the operator of examples/lab.toml does while the jobs of examples/gpu-jobs.csv run. Each line is a time and a
# command of corral, without the word corral:
#
#   corral sim run examples/gpu-jobs.csv --config examples/lab.toml --story examples/lab.story
#
# A time without a day counts from the line above, and +30m is half an hour after that line.

day 1 00:10  reserve create fans --node gpu01 --start 12:00 --for 2h --why 'new fans'
      00:30  nodes drain --select rack=r2 --why 'rack power'
      01:00  job set user:dee --priority 75
      04:00  nodes resume --select rack=r2

# A host crashes and is back an hour later.
      04:10  crash gpu05
      +1h    connect gpu05

# The jobs without a project need more GPUs, and a new node has arrived.
      05:30  nodes add gpu07 --gpus simulated:8xH100 --cpus 64 --memory 1T --label rack=r4
             quota set project default gpus=32
             cancel name:'notebook-*'
      06:00  restart
