/* tests/fault/thrash_faults.c - chooses by the seed which process is killed, stopped or restarted,
 * and when.
 *
 * The order of faults follows from the seed; their exact moments depend on how fast the node is
 * whole again, since most faults wait for that. Some do not wait, and hit a node that is still
 * recovering from the last one. */
#include "tests/fault/thrash_driver.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS        (2 * SL_NS_PER_MS)
#define WHOLE_NS_MAX   (15 * SL_NS_PER_S)
#define NOTICED_NS_MAX (5 * SL_NS_PER_S)
#define PAUSE_NS_MAX   (450 * SL_NS_PER_MS)
/* Most faults leave an actor undisturbed until the supervisor considers it stable, since the
 * back-off is not tested here. Some do not, and hit an actor that has just started. */
#define ACTOR_REST_NS      (12500 * SL_NS_PER_MS)
#define HASTY_REST_NS      (200 * SL_NS_PER_MS)
#define HASTY_OF           10u
#define SHORT_STOP_NS_MAX  (800 * SL_NS_PER_MS)
#define LONG_STOP_NS       (3 * SL_NS_PER_S)     /* the supervisor kills it earlier */
#define WORKER_STOP_NS_MAX (3500 * SL_NS_PER_MS) /* a reservation is kept for 2 s */
#define SAMPLE_EVERY_NS    SL_NS_PER_S
#define NO_SUPERVISOR_NS   (1200 * SL_NS_PER_MS)

/* ---- stopped processes continue in time ---- */

static void stop_end(struct driver *driver, uint32_t at)
{
    struct driver_stop *stop = &driver->stops[at];
    if (stop->worker != NULL) { /* counted before the worker can read it */
        atomic_fetch_add_explicit(&stop->worker->stopped_ns,
                                  sl_clock_monotonic_ns() - stop->since_ns, memory_order_release);
    }
    (void)driver_signal(stop->pidfd, SIGCONT); /* has no effect if it has ended */
    (void)close(stop->pidfd);
    *stop = driver->stops[--driver->stop_count];
}

static void stops_end(struct driver *driver, uint64_t now_ns)
{
    for (uint32_t i = 0; i < driver->stop_count;) {
        if (now_ns >= driver->stops[i].until_ns) {
            stop_end(driver, i);
        } else {
            i++;
        }
    }
}

/* Takes the pidfd. */
static bool stop_begin(struct driver *driver, int pidfd, struct thrash_worker *worker,
                       uint64_t length_ns)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (driver->stop_count == THRASH_STOPS_MAX || !driver_signal(pidfd, SIGSTOP)) {
        (void)close(pidfd);
        return false;
    }
    driver->stops[driver->stop_count++] = (struct driver_stop){
        .pidfd = pidfd, .worker = worker, .since_ns = now_ns, .until_ns = now_ns + length_ns};
    driver->long_stops += length_ns >= 2 * SL_NS_PER_S;
    return true;
}

/* Runs everything that is due in the meantime. */
void driver_tend(struct driver *driver)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    stops_end(driver, now_ns);
    driver_workers_tend(driver);
    driver_upgrade_tend(driver);
    if (now_ns - driver->sampled_ns > SAMPLE_EVERY_NS) {
        driver_sample(driver);
    }
    thrash_sleep_ns(TICK_NS);
}

static void pause_for(struct driver *driver, uint64_t length_ns)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + length_ns;
    do {
        driver_tend(driver);
    } while (sl_clock_monotonic_ns() < until_ns && !driver_interrupted());
}

/* ---- whole again ---- */

static void time_note(struct driver_times *times, uint64_t ns)
{
    if (times->count < THRASH_TIMES_MAX) {
        times->ns[times->count++] = ns;
    }
}

/* Waits for a round of the probe that began after the fault and in which everything worked. */
static bool whole_wait(struct driver *driver, uint64_t since_ns, uint64_t *whole_ns)
{
    pid_t pid;
    const struct thrash_worker *probe = driver_worker(driver, THRASH_PROBE, 0, &pid);
    uint64_t until_ns = since_ns + WHOLE_NS_MAX + driver->shared->margin_ns;
    bool whole = false;
    atomic_store_explicit(&driver->shared->probe_wanted, true, memory_order_relaxed);
    while (!whole && sl_clock_monotonic_ns() < until_ns && !driver_interrupted()) {
        driver_tend(driver);
        *whole_ns = atomic_load_explicit(&probe->whole_until_ns, memory_order_acquire);
        uint64_t began_ns = atomic_load_explicit(&probe->whole_from_ns, memory_order_relaxed);
        whole = began_ns >= since_ns && *whole_ns >= began_ns;
    }
    atomic_store_explicit(&driver->shared->probe_wanted, false, memory_order_relaxed);
    return whole;
}

