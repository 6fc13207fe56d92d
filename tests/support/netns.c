/* tests/support/netns.c - see netns.h. */
#include "tests/support/netns.h"

#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool netns_run(const char *command)
{
    char line[512];
    snprintf(line, sizeof(line), "%s >/dev/null 2>&1", command);
    int status = system(line);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

const char *netns_missing(void)
{
    if (system("command -v ip >/dev/null 2>&1") != 0) {
        return "ip(8) is not installed (package iproute2)";
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) != 0) {
            _exit(1);
        }
        _exit(netns_run("ip link add sl-a type veth peer name sl-b") ? 0 : 2);
    }
    int status = 0;
    (void)waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return NULL;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 1
               ? "no network namespaces for this user (run as root)"
               : "the kernel has no veth";
}

void netns_enter(void)
{
    ck_assert_int_eq(unshare(CLONE_NEWNET), 0);
    ck_assert(netns_run("ip link set lo up"));
}

/* The child polls for its end of the pair: a notification would need another pipe. */
void netns_child(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWNET) != 0) {
        _exit(9);
    }
    for (int i = 0; i < 6000; i++) {
        if (netns_run("ip link show sl-b")) {
            bool up = netns_run("ip addr add " NETNS_THEIR "/24 dev sl-b") &&
                      netns_run("ip link set sl-b up") && netns_run("ip link set lo up");
            if (!up) {
                _exit(9);
            }
            return;
        }
        usleep(10000);
    }
    _exit(9);
}

void netns_join(pid_t pid)
{
    char command[128], theirs[64], ours[64];
    char a[64] = "", b[64] = "";
    snprintf(theirs, sizeof(theirs), "/proc/%d/ns/net", pid);
    snprintf(ours, sizeof(ours), "/proc/self/ns/net");
    for (int i = 0; i < 6000; i++) { /* until it has left our namespace */
        ssize_t one = readlink(theirs, a, sizeof(a) - 1), other = readlink(ours, b, sizeof(b) - 1);
        if (one > 0 && other > 0 && strcmp(a, b) != 0) {
            break;
        }
        usleep(10000);
    }
    ck_assert_str_ne(a, b);
    ck_assert(netns_run("ip link add sl-a type veth peer name sl-b"));
    snprintf(command, sizeof(command), "ip link set sl-b netns %d", pid);
    ck_assert(netns_run(command));
    ck_assert(netns_run("ip addr add " NETNS_OURS "/24 dev sl-a"));
    ck_assert(netns_run("ip link set sl-a up"));
}
