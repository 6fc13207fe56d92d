# Under systemd as process 1, without network: the packages' dependencies are installed.
export DEBIAN_FRONTEND=noninteractive
apt() {
    apt-get -y -q --no-install-recommends "$@" >/out/apt.log 2>&1 || {
        tail -n 30 /out/apt.log
        return 1
    }
}
as() { # USER COMMAND...
    local user=$1
    shift
    runuser -u "$user" -- "$@"
}
shown() { # PROPERTY UNIT
    systemctl show -P "$1" "$2"
}
serves() { # KEY VALUE: as root
    [ "$(sluicectl get "$1")" = "$2" ]
}
in_memory() { # KEY [OPTION...]
    local key=$1
    shift
    sluicectl ls "$@" | grep -q " m[d-] $key\$"
}
refuses() { # COMMAND...
    ! "$@" >/dev/null 2>&1
}
none_left() {
    ! ls -l /proc/[0-9]*/exe 2>/dev/null | grep -q '/usr/bin/\(sluice\|mooncake\)'
}
owner_of_registrar() { # INSTANCE
    stat -c %U "/proc/$(cut -d' ' -f1 "/run/sluice/$1/pid/registrar")"
}
program_of() { # INSTANCE ACTOR
    # The unit's mount namespace also has the path of this root.
    readlink "/proc/$(cut -d' ' -f1 "/run/sluice/$1/pid/$2")/exe" | sed 's|^/tmp/sl-systemd[^/]*/root||'
}
settings() { # NAME
    printf 'memory = 64MiB\ndisk_path = /var/lib/sluice/%s\nlog_dir = /var/log/sluice/%s\n' "$1" "$1" >"/etc/sluice/$1.conf"
}

expect "apt installs the packages" apt install /debs/old/*.deb
expect "nothing has been started" none_left
expect "nobody else can take the place of the user's memory" test "$(stat -c '%U %a' "/dev/shm/sluice-$(id -u sluice)")" = "sluice 700"
printf '\nmemory = 96MiB\ndisk = 256MiB\n' >>/etc/sluice/default.conf
expect "systemctl start sluice-node@default" systemctl start sluice-node@default
expect "its words: $(shown StatusText sluice-node@default)" test -n "$(shown StatusText sluice-node@default)"
expect "it runs as the package's user" test "$(owner_of_registrar default)" = sluice
printf world | sluicectl put hello - >/dev/null
expect "root reads what it wrote" serves hello world
expect "so does the user" test "$(as sluice sluicectl get hello)" = world
expect "and nobody else" refuses as nobody sluicectl get hello
expect "root sees its status" sluicectl status
a_replay_is_seen
expect "it logs where default.conf says" test -s /var/log/sluice/default/registrar.jsonl
expect "values lie where default.conf says" test -d /var/lib/sluice/default

# A node run by the user of an engine.
settings other
mkdir -p /etc/systemd/system/sluice-node@other.service.d
printf '[Service]\nUser=games\nGroup=games\n' >/etc/systemd/system/sluice-node@other.service.d/override.conf
systemctl daemon-reload
expect "a node of another user starts" systemctl start sluice-node@other
expect "as that user" test "$(owner_of_registrar other)" = games
expect "who asks it" as games sluicectl status --instance other
expect "as root can" sluicectl status --instance other
echo mine | sluicectl put its --instance other >/dev/null
expect "and sluice cannot" refuses as sluice sluicectl status --instance other

# Units that only 0.2 had. dpkg removes the unit's file before the new package is configured.
for unit in gate swapper; do
    printf '[Service]\nExecStart=/bin/sleep inf\n[Install]\nWantedBy=multi-user.target\n' >/lib/systemd/system/sluice-$unit@.service
done
systemctl daemon-reload
expect "units that are no more run" systemctl enable --now sluice-gate@third sluice-swapper@third:0
rm /lib/systemd/system/sluice-{gate,swapper}@.service
old=$(shown MainPID sluice-node@default)
expect "apt upgrades" apt install -o Dpkg::Options::=--force-confold /debs/new/*.deb
expect "default.conf stays as the administrator has it" grep -q '^memory = 96MiB' /etc/sluice/default.conf
expect "the node is active" systemctl is-active --quiet sluice-node@default
expect "with the supervisor that it had" test "$(shown MainPID sluice-node@default)" = "$old"
expect "but actors of the new programs" test "$(program_of default registrar)" = /usr/bin/sluice-registrar
expect "with what was in memory" in_memory hello
expect "and serves it" serves hello world
expect "the node of another user is active" systemctl is-active --quiet sluice-node@other
expect "with what was in memory" in_memory its --instance other
for unit in sluice-gate@third sluice-swapper@third:0; do
    expect "$unit, which may be the administrator's own, runs" systemctl is-active --quiet $unit
done
expect "until 0.2 is upgraded" env DPKG_MAINTSCRIPT_PACKAGE=sluice DPKG_MAINTSCRIPT_NAME=postinst /var/lib/dpkg/info/sluice.postinst configure 0.2.0
for unit in sluice-gate@third sluice-swapper@third:0; do
    expect "$unit is stopped" refuses systemctl is-active $unit
    expect "$unit is disabled" refuses test -L /etc/systemd/system/multi-user.target.wants/$unit.service
done

expect "a stop without more" systemctl stop sluice-node@default
expect "gives memory back" refuses test -e "/dev/shm/sluice-$(id -u sluice)/default"
expect "start" systemctl start sluice-node@default
expect "nothing is in memory" refuses in_memory hello
expect "what was on disk is there" within 20 serves hello world

expect "apt removes" apt remove sluice
expect "which stops all nodes" within 10 none_left
expect "values on disk stay" test -d /var/lib/sluice/default
expect "apt purges" apt purge sluice libsluice0 libsluice-dev python3-sluice
for place in /etc/sluice/default.conf /var/lib/sluice /var/log/sluice /run/sluice "/dev/shm/sluice-$(id -u sluice)"; do
    expect "$place is gone" refuses test -e "$place"
done
echo "$failed failed" >/out/result
