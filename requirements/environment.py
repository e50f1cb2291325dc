"""Makes the environment that the locks describe: `environment.py FOLDER CHOSEN LOCK…`, again if anything changed.

CHOSEN is `chosen` when somebody named this interpreter, so that the environment must be of it. Runs
on any Python 3, if only to say that it is too old. Whatever goes wrong is one line that says what to do.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOM = 50 * 1000 * 1000  # bytes; an environment with nothing but pip takes as many

# What venv and pip say when they fail, and what it means for whoever runs this; the first that fits.
REASONS = (
    (
        r"No space left on device|Errno 28",
        "the disk is full: make room for {folder} and run it again",
    ),
    (
        r"Read-only file system|Errno 30",
        "{folder} is on a read-only disk: use a checkout you can write to",
    ),
    (
        r"[Pp]ermission denied|Errno 13",
        "{folder} cannot be written by this account: use a checkout of your own",
    ),
    (
        r"ensurepip is not available|No module named .?(venv|ensurepip)",
        (
            "{python} lacks the module venv: install it (Debian, Ubuntu: apt install python{version}-venv),"
            " or choose another with make PYTHON=…"
        ),
    ),
    (
        (
            r"connection broken by|Connection to \S+ timed out|Temporary failure in name resolution"
            r"|Max retries exceeded|ProxyError|Could not fetch URL|Read timed out"
        ),
        (
            "no package can be downloaded: is this machine online?"
            " (HTTPS_PROXY names a proxy, PIP_INDEX_URL a mirror)"
        ),
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a package that was downloaded is not the one that {locks} names: use another mirror or network",
    ),
    (
        r"No matching distribution found for (?P<package>\S+)",
        (
            "there is no wheel of {package} for Python {version} on {platform}, and nothing is compiled"
            " here: choose another Python with make PYTHON=…"
        ),
    ),
)


def main(folder, chosen, locks):
    """None, or the one line that says why it cannot be done."""
    try:
        return _make(folder, chosen, locks)
    except OSError as problem:
        return _reason(str(problem), folder, locks)


def _make(folder, chosen, locks):
    python = os.path.join(folder, "bin", "python")
    base = _base_of(python)
    if base is None or (chosen and base != _base()):
        if sys.version_info < (3, 11):
            return (
                "Abeyance needs Python 3.11 or newer, but this is %s: make PYTHON=… chooses another"
                % _version()
            )
        print("Making the environment in %s with Python %s" % (folder, _version()), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        said = _failed([sys.executable, "-m", "venv", folder])
        if said is not None:
            return _reason(said, folder, locks)
    wanted = [lock for lock in locks if _read(_stamp(folder, lock)) != _digest(lock)]
    return _install(folder, python, wanted) if wanted else None


def _install(folder, python, locks):
    print("Installing %s, about a minute the first time" % _named(locks), flush=True)
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary=:all:"]
    for lock in locks:
        command += ["-r", _path(lock)]
    said = _failed(command)
    if said is not None:
        return _reason(said, folder, locks)
    for lock in locks:
        with open(_stamp(folder, lock), "w") as stamp:
            stamp.write(_digest(lock))
    return None


def _failed(command):
    """What a command said if it failed, else None."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = process.communicate()[0].decode("utf-8", "replace")
    return said if process.returncode else None


def _reason(said, folder, locks):
    """The line for what a command said; where nobody foresaw it, all of it goes before."""
    for pattern, line in REASONS:
        found = re.search(pattern, said)
        if found:
            return line.format(
                folder=os.path.abspath(folder),
                locks=_named(locks),
                package=found.groupdict().get("package"),
                platform="%s %s" % (platform.system(), platform.machine()),
                python=sys.executable,
                version=_version(),
            )
    if _free(folder) < ROOM:  # venv does not pass on what was said in there
        return _reason("No space left on device", folder, locks)
    sys.stderr.write(said)
    return "the environment in %s could not be made, see above" % folder


def _free(folder):
    try:
        return shutil.disk_usage(os.path.dirname(os.path.abspath(folder))).free
    except OSError:
        return ROOM


def _named(locks):
    return " and ".join(lock + ".txt" for lock in locks)


def _version():
    return "%d.%d" % sys.version_info[:2]


def _base_of(python):
    """Which interpreter an environment is of; None if it is broken or belongs to another place."""
    question = "import sys; print(sys.prefix); print(sys.base_prefix, *sys.version_info[:2])"
    try:
        said = subprocess.check_output([python, "-c", question], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    prefix, base = said.decode().split("\n")[:2]
    place = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    return base if os.path.realpath(prefix) == os.path.realpath(place) else None


def _base():
    return "%s %d %d" % (sys.base_prefix, sys.version_info[0], sys.version_info[1])


def _path(lock):
    return os.path.join(HERE, lock + ".txt")


def _stamp(folder, lock):
    return os.path.join(folder, "." + lock)


def _digest(lock):
    with open(_path(lock), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] == "chosen", sys.argv[3:]))
