/* tests/fault/thrash_workers.c - starts, restarts and ends the worker processes. */
#include "tests/fault/thrash_driver.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_NS (20 * SL_NS_PER_S) /* beyond deadline and margin: it will not return */
#define END_NS  (30 * SL_NS_PER_S)
#define TICK_NS (5 * SL_NS_PER_MS)

/* Workers are numbered: clients, engines, the probe. */
static uint32_t worker_count(const struct driver *driver)
{
    return driver->shared->clients + driver->shared->engines + 1;
}

static enum thrash_role role_of(const struct driver *driver, uint32_t index, uint32_t *number)
{
    const struct thrash_shared *shared = driver->shared;
    if (index < shared->clients) {
        *number = index;
        return THRASH_CLIENT;
    }
    if (index < shared->clients + shared->engines) {
        *number = index - shared->clients;
        return THRASH_ENGINE;
    }
    *number = 0;
    return THRASH_PROBE;
}

struct thrash_worker *driver_worker(struct driver *driver, enum thrash_role role, uint32_t number,
                                    pid_t *pid)
{
    uint32_t first = role == THRASH_CLIENT   ? 0
                     : role == THRASH_ENGINE ? driver->shared->clients
                                             : driver->shared->clients + driver->shared->engines;
    *pid = driver->pids[first + number];
    return &driver->shared->workers[first + number];
}

static void worker_start(struct driver *driver, uint32_t index)
{
    struct thrash_worker *worker = &driver->shared->workers[index];
    uint32_t number = 0;
    enum thrash_role role = role_of(driver, index, &number);
    static const char *const roles[] = {"driver", "client", "engine", "probe"};
    char number_text[16];
    char index_text[16];
    (void)snprintf(number_text, sizeof number_text, "%u", number);
    (void)snprintf(index_text, sizeof index_text, "%u", index);
    atomic_fetch_add_explicit(&worker->lives, 1, memory_order_relaxed);
    atomic_store_explicit(&worker->call_ns, 0, memory_order_relaxed);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        (void)execl(driver->program, driver->program, "--role", roles[role], "--number",
                    number_text, "--index", index_text, "--shared", driver->shared_path,
                    "--instance", driver->instance, "--runtime-dir", driver->run_dir, "--shm-dir",
                    driver->shm_dir, (char *)NULL);
        _exit(127);
    }
    driver->pids[index] = pid > 0 ? pid : 0;
    driver->killed[index] = false;
    atomic_store_explicit(&worker->pid, pid > 0 ? (uint32_t)pid : 0, memory_order_relaxed);
}

void driver_workers_start(struct driver *driver)
{
    for (uint32_t i = 0; i < worker_count(driver); i++) {
        worker_start(driver, i);
    }
}

/* Reaps one that has ended; true: it had. A bad exit that is not from our kill is a crash. */
static bool worker_reap(struct driver *driver, uint32_t index)
{
    int status = 0;
    if (driver->pids[index] == 0 || waitpid(driver->pids[index], &status, WNOHANG) <= 0) {
        return false;
    }
    bool stopping = atomic_load_explicit(&driver->shared->stop, memory_order_relaxed);
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) == 0 && stopping;
    if (!fine && !driver->killed[index]) {
        driver->crashes++;
        thrash_note(driver->shared, "crash: worker %u (process %d) ended with status %#x", index,
                    driver->pids[index], (unsigned)status);
    }
    driver->pids[index] = 0;
    atomic_store_explicit(&driver->shared->workers[index].pid, 0, memory_order_relaxed);
    return true;
}

static bool stopped_by_us(const struct driver *driver, const struct thrash_worker *worker)
{
    for (uint32_t i = 0; i < driver->stop_count; i++) {
        if (driver->stops[i].worker == worker) {
            return true;
        }
    }
    return false;
}

/* Reports a call far beyond its deadline, and kills its process so that the run continues. */
static void hang_look(struct driver *driver, uint32_t index, uint64_t now_ns)
{
    const struct thrash_shared *shared = driver->shared;
    const struct thrash_worker *worker = &shared->workers[index];
    uint64_t call_ns = atomic_load_explicit(&worker->call_ns, memory_order_acquire);
    uint64_t limit_ns = shared->timeout_ns + shared->margin_ns + HANG_NS;
    if (driver->pids[index] == 0 || call_ns == 0 || now_ns < call_ns ||
        now_ns - call_ns < limit_ns || stopped_by_us(driver, worker)) {
        return;
    }
    driver->hangs++;
    thrash_note(driver->shared, "hang: worker %u (process %d) is in one call for %.1f s", index,
                driver->pids[index], (double)(now_ns - call_ns) / 1e9);
    driver->killed[index] = true;
    (void)kill(driver->pids[index], SIGKILL);
}

void driver_workers_tend(struct driver *driver)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < worker_count(driver); i++) {
        if (worker_reap(driver, i)) {
            worker_start(driver, i);
        }
        hang_look(driver, i, now_ns);
    }
}

void driver_workers_end(struct driver *driver)
{
    uint64_t until_ns = sl_clock_monotonic_ns() + END_NS + driver->shared->margin_ns;
    atomic_store_explicit(&driver->shared->stop, true, memory_order_relaxed);
    for (;;) {
        uint32_t running = 0;
        bool over = sl_clock_monotonic_ns() > until_ns;
        for (uint32_t i = 0; i < worker_count(driver); i++) {
            (void)worker_reap(driver, i);
            if (driver->pids[i] != 0 && over && !driver->killed[i]) {
                driver->hangs++;
                thrash_note(driver->shared, "hang: worker %u (process %d) does not end", i,
                            driver->pids[i]);
                driver->killed[i] = true;
                (void)kill(driver->pids[i], SIGKILL);
            }
            running += driver->pids[i] != 0;
        }
        if (running == 0) {
            return;
        }
        thrash_sleep_ns(TICK_NS);
    }
}
