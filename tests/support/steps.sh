# What scripts that try things step by step say: sourced by bash. `failed` counts.
failed=0
tell() {
    echo "$(date +%T) $*"
}
expect() { # WORDS COMMAND...
    local words=$1
    shift
    if "$@"; then
        tell "ok: $words"
    else
        tell "FAILED: $words"
        failed=$((failed + 1))
    fi
}
within() { # SECONDS COMMAND...: until it holds
    local left=$(($1 * 5))
    shift
    until "$@"; do
        [ $((left -= 1)) -gt 0 ] || return 1
        sleep 0.2
    done
}
