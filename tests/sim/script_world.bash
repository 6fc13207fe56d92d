#!/usr/bin/env bash
# The supervisor's own functions (deploy/sluice-node, `supervise` and below) under a simulated clock: a world of processes and a watcher
# that live, die and hang by seed.
#
#   script_world.bash SCRIPT FIRST COUNT     runs COUNT seeds; prints those that fail, and why
#
# It replaces the clock, processes (start_actor, kill, wait, their start times), the watcher's pipe, and files.
# shellcheck disable=SC2034,SC2154,SC1090 # variables are the script's
script=$1 first=$2 count=$3
source <(head -n -1 "$script") # all but the call of main

SLACK_MS=150         # a check without a watcher takes 100
SILENT_MS=$((WATCH_MS + 1100)) # for this long a watcher that hangs reports nothing
START_MS=1000000
PIDS=10000000        # above any pid of the machine, so that the supervisor's own pid is none of the world's
state_paths "$(mktemp -d)"
S_ranks=2 S_memory=0 S_disk=1
bin=/none version=0 self=/none actor_arguments=()
trap 'rm -rf -- "$state_dir"' EXIT
exec 250</dev/null 252>&1
lock_fd=250 watch_out=251 watch_in=251

# ---------------------------------------------------------------- the world
T=$START_MS pids=$PIDS watch_life=0 watch_hangs=0 stop_at=0 trouble_until=0 failure=""
queue=()                     # "MS WHAT..."
declare -A name_of drains    # of the living processes, by pid
declare -A read_at           # by pid: the number of the command by which the watcher knows it
declare -A starts kills noticed streak row last_exit_at began bad_from bad_until bad_ms

fail() {
    [ -n "$failure" ] || failure="at $((T - START_MS)) ms: $*"
    stop_requested=1
    printf 'seed %d: %s\n' "$seed" "$failure" >&252
    exit 1
}
below() { chance=$((RANDOM * 32768 + RANDOM)) chance=$(($1 > 0 ? chance % $1 : 0)); }
later() { # MS WHAT...
    local at=$((T + $1))
    shift
    queue+=("$at $*")
}
# Takes the earliest event until $1 out of the queue, as `event`; fails: there is none.
next() {
    local i at best=-1 best_at=$1
    for i in "${!queue[@]}"; do
        at=${queue[i]%% *}
        if [ "$at" -lt "$best_at" ] || { [ "$at" -eq "$best_at" ] && [ "$best" -lt 0 ]; }; then best=$i best_at=$at; fi
    done
    [ "$best" -ge 0 ] || return 1
    event=${queue[best]#* }
    unset "queue[best]"
    queue=("${queue[@]}")
    [ "$best_at" -le "$T" ] || T=$best_at
}
dies() { # PID CODE
    local name=${name_of[$1]:-}
    [ -n "$name" ] || return 0
    unset "name_of[$1]"
    code_of[$1]=$2
    below 5
    later "$chance" "tell $watch_life gone $name $1 $2"
}
declare -A code_of
# Runs the world until $1. Sets `line` and returns 0 if the watcher reports something, 1 if it has ended, else 142.
world() {
    local event words IFS=$' \t\n' # the script's IFS may be empty here
    [ "$T" -lt $((START_MS + 400000)) ] || fail "it never ends"
    while next "$1"; do
        builtin read -r -a words <<<"$event"
        case ${words[0]} in
        die) dies "${words[1]}" "${words[2]}" ;;
        kill) [ "${pid_of[${words[1]}]:-0}" -eq 0 ] || dies "${pid_of[${words[1]}]}" 137 ;;
        hang) # its watcher reports that a second later
            [ "${pid_of[${words[1]}]:-0}" -eq 0 ] || later 1100 "tell $watch_life hung ${words[1]} ${pid_of[${words[1]}]} stopped $((T + 1100))"
            ;;
        drain)
            local pid=${pid_of[${words[1]}]:-0}
            if [ "$pid" -ne 0 ] && [ $((T - began[${words[1]}])) -gt 1500 ] && [ -n "${name_of[$pid]:-}" ]; then
                dies "$pid" 0
            fi
            ;;
        stop)
            stop_at=$T stop_requested=1
            watch_send nudge
            ;;
        whole) whole_check ;;
        tick)
            if [ "${words[1]}" = "$watch_life" ]; then
                later 1000 "tick $watch_life"
                later 0 "tell $watch_life tick"
            fi
            ;;
        watch_dies) [ "${words[1]}" != "$watch_life" ] || return 1 ;;
        watch_hangs) [ "${words[1]}" != "$watch_life" ] || watch_hangs=1 ;;
        tell)
            if [ "${words[1]}" = "$watch_life" ] && [ "$watch_hangs" -eq 0 ]; then
                line=${words[*]:2}
                [ "${words[2]}" != state ] || state_after=${words[4]}
                return 0
            fi
            ;;
        esac
    done
    [ "$1" -le "$T" ] || T=$1
    return 142
}