static void whole_measure(struct driver *driver, enum thrash_victim victim, uint64_t since_ns)
{
    uint64_t whole_ns = 0;
    if (whole_wait(driver, since_ns, &whole_ns)) {
        time_note(&driver->whole[victim], whole_ns - since_ns);
        thrash_event(driver->shared, "whole %.3f s after the kill of %s",
                     (double)(whole_ns - since_ns) / 1e9, thrash_victim_names[victim]);
    } else if (!driver_interrupted()) {
        driver->not_whole++;
        thrash_note(driver->shared, "not whole %.1f s after %s was killed",
                    (double)(sl_clock_monotonic_ns() - since_ns) / 1e9,
                    thrash_victim_names[victim]);
    }
}

/* ---- faults ---- */

static bool actor_is_stopped(const struct driver *driver)
{
    for (uint32_t i = 0; i < driver->stop_count; i++) {
        if (driver->stops[i].worker == NULL) {
            return true;
        }
    }
    return false;
}

static void actor_fault(struct driver *driver, uint32_t actor)
{
    struct thrash_random *random = &driver->random;
    uint64_t kind = thrash_below(random, 100);
    uint64_t short_ns = 20 * SL_NS_PER_MS + thrash_below(random, SHORT_STOP_NS_MAX);
    bool alone = thrash_below(random, 4) != 0;
    uint64_t rest_ns = thrash_below(random, HASTY_OF) == 0 ? HASTY_REST_NS : ACTOR_REST_NS;
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint32_t pid = 0;
    if (driver->actors[actor].hurt_ns != 0 && now_ns - driver->actors[actor].hurt_ns < rest_ns) {
        return;
    }
    if (kind < 85 && kind >= 50 && actor_is_stopped(driver)) {
        return; /* one stopped actor at a time: each may delay calls by a second */
    }
    int pidfd = driver_pidfd(driver, thrash_victim_names[actor], &pid);
    if (pidfd < 0) {
        return; /* it is just being restarted */
    }
    driver->actors[actor].hurt_ns = now_ns;
    if (kind >= 50 && kind < 85) {
        uint64_t length_ns = kind < 75 ? short_ns : LONG_STOP_NS;
        if (stop_begin(driver, pidfd, NULL, length_ns)) {
            driver->tally[actor][THRASH_STOP]++;
            thrash_event(driver->shared, "stop %s for %.3f s", thrash_victim_names[actor],
                         (double)length_ns / 1e9);
        }
        return;
    }
    enum thrash_action action = kind < 50 ? THRASH_KILL : THRASH_RESTART;
    if (driver_signal(pidfd, action == THRASH_KILL ? SIGKILL : SIGTERM)) {
        driver->tally[actor][action]++;
        thrash_event(driver->shared, "%s %s%s", action == THRASH_KILL ? "kill" : "restart",
                     thrash_victim_names[actor], alone ? ", alone" : "");
    }
    (void)close(pidfd);
    if (alone && action == THRASH_KILL && !actor_is_stopped(driver)) {
        whole_measure(driver, (enum thrash_victim)actor, now_ns);
    }
}

/* The time from a client's kill until the registrar has noticed and released its resources. */
static void noticed_measure(struct driver *driver, uint64_t died_before, uint64_t since_ns)
{
    while (sl_clock_monotonic_ns() - since_ns < NOTICED_NS_MAX && !driver_interrupted()) {
        if (driver_metric(driver, "registrar", "died_count") > died_before) {
            time_note(&driver->noticed, sl_clock_monotonic_ns() - since_ns);
            return;
        }
        driver_tend(driver);
    }
}

static void worker_fault(struct driver *driver, enum thrash_role role, enum thrash_victim victim)
{
    struct thrash_random *random = &driver->random;
    uint32_t count = role == THRASH_CLIENT ? driver->shared->clients : driver->shared->engines;
    uint32_t number = (uint32_t)thrash_below(random, count);
    bool kill_it = thrash_below(random, 100) < 45;
    uint64_t length_ns = 50 * SL_NS_PER_MS + thrash_below(random, WORKER_STOP_NS_MAX);
    pid_t pid = 0;
    struct thrash_worker *worker = driver_worker(driver, role, number, &pid);
    struct sl_proc_id id;
    int pidfd = -1;
    for (uint32_t i = 0; i < driver->stop_count; i++) {
        if (driver->stops[i].worker == worker) {
            return; /* it is stopped already */
        }
    }
    if (pid == 0 || sl_proc_id_of((uint32_t)pid, &id, NULL) != SL_OK ||
        sl_proc_open(id, &pidfd, NULL) != SL_OK) {
        return;
    }
    if (!kill_it) {
        if (stop_begin(driver, pidfd, worker, length_ns)) {
            driver->tally[victim][THRASH_STOP]++;
            thrash_event(driver->shared, "stop %s %d for %.3f s", thrash_victim_names[victim], pid,
                         (double)length_ns / 1e9);
        }
        return;
    }
    uint64_t died_before = driver_metric(driver, "registrar", "died_count");
    uint64_t now_ns = sl_clock_monotonic_ns();
    driver->killed[worker - driver->shared->workers] = true;
    if (driver_signal(pidfd, SIGKILL)) {
        driver->tally[victim][THRASH_KILL]++;
        thrash_event(driver->shared, "kill %s %d", thrash_victim_names[victim], pid);
    }
    (void)close(pidfd);
    if (driver->stop_count == 0) {
        noticed_measure(driver, died_before, now_ns);
    }
}

