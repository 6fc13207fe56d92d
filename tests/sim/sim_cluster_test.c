/* tests/sim/sim_cluster_test.c - two or three nodes under random disturbances: clients put, get and
 * remove on each, engines store and load on each, and nodes read each other's values. Links are
 * cut, one way or both, or slow; transporters, other actors and whole nodes are killed, stopped,
 * restarted, or return empty.
 *
 * Checked: no wrong bytes; every call ends by its deadline; a disturbance of one node excuses no
 * failure at another: values in memory there are read without a wait, puts and removals work;
 * limits and tables hold. When the disturbances are over, every node can read the values of all
 * others, and no pin, claim or space is left over. In some runs blocks are read straight into
 * engines' pools, by loads and by hand-overs: there no byte is written to a block that was
 * released. Choosing seeds: sim_seeds.h. */
#include "actors/coordinator/coordinator.h"
#include "actors/keyer/keyer.h"
#include "actors/registrar/registrar.h"
#include "actors/swapper/swapper.h"
#include "actors/tierer/tierer.h"
#include "actors/transporter/transporter.h"
#include "ipc/shm/sl_index.h"
#include "tests/sim/sim_far.h"
#include "tests/sim/sim_handover.h"
#include "tests/sim/sim_mutants.h"
#include "tests/sim/sim_seeds.h"
#include "tests/sim/sim_workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 160u
#endif
#define WARM_UP_NS            (300 * SL_NS_PER_MS)
#define ACTIVE_NS             (5 * SL_NS_PER_S)
#define QUIET_NS              (8 * SL_NS_PER_S)     /* ops end, pins expire, links are rebuilt */
#define WARM_NS               (2100 * SL_NS_PER_MS) /* longer than a call */
#define VERIFY_NS             (120 * SL_NS_PER_S)
#define ENGINE_PAUSE_NS       (80 * SL_NS_PER_MS)
#define ENGINE_PAUSE_NS_SHORT (15 * SL_NS_PER_MS)
#define ENGINES_MAX           6u /* of a host, one after the other */
#define SIDES_MAX             8u
#define HANDOVER_CALM_NS      SL_NS_PER_S        /* by then the nodes know each other */
#define AGAIN_NS              (3 * SL_NS_PER_S)  /* some are direct, half by layers */
#define HANDOVER_END_NS       (11 * SL_NS_PER_S) /* early failures are forgotten */
#define ACTORS_MAX            8u
#define DELAY_NS              (400 * SL_NS_PER_MS) /* of slow links */
#define CORRUPT_ONE_OF        40u
#define SLOW_ONE_OF           8u
#define TRIES_STRAIGHT        3u /* for the disturbance under test: it happens more often */
#define ENDS_ONE_OF           8u
#define POWER_MAX             3u /* cuts of a run: each takes an engine */

enum trouble {
    TROUBLE_LINKS = 1, /* cut: one way, both ways, all links of a node */
    TROUBLE_SLOW = 2,  /* links are slow */
    TROUBLE_DOORS = 4, /* transporters are killed and stopped */
    TROUBLE_ACTORS = 8,
    TROUBLE_NODES = 16,    /* all of a node's actors are killed or stopped */
    TROUBLE_POWER = 32,    /* a node returns with empty memory */
    TROUBLE_CLOCKS = 64,   /* the wall clock is set */
    TROUBLE_BITS = 128,    /* reads from other nodes sometimes get wrong bits */
    TROUBLE_ENGINES = 256, /* engines that hand over are killed */
    HANDOVERS = 512, /* not one: engines hand over, from prefill to decode, between all hosts */
    STRAIGHT = 1024  /* not one: loads keep no copy here, they read straight into engines' pools */
};

struct scenario {
    const char *name;
    uint32_t trouble, hosts;
    bool disk; /* with tiny memory over it */
    uint64_t delay_ns_max;
    uint32_t late_of;
};

#define TROUBLE_NET (TROUBLE_LINKS | TROUBLE_SLOW)
#define TROUBLE_ALL                                                                 \
    (TROUBLE_NET | TROUBLE_DOORS | TROUBLE_ACTORS | TROUBLE_NODES | TROUBLE_POWER | \
     TROUBLE_CLOCKS | TROUBLE_BITS)
