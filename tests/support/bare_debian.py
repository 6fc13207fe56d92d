"""A bare Debian 12 for tests, made by mmdebstrap in a folder, which can reach Debian's packages and PyPI as this machine does."""

import os
import re
import shutil
import subprocess

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Skipped(Exception):
    """Raised with the reason when this machine cannot make one."""


def _copied(place, path):
    if path and os.path.isfile(path):
        target = os.path.join(place, path.lstrip("/"))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy(path, target)  # keeps the mode: some are secrets


def _machine_give(place):
    """Copies the files that this machine needs to reach packages: settings of apt and pip, certificates, host names."""
    environment = {name: value for name, value in os.environ.items()
                   if re.match(r"(?i)(pip_|ssl_cert|requests_ca|curl_ca|git_ssl|(http|https|no|all)_proxy$)", name)}
    for value in environment.values():
        _copied(place, value)
    for path in ("/etc/pip.conf", "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        _copied(place, path)
    shutil.rmtree(os.path.join(place, "etc/apt/sources.list.d"), ignore_errors=True)
    for folder in ("/etc/apt/apt.conf.d", "/etc/apt/sources.list.d", "/etc/apt/auth.conf.d"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            _copied(place, os.path.join(folder, name))
    _copied(place, "/etc/apt/sources.list")
    return environment


def possible():
    return os.geteuid() == 0 and shutil.which("mmdebstrap") is not None


def make(place, packages):
    """Installs the essential packages and these. Returns the environment for its programs."""
    made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=" + ",".join(packages), "bookworm", place],
                          stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        raise Skipped("mmdebstrap failed:\n" + "\n".join(made.stderr.splitlines()[-6:]))
    return {"PATH": PATH, "HOME": "/root", "TERM": "dumb", **_machine_give(place)}


def words_in(place, script):
    """The command that runs a script in it, in mount and process namespaces that end with the first process."""
    inside = (f"mount -t proc proc {place}/proc && mount --rbind /dev {place}/dev && mount -t sysfs -o ro sysfs {place}/sys && "
              f"mount -t tmpfs -o mode=1777 tmpfs {place}/dev/shm && exec chroot {place} /bin/bash {script}")
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "/bin/bash", "-c", inside]