/* A node works without its supervisor, but processes that die are not restarted. The next start
 * takes over the remaining processes, and no value in memory is lost. */
static void supervisor_kill(struct driver *driver, int pidfd)
{
    struct thrash_random *random = &driver->random;
    bool one_more = thrash_below(random, 2) == 0;
    uint32_t actor = (uint32_t)thrash_below(random, THRASH_ACTORS);
    uint64_t alone_ns = thrash_below(random, NO_SUPERVISOR_NS);
    uint32_t pid = 0;
    while (driver->stop_count > 0) { /* the start below takes some time */
        driver_tend(driver);
    }
    driver->tally[THRASH_VICTIM_SUPERVISOR][THRASH_KILL] += driver_signal(pidfd, SIGKILL);
    thrash_event(driver->shared, "kill supervisor%s%s, start again in %.3f s",
                 one_more ? " and " : "", one_more ? thrash_victim_names[actor] : "",
                 (double)alone_ns / 1e9);
    int actor_fd = one_more ? driver_pidfd(driver, thrash_victim_names[actor], &pid) : -1;
    if (actor_fd >= 0) {
        driver->tally[actor][THRASH_KILL] += driver_signal(actor_fd, SIGKILL);
        (void)close(actor_fd);
    }
    pause_for(driver, alone_ns);
    uint64_t since_ns = sl_clock_monotonic_ns();
    if (driver_node(driver, "start", true) != 0) {
        driver->not_whole++;
        thrash_note(driver->shared, "sluice-node start failed after its supervisor was killed");
    }
    whole_measure(driver, THRASH_VICTIM_SUPERVISOR, since_ns);
}

static void supervisor_fault(struct driver *driver)
{
    uint64_t length_ns = thrash_below(&driver->random, 2 * SL_NS_PER_S);
    bool kill_it = thrash_below(&driver->random, 2) == 0;
    uint32_t pid = 0;
    int pidfd = driver_pidfd(driver, "supervisor", &pid);
    if (pidfd < 0) {
        return;
    }
    if (kill_it) {
        supervisor_kill(driver, pidfd);
        (void)close(pidfd);
    } else if (stop_begin(driver, pidfd, NULL, length_ns)) {
        driver->tally[THRASH_VICTIM_SUPERVISOR][THRASH_STOP]++;
        thrash_event(driver->shared, "stop supervisor for %.3f s", (double)length_ns / 1e9);
    }
}

static void squeeze(struct driver *driver)
{
    pid_t pid;
    uint32_t number = (uint32_t)thrash_below(&driver->random, driver->shared->clients);
    struct thrash_worker *worker = driver_worker(driver, THRASH_CLIENT, number, &pid);
    uint32_t kind = thrash_below(&driver->random, 2) == 0 ? THRASH_PIN_ALL : THRASH_FLOOD;
    atomic_store_explicit(&worker->squeeze, kind, memory_order_relaxed);
    driver->squeezes++;
    thrash_event(driver->shared, "squeeze client %d: %s", pid,
                 kind == THRASH_PIN_ALL ? "pin all" : "flood");
}

static void fault(struct driver *driver)
{
    uint64_t kind = thrash_below(&driver->random, 100);
    if (kind < 58) {
        actor_fault(driver, (uint32_t)thrash_below(&driver->random, THRASH_ACTORS));
    } else if (kind < 80) {
        worker_fault(driver, THRASH_CLIENT, THRASH_VICTIM_CLIENT);
    } else if (kind < 92) {
        worker_fault(driver, THRASH_ENGINE, THRASH_VICTIM_ENGINE);
    } else if (kind < 95) {
        supervisor_fault(driver);
    } else {
        squeeze(driver);
    }
}

void driver_faults(struct driver *driver)
{
    uint64_t end_ns = driver->shared->started_ns + driver->options.seconds * SL_NS_PER_S;
    uint64_t whole_ns = 0;
    while (sl_clock_monotonic_ns() < end_ns && !driver_interrupted()) {
        pause_for(driver, thrash_below(&driver->random, PAUSE_NS_MAX));
        fault(driver);
    }
    stops_end(driver, SL_NEVER_NS);
    if (!whole_wait(driver, sl_clock_monotonic_ns(), &whole_ns) && !driver_interrupted()) {
        driver->not_whole++;
        thrash_note(driver->shared, "not whole at the end, all faults over");
    }
    driver_upgrade_end(driver);
}
