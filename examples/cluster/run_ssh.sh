#!/bin/bash
# usage: run_ssh.sh hostfile program [arguments of program]
#
# The machines share the folder that this runs in, and ssh gets there without a password. --launcher_command names
# another ssh, or flags for it: --launcher_command "ssh -p 2222".
set -euo pipefail
hostfile="$1"
shift
exec accelerate launch --launcher ssh --hostfile "$hostfile" --max_restarts 1 "$@"