static const struct scenario scenarios[] = {
    {"two, undisturbed", 0, 2, false, 0, 0},
    {"three, links", TROUBLE_NET, 3, false, 0, 0},
    {"two, transporters", TROUBLE_DOORS, 2, false, 0, 0},
    {"three, nodes die and stop", TROUBLE_NODES | TROUBLE_DOORS, 3, false, 0, 0},
    {"two, actors and links", TROUBLE_ACTORS | TROUBLE_NET, 2, false, SL_NS_PER_MS, 400},
    {"three, nodes come back empty", TROUBLE_POWER | TROUBLE_LINKS, 3, false, 0, 0},
    {"two, over a disk", 0, 2, true, 0, 0},
    {"two, slow, over a disk", TROUBLE_SLOW | TROUBLE_BITS, 2, true, 0, 0},
    {"three, over a disk, everything", TROUBLE_ALL & ~(uint32_t)TROUBLE_CLOCKS, 3, true,
     SL_NS_PER_MS, 400},
    {"two, clocks", TROUBLE_CLOCKS | TROUBLE_DOORS | TROUBLE_NODES, 2, false, 0, 0},
    {"three, everything", TROUBLE_ALL, 3, false, SL_NS_PER_MS, 400},
    {"two, hand-overs", HANDOVERS, 2, false, 0, 0},
    {"two, hand-overs, links, engines", TROUBLE_NET | TROUBLE_ENGINES | HANDOVERS, 2, false,
     SL_NS_PER_MS, 400},
    {"two, hand-overs, transporters", TROUBLE_DOORS | TROUBLE_ENGINES | HANDOVERS, 2, false, 0, 0},
    {"three, hand-overs over a disk, everything",
     (TROUBLE_ALL | TROUBLE_ENGINES | HANDOVERS) & ~(uint32_t)TROUBLE_CLOCKS, 3, true, SL_NS_PER_MS,
     400},
    {"two, straight", STRAIGHT | HANDOVERS, 2, false, 0, 0},
    {"three, straight, links and bits",
     STRAIGHT | HANDOVERS | TROUBLE_NET | TROUBLE_BITS | TROUBLE_ENGINES, 3, false, SL_NS_PER_MS,
     400},
    {"two, straight, transporters", STRAIGHT | HANDOVERS | TROUBLE_DOORS | TROUBLE_ENGINES, 2,
     false, 0, 0},
    {"two, straight, actors and links",
     STRAIGHT | HANDOVERS | TROUBLE_ACTORS | TROUBLE_NET | TROUBLE_ENGINES, 2, false, SL_NS_PER_MS,
     100},
    {"three, straight, everything",
     (TROUBLE_ALL | TROUBLE_ENGINES | HANDOVERS | STRAIGHT) & ~(uint32_t)TROUBLE_CLOCKS, 3, false,
     SL_NS_PER_MS, 400},
};

#define SETTINGS_COMMON                                                                           \
    "ranks", "2", "index_memory", "2MiB", "index_keys", "4096", "io_grace", "1s", "clients_max",  \
        "64", "reservations_max", "1024", "populate_threads", "1", "message_bytes_max", "1MiB",   \
        "peers", "a@sim:1,b@sim:1,c@sim:1", "cluster_listen", "sim:1", "fabric", "tcp",           \
        "fabric_address", "127.0.0.1", "fabric_lanes", "2", "fabric_depth", "4", "fabric_unit",   \
        "16KiB", "fabric_progress_timeout", "500ms", "peer_heartbeat", "200ms", "peer_timeout",   \
        "300ms", "peer_backoff", "100ms", "peer_missing_ttl", "200ms", "remote_pin_ttl", "250ms", \
        "fetch_batches_max", "4", "handover_hold", "2s", "handover_partial_ttl", "1s"
#define SETTINGS_MAX 80
#define MEMORY_AMPLE "8MiB"
#define MEMORY_TINY  "1MiB"
#define PEERS_OF_TWO "a@sim:1,b@sim:1"
#define DISK_BYTES   (64 * SL_MIB)

