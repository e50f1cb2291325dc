"""Creates the environment that the locks describe, and updates it when a lock changes.

The locks name every package with its version and hashes, so pip resolves nothing and later releases
change nothing. The script starts on any Python 3, to report one that is too old. Every failure is one
line that says what to do.
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = {"bin", "include", "lib", "lib64"}  # of an environment
ROOM = 50 * 1000 * 1000  # bytes, the size of an environment with nothing but pip

OFFLINE = (
    r"connection broken by|Connection to \S+ timed out|Temporary failure in name resolution"
    r"|Max retries exceeded|ProxyError|Could not fetch URL|Read timed out"
)
# Errors of venv and pip, with the line to print instead. The first match counts.
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
        OFFLINE,
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
        r"Hashes are required in --require-hashes mode[^\n]*\n\s+(?P<package>\S+)",
        "{locks} lacks the hash of {package}: run make lock",
    ),
    (
        r"versions pinned with ==[^\n]*\n\s+(?P<package>\S+)",
        "{locks} lacks the version of {package}: run make lock",
    ),
    (
        r"No matching distribution found for (?P<package>\S+)",
        (
            "there is no wheel of {package} for Python {version} on {platform}, and nothing is compiled"
            " here: choose another Python with make PYTHON=…"
        ),
    ),
)

_NAME = r"\w(?:[\w.-]*\w)?"
_BY = r"(?P<by>%s(?:\[[^\]]*\])?)" % _NAME
# pip's line for a required package, with the package that requires it, unless that is a requirements file.
NOT_INSTALLED = re.compile(
    r"satisfies the requirement (?P<needed>[^\s;]+).*?(?: \(from %s\))? \(from versions" % _BY
)
INSTALLED = re.compile(r"already satisfied: (?P<needed>[^\s;]+).*? in .*? \(from (?:-r|%s)" % _BY)


# pip's message when an author's package needs another version than the lock pins.
CONFLICT = re.compile(
    r"The conflict is caused by:\n(?:.*\n)*?"
    r"\s+(?:The user requested|(?P<by>\S+) (?P<of>\S+) depends on) (?P<wanted>(?!\(constraint\)).+)\n(?:.*\n)*?"
    r"\s+The user requested \(constraint\) (?P<ours>\S+)"
)


def main(folder, locks, this_python, also=None):
    """Make or update the environment, with an author's packages if `also` names a file of requirements.

    Return None, or the line that says why that failed.
    """
    try:
        return _make(folder, locks, this_python) or (_add(folder, locks, also) if also else None)
    except OSError as problem:
        return _reason(str(problem), folder, locks)


def _make(folder, locks, this_python):
    python = os.path.join(folder, "bin", "python")
    base = _base_of(python)
    if base is None or (this_python and base != _base()):
        if sys.version_info < (3, 11):
            return (
                "Signoff needs Python 3.11 or newer, but this is %s: make PYTHON=… chooses another"
                % _version()
            )
        if os.path.isdir(folder) and os.listdir(folder) and not _is_environment(folder):
            return "%s is not a Python environment, so it is not replaced" % folder
        print("Making the environment in %s with Python %s" % (folder, _version()), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        output = _failed([sys.executable, "-m", "venv", folder])
        if output is not None:
            return _reason(output, folder, locks)
    changed = [lock for lock in locks if _read(_stamp(folder, lock)) != _digest(lock)]
    return _update(folder, python, locks, changed) if changed else None


def _is_environment(folder):
    # A first venv that broke off may have left only its folders.
    return os.path.exists(os.path.join(folder, "pyvenv.cfg")) or set(os.listdir(folder)) <= PARTS


def _update(folder, python, locks, changed):
    print("Installing %s, about a minute the first time" % _join_names(changed), flush=True)
    problem, listed = None, set()
    for lock in locks:  # in order: each must be complete with the ones before it
        if lock in changed:
            # Locks have no extras, and pip 3.11 would resolve `pydantic[email]` apart from its pin
            command = _pip(python, "install", "--quiet", "--no-deps", "--require-hashes")
            output = _failed([*command, "--only-binary=:all:", "-r", _path(lock + ".txt")])
            if output is not None:
                return _reason(output, folder, [lock])
        listed |= _listed(lock)
        lacking = _lacking(folder, python, lock, listed)
        if lacking is None:
            with open(_stamp(folder, lock), "w") as stamp:
                stamp.write(_digest(lock))
        problem = problem or lacking  # install the rest anyway: make lock needs it
    return problem


def _add(folder, locks, also):
    """Install an author's packages without changing those of the locks."""
    path = os.path.abspath(os.path.expanduser(also))
    requirements = _read(path)
    if requirements is None:
        return "AGENTS_REQUIREMENTS: %s cannot be read" % path
    pins = os.path.join(folder, ".pins")
    with open(pins, "w") as file:
        file.write("".join("%s\n" % pin for lock in locks for pin in _pins(lock)))
    stamp = os.path.join(folder, ".agents")
    digest = hashlib.sha256(("%s\n%s\n%s" % (path, requirements, _read(pins))).encode()).hexdigest()
    if _read(stamp) == digest:
        return None
    print("Installing the packages of %s" % path, flush=True)
    python = os.path.join(os.path.abspath(folder), "bin", "python")
    command = _pip(python, "install", "--constraint", os.path.abspath(pins), "--requirement", path)
    failed, output = _run(command, folder=os.path.dirname(path))
    if failed:
        return "AGENTS_REQUIREMENTS: %s" % _reason_of_authors(output, folder, path)
    with open(stamp, "w") as file:
        file.write(digest)
    return None


