# In a chroot, where systemd does not run: packages of /debs/old are installed, upgraded to /debs/new, removed and purged.
export DEBIAN_FRONTEND=noninteractive
apt() { # words for apt-get; its output when it fails
    apt-get -y -q --no-install-recommends "$@" >/tmp/apt.log 2>&1 || {
        tail -n 30 /tmp/apt.log
        return 1
    }
}
as() { # USER COMMAND...
    local user=$1
    shift
    runuser -u "$user" -- "$@"
}
start() { # as README.Debian says
    install -d -m 0700 -o sluice -g sluice /run/sluice/default /var/lib/sluice/default /var/log/sluice/default
    sluice-node start --instance default --runtime-dir /run/sluice/default --config /etc/sluice/default.conf
}
pid_of() {
    cut -d' ' -f1 "/run/sluice/default/pid/$1"
}
program_of() { # ACTOR
    readlink "/proc/$(pid_of "$1")/exe"
}
serves() { # KEY VALUE: as root
    [ "$(sluicectl get "$1")" = "$2" ]
}
in_memory() { # KEY
    sluicectl ls | grep -q " m[d-] $1\$"
}
refuses() { # COMMAND...
    ! "$@" >/dev/null 2>&1
}
none_left() {
    ! ls -l /proc/[0-9]*/exe 2>/dev/null | grep -q '/usr/bin/\(sluice\|mooncake\)'
}
is_version() { # VERSION
    [ "$(dpkg-query -W -f='${Version}' sluice)" = "$1" ]
}
cat >/tmp/try.py <<'END'
import sluice
with sluice.Client() as client:
    client.put("from python", b"hello")
    assert bytes(client.get("from python")) == b"hello"
print("version", sluice.__version__)
END

printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
apt update || exit 1
expect "apt installs the packages" apt install /debs/old/*.deb
expect "the user is there" getent passwd sluice
expect "nothing has been started" none_left
expect "a program has its manual page" test -e /usr/share/man/man1/sluice-node.1.gz
expect "a call of libsluice, too" test -e /usr/share/man/man3/sl_put.3.gz
expect "default.conf is read, and sets what the package sets" test "$(as sluice sluicectl config --config /etc/sluice/default.conf | grep -c '# /etc/sluice/default.conf:')" = 2
printf '\n# of the administrator\nmemory = 96MiB\ndisk = 256MiB\nranks = 2\n' >>/etc/sluice/default.conf

expect "root starts a node" start
expect "which runs as the package's user" test "$(stat -c %U "/proc/$(pid_of registrar)")" = sluice
expect "and logs where default.conf says" test -s /var/log/sluice/default/registrar.jsonl
printf world | sluicectl put hello - >/dev/null
expect "where sluice-node finds them" test -n "$(sluice-node logs registrar)"
expect "root reads what it wrote" serves hello world
expect "so does the user" test "$(as sluice sluicectl get hello)" = world
expect "and nobody else" refuses as nobody sluicectl get hello
expect "python3-sluice finds the node" as sluice python3 /tmp/try.py
expect "root sees its status" sluicectl status
expect "the doctor finds nothing that is in the way" sluicectl doctor --config /etc/sluice/default.conf
expect "and that of its supervisor" sluice-node status
a_replay_is_seen
sluicectl flush >/dev/null
expect "values are on disk where default.conf says" test -n "$(find /var/lib/sluice/default -type f -size +0)"

old=$(pid_of registrar)
expect "apt upgrades" apt install -o Dpkg::Options::=--force-confold /debs/new/*.deb
expect "to the newer version" is_version "$NEW"
expect "default.conf stays as the administrator has it" grep -q '^memory = 96MiB' /etc/sluice/default.conf
expect "and the package's new one is beside it" grep -q "of the newer version" /etc/sluice/default.conf.dpkg-dist
expect "the node goes on" test "$(pid_of registrar)" = "$old"
expect "and serves" serves hello world
expect "by programs that have no file any more" test "$(program_of registrar)" = "/usr/bin/sluice-registrar (deleted)"
expect "an upgrade" sluice-node upgrade --instance default --runtime-dir /run/sluice/default --config /etc/sluice/default.conf
expect "takes it to the new programs" test "$(program_of registrar)" = /usr/bin/sluice-registrar
expect "with what was in memory" in_memory hello
expect "and serves it" serves hello world

expect "apt removes" apt remove sluice
expect "which stops the node" none_left
expect "and gives its memory back" refuses test -e "/dev/shm/sluice-$(id -u sluice)/default"
expect "settings stay" grep -q '^memory = 96MiB' /etc/sluice/default.conf
expect "and so do values on disk" test -n "$(find /var/lib/sluice/default -type f -size +0)"

expect "apt installs again" apt install /debs/new/sluice_*.deb
expect "and a node starts" start
expect "with nothing in memory" refuses in_memory hello
expect "with what was on disk" serves hello world

: >/etc/sluice/other.conf
mkdir /var/lib/sluice/models /var/lib/sluice/used
touch /var/lib/sluice/models/weights
flock -F /var/lib/sluice/used/lock sleep 600 & # as a tierer of a node with another runtime_dir
holder=$!
until [ -e /var/lib/sluice/used/lock ]; do sleep 0.1; done
chown -R sluice /var/lib/sluice/models /var/lib/sluice/used
expect "apt purges" apt purge sluice libsluice0 libsluice-dev python3-sluice
expect "no process is left" none_left
expect "a directory of the user sluice that is not a node's is left" test -e /var/lib/sluice/models/weights
expect "and the disk of a node that runs elsewhere" test -e /var/lib/sluice/used/lock
kill "$holder"
for place in /etc/sluice/default.conf /var/lib/sluice/default /var/log/sluice /run/sluice "/dev/shm/sluice-$(id -u sluice)"; do
    expect "$place is gone" refuses test -e "$place"
done
expect "a file of the administrator is left" test -e /etc/sluice/other.conf
rm -rf /etc/sluice /var/lib/sluice /usr/sbin/policy-rc.d
echo "$failed failed"
[ "$failed" -eq 0 ]
