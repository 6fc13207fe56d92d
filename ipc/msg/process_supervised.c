/* ipc/msg/process_supervised.c - watches the actor's supervisor, and reports since when it is dead.
 * The actor continues: memory, clients and other actors do not depend on the supervisor, and a new
 * one is found by its pid file. So the actor must not die with its parent (PR_SET_PDEATHSIG). */
#include "ipc/msg/process_internal.h"

#include <inttypes.h>
#include <stdio.h>

static void gauge_set(struct sl_process *process, uint64_t since_ms)
{
    sl_metric_set(process->env.metrics, process->counters.unsupervised, since_ms);
}

static void supervisor_died(void *context, struct sl_proc_id proc)
{
    struct sl_process *process = context;
    gauge_set(process, sl_clock_wall_ns() / SL_NS_PER_MS);
    process->supervisor_look_ns = 0;
    sl_log_write(process->env.log, SL_LOG_WARN, 0,
                 "the supervisor (process %" PRIu32 ") is gone: no process is restarted until "
                 "sluice-node start takes over",
                 proc.pid);
}

/* Whether supervisor.pid names another process than before. */
static bool find_other(struct sl_process *process)
{
    char path[sizeof(process->paths.runtime_dir) + 32];
    struct sl_proc_id found = {0};
    (void)snprintf(path, sizeof(path), "%s/supervisor.pid", process->paths.runtime_dir);
    if (sl_proc_id_read(path, &found, NULL) != SL_OK ||
        sl_proc_id_equal(found, process->supervisor)) {
        return false;
    }
    /* A process that is already dead is reported at once. */
    if (sl_loop_process_watch(process->loop, found, supervisor_died, process, NULL) != SL_OK) {
        return false; /* no descriptors: tried again later */
    }
    process->supervisor = found;
    return true;
}

void sl_process_supervisor_find(struct sl_process *process)
{
    gauge_set(process, 0); /* the page may be from an earlier life */
    (void)find_other(process);
}

void sl_process_supervisor_look(struct sl_process *process, uint64_t now_ns)
{
    process->supervisor_look_ns = sl_clock_next_ns(now_ns, SL_PROCESS_BEAT_NS);
    if (find_other(process)) {
        process->supervisor_look_ns = SL_NEVER_NS;
        gauge_set(process, 0);
        sl_log_write(process->env.log, SL_LOG_INFO, 0, "supervised again, by process %" PRIu32,
                     process->supervisor.pid);
    }
}
