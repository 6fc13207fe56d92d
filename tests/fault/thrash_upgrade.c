/* tests/fault/thrash_upgrade.c - with --upgrades, the node is repeatedly upgraded to other programs
 * and back, in addition to all other faults.
 *
 * The other programs are a copy of this program's folder. Faults hit an upgrade like anything else:
 * if an upgrade was killed, or failed because an actor died or the supervisor was stopped, another
 * one follows. After all faults, one has to succeed. Upgrade times are drawn from a seed of their
 * own, so that the other faults are those of the same seed without upgrades. */
#include "tests/fault/thrash_driver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAUSE_NS_MAX (4 * SL_NS_PER_S)
#define KILL_OF      4u
#define KILL_NS_MAX  (6 * SL_NS_PER_S)
#define LAST_NS_MAX  (120 * SL_NS_PER_S)

static uint64_t drawn(struct driver *driver, uint64_t below)
{
    return thrash_below(&driver->upgrade.random, below);
}

static void begin(struct driver *driver, bool may_be_killed)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    uint64_t now_ns = sl_clock_monotonic_ns();
    const char *const more[] = {"--bin", upgrade->there ? driver->bin_dir : upgrade->other_dir};
    bool kill_it = may_be_killed && drawn(driver, KILL_OF) == 0;
    upgrade->kill_ns = kill_it ? now_ns + drawn(driver, KILL_NS_MAX) : SL_NEVER_NS;
    upgrade->since_ns = now_ns;
    upgrade->pid = driver_node_begin(driver, "upgrade", more, SL_COUNT(more));
    thrash_event(driver->shared, "upgrade to %s", more[1]);
}

static void ended(struct driver *driver, int status)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    upgrade->pid = 0;
    upgrade->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    upgrade->done += upgrade->code == 0;
    upgrade->cut += upgrade->code != 0;
    upgrade->there ^= upgrade->code == 0;
    upgrade->next_ns = sl_clock_monotonic_ns() + drawn(driver, PAUSE_NS_MAX);
    thrash_event(driver->shared, "upgrade ended with code %d after %.3f s", upgrade->code,
                 (double)(sl_clock_monotonic_ns() - upgrade->since_ns) / 1e9);
}

bool driver_upgrade_prepare(struct driver *driver)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    if (!driver->options.upgrades) {
        return true;
    }
    (void)snprintf(upgrade->other_dir, sizeof upgrade->other_dir, "%s/bin", driver->directory);
    upgrade->random.state = driver->options.seed + 1;
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("sh", "sh", "-c", /* programs, and the scripts beside them */
                     "mkdir \"$2/share\" && cp -r -- \"$1\" \"$2/bin\" && "
                     "cp -r -- \"$1/../share/sluice\" \"$2/share\"",
                     "sh", driver->bin_dir, driver->directory, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && status == 0;
}

void driver_upgrade_tend(struct driver *driver)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    uint64_t now_ns = sl_clock_monotonic_ns();
    int status = 0;
    if (!driver->options.upgrades) {
        return;
    }
    if (upgrade->pid > 0 && waitpid(upgrade->pid, &status, WNOHANG) == upgrade->pid) {
        ended(driver, status);
    } else if (upgrade->pid > 0 && now_ns >= upgrade->kill_ns) {
        upgrade->kill_ns = SL_NEVER_NS;
        upgrade->killed++;
        (void)kill(-upgrade->pid, SIGKILL);
        thrash_event(driver->shared, "kill upgrade");
    } else if (upgrade->pid == 0 && now_ns >= upgrade->next_ns && !upgrade->over) {
        begin(driver, true);
    }
}

/* Runs an upgrade without faults. Returns its code; -1: it did not end. */
static int undisturbed(struct driver *driver)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    uint64_t until_ns = sl_clock_monotonic_ns() + LAST_NS_MAX;
    begin(driver, false);
    while (upgrade->pid > 0 && sl_clock_monotonic_ns() < until_ns && !driver_interrupted()) {
        driver_tend(driver);
    }
    return upgrade->pid > 0 ? -1 : upgrade->code;
}

void driver_upgrade_end(struct driver *driver)
{
    struct driver_upgrade *upgrade = &driver->upgrade;
    uint64_t until_ns = sl_clock_monotonic_ns() + LAST_NS_MAX;
    int code = -1;
    if (!driver->options.upgrades) {
        return;
    }
    upgrade->over = true;
    upgrade->kill_ns = SL_NEVER_NS;
    while (upgrade->pid > 0 && sl_clock_monotonic_ns() < until_ns && !driver_interrupted()) {
        driver_tend(driver);
    }
    if (upgrade->pid == 0 && !driver_interrupted()) {
        code = undisturbed(driver);
    }
    if (code != 0 && !driver_interrupted()) {
        driver->not_whole++;
        thrash_note(driver->shared,
                    "the last upgrade, all faults over, ended with code %d; see "
                    "node.out",
                    code);
    }
    if (upgrade->pid > 0) {
        (void)kill(-upgrade->pid, SIGKILL);
        (void)waitpid(upgrade->pid, NULL, 0);
        upgrade->pid = 0;
    }
}