# ---------------------------------------------------------------- the script's system calls
now_set() { now=$T; }
read() {
    if [ "${4:-}" = -u ]; then # -r -t SECONDS -u FD line
        world $((T + 10#${3/./}))
    else
        builtin read "$@"
    fi
}
sleep() {
    local line
    world $((T + 100))
    return 0
}
born_set() {
    [ -n "${name_of[$1]:-}" ] || [ "$1" = "${me:-}" ] || return 1
    born=$1
}
kill() {
    case $1 in
    -0) [ -n "${name_of[$2]:-}" ] ;;
    -KILL) dies "$2" 137 ;;
    -TERM) later "${drains[$2]}" "die $2 0" ;;
    esac
}
wait() { return "${code_of[$1]:-0}"; }
supervisor_log() { :; }
logs_bound() { :; }
write_state() { :; }
clean_up() { :; }
state_open() { :; }
names_check() { :; }
bounded() { :; }

watch_start() {
    now_set
    watch_started_ms=$now report_ms=$now report_part="" watch_commands=0 watch_read=0 watch_hangs=0
    below 8
    if [ "$chance" -eq 0 ] && [ "$T" -lt "$trouble_until" ]; then # as the script does, when it cannot
        watch_at_ms=$((now + BACKOFF_MS_MAX))
        return
    fi
    watch_pid=$((++pids)) watch_life=$((watch_life + 1))
    later 0 "tick $watch_life"
    below 30000
    if [ "$has_watch_trouble" -eq 1 ] && [ $((T + chance)) -lt "$trouble_until" ]; then
        if [ $((chance % 2)) -eq 0 ]; then later "$chance" "watch_dies $watch_life"; else later "$chance" "watch_hangs $watch_life"; fi
    fi
    local name
    for name in "${actors[@]}" "${helpers[@]}"; do watch_actor "$name"; done
}
watch_end() {
    watch_pid=0
    watch_life=$((watch_life + 1))
}
watch_send() {
    local words
    [ "$watch_pid" -ne 0 ] || return 0
    builtin read -r -a words <<<"$1"
    case ${words[0]} in
    watch | mind)
        later 0 "tell $watch_life state ready $watch_read" # from the state before it reads this
        watch_read=$((watch_read + 1)) read_at[${words[2]}]=$watch_read
        if [ -n "${name_of[${words[2]}]:-}" ]; then
            below 200
            later "$chance" "tell $watch_life state ready $watch_read"
        else
            later 1 "tell $watch_life gone ${words[1]} ${words[2]} ${code_of[${words[2]}]:-0}"
        fi
        ;;
    nudge) later 1 "tell $watch_life nudge" ;;
    esac
}

