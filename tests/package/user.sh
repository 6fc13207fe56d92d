# Does what a new user does with a running node: README's replay, with `sluicectl top` in a terminal, as root.
top_in() { # WORDS...: another tmux
    tmux -S /tmp/tmux -f /dev/null "$@"
}
screen() {
    top_in capture-pane -p
}
# The rows of loads: blocks a second that were found in memory, and their share, while the replay runs.
hits_are_shown() {
    screen | awk '$1 == "memory" && $3 ~ /%$/ && $2 != "0" { found = 1 } END { exit !found }' && kill -0 "$replay" 2>/dev/null
}
hits_counted() {
    sluicectl metrics | sed -n 's/^sluice_load_blocks_total{.*tier="memory".*} //p'
}
a_replay_is_seen() {
    (sluicectl workload --requests 400 | sluicectl replay - --speed 8 >/tmp/replay.log 2>&1) &
    replay=$!
    top_in new-session -d -x 80 -y 24 'LC_ALL=C.UTF-8 sluicectl top; sleep 600'
    expect "sluicectl top shows a replay's hits while it runs" within 60 hits_are_shown
    screen
    expect "every byte of the replay is right" wait "$replay"
    cat /tmp/replay.log
    expect "and /metrics has its hits in memory, and no other" test "$(hits_counted)" = "$(sed -n 's/^hits .*: memory \([1-9][0-9]*\),.*/\1/p' /tmp/replay.log)"
    top_in send-keys q
    top_in kill-server
}