def _reason_of_authors(output, folder, path):
    """Return one line for pip's error about an author's packages."""
    conflict = CONFLICT.search(output)
    if conflict:
        by = (
            "%s %s" % (conflict.group("by"), conflict.group("of")) if conflict.group("by") else path
        )
        return "%s needs %s, but Signoff has %s: choose another version" % (
            by,
            conflict.group("wanted"),
            conflict.group("ours"),
        )
    missing = re.search(r"No matching distribution found for ([^\n]+)", output)
    if missing and not re.search(OFFLINE, output):
        return "there is no %s for Python %s, which %s asks for" % (
            missing.group(1),
            _version(),
            path,
        )
    wrong = re.search(r"ERROR: (Invalid requirement[^\n]*)", output)
    return wrong.group(1) if wrong else _reason(output, folder, [path])


def _lacking(folder, python, lock, listed):
    """Return None, or the line that names what a lock lacks. `listed` are the packages it may rely on.

    pip resolves the lock's source against the installed packages, with no index to look in. `pip check`
    would not do: it does not look at packages that are needed only by an extra.
    """
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    failed, output = _run(
        _pip(python, "install", "--dry-run", "--no-index", "-r", _path(lock + ".in")),
        dict(settings, PIP_CONFIG_FILE=os.devnull),  # else a folder of wheels counts as installed
    )
    if failed:
        match = NOT_INSTALLED.search(output)
    else:  # a package of an older lock may still be installed
        needs = INSTALLED.finditer(output)
        match = next((need for need in needs if _normal(need.group("needed")) not in listed), None)
    if match is None:
        return _reason(output, folder, [lock]) if failed else None
    source = "%s needs" % match.group("by") if match.group("by") else "%s.in names" % lock
    return "%s.txt lacks %s, which %s: run make lock" % (lock, match.group("needed"), source)


def _listed(lock):
    """Return the names of the packages that a lock pins."""
    return {_normal(pin) for pin in _pins(lock)}


def _pins(lock):
    """Return each `package==version` of a lock, with its environment marker."""
    lines = re.findall(r"^(%s==[^\\\n]+)" % _NAME, _read(_path(lock + ".txt")), re.MULTILINE)
    return [re.sub(r"\s*--hash=\S+", "", line).strip() for line in lines]


def _normal(requirement):
    name = re.match(_NAME, requirement).group()
    return re.sub(r"[-_.]+", "-", name).lower()


def _pip(python, *arguments):
    return [python, "-m", "pip", "--disable-pip-version-check", *arguments]


def _failed(command):
    """Return a command's output if it failed, else None."""
    failed, output = _run(command)
    return output if failed else None


def _run(command, env=None, folder=None):
    """Run a command. Return its exit status and its output."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=folder
    )
    output = process.communicate()[0].decode("utf-8", "replace")
    return process.returncode, output


def _reason(output, folder, locks):
    """Return one line for a command's output. An unknown error is printed in full first."""
    for pattern, line in REASONS:
        match = re.search(pattern, output)
        if match:
            return line.format(
                folder=os.path.abspath(folder),
                locks=_join_names(locks),
                package=match.groupdict().get("package"),
                platform="%s %s" % (platform.system(), platform.machine()),
                python=sys.executable,
                version=_version(),
            )
    if _free(folder) < ROOM:  # venv hides the error of pip
        return _reason("No space left on device", folder, locks)
    sys.stderr.write(output)
    return "the environment in %s could not be made, see above" % folder


def _free(folder):
    try:
        return shutil.disk_usage(os.path.dirname(os.path.abspath(folder))).free
    except OSError:
        return ROOM


def _join_names(locks):
    return " and ".join(lock + ".txt" for lock in locks)


def _version():
    return "%d.%d" % sys.version_info[:2]


def _base_of(python):
    """Return the interpreter of an environment; None if it is broken or was moved."""
    question = "import sys; print(sys.prefix); print(sys.base_prefix, *sys.version_info[:2])"
    try:
        output = subprocess.check_output([python, "-c", question], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    prefix, base = output.decode().split("\n")[:2]
    folder = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    return base if os.path.realpath(prefix) == os.path.realpath(folder) else None


def _base():
    return "%s %d %d" % (sys.base_prefix, sys.version_info[0], sys.version_info[1])


def _path(name):
    return os.path.join(HERE, name)


def _stamp(folder, lock):
    return os.path.join(folder, "." + lock)


def _digest(lock):
    with open(_path(lock + ".txt"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def _arguments():
    parser = argparse.ArgumentParser(description="Make or update the environment of the locks.")
    parser.add_argument("folder", help="where the environment is or will be")
    parser.add_argument(
        "locks",
        nargs="+",
        metavar="lock",
        help="runtime, embedded or dev; each needs the ones before",
    )
    parser.add_argument(
        "--this-python",
        action="store_true",
        help="make it again if it is of another Python than the one that runs this",
    )
    parser.add_argument("--also", help="a file of requirements of an author's own packages")
    return vars(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main(**_arguments()))