struct host {
    uint32_t actors[ACTORS_MAX], actor_count;
    uint32_t registrar, door;
    uint32_t engines[ENGINES_MAX], engine_count;
    uint32_t sides[2], side_count; /* engines that hand over: prefill, decode; their number */
    uint32_t clients[FAR_SLOTS];
    uint64_t memory_peak;
    uint64_t warm_ns; /* when the disk was ready after a power cut */
    const char *settings[SETTINGS_MAX];
    struct workload work;
};

struct run {
    struct sim *sim;
    const struct scenario *scenario;
    struct far far;
    struct handovers handovers;
    struct host hosts[FAR_HOSTS];
    uint32_t power_cuts;
};

static bool has(const struct run *run, enum trouble trouble)
{
    return (run->scenario->trouble & (uint32_t)trouble) != 0;
}

/* ---- invariants ---- */

static uint64_t objects_bytes(const struct sl_index_view *view, const struct sl_arena *arena)
{
    static char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    uint64_t cursor = 0, bytes = 0;
    while (sl_index_scan(view, &cursor, &entry, key)) {
        if (entry.extent.generation == 0) {
            SIM_CHECK(entry.disk.valid != 0, "%s is nowhere", key);
            continue;
        }
        const void *value =
            sl_arena_at(arena, entry.extent.offset_bytes, entry.extent.length_bytes);
        SIM_CHECK(value != NULL, "%s lies outside of the arena", key);
        SIM_CHECK(sl_digest_equal(sl_digest_of(value, entry.extent.length_bytes), entry.digest),
                  "%s: bytes do not match the digest", key);
        bytes += sl_extent_space(entry.extent.length_bytes);
    }
    return bytes;
}

static void check_at_rest(struct run *run, uint32_t number, uint64_t used_bytes, uint64_t bytes)
{
    static const char *const none[] = {"claim_count", "retired_count", "quarantined_bytes",
                                       "forget_pending_count", "held_count"};
    const struct host *host = &run->hosts[number];
    for (size_t i = 0; i < SL_COUNT(none); i++) {
        uint64_t left = sim_metric(run->sim, host->registrar, none[i]);
        SIM_CHECK(left == 0, "host %u is at rest, yet %s is %llu", number, none[i],
                  (unsigned long long)left);
    }
    SIM_CHECK(sim_metric(run->sim, host->door, "pin_sets_open") == 0,
              "host %u is at rest, yet pins of peers are left", number);
    SIM_CHECK(sim_metric(run->sim, host->door, "takes_open") == 0 &&
                  sim_metric(run->sim, host->door, "loans_open") == 0,
              "host %u is at rest, yet blocks are in use or being read", number);
    SIM_CHECK(sim_metric(run->sim, host->actors[host->actor_count - 2], "handovers_active") == 0,
              "host %u is at rest, yet hand-overs are left", number);
    SIM_CHECK(used_bytes == bytes, "space is lost at host %u: %llu bytes are used, %llu by objects",
              number, (unsigned long long)used_bytes, (unsigned long long)bytes);
}

/* at_rest: no writes or pins are in progress, so the used space is exactly that of the objects. */
static void check_host(struct run *run, uint32_t number, bool at_rest)
{
    struct sl_index_view *view = NULL;
    struct sl_arena *arena = NULL;
    struct sl_error why = {0};
    struct sim *sim = run->sim;
    struct host *host = &run->hosts[number];
    if (!sim_alive(sim, host->registrar)) {
        return;
    }
    const char *shm_dir = sim_shm_dir(sim, number);
    SIM_CHECK(sl_index_view_open(shm_dir, &view, &why) == SL_OK, "%s", why.text);
    SIM_CHECK(sl_arena_attach(shm_dir, 0, false, &arena, &why) == SL_OK, "%s", why.text);
    uint64_t bytes = objects_bytes(view, arena);
    uint64_t used_bytes = sim_metric(sim, host->registrar, "used_bytes");
    SIM_CHECK(used_bytes <= sl_arena_data_bytes(arena), "more memory is used than there is");
    host->memory_peak = SL_MAX(host->memory_peak, used_bytes);
    struct sl_index_stats stats;
    sl_index_view_stats(view, &stats);
    SIM_CHECK(stats.record_bytes_used <= stats.record_bytes_max, "the index passed its ceiling");
    SIM_CHECK(!sim_alive(sim, host->door) ||
                  sim_metric(sim, host->door, "peers_alive") < run->scenario->hosts,
              "more peers are alive than there are");
    if (at_rest) {
        check_at_rest(run, number, used_bytes, bytes);
    }
    sl_arena_close(&arena);
    sl_index_view_close(&view);
}

