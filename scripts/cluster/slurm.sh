#!/usr/bin/env bash
# A real SLURM of two nodes on this one machine, for tests. Needs root and the Debian packages slurmctld, slurmd,
# slurm-client and munge. Nothing outside of DIR is touched.
#
# usage: scripts/cluster/slurm.sh start DIR PORT PORT PORT
#          makes DIR, starts all daemons at these ports, returns when the nodes are idle.
#          Then: export SLURM_CONF=DIR/slurm.conf
#        scripts/cluster/slurm.sh stop DIR
#          ends them
# Exit status 77: this machine cannot run it; the reason is printed.
set -euo pipefail

cannot() {
  echo "no SLURM here: $*"
  exit 77
}
die() {
  echo "slurm.sh: $*" >&2
  exit 1
}

export PATH="$PATH:/usr/sbin:/sbin"

# Names of the two nodes. The first one must mean this machine to those who look it up, as on a real cluster.
host="$(hostname -s)"
readonly host
readonly nodes=("$host" "$host-second")

# On a busy machine a message may take seconds. By default a batch script that has not begun within ten is put back and
# waits for two minutes, and a job that found its nodes not ready yet is looked at again a minute later.
# Ports of a job follow from its number, and two SLURMs on one machine must not give out the same ones.
configuration() {
  local dir="$1" port="$2" node_ports=("$3" "$4")
  cat <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
SlurmctldTimeout=120
SlurmdTimeout=120
KillWait=5
FirstJobId=$((port * 1000))
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=120
JobRequeue=0
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=${nodes[0]} NodeHostname=$host NodeAddr=127.0.0.1 Port=${node_ports[0]} CPUs=4 State=UNKNOWN
NodeName=${nodes[1]} NodeHostname=$host NodeAddr=127.0.0.1 Port=${node_ports[1]} CPUs=4 State=UNKNOWN
PartitionName=test Nodes=${nodes[0]},${nodes[1]} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
EOF
}

start() {
  local dir="$1" ports=("${@:2:3}") program
  [[ "$(id -u)" -eq 0 ]] || cannot "it needs root"
  for program in munged slurmctld slurmd srun sbatch sinfo; do
    command -v "$program" >/dev/null || cannot "$program is not installed"
  done
  mkdir -p "$dir/state" "$dir/spool.${nodes[0]}" "$dir/spool.${nodes[1]}"
  chmod 755 "$dir"
  head -c 128 /dev/urandom >"$dir/munge.key"
  chmod 600 "$dir/munge.key"
  munged --force --num-threads=2 --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munged.seed" >"$dir/munged.out" 2>&1 ||
    cannot "munged does not start: $(tail -n 1 "$dir/munged.out")"
  configuration "$dir" "${ports[@]}" >"$dir/slurm.conf"
  export SLURM_CONF="$dir/slurm.conf"
  slurmctld -f "$SLURM_CONF"
  slurmd -f "$SLURM_CONF" -N "${nodes[0]}"
  slurmd -f "$SLURM_CONF" -N "${nodes[1]}"
  local end=$((SECONDS + 150))
  while ((SECONDS < end)); do
    if [[ "$(sinfo --noheader --format=%D:%t 2>/dev/null)" == "2:idle" ]]; then
      echo "SLURM_CONF=$SLURM_CONF"
      return
    fi
    sleep 0.1
  done
  tail -n 5 "$dir"/*.log >&2
  stop "$dir"
  die "the nodes did not become idle: $(sinfo 2>&1 | tail -n 1)"
}

# Ends the daemon whose number is in file `$1`.
end_daemon() {
  local pid tries
  [[ -s "$1" ]] || return 0
  pid="$(cat "$1")"
  kill "$pid" 2>/dev/null || return 0
  for ((tries = 0; tries < 100; ++tries)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
}

stop() {
  local dir="$1" daemon
  if [[ -s "$dir/slurm.conf" ]]; then
    SLURM_CONF="$dir/slurm.conf" timeout 10 scancel --user root >/dev/null 2>&1 || true
  fi
  for daemon in "slurmd.${nodes[0]}" "slurmd.${nodes[1]}" slurmctld munged; do
    end_daemon "$dir/$daemon.pid"
  done
}

case "${1:-}" in
  start) start "${2:?folder}" "${3:?port}" "${4:?port of the first node}" "${5:?port of the second node}" ;;
  stop) stop "${2:?folder}" ;;
  *) die "usage: slurm.sh start DIR PORT PORT PORT | stop DIR" ;;
esac
