#!/usr/bin/env bash
# What each host of a run does: as the startup script of a TPU VM, or in a pod
# (BERT_JAX_JOB is its job, and its image has the code). Needs curl and pip.
#
# Installs the code, trains, uploads its log, starts again what may be. When the
# run is done, failed or out of time, every host deletes the resource that it is
# part of, host 0 first, as long as it exists.
set -uo pipefail

home=${BERT_JAX_HOME:-/var/lib/bert_jax}
tick=${BERT_JAX_TICK:-5}      # seconds
minute=${BERT_JAX_MINUTE:-12} # ticks
retries=3                     # of the program, without a step forward
starts=10                     # of host 0, without a step forward
metadata=http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1

pause() { local n && for ((n = 0; n < $1; n++)); do sleep "$tick"; done; }
say() { echo "$(date --utc +%H:%M:%S) worker.sh: $*" >>"$log"; }

get_metadata() { # of this host
  curl --silent --fail --max-time 5 --header 'Metadata-Flavor: Google' \
    "$metadata/instance/$1"
}

await() { # prints an attribute of this host, which may come late
  local n
  for ((n = 0; n < 10 * minute; n++)); do
    get_metadata "attributes/$1" && return
    sleep "$tick"
  done
  return 1
}

read_job() {
  local line
  declare -gA job
  arguments=()
  while IFS= read -r line; do
    case $line in
    argument=*) arguments+=("${line#*=}") ;;
    *=*) job[${line%%=*}]=${line#*=} ;;
    esac
  done
  [[ -n ${job[launch]:-} && ${#arguments[@]} -gt 0 ]]
}

# Sets the number of this host among those of all slices. One that took itself
# for host 0 would end the others' run.
set_number() {
  local worker=${JOB_COMPLETION_INDEX:-} slice=${JOB_INDEX:-0}
  number=$((job[hosts] * job[slices])) # deletes last, should it come to that
  ((number > 1)) || { number=0 && return; }
  if [[ -z ${BERT_JAX_JOB:-} ]]; then
    worker=$(await agent-worker-number)
    ((job[slices] == 1)) || slice=$(await tpu-env |
      sed -n "s/^MEGASCALE_SLICE_ID: *'\?\([0-9]*\).*/\1/p")
  fi
  [[ $worker =~ ^[0-9]+$ && $slice =~ ^[0-9]+$ ]] || return 1
  number=$((slice * job[hosts] + worker))
}

# Sends METHOD URL with curl's arguments; sets $status, and $answer is a file.
request() {
  local token
  token=$(get_metadata service-accounts/default/token |
    sed -n 's/.*"access_token": *"\([^"]*\)".*/\1/p')
  status=$(curl --silent --show-error --max-time 60 --output "$answer" \
    --write-out '%{http_code}' --header "Authorization: Bearer $token" \
    --request "$1" "${@:3}" "$2" 2>>"$log")
  [[ $status == 2* ]]
}

get() { # prints an object of the run; fails if there is none
  local name=${job[folder]}/$1
  name=${name//=/%3D}
  request GET "${job[storage]}/storage/v1/b/${job[bucket]}/o/${name//\//%2F}?alt=media" \
    "${@:2}" && cat "$answer"
}

put() { # FILE OBJECT [CONDITION]
  local url=${job[storage]}/upload/storage/v1/b/${job[bucket]}/o name=${job[folder]}/$2
  url+="?uploadType=media&name=${name//=/%3D}${3:-}"
  request POST "$url" --header 'Content-Type: text/plain' --data-binary "@$1"
}

set_deadline() { # for all hosts of this request
  local name=launch/${job[launch]}/deadline-${job[attempt]:-0}
  echo $(($(date +%s) + job[seconds])) >"$folder/deadline"
  put "$folder/deadline" "$name" '&ifGenerationMatch=0'
  deadline=$(get "$name")
  [[ $deadline =~ ^[0-9]+$ ]] || deadline=$(<"$folder/deadline")
}

schedule_deletion() { # by another unit, if this script is dead by then
  {
    declare -p metadata answer log
    declare -f get_metadata request
    echo "while sleep $tick; do request DELETE '${job[delete]}'; done"
  } >"$folder/delete.sh"
  systemd-run --quiet --on-active=$((deadline - $(date +%s) + 1800)) \
    bash "$folder/delete.sh" >>"$log" 2>&1 ||
    say 'there is no second unit to delete this resource'
}

count_start() { # fails if host 0 was started often since a step forward
  local name=launch/${job[launch]}/starts count=0 before='' step
  step=$(get_step)
  read -r count before < <(get "$name")
  [[ $count/$before =~ ^[0-9]{1,9}/[0-9]{1,9}$ ]] || count=0 before=0
  ((step > 10#$before)) && count=0 before=$step
  echo "$((10#$count + 1)) $before" >"$folder/starts"
  put "$folder/starts" "$name"
  ((10#$count < starts))
}

install_code() { # in the versions that came with it, by a pinned uv
  local uv=$code/uv/bin/uv fixed=$code/tree/constraints.txt
  rm -rf "$code"
  mkdir -p "$code/tree"
  get "${job[archive]}" --max-time 300 >"$code/code.tar.gz" &&
    echo "${job[sha256]}  $code/code.tar.gz" | sha256sum --check --quiet &&
    tar --extract --gzip --file="$code/code.tar.gz" --directory="$code/tree" &&
    timeout 300 python3 -m pip install --quiet --require-hashes --no-deps \
      --target="$code/uv" --requirement="$code/tree/launch/uv.txt" &&
    timeout 300 "$uv" venv --quiet --python="${job[python]}" "$code/env" &&
    timeout 1200 "$uv" pip install --quiet --python="$code/env/bin/python" \
      --constraints="$fixed" --build-constraints="$fixed" \
      --editable="$code/tree[tpu,gcs]" && touch "$code/ready"
}

upload_log() { put "$log" "logs/host-$number.log"; } # host 0's sign of life

# Prints the reason to end that any host, or a user, has written, or that there is
# no time left. One for which others may be tried is of the hosts of one request.
get_end() {
  { get "launch/${job[launch]}/end" || get "$crashed" ||
    (($(date +%s) < deadline)) || echo 'reason=out of time'; } |
    sed -n '1s/^reason=//p'
}

get_step() { # prints the step that the run has reached, or 0
  local find='s/.*"step": *\([0-9]\{1,9\}\).*/\1/p'
  echo "$((10#0$(get status.json | sed -n "$find" | head -n 1)))"
}

# Runs the program once and returns its exit code; looks up every minute. Sets
# $told if the launch ends.
train() {
  local n=0 late=0 result
  [[ -e $code/ready ]] || install_code >>"$log" 2>&1 ||
    { say 'the installation failed' && return 70; }
  cd "$tree" || return
  rm -f /tmp/libtpu_lockfile # of a program that was killed
  setsid "$python" -m bert_jax.main "${arguments[@]}" >>"$log" 2>&1 &
  main=$!
  while kill -0 "$main" 2>/dev/null; do
    sleep "$tick"
    [[ $(get_metadata preempted) == TRUE ]] && leave
    ((++n % minute == 0)) || continue
    upload_log
    if [[ -n $told ]]; then # a run that does not end in ten minutes will not
      ((++late < 10)) || kill -KILL -- "-$main"
    elif told=$(get_end) && [[ -n $told ]]; then
      say "the launch ends ($told): saving a checkpoint"
      kill -TERM "$main"
    fi
  done
  wait "$main"
  result=$?
  kill -KILL -- "-$main" 2>/dev/null # what it left behind
  main=
  return "$result"
}

leave() { # this host is told by its metadata, and by SIGTERM, perhaps too late
  [[ -z ${main:-} ]] || { kill -TERM "$main" 2>/dev/null && wait "$main"; }
  say 'this host is being taken away' && upload_log
  exit 143
}

finish() { # REASON [EXIT CODE]: writes it, unless somebody has; then deletes
  local n end=launch/${job[launch]}/end
  [[ $1 == crashed ]] && end=$crashed
  say "ending: $1"
  {
    echo "reason=$1"
    echo "host $number, $(hostname)${2:+, exit code $2}"
    [[ $1 == 'done' ]] || tail -n 20 "$log"
  } >"$folder/end"
  for ((n = 0; n < 10; n++)); do
    put "$folder/end" "$end" '&ifGenerationMatch=0' || [[ $status == 412 ]] && break
    say "the bucket does not take the reason: $status $(head -c 300 "$answer")"
    pause "$minute"
  done
  upload_log
  # A pod just ends, after a second for kubectl logs.
  [[ -n ${job[delete]:-} ]] || { sleep 1 && [[ $1 == 'done' ]] && exit; exit 1; }
  # In case that the hosts before this one are dead.
  pause $((5 * minute * number))
  # A deletion may fail after it was accepted; one that succeeds ends this host.
  while :; do
    request DELETE "${job[delete]}"
    say "deleting this resource: $status $(head -c 300 "$answer")" && upload_log
    pause "$minute"
  done
}

work() { # trains until there is nothing to do; never returns
  local result step last=0 failures=0
  while :; do
    told=$(get_end)
    [[ -n $told ]] && finish "$told"
    train
    result=$?
    say "bert_jax.main ended with exit code $result" && upload_log
    told=${told:-$(get_end)}
    case $told/$result in
    /0)
      [[ $number == 0 ]] && finish 'done'
      pause $((2 * minute)) # host 0 decides: it may have more to write
      ;;
    /1) finish 'failed' "$result" ;; # the user's mistake: docs/faults.md
    /129 | /130 | /143) ;;           # interrupted: resume
    /*)
      step=$(get_step)
      ((step > last)) && failures=0 last=$step
      ((failures++ < retries)) || finish 'crashed' "$result"
      say "trying again ($failures of $retries since step $last)"
      pause $((failures * minute)) # a network may be back then
      ;;
    *) finish "$told" "$result" ;;
    esac
  done
}

main() {
  local n
  export HOME=${HOME:-/root} # startup scripts have none, and pip wants one
  mkdir -p "$home"
  read_job < <(echo "${BERT_JAX_JOB:-$(await bert-jax-job)}") ||
    { echo 'worker.sh: this host was told no job.' >&2 && exit 1; }
  folder=$home/${job[name]} told=''
  log=$folder/host.log answer=$folder/answer code=$folder/${job[sha256]:-}
  tree=$code/tree python=$code/env/bin/python
  mkdir -p "$code" && touch "$log"
  # A pod's image has it.
  [[ -n ${job[archive]:-} ]] || { tree=$PWD python=python3 && touch "$code/ready"; }
  # The serial console, or kubectl logs, says it when the bucket cannot.
  tail --lines=0 --follow --pid=$$ "$log" &
  trap leave TERM
  set_number || { say 'this host was not told its number' && finish 'failed'; }
  # The log of the host before this one goes on; its network may come late.
  [[ -s $log ]] || for ((n = 0; n < minute; n++)); do
    get "logs/host-$number.log" >"$log" || [[ $status == 404 ]] && break
    pause 1
  done
  crashed=launch/${job[launch]}/crashed-${job[attempt]:-0}
  set_deadline
  [[ -z ${job[delete]:-} ]] || schedule_deletion
  say "host $number of run ${job[name]}, launch ${job[launch]}" && upload_log
  [[ $number != 0 ]] || count_start || finish 'crashed'
  work
}

main "$@"
