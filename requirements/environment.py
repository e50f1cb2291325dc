"""Makes the environment that the locks describe: `environment.py FOLDER CHOSEN LOCK…`, again if anything changed.

CHOSEN is `chosen` when somebody named this interpreter, so that the environment must be of it. Runs
on any Python 3, if only to say that it is too old.
"""

import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main(folder, chosen, locks):
    """None, or the one line that says why it cannot be done."""
    version = "%d.%d" % sys.version_info[:2]
    python = os.path.join(folder, "bin", "python")
    base = _base_of(python)
    if base is None or (chosen and base != _base()):
        if sys.version_info < (3, 11):
            return (
                "Abeyance needs Python 3.11 or newer, but this is %s: make PYTHON=… chooses another"
                % version
            )
        print("Making the environment in %s with Python %s" % (folder, version), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        if subprocess.call([sys.executable, "-m", "venv", folder]):
            return "%s cannot make an environment: is its venv module installed?" % sys.executable
    wanted = [lock for lock in locks if _read(_stamp(folder, lock)) != _digest(lock)]
    return _install(folder, python, wanted) if wanted else None


def _install(folder, python, locks):
    names = " and ".join(lock + ".txt" for lock in locks)
    print("Installing %s, about a minute the first time" % names, flush=True)
    command = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    command += ["--require-hashes", "--only-binary=:all:"]
    for lock in locks:
        command += ["-r", _path(lock)]
    if subprocess.call(command):
        return "the packages of %s could not be installed, see above" % names
    for lock in locks:
        with open(_stamp(folder, lock), "w") as stamp:
            stamp.write(_digest(lock))
    return None


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