static void check_all(struct run *run, bool at_rest)
{
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        check_host(run, i, at_rest);
    }
}

/* ---- processes ---- */

static void engine_start(struct run *run, uint32_t number)
{
    struct host *host = &run->hosts[number];
    if (host->engine_count == ENGINES_MAX) {
        return;
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "client.%u.0", host->engine_count + 1);
    sim_host_use(run->sim, number);
    host->engines[host->engine_count++] =
        sim_start(run->sim, &workload_engine, 0, name, &host->work);
    (void)snprintf(host->work.verifier, sizeof(host->work.verifier), "%s", name);
}

/* A new one has a name of its own: its predecessor's device memory is never looked at again. */
static void side_start(struct run *run, uint32_t number, uint32_t side)
{
    struct host *host = &run->hosts[number];
    char name[32];
    if (!has(run, HANDOVERS) || host->side_count == SIDES_MAX) {
        return;
    }
    (void)snprintf(name, sizeof(name), "client.9%u.0", host->side_count++);
    sim_host_use(run->sim, number);
    host->sides[side] =
        sim_start(run->sim, &handover_engine, 0, name, &run->handovers.sides[number][side]);
}

static void actor_start(struct run *run, struct host *host, const struct sl_actor *actor,
                        uint32_t rank)
{
    host->actors[host->actor_count++] = sim_start(run->sim, actor, rank, NULL, NULL);
}

static void clients_start(struct run *run, uint32_t number)
{
    sim_host_use(run->sim, number);
    for (uint32_t i = 0; i < FAR_SLOTS; i++) {
        run->hosts[number].clients[i] =
            sim_start_program(run->sim, far_client, &run->far.slots[number][i]);
    }
}

static void host_start(struct run *run, uint32_t number)
{
    struct host *host = &run->hosts[number];
    sim_host_use(run->sim, number);
    actor_start(run, host, &sl_registrar_actor, 0);
    host->registrar = host->actors[0];
    actor_start(run, host, &sl_keyer_actor, 0);
    if (run->scenario->disk) {
        actor_start(run, host, &sl_tierer_actor, 0);
    }
    for (uint32_t rank = 0; rank < WORKLOAD_RANKS; rank++) {
        actor_start(run, host, &sl_swapper_actor, rank);
    }
    actor_start(run, host, &sl_coordinator_actor, 0);
    actor_start(run, host, &sl_transporter_actor, 0);
    host->door = host->actors[host->actor_count - 1];
    engine_start(run, number);
    side_start(run, number, 0);
    side_start(run, number, 1);
    clients_start(run, number);
}

static void host_settings(struct run *run, uint32_t number)
{
    static const char *const names[FAR_HOSTS] = {"a", "b", "c"};
    static const char *const common[] = {SETTINGS_COMMON};
    const char **at = run->hosts[number].settings;
    memcpy(at, common, sizeof(common));
    at += SL_COUNT(common);
    *at++ = "node_name";
    *at++ = names[number % FAR_HOSTS];
    *at++ = "memory";
    *at++ = run->scenario->disk ? MEMORY_TINY : MEMORY_AMPLE;
    *at++ = "memory_chunk";
    *at++ = run->scenario->disk ? MEMORY_TINY : MEMORY_AMPLE;
    if (run->scenario->disk) {
        *at++ = "disk";
        *at++ = "64MiB";
        *at++ = "disk_segment";
        *at++ = "1MiB";
    }
    if (has(run, STRAIGHT)) {
        *at++ = "cache_remote_loads";
        *at++ = "false";
    }
    if (run->scenario->hosts == 2) {
        *at++ = "peers";
        *at++ = PEERS_OF_TWO;
    }
    *at = NULL;
}

/* ---- disturbances ---- */

