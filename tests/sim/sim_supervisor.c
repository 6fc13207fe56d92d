/* tests/sim/sim_supervisor.c - the supervisor of the actors, with the shipped test for hangs
 * (client/tools/supervise/hang.c): it kills an actor that hangs, which then restarts after the
 * delay of the real script.
 *
 * Each verdict is checked: the process has been stopped for at least that time. A process that is
 * idle, that resumed in time, or that was suspended with the machine is not killed. */
#include "tests/sim/sim_internal.h"

#include "client/tools/supervise/hang.h"

#include <stdlib.h>

#define BEAT_NS        (500 * SL_NS_PER_MS) /* idle heartbeat (ipc/msg/sl_process.c) */
#define RESTART_NS_MAX (60 * SL_NS_PER_MS)  /* time for the script and the start */

struct sim_supervisor {
    struct sup_hang hangs[SIM_NODES_MAX]; /* of the living process */
    uint64_t kills;
};

static bool is_watched(const struct sim_node *node)
{
    return node->actor != NULL && !node->fixed_name; /* clients are not supervised */
}

static void look_at(struct sim *sim, const struct sim_node *node, uint64_t at_ns)
{
    struct sim_event event = sim_event_for(node, EVENT_SUPERVISOR, at_ns);
    sim_event_add(sim, event);
}

void sim_supervise(struct sim *sim)
{
    SIM_CHECK(sim->supervisor == NULL && sim->node_count == 0, "too late for a supervisor");
    sim->supervisor = calloc(1, sizeof(*sim->supervisor));
    SIM_CHECK(sim->supervisor != NULL, "out of memory");
}

void sim_supervisor_end(struct sim *sim)
{
    free(sim->supervisor);
    sim->supervisor = NULL;
}

uint64_t sim_supervisor_kills(const struct sim *sim)
{
    return sim->supervisor == NULL ? 0 : sim->supervisor->kills;
}

void sim_supervisor_boot(struct sim *sim, struct sim_node *node)
{
    if (sim->supervisor == NULL || !is_watched(node)) {
        return;
    }
    sim->supervisor->hangs[sim_number(node)] = (struct sup_hang){0};
    node->beat_ns = sim->now_ns;
    sim_event_add(sim, sim_event_for(node, EVENT_BEAT, sim->now_ns + BEAT_NS));
    look_at(sim, node, sim->now_ns + sim_random_below(sim, SUP_LOOK_NS));
}

void sim_supervisor_beat(struct sim *sim, const struct sim_node *node)
{
    sim_event_add(sim, sim_event_for(node, EVENT_BEAT, sim->now_ns + BEAT_NS));
}

/* Returns when to check again; SL_NEVER_NS: it was killed. */
static uint64_t judge(struct sim *sim, struct sim_node *node)
{
    struct sup_hang *hang = &sim->supervisor->hangs[sim_number(node)];
    bool stopped = node->stopped_until_ns > sim->now_ns;
    struct sup_seen seen = {.beat_ns = node->beat_ns, .stopped = stopped};
    seen.stopped = stopped && sup_is_late(&seen, sim->now_ns);
    if (sup_hang_look(hang, &seen, sim->now_ns) == SUP_FINE) {
        return sup_hang_next_ns(hang, &seen, sim->now_ns);
    }
    SIM_CHECK(stopped && node->stopped_ns + SUP_HANG_NS <= sim->now_ns,
              "%s does not hang, and is killed for it", node->name);
    sim_log(sim, "%s of host %u hangs", node->name, sim_host_number(node));
    sim->supervisor->kills++;
    sim_kill(sim, sim_number(node), sim_random_below(sim, RESTART_NS_MAX));
    return SL_NEVER_NS;
}

void sim_supervisor_look(struct sim *sim, struct sim_node *node)
{
    uint64_t at_ns = judge(sim, node);
    if (at_ns != SL_NEVER_NS) {
        look_at(sim, node, at_ns);
    }
}

/* After a suspension the supervisor may run before the processes that it watches. */
void sim_supervisor_resumed(struct sim *sim)
{
    for (uint32_t i = 0; sim->supervisor != NULL && i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        if (node->alive && is_watched(node) && sim_random_below(sim, 2) == 0) {
            (void)judge(sim, node);
        }
    }
}
