# shellcheck shell=bash
# What the recipes share. Each is called with the path of the example serve, and ends with status 0, with 1 and a reason, or with
# 69 and a reason if this machine lacks what it needs.
set -euo pipefail

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
skip() { printf 'skip: %s\n' "$*"; exit 69; }
same() { [[ $2 == "$3" ]] || fail "$1: got '$2', expected '$3'"; }
# within WHAT COMMAND...: waits until the command succeeds.
within() {
    local try
    for ((try = 0; try < 600; try++)); do "${@:2}" && return || sleep 0.05; done
    fail "not within 30 s: $1"
}
ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }
# The process that serves now.
current() { pgrep --newest --full -- "--handoff $control"; }
answers() { [[ $(curl --silent --max-time 30 "$url/hello") == '{"msg":"ok"}' ]]; }

[[ -x ${1:-} ]] || { printf 'Usage: %s PATH_OF_SERVE\n' "$0" >&2; exit 2; }
serve=$(realpath "$1")
recipes=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
running=()
cleanup() {
    if ((${#running[@]})); then { kill -KILL "${running[@]}"; wait; } 2>/dev/null || true; fi
    rm -rf "$work"
}
trap cleanup EXIT

# An address of this host that no other program has.
address=127.79.$((($$ >> 8) & 255)).$(($$ & 255)):$((20000 + $$ % 10000))
url=http://$address
mkdir "$work/www" "$work/shared"
: >"$work/out"
control=$work/shared/control
# The release that runs, and one that fails.
ln -s "$serve" "$work/good"
printf '#!/bin/sh\nexit 1\n' >"$work/bad"
chmod +x "$work/bad"
release() { ln -s "$work/$1" "$work/next" && mv -T "$work/next" "$work/current"; }
release good

# load: starts clients, each with 20 requests a second on one connection, and one that connects for each request.
clients=()
load() {
    local client
    for ((client = 0; client < 6; client++)); do
        curl --silent --fail --max-time 60 --rate 20/s --output /dev/null --write-out '%{stderr}kept %{http_code} %{num_connects}\n' \
            "$url/hello?[1-100000]" 2>"$work/load.$client" &
        clients+=($!)
    done
    while [[ -d $work ]]; do
        curl --silent --fail --max-time 60 --output /dev/null --write-out 'new %{http_code}\n' "$url/hello" || true
        sleep 0.02
    done >"$work/load.new" 2>/dev/null &
    clients+=($!)
    running+=("${clients[@]}")
}
# loaded: ends them. No request has failed, and no connection was closed: each client has connected once.
loaded() {
    local count
    kill -TERM "${clients[@]}"
    wait "${clients[@]}" 2>/dev/null || true
    cat "$work"/load.* >"$work/load"
    ! grep -vE '^(kept|new) 200' "$work/load" || fail 'requests have failed'
    same 'connections of clients that keep one' "$(grep -c '^kept 200 1$' "$work/load")" 6
    count=$(grep -c '^kept 200 0$' "$work/load")
    ((count > 50)) || fail "only $count requests"
    printf '%d requests, of which %d were on connections that were kept: none has failed\n' "$(wc -l <"$work/load")" "$count"
}
# replace: the server replaces itself.
replace() {
    kill -USR2 "$server"
    within 'the old server ends' ended "$server"
    server=$(current) || fail 'no server runs'
    running+=("$server")
}