static uint64_t span(struct sim *sim)
{
    static const uint64_t spans_ns[] = {50 * SL_NS_PER_MS, 300 * SL_NS_PER_MS, SL_NS_PER_S,
                                        3 * SL_NS_PER_S, 6 * SL_NS_PER_S};
    return 1 + sim_random_below(sim, spans_ns[sim_random_below(sim, SL_COUNT(spans_ns))]);
}

static uint32_t any_host(struct run *run)
{
    return (uint32_t)sim_random_below(run->sim, run->scenario->hosts);
}

static void trouble_links(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t from = any_host(run), to = any_host(run);
    uint64_t how = sim_random_below(sim, 3), ns = span(sim);
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        bool hit = i != from && (how == 2 || i == to);
        if (hit) {
            sim_link_cut(sim, from, i, ns);
            if (how != 0) {
                sim_link_cut(sim, i, from, ns);
            }
        }
    }
}

/* Some answers arrive after what they grant has expired. */
static void trouble_slow(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t from = any_host(run);
    uint64_t ns = span(sim);
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        if (i != from) {
            sim_link_slow(sim, from, i, 1 + sim_random_below(sim, DELAY_NS), ns);
            sim_link_slow(sim, i, from, 1 + sim_random_below(sim, DELAY_NS), ns);
        }
    }
}

static void actor_trouble(struct run *run, uint32_t host, uint32_t actor, uint64_t ns, bool stop)
{
    struct sim *sim = run->sim;
    far_excuse_until(&run->far, host, sim_now_ns(sim) + ns);
    if (stop && sim_alive(sim, actor)) {
        sim_stop(sim, actor, ns);
    } else if (!stop) {
        sim_kill(sim, actor, ns);
    }
}

/* At its own node, the end of a transporter affects only reads from other nodes. */
static void trouble_door(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t door = run->hosts[any_host(run)].door;
    if (sim_random_below(sim, 2) == 0) {
        sim_kill(sim, door, sim_random_below(sim, span(sim)));
    } else if (sim_alive(sim, door)) {
        sim_stop(sim, door, span(sim));
    }
}

static void trouble_actor(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t host = any_host(run);
    const struct host *of = &run->hosts[host];
    uint32_t actor = of->actors[sim_random_below(sim, of->actor_count)];
    if (has(run, STRAIGHT) && sim_random_below(sim, 2) == 0) {
        actor = of->actors[of->actor_count - 2]; /* the coordinator, which lends and fences */
    }
    actor_trouble(run, host, actor, sim_random_below(sim, 200 * SL_NS_PER_MS),
                  sim_random_below(sim, 2) == 0);
}

static void trouble_node(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t host = any_host(run);
    const struct host *of = &run->hosts[host];
    bool stop = sim_random_below(sim, 2) == 0;
    uint64_t ns = span(sim);
    for (uint32_t i = 0; i < of->actor_count; i++) {
        actor_trouble(run, host, of->actors[i], ns, stop);
    }
    for (uint32_t i = 0; stop && i < FAR_SLOTS; i++) {
        if (sim_alive(sim, of->clients[i])) {
            sim_stop(sim, of->clients[i], ns);
        }
    }
}

static void trouble_power(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t host = any_host(run);
    if (run->power_cuts == POWER_MAX) {
        return;
    }
    run->power_cuts++;
    uint64_t ns = 1 + sim_random_below(sim, 2 * SL_NS_PER_S);
    far_excuse_until(&run->far, host, sim_now_ns(sim) + ns);
    sim_power_cut(sim, host, ns);
    far_memory_lost(&run->far, host);
    run->far.warming[host] = run->scenario->disk;
    run->hosts[host].warm_ns = 0;
    memset(run->hosts[host].work.acknowledged, 0, sizeof(run->hosts[host].work.acknowledged));
    engine_start(run, host);
    side_start(run, host, 0);
    side_start(run, host, 1);
    clients_start(run, host);
}

static void trouble_engine(struct run *run)
{
    uint32_t host = any_host(run), side = (uint32_t)sim_random_below(run->sim, 2);
    if (run->hosts[host].side_count < SIDES_MAX) {
        sim_kill(run->sim, run->hosts[host].sides[side], SL_NEVER_NS);
        side_start(run, host, side);
    }
}

