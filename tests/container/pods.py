"""Makes the containers of a pod's manifest as a kubelet would, with namespaces and chroot: without a kubelet and without pulling images."""

import os
import signal
import subprocess
import time

BEGIN = """set -e
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for name in null zero full random urandom; do : >"$root/dev/$name" && mount --bind "/dev/$name" "$root/dev/$name"; done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
mount -t tmpfs -o mode=1777,size=64m tmpfs "$root/dev/shm"
while [ "$1" != -- ]; do
    mkdir -p "$root$3"
    case $1 in
    bind) mount --bind "$2" "$root$3" ;;
    bind-ro) mount --bind "$2" "$root$3" && mount -o remount,bind,ro "$root$3" ;;
    memory) mount -t tmpfs -o "mode=1777,size=$2" tmpfs "$root$3" ;; # as tmpfs has it, and kubelet leaves it
    empty) mount -t tmpfs -o "mode=0777,size=64m" tmpfs "$root$3" ;;
    esac
    shift 3
done
shift
mount -o remount,bind,ro "$root"
ip link set lo up
exec chroot "$root" "$@"
"""


def as_user(uid, capabilities=()):
    rights = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", f"--bounding-set={rights}", "--no-new-privs"]


class Machine:
    """Directories of a machine that its pods mount, at paths of their own below one folder."""

    def __init__(self, folder, root, image_environment):
        self.folder, self.root, self.image_environment = folder, root, image_environment

    def path(self, host_path):
        return self.folder + host_path

    def mounts(self, pod, container, config):
        """Words of BEGIN for the volumes of a container; missing directories are made as kubelet does: owned by root, 0755."""
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        words = []
        for mount in container.get("volumeMounts", []):
            volume, at = volumes[mount["name"]], mount["mountPath"]
            if "hostPath" in volume:
                place = self.path(volume["hostPath"]["path"])
                if volume["hostPath"]["type"] == "DirectoryOrCreate":
                    os.makedirs(place, exist_ok=True)
                words += ["bind-ro" if mount.get("readOnly") else "bind", place, at]
            elif "configMap" in volume:
                words += ["bind-ro", config, at]
            elif volume["emptyDir"].get("medium") == "Memory":
                words += ["memory", volume["emptyDir"]["sizeLimit"].replace("Mi", "m").replace("Gi", "g"), at]
            else:
                words += ["empty", "64m", at]
        return words

    def words(self, mounts, command, environment, user):
        """The command in a new container."""
        variables = [f"{name}={value}" for name, value in {**self.image_environment, **environment}.items()]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "sh", "-c", BEGIN, "sh", self.root, *mounts,
                "--", *user, "env", "-i", *variables, *command]


class Container:
    """A running container. Use as a context manager."""

    def __init__(self, machine, pod, container, config, entrypoint):
        self.uid = pod["securityContext"]["runAsUser"]
        self.environment = {one["name"]: one["value"] for one in container.get("env", []) if "value" in one}
        self.machine = machine
        self.process = subprocess.Popen(machine.words(machine.mounts(pod, container, config), [*entrypoint, *container["args"]],
                                                      self.environment, as_user(self.uid)),
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def first(self):
        """The machine's process id of its process 1."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="utf-8") as line:
            return int((line.read().split() or ["0"])[0])

    def exec(self, *command, stdin=None):
        """Runs a command like `kubectl exec`, probes and hooks."""
        variables = [f"{name}={value}" for name, value in {**self.machine.image_environment, **self.environment}.items()]
        return subprocess.run(["nsenter", f"--target={self.first()}", "--mount", "--pid", "--uts", "--ipc", "--net", "--root", "--wdns=/",
                               *as_user(self.uid), "env", "-i", *variables, *command],
                              input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False)

    def probe(self, probe):
        """Repeats the probe as kubelet does until it succeeds; returns its last answer if it never does."""
        for _ in range(probe.get("failureThreshold", 3)):
            done = self.exec(*probe["exec"]["command"])
            if done.returncode == 0:
                return None
            if self.process.poll() is not None:
                return f"the container has ended with {self.process.returncode}: {self.process.stdout.read()}"
            time.sleep(probe["periodSeconds"])
        return done.stdout.decode(errors="replace")

    def end(self, seconds):
        """Sends SIGTERM to its first process and returns the exit code; None: it did not end in that time."""
        os.kill(self.first(), signal.SIGTERM)
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()  # all of its processes end with unshare
            self.process.wait()
        self.process.stdout.close()
