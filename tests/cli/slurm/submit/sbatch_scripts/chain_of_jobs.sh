#!/bin/bash
#SBATCH -t 10

# submits a pipeline: preprocess, train after it, report in any case
pre=$(sbatch --parsable -J pre -t 5 --wrap "touch $PWD/pre.done")
train=$(sbatch --parsable -J train -t 5 --dependency=afterok:${pre} --export=ALL,EPOCHS=3 <<'JOB'
#!/bin/bash
#SBATCH --output=train-%j.log
test -e pre.done && echo "epochs $EPOCHS"
JOB
)
report=$(sbatch --parsable --dependency=afterany:$pre:$train --kill-on-invalid-dep=yes -t 5 --wrap "cat train-$train.log")
while [ -n "$(squeue -h -j "$pre,$train,$report" -t PD,CF,R,CG -o %i)" ]; do sleep 0.5; done
cat "slurm-$report.out"
sacct -n -X -P -j "$pre,$train,$report" -o JobName,State,ExitCode