static void trouble_clock(struct run *run)
{
    int64_t by_ns = (int64_t)sim_random_below(run->sim, 20000000 * SL_NS_PER_S);
    sim_set_wall(run->sim, sim_random_below(run->sim, 2) == 0 ? by_ns : -by_ns);
}

static void make_trouble(struct run *run)
{
    static const struct {
        enum trouble trouble;
        void (*make)(struct run *run);
    } kinds[] = {
        {TROUBLE_LINKS, trouble_links},  {TROUBLE_LINKS, trouble_links},
        {TROUBLE_SLOW, trouble_slow},    {TROUBLE_SLOW, trouble_slow},
        {TROUBLE_DOORS, trouble_door},   {TROUBLE_ACTORS, trouble_actor},
        {TROUBLE_NODES, trouble_node},   {TROUBLE_POWER, trouble_power},
        {TROUBLE_CLOCKS, trouble_clock}, {TROUBLE_ENGINES, trouble_engine},
    };
    uint64_t which = sim_random_below(run->sim, SL_COUNT(kinds));
    for (uint32_t i = 0; has(run, STRAIGHT) && i < TRIES_STRAIGHT; i++) {
        which =
            has(run, kinds[which].trouble) ? which : sim_random_below(run->sim, SL_COUNT(kinds));
    }
    if (has(run, kinds[which].trouble)) {
        kinds[which].make(run);
    }
}

/* Whether the disk has reported its values. Calls that began earlier end within WARM_NS of that. */
static void check_warm(struct run *run)
{
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        struct host *host = &run->hosts[i];
        if (run->far.warming[i] && host->warm_ns == 0 && sim_alive(run->sim, host->registrar) &&
            sim_metric(run->sim, host->registrar, "disk_ready") != 0) {
            host->warm_ns = sim_now_ns(run->sim);
        }
        bool over = host->warm_ns != 0 && sim_now_ns(run->sim) > host->warm_ns + WARM_NS;
        run->far.warming[i] = run->far.warming[i] && !over;
    }
}

static void run_active(struct run *run)
{
    struct sim *sim = run->sim;
    sim_run_until(sim, sim_now_ns(sim) + WARM_UP_NS);
    uint64_t end_ns = sim_now_ns(sim) + ACTIVE_NS;
    while (sim_now_ns(sim) < end_ns) {
        sim_run_until(sim, sim_now_ns(sim) + 2 * SL_NS_PER_MS +
                               sim_random_below(sim, 300 * SL_NS_PER_MS));
        check_all(run, false);
        check_warm(run);
        make_trouble(run);
    }
}

/* ---- the end of a run ---- */

static void run_to_rest(struct run *run)
{
    struct sim *sim = run->sim;
    run->far.quiet = true;
    run->handovers.quiet = true;
    sim_reads_slow(sim, 0);
    sim_reads_corrupt(sim, 0);
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        run->hosts[i].work.quiet = true;
    }
    sim_run_until(sim, SL_MAX(sim_now_ns(sim), sim_disturbed_ns(sim)) + QUIET_NS);
    memset(run->far.warming, 0, sizeof(run->far.warming));
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        for (uint32_t k = 0; k < FAR_SLOTS; k++) {
            SIM_CHECK(!sim_alive(sim, run->hosts[i].clients[k]),
                      "client %u of host %u does not end", k, i);
        }
    }
}