# ---------------------------------------------------------------- invariants
start_actor() {
    local name=$1 pid pause want=0
    for pid in "${!name_of[@]}"; do [ "${name_of[$pid]}" != "$name" ] || fail "$name is started twice at once"; done
    [ "$stop_at" -eq 0 ] || fail "$name is started after the stop"
    starts[$name]=$((${starts[$name]:-0} + 1))
    if [ -n "${noticed[$name]:-}" ]; then
        pause=$((T - noticed[$name]))
        [ "${row[$name]}" -le 0 ] || want=$((row[$name] > 6 ? 5000 : 100 << (row[$name] - 1)))
        [ "$want" -le 5000 ] || want=5000
        [ "$pause" -ge "$want" ] && [ "$pause" -le $((want + SLACK_MS)) ] ||
            fail "$name is started $pause ms after its end was known, exit ${row[$name]} of a row: not $want"
    fi
    pid=$((++pids))
    name_of[$pid]=$name
    below "$drain_ms"
    drains[$pid]=$((10 + chance))
    began[$name]=$T
    actor_runs "$name" "$pid" "$pid" 0
    if [ "$T" -ge "${bad_from[$name]:-$((1 << 40))}" ] && [ "$T" -lt "${bad_until[$name]}" ]; then
        below "${bad_ms[$name]}"
        later $((1 + chance)) "die $pid 1"
    fi
}
# Counts exits in a row: each after a short life, or soon after the last exit.
eval "script_$(declare -f actor_exited)"
actor_exited() {
    local name=$1 life=$((T - began[$1])) last=${last_exit_at[$1]:-} state=$node_state
    noticed[$name]=$T
    if [ "$2" != 0 ] || [ "$life" -le 1000 ]; then
        if [ -z "$last" ] || [ $((T - last)) -gt 30000 ] || [ "$life" -gt 10000 ]; then streak[$name]=0; else streak[$name]=$((${streak[$name]} + 1)); fi
        last_exit_at[$name]=$T
        row[$name]=${streak[$name]}
    else
        row[$name]=0 # it drained on request
    fi
    script_actor_exited "$@"
    [ "$name" != metrics ] || [ "$node_state" = "$state" ] || fail "the node is '$node_state' because $name has ended"
    [ "${row[$name]}" -lt 8 ] || [ "${state_of[$name]}" = crash-loop ] || [ "${bad_ms[$name]:-0}" -gt 300 ] || [ "$has_watch_trouble" -eq 1 ] ||
        fail "$name is not called a crash loop"
    [ "${pid_of[$name]}" -eq 0 ] || fail "$name has ended, and counts as running"
}
eval "script_$(declare -f node_state_set)"
node_state_set() {
    local name
    [ "$1" != ready ] || for name in "${actors[@]}"; do
        [ "${read_at[${pid_of[$name]}]}" -le "$state_after" ] || fail "the node is ready, and its watcher does not know yet that $name was started"
    done
    script_node_state_set "$1"
}
whole_check() {
    local name
    for name in "${actors[@]}" "${helpers[@]}"; do
        [ -n "${name_of[${pid_of[$name]:-0}]:-}" ] || fail "$name does not run $((T - trouble_until)) ms after its cause is gone"
        [ -n "${bad_from[$name]:-}" ] || [ "${starts[$name]}" -le $((1 + ${kills[$name]:-0})) ] ||
            fail "$name, which nothing is wrong with, was started ${starts[$name]} times"
    done
    [ "$node_state" = ready ] || fail "the node is '$node_state', and all run"
}

run_seed() {
    RANDOM=$((seed + 1))
    local i name at left all
    mapfile -t actors < <(printf '%s\n' registrar keyer tierer.0 swapper.0 swapper.1 transporter.0 coordinator)
    helpers=(metrics)
    all=("${actors[@]}" "${helpers[@]}")
    me=1
    below 4
    drain_ms=$((chance == 0 ? 9000 : 300)) has_watch_trouble=$((seed % 3 == 2))
    below 60000
    trouble_until=$((START_MS + 20000 + chance))
    for ((i = 0; i < 1 + seed % 2; i++)); do # actors with a cause to fail
        below ${#all[@]}
        name=${all[chance]}
        below 15000
        bad_from[$name]=$((START_MS + (chance < 5000 ? 0 : chance)))
        bad_until[$name]=$trouble_until
        below 4
        bad_ms[$name]=$((chance == 0 ? 14000 : chance == 1 ? 2000 : 200))
        later $((bad_from[$name] - T + 50)) "kill $name"
    done
    for ((i = 0; i < 6; i++)); do # others are killed now and then
        below ${#all[@]}
        name=${all[chance]}
        below $((trouble_until - T))
        kills[$name]=$((${kills[$name]:-0} + 1))
        below_at=$chance
        below 3
        case $chance in
        0) later "$below_at" "kill $name" ;;
        1) later "$below_at" "hang $name" ;;
        2) later "$below_at" "drain $name" ;;
        esac
    done
    left=$((trouble_until - T + BACKOFF_MS_MAX + SILENT_MS + 2000))
    if [ $((seed % 4)) -eq 3 ]; then
        below $((trouble_until - T))
        later $((1000 + chance)) stop
    else
        later "$left" whole
        later $((left + 100)) stop
    fi
    supervise >/dev/null
    [ ${#name_of[@]} -eq 0 ] || fail "${name_of[*]} are left after the stop"
    at=$((drain_ms > 8000 ? ${#all[@]} * 9000 : ${#all[@]} * 550))
    [ $((T - stop_at)) -le $((at + (has_watch_trouble ? 2 * SILENT_MS : 0))) ] || fail "the stop took $((T - stop_at)) ms"
}

failed=0
for ((seed = first; seed < first + count; seed++)); do
    (run_seed) 2>&1 || failed=$((failed + 1))
done
[ "$failed" -eq 0 ]
