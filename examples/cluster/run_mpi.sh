#!/bin/bash
# usage: run_mpi.sh hostfile program [arguments of program]
set -euo pipefail
hostfile="$1"
shift

# By hand, on this machine: ranks and sizes are found in the variables of Open MPI, MPICH, Intel MPI or MVAPICH.
#   mpirun -n 4 ./train
# By hand on several machines the ranks need the address of the first one:
#   MASTER_ADDR=node1 mpirun -n 4 --host node1:2,node2:2 -x MASTER_ADDR ./train     (Open MPI)
#   MASTER_ADDR=node1 mpirun -n 4 -hosts node1:2,node2:2 ./train                    (MPICH, Intel MPI)

# By the launcher, which knows how each MPI wants to be asked, passes settings on and restarts what failed.
exec accelerate launch --launcher mpirun --hostfile "$hostfile" --max_restarts 1 "$@"
