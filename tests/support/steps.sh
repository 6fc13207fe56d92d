# Output of scripts that check a system step by step: sourced by bash. `failed` counts the failures.
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
within() { # SECONDS COMMAND...: repeats it until it succeeds
    local left=$(($1 * 5))
    shift
    until "$@"; do
        [ $((left -= 1)) -gt 0 ] || return 1
        sleep 0.2
    done
}