/* Values of every node can be read at every other, blocks as well. */
static void run_verify(struct run *run)
{
    struct sim *sim = run->sim;
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        run->far.verified = false;
        run->far.verify_host = i;
        sim_host_use(sim, i);
        (void)sim_start_program(sim, far_verifier, &run->far);
        uint64_t end_ns = sim_now_ns(sim) + VERIFY_NS;
        while (!run->far.verified && sim_now_ns(sim) < end_ns) {
            sim_run_until(sim, sim_now_ns(sim) + 50 * SL_NS_PER_MS);
        }
        SIM_CHECK(run->far.verified, "the verification at host %u does not end", i);
    }
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        struct workload *work = &run->hosts[i].work;
        work->pause_ns_max = ENGINE_PAUSE_NS; /* a failed attempt is not repeated at once */
        for (uint32_t k = 0; k < run->scenario->hosts; k++) {
            for (uint32_t id = 0; id < WORKLOAD_IDS; id++) {
                work->acknowledged[id] =
                    work->acknowledged[id] || run->hosts[k].work.acknowledged[id];
            }
        }
        work->verifying = true;
        uint64_t end_ns = sim_now_ns(sim) + VERIFY_NS;
        while (work->verify_next < WORKLOAD_CHAINS && sim_now_ns(sim) < end_ns) {
            sim_run_until(sim, sim_now_ns(sim) + 50 * SL_NS_PER_MS);
        }
        SIM_CHECK(work->verify_next == WORKLOAD_CHAINS, "only %u chains could be verified at %u",
                  work->verify_next, i);
    }
    sim_run_until(sim, sim_now_ns(sim) + 3 * SL_NS_PER_S); /* pins whose release was lost expire */
    if (has(run, HANDOVERS)) {
        sim_run_until(sim, sim_now_ns(sim) + HANDOVER_END_NS);
    }
    check_all(run, true);
}

static uint64_t coordinators_did(struct run *run, const char *metric)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        const struct host *host = &run->hosts[i];
        sum += sim_metric(run->sim, host->actors[host->actor_count - 2], metric);
    }
    return sum;
}

/* After any disturbances, hand-overs go straight from pool to pool again, and all succeed. */
static void run_straight_again(struct run *run)
{
    struct sim *sim = run->sim;
    struct handovers *all = &run->handovers;
    uint64_t complete[FAR_HOSTS] = {0}, went = coordinators_did(run, "handovers_pushed");
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        if (!sim_alive(sim, run->hosts[i].sides[0]) || !sim_alive(sim, run->hosts[i].sides[1])) {
            return; /* the last of its engines was killed */
        }
        complete[i] = all->complete_at[i];
    }
    sim_messages_late(sim, 0);
    sim_run_until(sim, sim_now_ns(sim) + SL_NS_PER_S);
    all->late = all->quiet = false;
    all->calm = true;
    all->calm_from_ns = sim_now_ns(sim);
    all->ends_one_of = 0;
    sim_run_until(sim, sim_now_ns(sim) + AGAIN_NS);
    all->quiet = true;
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        SIM_CHECK(all->complete_at[i] > complete[i], "nothing is handed over to host %u any more",
                  i);
    }
    SIM_CHECK(coordinators_did(run, "handovers_pushed") > went,
              "none went straight from pool to pool");
    sim_run_until(sim, sim_now_ns(sim) + HANDOVER_END_NS);
    check_all(run, true);
    SIM_CHECK(!run->far.calm || coordinators_did(run, "parts_pulled") > 0, "nothing was pulled");
}

static void run_print(struct run *run)
{
    const struct far *far = &run->far;
#define U(x) ((unsigned long long)(x))
    printf("%s: %llu puts (%llu failed), %llu gets (%llu found, %llu of them were here, %llu "
           "missed, %llu failed), %llu pinned, %llu removes, slowest %llu ms\n",
           run->scenario->name, U(far->puts), U(far->put_failed), U(far->gets), U(far->found),
           U(far->here), U(far->missed), U(far->get_failed), U(far->pinned), U(far->removes),
           U(far->slowest_ns / SL_NS_PER_MS));
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        const struct host *host = &run->hosts[i];
        const struct workload *work = &host->work;
        printf("host %u: %llu loads (%llu blocks, %llu remote), %llu stores (%llu blocks), %llu "
               "failed, %llu "
               "verified; %llu values read from peers (%llu bytes, %llu bad digests, %llu fences), "
               "%llu served "
               "in this life; memory %llu KiB\n",
               i, U(work->loads), U(work->blocks_loaded), U(work->blocks_remote), U(work->stores),
               U(work->blocks_stored), U(work->failed), U(work->verified),
               U(sim_metric(run->sim, host->door, "values_read")),
               U(sim_metric(run->sim, host->door, "bytes_read")),
               U(sim_metric(run->sim, host->door, "digests_bad")),
               U(sim_metric(run->sim, host->door, "fences")),
               U(sim_metric(run->sim, host->door, "values_served")), U(host->memory_peak / 1024));
    }
    const struct handovers *handovers = &run->handovers;
    if (has(run, HANDOVERS)) {
        printf("%llu hand-overs (%llu directly): %llu complete, %llu failed, %llu unanswered; "
               "prefill: %llu sent, %llu failed; %llu layers were reported\n",
               U(handovers->begun), U(handovers->direct), U(handovers->complete),
               U(handovers->failed), U(handovers->unanswered), U(handovers->sent),
               U(handovers->send_failed), U(handovers->layers_reported));
    }
    printf("%llu events, hash %016llx\n", U(sim_event_count(run->sim)), U(sim_hash(run->sim)));
