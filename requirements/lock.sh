#!/bin/sh
# Resolves *.in into the hashed locks, keeping the pins that still fit.
# `lock.sh write PYTHON` writes them. `lock.sh check PYTHON` fails if that would change one. It first uses uv's
# cached index, so a second check needs no network.
set -eu
mode=$1
locks="runtime embedded dev interop interop-more interop-crewai"
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
case $2 in /*) python=$2 ;; *) python=$PWD/$2 ;; esac
UV_CACHE_DIR=$(dirname "$(dirname "$python")")/uv-cache
export UV_CACHE_DIR

resolve() { # folder
    for lock in $locks; do # dev is bound by the ones before
        (cd "$1" && "$python" -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
            "$lock.in" -o "$lock.txt") || return
    done
}

unchanged() {
    cp "$here"/*.in "$here"/*.txt "$copy"
    resolve "$copy" || return
    for lock in $locks; do
        if ! diff -u "$here/$lock.txt" "$copy/$lock.txt"; then
            echo "requirements/$lock.txt is not current: run make lock" >&2
            return 1
        fi
    done
}

if [ "$mode" = write ]; then
    resolve "$here"
    exit
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(UV_OFFLINE=1; export UV_OFFLINE; unchanged) >/dev/null 2>&1 || unchanged
echo "The locks are current"
