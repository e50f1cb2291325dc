#!/bin/sh
# Resolves *.in into the hashed locks, with the pins that are there as preferences.
# `lock.sh write PYTHON` writes them; `lock.sh check PYTHON` fails if that would change one.
set -eu
mode=$1
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
case $2 in /*) python=$2 ;; *) python=$PWD/$2 ;; esac

resolve() { # folder
    cd "$1"
    for lock in runtime embedded dev; do # each is bound by the ones before
        "$python" -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
            "$lock.in" -o "$lock.txt"
    done
}

if [ "$mode" = write ]; then
    resolve "$here"
    exit
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp "$here"/*.in "$here"/*.txt "$copy"
(resolve "$copy")
for lock in runtime.txt embedded.txt dev.txt; do
    if ! diff -u "$here/$lock" "$copy/$lock"; then
        echo "requirements/$lock is not current: run make lock" >&2
        exit 1
    fi
done
echo "The locks are current"
