#!/usr/bin/env bash
# What each host of a run does, as a startup script or started by hand:
#
#   setsid nohup launch/worker.sh [JOB_FILE] &
#
# Installs the code, trains, uploads its log every minute, starts again what may
# be started again. When the run is done, failed or out of time, host 0 deletes
# the resource that it is part of, and goes on trying for as long as it exists.
# The job comes from the metadata of the host; launch/job.py describes it.
set -uo pipefail

home=${BERT_JAX_HOME:-/var/lib/bert_jax}
period=${BERT_JAX_PERIOD:-60} # seconds between uploads
retries=3                     # after the same step
lock_file=/tmp/libtpu_lockfile

# Prints an attribute of this host; nothing if it has none. Asks until the server
# answers: a host that ended here would do nothing, and cost, and one that took
# itself for host 0 would delete the others.
get_metadata() {
  local url answer
  url=http://${GCE_METADATA_HOST:-metadata.google.internal}
  url+=/computeMetadata/v1/instance/attributes/$1
  while :; do
    answer=$(curl --silent --max-time 10 --write-out '\n%{http_code}' \
      --header 'Metadata-Flavor: Google' "$url")
    case ${answer##*$'\n'} in
    200)
      echo "${answer%$'\n'*}"
      return
      ;;
    404) return ;;
    esac
    echo 'worker.sh: waiting for the metadata server' >&2
    sleep "$((period < 10 ? period : 10))"
  done
}

say() {
  echo "$(date --utc +%H:%M:%S) worker.sh: $*" >>"$log"
}

