#!/bin/sh
# Propagates with K jobs at a time on a Slurm cluster whose machines share GRAPH and STORE (a folder, or an s3:// URL):
#   sh slurm.sh GRAPH STORE K --hops 3 --operator sym
# Options of sbatch, such as --mem and --cpus-per-task, come from SBATCH_OPTIONS. A job that fails, or whose machine
# dies, is put back into the queue; running this script again does what is left.
set -eu
graph=$1 store=$2 k=$3
shift 3
propagate="hopfeed propagate '$graph' -o '$store' --tasks $k $* --task"
submit() { # NAME TASK [OPTION...]: prints the number of the job; TASK may use $SLURM_ARRAY_TASK_ID
  name=$1 task=$2
  shift 2
  # shellcheck disable=SC2086
  sbatch --parsable --requeue --job-name "hopfeed-$name" ${SBATCH_OPTIONS:-} "$@" \
    --wrap "for try in 1 2 3; do $propagate $task && exit; sleep 1; done; exit 1"
}
last=$((k - 1))
rows=$(submit rows rows)
cut=$(submit cut 'cut-$SLURM_ARRAY_TASK_ID' --array "0-$last")
hops=$(submit hops 'hops-$SLURM_ARRAY_TASK_ID' --array "0-$last" --dependency "afterok:$rows:$cut")
write=$(submit write 'write-$SLURM_ARRAY_TASK_ID' --array "0-$last" --dependency "afterok:$hops")
submit publish publish --dependency "afterok:$write"