#undef U
}

static uint64_t run_of(uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    sim_mutants_init();
    run->scenario = &scenarios[seed % SL_COUNT(scenarios)];
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        host_settings(run, i);
        run->hosts[i].work = (struct workload){
            .seed = seed,
            .piece_bytes = run->scenario->disk ? 6000 : 700,
            .pause_ns_max = has(run, STRAIGHT) ? ENGINE_PAUSE_NS_SHORT : ENGINE_PAUSE_NS,
            .nothing_is_lost = !run->scenario->disk,
            .late = run->scenario->late_of != 0,
            .straight = has(run, STRAIGHT),
            .ends_one_of = has(run, TROUBLE_ENGINES) ? ENDS_ONE_OF : 0,
            .store_of = has(run, STRAIGHT) ? run->scenario->hosts : 0,
            .store_at = i,
            .disturbed_ns = &run->far.disturbed_ns[i]};
    }
    struct sim_options options = {
        .seed = seed,
        .settings = run->hosts[0].settings,
        .delay_ns_max = run->scenario->delay_ns_max,
        .late_of = run->scenario->late_of,
        .log = getenv("SL_SIM_LOG") != NULL,
    };
    run->sim = sim_create(&options);
    for (uint32_t i = 1; i < run->scenario->hosts; i++) {
        (void)sim_host_add(run->sim, run->hosts[i].settings);
    }
    run->far.ample = !run->scenario->disk;
    run->far.late = run->scenario->late_of != 0;
    run->far.calm = (run->scenario->trouble & ~(uint32_t)(HANDOVERS | STRAIGHT)) == 0;
    far_init(&run->far, run->sim, run->scenario->hosts);
    handovers_init(&run->handovers, run->scenario->hosts);
    run->handovers.disturbed_ns = run->far.disturbed_ns;
    run->handovers.late = run->scenario->late_of != 0;
    run->handovers.calm = run->far.calm && run->far.ample;
    run->handovers.ends_one_of = has(run, TROUBLE_ENGINES) ? ENDS_ONE_OF : 0;
    run->handovers.calm_from_ns = sim_now_ns(run->sim) + HANDOVER_CALM_NS;
    for (uint32_t i = 0; i < run->scenario->hosts; i++) {
        host_start(run, i);
    }
    sim_reads_slow(run->sim, run->far.calm && run->far.ample ? 0 : SLOW_ONE_OF);
    sim_reads_corrupt(run->sim, has(run, TROUBLE_BITS) ? CORRUPT_ONE_OF : 0);
    run_active(run);
    run_to_rest(run);
    run_verify(run);
    if (has(run, STRAIGHT)) {
        run_straight_again(run);
    }
    if (getenv("SL_SIM_SEED") != NULL) {
        run_print(run);
    }
    uint64_t hash = sim_hash(run->sim);
    sim_destroy(&run->sim);
    free(run);
    return hash;
}

static const char *name_of(uint64_t seed)
{
    return scenarios[seed % SL_COUNT(scenarios)].name;
}

static bool is_straight(uint64_t seed)
{
    return (scenarios[seed % SL_COUNT(scenarios)].trouble & STRAIGHT) != 0;
}

/* --mutants: checks that the runs find every mutant of the actors. */
int main(int argc, char **argv)
{
    static const struct sim_seeds seeds = {.count = SEEDS_STANDARD, .run = run_of, .name = name_of};
    return argc > 1 && strcmp(argv[1], "--mutants") == 0 ? sim_mutants_main(&seeds, is_straight)
                                                         : sim_seeds_main(&seeds);
}
