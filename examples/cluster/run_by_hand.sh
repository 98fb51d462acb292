#!/bin/bash
# usage, on each machine: run_by_hand.sh machine_rank main_address program [arguments of program]
#
# The order does not matter: the machines wait for each other, five minutes unless --rdzv_conf join_timeout=... says
# otherwise. --num_processes counts the workers of all machines together.
set -euo pipefail
machine_rank="$1"
main_address="$2"
shift 2
exec accelerate launch --num_machines 2 --machine_rank "$machine_rank" --num_processes 4 \
  --main_process_ip "$main_address" --main_process_port 29500 --max_restarts 1 "$@"