read_job() {
  arguments=() delete=()
  declare -gA job
  local line
  while IFS= read -r line; do
    case $line in
    argument=*) arguments+=("${line#*=}") ;;
    delete=*) delete+=("${line#*=}") ;;
    *=*) job[${line%%=*}]=${line#*=} ;;
    esac
  done
  [[ -n ${job[name]:-} && -n ${job[sha256]:-} && ${#arguments[@]} -gt 0 ]]
}

# Prints the number of this host among those of all slices.
get_number() {
  local worker slice
  worker=$(get_metadata agent-worker-number)
  slice=$(get_metadata tpu-env |
    sed -n "s/^MEGASCALE_SLICE_ID: *'\?\([0-9]*\).*/\1/p")
  echo $((${slice:-0} * job[hosts] + ${worker:-0}))
}

# The time after which the run stops, also if this host is started again.
set_deadline() {
  if [[ ! -s $folder/deadline-${job[job]} ]]; then
    echo $(($(date +%s) + job[seconds])) >"$folder/deadline-${job[job]}"
  fi
  deadline=$(<"$folder/deadline-${job[job]}")
}

install_code() {
  code=$folder/${job[sha256]}
  [[ -e $code/ready ]] && return
  rm -rf "$code"
  mkdir -p "$code/tree"
  gcloud storage cp "${job[archive]}" "$code/code.tar.gz" --quiet &&
    echo "${job[sha256]}  $code/code.tar.gz" | sha256sum --check --quiet &&
    tar --extract --gzip --file="$code/code.tar.gz" --directory="$code/tree" &&
    make_environment &&
    "$code/env/bin/python" -m pip install --quiet --editable \
      "$code/tree[tpu,gcs]" &&
    touch "$code/ready"
}

make_environment() {
  local python
  for python in python3.13 python3.12 python3.11 python3; do
    if "$python" -c \
      'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' \
      2>/dev/null; then
      "$python" -m venv "$code/env"
      return
    fi
  done
  # Google's images for TPUs have Python 3.10.
  curl --silent --show-error --fail --location \
    https://astral.sh/uv/install.sh |
    env UV_INSTALL_DIR="$code/uv" UV_NO_MODIFY_PATH=1 sh &&
    "$code/uv/uv" venv --seed --python 3.12 "$code/env"
}

# Ends the process group of an earlier start, which may hold the chips.
free_device() {
  local group seconds
  group=$(cat "$folder/group" 2>/dev/null) || group=
  # The number may be another's by now.
  if [[ -n $group ]] && is_ours "$group"; then
    kill -TERM -- "-$group" 2>/dev/null
    for ((seconds = 0; seconds < 30; seconds++)); do
      kill -0 -- "-$group" 2>/dev/null || break
      sleep 1
    done
    kill -KILL -- "-$group" 2>/dev/null
  fi
  rm -f "$folder/group"
  if [[ -e $lock_file ]] && ! is_open "$lock_file"; then
    rm -f "$lock_file"
  fi
}

# Returns whether a process of a group runs code from this folder.
is_ours() {
  local process
  for process in $(ps -e -o pid= -o pgid= | awk -v g="$1" '$2 == g {print $1}'); do
    [[ $(tr '\0' ' ' <"/proc/$process/cmdline") == *"$folder/"* ]] && return
  done 2>/dev/null
  return 1
}

# Returns whether a process has a file open.
is_open() {
  [[ -n $(find /proc/[0-9]*/fd -lname "$1" -print -quit 2>/dev/null) ]]
}

# Host 0 uploads also when there is nothing new: that is its sign of life.
upload_log() {
  local size
  size=$(stat --format=%s "$log")
  [[ $number != 0 && $size == "${uploaded:-}" ]] && return
  gcloud storage cp "$log" "${job[workdir]}/logs/host-$number.log" --quiet \
    >/dev/null 2>&1 && uploaded=$size
}

# Prints the reason to end that any host, or a user, has written.
get_end() {
  gcloud storage cat "$end_url" 2>/dev/null | sed -n 's/^reason=//p'
}

# Writes why the launch ends, unless somebody has.
write_end() {
  {
    echo "reason=$1"
    echo "host $number, $(hostname)${2:+, exit code $2}"
    [[ $1 == 'done' ]] || tail -n 20 "$log"
  } >"$folder/end"
  [[ -n $(get_end) ]] || gcloud storage cp --if-generation-match=0 \
    "$folder/end" "$end_url" --quiet >/dev/null 2>&1
}

# Prints the step that the run has reached; progress resets the retries.
get_step() {
  gcloud storage cat "${job[workdir]}/status.json" 2>/dev/null |
    sed -n 's/.*"step": *\([0-9]*\).*/\1/p' | head -n 1
}

# Runs the program once and returns its exit code; looks up every period.
train() {
  local start=$SECONDS told='' killer=''
  cd "$code/tree" || return
  # Its own process group, named by its process id.
  setsid "$code/env/bin/python" -m bert_jax.main "${arguments[@]}" \
    >>"$log" 2>&1 &
  main=$!
  echo "$main" >"$folder/group"
  while kill -0 "$main" 2>/dev/null; do
    sleep 1
    ((SECONDS - start < period)) && continue
    start=$SECONDS
    upload_log
    [[ -n $told ]] && continue
    if (($(date +%s) >= deadline)); then
      write_end 'out of time'
    fi
    told=$(get_end)
    if [[ -n $told ]]; then
      say "the launch ends ($told): saving a checkpoint"
      kill -TERM "$main"
      # A run that does not end in ten minutes will not.
      (sleep 600 && kill -KILL -- "-$main") 2>/dev/null &
      killer=$!
    fi
  done
  wait "$main"
  local result=$?
  main=
  [[ -z $killer ]] || kill "$killer" 2>/dev/null
  kill -KILL -- "-$(<"$folder/group")" 2>/dev/null # what it left behind
  return "$result"
}

# A host that is about to be taken away gets SIGTERM; so does the run.
leave() {
  if [[ -n ${main:-} ]]; then
    kill -TERM "$main" 2>/dev/null
    wait "$main"
  fi
  say 'this host is being stopped'
  upload_log
  exit 143
}

finish() {
  say "ending: $1"
  write_end "$@"
  [[ $number == 0 ]] && say "deleting this resource: ${delete[*]}"
  upload_log
  [[ $number == 0 ]] || exit 0
  # A deletion may fail after it was accepted; one that succeeds ends this host.
  while :; do
    "${delete[@]}" >>"$log" 2>&1
    upload_log
    sleep "$period"
  done
}

# Host 0 decides when a run is done: it may have more to write than others.
wait_for_end() {
  local n
  for ((n = 0; n < 5; n++)); do
    [[ -n $(get_end) ]] && return
    sleep "$period"
  done
}

# Trains until there is nothing to do; never returns.
work() {
  local result step last='' failures=0 reason
  while :; do
    reason=$(get_end)
    [[ -n $reason ]] && finish "$reason"
    free_device
    train
    result=$?
    say "bert_jax.main ended with exit code $result"
    upload_log
    reason=$(get_end)
    [[ -n $reason ]] && finish "$reason"
    case $result in
    0)
      [[ $number == 0 ]] && finish 'done'
      wait_for_end
      ;;
    1) finish 'failed' "$result" ;;
    130 | 143) ;; # interrupted: resume
    *)
      step=$(get_step)
      [[ $step != "$last" ]] && failures=0
      last=$step
      ((failures++ < retries)) || finish 'crashed' "$result"
      say "trying again ($failures of $retries since step ${step:-0})"
      sleep "$((period < 10 ? period : 10))"
      ;;
    esac
  done
}

main() {
  # Startup scripts have no home directory, which gcloud and pip want.
  export HOME=${HOME:-/root}
  read_job < <(if [[ -n ${1:-} ]]; then cat "$1"; else
    get_metadata bert-jax-job
  fi) || {
    echo 'worker.sh: there is no job in the metadata of this host.' >&2
    exit 1
  }
  folder=$home/${job[name]} end_url=${job[workdir]}/launch/${job[job]}/end
  mkdir -p "$folder"
  log=$folder/host.log
  number=$(get_number)
  # The log of the hosts before this one goes on.
  [[ -e $log ]] || gcloud storage cp \
    "${job[workdir]}/logs/host-$number.log" "$log" --quiet 2>/dev/null || touch "$log"
  trap leave TERM
  set_deadline
  say "host $number of run ${job[name]}, launch ${job[job]}"
  upload_log
  local n
  for ((n = 0; n < 3; n++)); do
    install_code >>"$log" 2>&1 && break
    say 'the installation failed'
    upload_log
    sleep "$period"
  done
  [[ -e $code/ready ]] || finish 'failed'
  work
}

main "$@"
