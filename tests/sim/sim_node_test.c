/* tests/sim/sim_node_test.c - a whole node under random disturbances: engines store and load,
 * clients put, get, pin and remove, while processes are killed and stopped, the disk fails, clocks
 * jump and the power is cut. Checked: promises 1, 2 and 4 (no wrong bytes; acknowledged values are
 * found and removed ones are not; every op ends by its deadline; limits hold), that operations of
 * several clients on the same keys are linearizable, that no process touches memory after a fence,
 * and that no space is lost.
 *
 * Choosing seeds: sim_seeds.h. */
#include "actors/coordinator/coordinator.h"
#include "actors/keyer/keyer.h"
#include "actors/registrar/registrar.h"
#include "actors/swapper/swapper.h"
#include "actors/tierer/tierer.h"
#include "client/include/sluice.h"
#include "ipc/shm/sl_index.h"
#include "tests/sim/sim_node_mutants.h"
#include "tests/sim/sim_objects.h"
#include "tests/sim/sim_seeds.h"
#include "tests/sim/sim_workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 1200u
#endif
#define HEALS_STANDARD (SEEDS_STANDARD / 10)
#define ACTIVE_NS      (500 * SL_NS_PER_MS)
#define QUIET_NS       (6 * SL_NS_PER_S) /* last ops, fences, reservations, grace periods end */
#define VERIFY_NS      (60 * SL_NS_PER_S)
#define WARM_NS        (2100 * SL_NS_PER_MS) /* longer than an op */
#define ENGINES        2u
#define ENGINES_MAX    16u
#define EXTENTS_MAX    16384u

enum trouble {
    TROUBLE_KILLS = 1,     /* of actors */
    TROUBLE_STOPS = 2,     /* of actors */
    TROUBLE_CLIENTS = 4,   /* engines and clients die, clients stop */
    TROUBLE_DISK = 8,      /* errors, full, slow */
    TROUBLE_POWER = 16,    /* the power is cut once */
    TROUBLE_CLOCKS = 32,   /* the machine is suspended, the wall clock is set */
    TROUBLE_REMOVALS = 64, /* clients remove engines' blocks */
    TROUBLE_AWAY = 128,    /* the second disk dies and returns after seconds */
    TROUBLE_SMALL = 256,   /* a small disk: log files are reclaimed, wanted values rewritten */
    TROUBLE_LEASES = 512,  /* clients lease the values they find */
    TROUBLE_DAMAGE = 1024, /* a power cut destroys a log file, or a page of it */
    TROUBLE_HANGS = 2048   /* actors are stopped permanently: the supervisor ends them */
};

struct scenario {
    const char *name;
    uint32_t trouble;
    bool ample; /* memory for everything: nothing may be lost */
    bool disk;  /* a disk for everything: likewise */
    uint64_t delay_ns_max;
    uint32_t late_of;
    bool two; /* the second disk is disturbed, and missing for seconds */
};

#define TROUBLE_PROCESSES (TROUBLE_KILLS | TROUBLE_STOPS | TROUBLE_CLIENTS)
static const struct scenario scenarios[] = {
    {"undisturbed", 0, true, false, 0, 0, false},
    {"kills", TROUBLE_KILLS | TROUBLE_CLIENTS, true, false, 0, 0, false},
    {"kills and stops", TROUBLE_PROCESSES, true, false, 2 * SL_NS_PER_MS, 400, false},
    {"clocks", TROUBLE_CLOCKS | TROUBLE_KILLS, true, true, 0, 0, false},
    {"tiny memory", 0, false, false, 0, 0, false},
    {"tiny memory, kills and stops", TROUBLE_PROCESSES | TROUBLE_REMOVALS, false, false,
     SL_NS_PER_MS, 400, false},
    {"tiny memory over a disk", 0, false, true, 0, 0, false},
    {"tiny memory over a disk, kills", TROUBLE_KILLS | TROUBLE_CLIENTS, false, true, 0, 0, false},
    {"tiny memory over a disk, kills and stops", TROUBLE_PROCESSES | TROUBLE_CLOCKS, false, true,
     SL_NS_PER_MS, 400, false},
    {"disk errors", TROUBLE_DISK, false, true, 0, 0, false},
    {"disk errors, kills and stops", TROUBLE_PROCESSES | TROUBLE_DISK, false, true, SL_NS_PER_MS,
     400, false},
    {"power cuts", TROUBLE_POWER | TROUBLE_KILLS, false, true, 0, 0, false},
    {"power cuts, everything", TROUBLE_POWER | TROUBLE_PROCESSES | TROUBLE_DISK | TROUBLE_CLOCKS,
     true, true, SL_NS_PER_MS, 400, false},
    {"two disks, one fails and dies", TROUBLE_DISK | TROUBLE_AWAY, false, true, 0, 0, true},
    {"two disks, kills, stops and errors",
     TROUBLE_PROCESSES | TROUBLE_DISK | TROUBLE_AWAY | TROUBLE_REMOVALS, false, true, SL_NS_PER_MS,
     400, true},
    {"small disk", TROUBLE_SMALL, false, true, 0, 0, false},
    {"small disk, kills and stops", TROUBLE_SMALL | TROUBLE_PROCESSES | TROUBLE_CLOCKS, false, true,
     SL_NS_PER_MS, 400, false},
    {"small disk, power cuts, everything",
     TROUBLE_SMALL | TROUBLE_POWER | TROUBLE_PROCESSES | TROUBLE_DISK | TROUBLE_REMOVALS, false,
     true, SL_NS_PER_MS, 400, false},
    {"two disks, power cuts", TROUBLE_POWER | TROUBLE_PROCESSES | TROUBLE_DISK | TROUBLE_CLOCKS,
     true, true, SL_NS_PER_MS, 400, true},
    {"tiny memory, leases", TROUBLE_LEASES, false, false, 0, 0, false},
    {"tiny memory, leases, kills and stops", TROUBLE_LEASES | TROUBLE_PROCESSES | TROUBLE_CLOCKS,
     false, false, SL_NS_PER_MS, 400, false},
    {"tiny memory over a disk, leases, kills", TROUBLE_LEASES | TROUBLE_KILLS | TROUBLE_CLIENTS,
     false, true, 0, 0, false},
    {"power cuts, a damaged segment", TROUBLE_POWER | TROUBLE_DAMAGE | TROUBLE_KILLS, false, true,
     0, 0, false},
    {"small disk, power cuts, a damaged segment",
     TROUBLE_SMALL | TROUBLE_POWER | TROUBLE_DAMAGE | TROUBLE_PROCESSES, false, true, SL_NS_PER_MS,
     400, false},
};

#define SETTINGS_COMMON                                                                          \
    "ranks", "2", "index_memory", "2MiB", "index_keys", "8192", "io_grace", "1s", "clients_max", \
        "64", "reservations_max", "1024", "populate_threads", "1", "message_bytes_max", "1MiB"
#define SETTINGS_DISK  "disk", "64MiB", "disk_segment", "1MiB"
#define SETTINGS_DISKS "disk", "128MiB", "disk_segment", "1MiB", "disk_path", "/one,/two"
#define SETTINGS_TINY  "memory", "1MiB", "memory_chunk", "1MiB"
#define SETTINGS_AMPLE "memory", "8MiB", "memory_chunk", "8MiB"
#define SETTINGS_SMALL "disk", "1MiB", "disk_segment", "1MiB", "disk_prefetch", "64KiB"
#define SETTINGS_MAX   30
static const char *const settings_of[2][4][SETTINGS_MAX] = {
    {{SETTINGS_COMMON, SETTINGS_TINY, NULL},
     {SETTINGS_COMMON, SETTINGS_TINY, SETTINGS_DISK, NULL},
     {SETTINGS_COMMON, SETTINGS_TINY, SETTINGS_DISKS, NULL},
     {SETTINGS_COMMON, SETTINGS_TINY, SETTINGS_SMALL, NULL}},
    {{SETTINGS_COMMON, SETTINGS_AMPLE, NULL},
     {SETTINGS_COMMON, SETTINGS_AMPLE, SETTINGS_DISK, NULL},
     {SETTINGS_COMMON, SETTINGS_AMPLE, SETTINGS_DISKS, NULL},
     {SETTINGS_COMMON, SETTINGS_AMPLE, SETTINGS_SMALL, NULL}},
};
#define DISK_BYTES       (64 * SL_MIB)
#define DISK_BYTES_SMALL SL_MIB

struct run {
    struct sim *sim;
    const struct scenario *scenario;
    struct workload work;
    struct objects objects;
    uint32_t victims[8], victim_count;
    uint32_t engines[ENGINES_MAX], engine_count;
    uint32_t clients[OBJECTS_SLOTS];
    uint64_t client_again_ns[OBJECTS_SLOTS]; /* when a dead one's successor starts; 0: it lives */
    uint32_t registrar, tierer;              /* the latest one */
    uint64_t memory_peak;
    uint64_t warm_ns; /* when the disk was ready after the power cut */
    struct probe {
        struct run *run;
        uint32_t node, rounds;
        uint64_t began_ns, ended_ns; /* of its last round without errors */
    } probe;
    uint64_t healed_ns_max;
};

static bool has(const struct run *run, enum trouble trouble)
{
    return (run->scenario->trouble & trouble) != 0;
}

/* ---- invariants ---- */

struct extent_seen {
    uint64_t from, to;
};

static int extent_order(const void *a, const void *b)
{
    const struct extent_seen *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Returns the bytes of the arena that objects take. */
static uint64_t check_memory(const struct sl_index_view *view, const struct sl_arena *arena)
{
    static struct extent_seen seen[EXTENTS_MAX];
    static char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    uint64_t cursor = 0, bytes = 0;
    size_t count = 0;
    while (count < EXTENTS_MAX && sl_index_scan(view, &cursor, &entry, key)) {
        if (entry.extent.generation == 0) {
            SIM_CHECK(entry.disk.valid != 0, "%s is nowhere", key);
            continue;
        }
        const void *value =
            sl_arena_at(arena, entry.extent.offset_bytes, entry.extent.length_bytes);
        SIM_CHECK(value != NULL, "%s lies outside of the arena", key);
        SIM_CHECK(sl_digest_equal(sl_digest_of(value, entry.extent.length_bytes), entry.digest),
                  "%s: bytes do not match the digest", key);
        uint64_t space = sl_extent_space(entry.extent.length_bytes);
        seen[count++] =
            (struct extent_seen){entry.extent.offset_bytes, entry.extent.offset_bytes + space};
        bytes += space;
    }
    qsort(seen, count, sizeof(*seen), extent_order);
    for (size_t i = 1; i < count; i++) {
        SIM_CHECK(seen[i - 1].to <= seen[i].from, "two objects share the arena's byte %llu",
                  (unsigned long long)seen[i].from);
    }
    return bytes;
}

/* at_rest: no writes or pins are in progress, so the used space is exactly that of the objects. */
static void check_node(struct run *run, bool at_rest)
{
    struct sl_index_view *view = NULL;
    struct sl_arena *arena = NULL;
    struct sl_error why = {0};
    struct sim *sim = run->sim;
    if (!sim_alive(sim, run->registrar)) {
        return;
    }
    SIM_CHECK(sl_index_view_open(sim_shm_dir(sim, 0), &view, &why) == SL_OK, "%s", why.text);
    SIM_CHECK(sl_arena_attach(sim_shm_dir(sim, 0), 0, false, &arena, &why) == SL_OK, "%s",
              why.text);
    uint64_t bytes = check_memory(view, arena);
    uint64_t used_bytes = sim_metric(sim, run->registrar, "used_bytes");
    SIM_CHECK(used_bytes <= sl_arena_data_bytes(arena), "more memory is used than there is");
    run->memory_peak = SL_MAX(run->memory_peak, used_bytes);
    struct sl_index_stats stats;
    sl_index_view_stats(view, &stats);
    SIM_CHECK(stats.record_bytes_used <= stats.record_bytes_max, "the index passed its ceiling");
    uint64_t disk_bytes =
        run->scenario->two ? 2 * DISK_BYTES : DISK_BYTES; /* one disk can hold all values */
    disk_bytes = has(run, TROUBLE_SMALL) ? DISK_BYTES_SMALL : disk_bytes;
    SIM_CHECK(sim_disk_bytes_peak(sim) <= disk_bytes, "the disk passed its ceiling");
    if (at_rest) {
        static const char *const none[] = {"claim_count", "retired_count", "quarantined_bytes",
                                           "forget_pending_count"};
        for (size_t i = 0; i < SL_COUNT(none); i++) {
            uint64_t left = sim_metric(sim, run->registrar, none[i]);
            SIM_CHECK(left == 0, "at rest, yet %s is %llu", none[i], (unsigned long long)left);
        }
        SIM_CHECK(used_bytes == bytes, "space is lost: %llu bytes are used, %llu by objects",
                  (unsigned long long)used_bytes, (unsigned long long)bytes);
    }
    sl_arena_close(&arena);
    sl_index_view_close(&view);
}

/* ---- processes ---- */

static void engine_start(struct run *run)
{
    if (run->engine_count == ENGINES_MAX) {
        return;
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "client.%u.0", run->engine_count + 1);
    run->engines[run->engine_count++] = sim_start(run->sim, &workload_engine, 0, name, &run->work);
    (void)snprintf(run->work.verifier, sizeof(run->work.verifier), "%s", name);
}

static void client_start(struct run *run, uint32_t slot)
{
    run->clients[slot] = sim_start_program(run->sim, objects_client, &run->objects.slots[slot]);
    run->client_again_ns[slot] = 0;
}

static void client_kill(struct run *run, uint32_t slot)
{
    if (run->client_again_ns[slot] == 0) {
        sim_kill(run->sim, run->clients[slot], SL_NEVER_NS);
        /* By then its last messages have arrived. */
        run->client_again_ns[slot] = sim_now_ns(run->sim) + 400 * SL_NS_PER_MS;
    }
}

static void node_start(struct run *run)
{
    run->registrar = sim_start(run->sim, &sl_registrar_actor, 0, NULL, NULL);
    run->victims[run->victim_count++] = run->registrar;
    run->victims[run->victim_count++] = sim_start(run->sim, &sl_keyer_actor, 0, NULL, NULL);
    for (uint32_t i = 0; i < (uint32_t)run->scenario->disk + run->scenario->two; i++) {
        run->tierer = sim_start(run->sim, &sl_tierer_actor, i, NULL, NULL);
        run->victims[run->victim_count++] = run->tierer;
    }
    for (uint32_t rank = 0; rank < WORKLOAD_RANKS; rank++) {
        run->victims[run->victim_count++] =
            sim_start(run->sim, &sl_swapper_actor, rank, NULL, NULL);
    }
    run->victims[run->victim_count++] = sim_start(run->sim, &sl_coordinator_actor, 0, NULL, NULL);
    for (uint32_t i = 0; i < ENGINES; i++) {
        engine_start(run);
    }
    for (uint32_t i = 0; i < OBJECTS_SLOTS; i++) {
        client_start(run, i);
    }
}

/* ---- disturbances ---- */

static void trouble_actors(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t victim = run->victims[sim_random_below(sim, run->victim_count)];
    if (has(run, TROUBLE_STOPS) && sim_random_below(sim, 2) == 0) {
        if (sim_alive(sim, victim)) {
            sim_stop(sim, victim,
                     sim_random_below(sim, sim_random_below(sim, 4) == 0 ? 3 * SL_NS_PER_S
                                                                         : 200 * SL_NS_PER_MS));
        }
    } else if (has(run, TROUBLE_KILLS)) {
        bool all = sim_random_below(sim, 12) == 0;
        for (uint32_t i = 0; i < run->victim_count; i++) {
            if (all || run->victims[i] == victim) {
                sim_kill(sim, run->victims[i], sim_random_below(sim, 60 * SL_NS_PER_MS));
            }
        }
    }
}

static void trouble_clients(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t slot = (uint32_t)sim_random_below(sim, OBJECTS_SLOTS);
    switch (sim_random_below(sim, 4)) {
    case 0: {
        uint32_t engine = run->engines[sim_random_below(sim, run->engine_count)];
        if (run->engine_count < ENGINES_MAX && sim_alive(sim, engine)) {
            sim_kill(sim, engine, SL_NEVER_NS);
            engine_start(run);
        }
        break;
    }
    case 1:
        client_kill(run, slot);
        break;
    default: /* it wakes up late, in the middle of some work */
        if (sim_alive(sim, run->clients[slot])) {
            sim_stop(sim, run->clients[slot],
                     sim_random_below(sim, sim_random_below(sim, 3) == 0 ? 4 * SL_NS_PER_S
                                                                         : 100 * SL_NS_PER_MS));
        }
        break;
    }
}

static void trouble_clocks(struct run *run)
{
    static const uint64_t naps[] = {SL_NS_PER_S / 2, 3 * SL_NS_PER_S, 10 * SL_NS_PER_S,
                                    3600 * SL_NS_PER_S};
    struct sim *sim = run->sim;
    if (sim_random_below(sim, 4) == 0) {
        sim_suspend(sim, sim_random_below(sim, naps[sim_random_below(sim, SL_COUNT(naps))]));
    } else {
        int64_t by_ns = (int64_t)sim_random_below(sim, 20000000 * SL_NS_PER_S);
        sim_set_wall(sim, sim_random_below(sim, 2) == 0 ? by_ns : -by_ns);
    }
}

static void power_cut(struct run *run)
{
    struct sim *sim = run->sim;
    sim_power_cut(sim, 0, 100 * SL_NS_PER_MS);
    run->work.warming = true;
    run->objects.warming = true;
    workload_power_cut(&run->work);
    objects_power_cut(&run->objects);
    if (has(run, TROUBLE_DAMAGE)) { /* any value may be lost, and none may reappear */
        sim_disk_damage(sim, 0);
        run->work.nothing_is_lost = false;
        run->objects.nothing_is_lost = false;
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        engine_start(run);
    }
    for (uint32_t slot = 0; slot < OBJECTS_SLOTS; slot++) {
        client_start(run, slot);
    }
}

static void clients_again(struct run *run)
{
    for (uint32_t slot = 0; slot < OBJECTS_SLOTS; slot++) {
        if (run->client_again_ns[slot] != 0 && run->client_again_ns[slot] <= sim_now_ns(run->sim)) {
            client_start(run, slot);
        }
    }
}

static void make_trouble(struct run *run)
{
    struct sim *sim = run->sim;
    uint64_t one_of = sim_random_below(sim, 10);
    if (one_of < 4 && has(run, TROUBLE_KILLS | TROUBLE_STOPS)) {
        trouble_actors(run);
    } else if (one_of < 7 && has(run, TROUBLE_CLIENTS)) {
        trouble_clients(run);
    } else if (one_of < 8 && has(run, TROUBLE_CLOCKS)) {
        trouble_clocks(run);
    } else if (one_of < 9 && has(run, TROUBLE_AWAY)) {
        sim_kill(sim, run->tierer, sim_random_below(sim, 3 * SL_NS_PER_S));
    } else if (has(run, TROUBLE_DISK)) {
        sim_disk_fault(sim, run->scenario->two ? 1 : 0,
                       (enum sim_fault)sim_random_below(sim, SIM_FAULT_COUNT),
                       sim_random_below(sim, 300 * SL_NS_PER_MS));
    }
    clients_again(run);
}

/* Whether the disk has reported its values. Calls that began earlier end within WARM_NS of that. */
static void check_warm(struct run *run)
{
    if (run->warm_ns == 0 && run->work.warming && sim_alive(run->sim, run->registrar) &&
        sim_metric(run->sim, run->registrar, "disk_ready") != 0) {
        run->warm_ns = sim_now_ns(run->sim);
    }
    if (run->warm_ns != 0 && sim_now_ns(run->sim) > run->warm_ns + WARM_NS) {
        run->work.warming = false;
        run->objects.warming = false;
    }
}

static void run_active(struct run *run, uint64_t duration_ns)
{
    uint64_t end_ns = sim_now_ns(run->sim) + duration_ns;
    while (sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 2 * SL_NS_PER_MS +
                                    sim_random_below(run->sim, 40 * SL_NS_PER_MS));
        check_node(run, false);
        check_warm(run);
        make_trouble(run);
    }
}

/* ---- recovery times (--heal) ---- */

/* Faults happen one by one. After the end of each, a put and a get of the same value must have
 * begun and ended within a second. */
#define HEAL_NS     SL_NS_PER_S
#define HEAL_FAULTS 6u
/* An idle actor sends a heartbeat twice a second, is late after another 0.6 s, and counts as hung a
 * second later; checks are 0.25 s apart. */
#define HANG_SEEN_NS    (2000 * SL_NS_PER_MS)
#define HEAL_PAUSE_NS   (300 * SL_NS_PER_MS) /* maximum pause before the next fault */
#define HEAL_STEP_NS    (5 * SL_NS_PER_MS)
#define PROBE_BYTES     100u
#define PROBE_TIMEOUT   (250 * SL_NS_PER_MS)
#define FAULT_LASTS_MAX (5000 * SL_NS_PER_S) /* a machine is suspended for an hour */

static void probe_run(void *context)
{
    struct probe *self = context;
    struct run *run = self->run;
    struct sl_client *client = NULL;
    unsigned char value[PROBE_BYTES], got[PROBE_BYTES] = {0};
    sim_dawdle_never();
    while (!run->objects.quiet && sim_client_open(run->sim, 0, NULL, &client) != SL_OK) {
        sim_sleep(HEAL_STEP_NS);
    }
    while (!run->objects.quiet) {
        char text[24];
        uint64_t began_ns = sim_now_ns(run->sim), length = 0;
        int key_length = snprintf(text, sizeof(text), "probe.%u", ++self->rounds);
        const struct sl_object_key key = {.at = text, .length = (uint32_t)key_length};
        const struct sl_buffer buffer = {.at = got, .length_bytes = sizeof(got)};
        memset(value, (int)(self->rounds % 251), sizeof(value));
        if (sl_put(client, key, value, sizeof(value), PROBE_TIMEOUT, NULL) == SL_OK &&
            sl_get(client, key, buffer, &length, PROBE_TIMEOUT, NULL) == SL_OK) {
            SIM_CHECK(length == sizeof(value) && memcmp(value, got, length) == 0, "wrong bytes: %s",
                      text);
            self->began_ns = began_ns;
            self->ended_ns = sim_now_ns(run->sim);
        }
        sim_sleep(sim_random_below(run->sim, HEAL_STEP_NS));
    }
    sl_client_close(&client);
}

static void probe_start(struct run *run)
{
    run->probe.run = run;
    run->probe.node = sim_start_program(run->sim, probe_run, &run->probe);
}

static void heal_kill_all(struct run *run)
{
    for (uint32_t i = 0; i < run->victim_count; i++) {
        sim_kill(run->sim, run->victims[i], sim_random_below(run->sim, 60 * SL_NS_PER_MS));
    }
}

static void heal_kill(struct run *run)
{
    sim_kill(run->sim, run->victims[sim_random_below(run->sim, run->victim_count)],
             sim_random_below(run->sim, 60 * SL_NS_PER_MS));
}

static void heal_stop(struct run *run)
{
    sim_stop(run->sim, run->victims[sim_random_below(run->sim, run->victim_count)],
             sim_random_below(run->sim, 3 * SL_NS_PER_S));
}

/* The supervisor detects the hang, and it is a new process within HANG_SEEN_NS. */
static void heal_hang(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t victim = run->victims[sim_random_below(sim, run->victim_count)];
    uint64_t life = sim_incarnation(sim, victim), until_ns = sim_now_ns(sim) + HANG_SEEN_NS;
    sim_hang(sim, victim);
    while (sim_incarnation(sim, victim) == life && sim_now_ns(sim) < until_ns) {
        sim_run_until(sim, sim_now_ns(sim) + HEAL_STEP_NS);
        check_node(run, false);
    }
    SIM_CHECK(sim_incarnation(sim, victim) != life, "an actor hangs, and is not ended");
}

/* Longer than a process may be silent: the first one to wake must not take the others for dead. */
static void heal_sleep(struct run *run)
{
    sim_suspend(run->sim, 2 * SL_NS_PER_S + sim_random_below(run->sim, 60 * SL_NS_PER_S));
}

static void heal_disk(struct run *run)
{
    enum sim_fault fault = (enum sim_fault)sim_random_below(run->sim, SIM_FAULT_COUNT);
    /* A disk that stays full drops its oldest values, as promised; the crash bed tests that. */
    uint64_t longest_ns = fault == SIM_FAULT_FULL ? 300 * SL_NS_PER_MS : SL_NS_PER_S;
    sim_disk_fault(run->sim, run->scenario->two ? 1 : 0, fault,
                   sim_random_below(run->sim, longest_ns));
}

static void heal_away(struct run *run)
{
    sim_kill(run->sim, run->tierer, sim_random_below(run->sim, 3 * SL_NS_PER_S));
}

static void heal_power(struct run *run)
{
    power_cut(run);
    probe_start(run);
}

/* excuse_ns: the time allowed beyond the second; the comments give the reason. */
static const struct heal_fault {
    const char *name;
    uint32_t trouble;
    uint64_t excuse_ns;
    void (*make)(struct run *run);
} heal_faults[] = {
    {"an actor was killed", TROUBLE_KILLS, 0, heal_kill},
    {"all actors were killed", TROUBLE_KILLS, 0, heal_kill_all},
    {"an actor was stopped", TROUBLE_STOPS, 0, heal_stop},
    {"an actor hung", TROUBLE_HANGS, 0, heal_hang},
    {"a client or engine died or was stopped", TROUBLE_CLIENTS, 0, trouble_clients},
    {"the clocks leapt", TROUBLE_CLOCKS, 0, trouble_clocks},
    {"the machine slept", TROUBLE_CLOCKS, 0, heal_sleep},
    {"the power went", TROUBLE_POWER, 0, heal_power},
    /* Writes pause for 2 s after a failure, and a small memory has no space until they resume. */
    {"a disk failed", TROUBLE_DISK, 2 * SL_NS_PER_S, heal_disk},
    {"a disk was missing", TROUBLE_AWAY, 0, heal_away},
};

static bool all_alive(const struct run *run)
{
    bool alive = true;
    for (uint32_t i = 0; i < run->victim_count; i++) {
        alive = alive && sim_alive(run->sim, run->victims[i]);
    }
    return alive;
}

static void heal_wait(struct run *run, const struct heal_fault *fault)
{
    struct sim *sim = run->sim;
    uint64_t began_ns = sim_now_ns(sim);
    while (!all_alive(run) || sim_now_ns(sim) < sim_disturbed_ns(sim)) {
        sim_run_until(sim, sim_now_ns(sim) + HEAL_STEP_NS);
        check_warm(run);
        SIM_CHECK(sim_now_ns(sim) < began_ns + FAULT_LASTS_MAX, "%s, and that has no end",
                  fault->name);
    }
    uint64_t end_ns = SL_MAX(sim_disturbed_ns(sim), began_ns);
    uint64_t until_ns = end_ns + HEAL_NS + fault->excuse_ns;
    while (sim_now_ns(sim) < until_ns && run->probe.began_ns < end_ns) {
        sim_run_until(sim, SL_MIN(until_ns, sim_now_ns(sim) + HEAL_STEP_NS));
        check_node(run, false);
        check_warm(run);
    }
    SIM_CHECK(run->probe.began_ns >= end_ns && run->probe.ended_ns <= until_ns,
              "%s, and %llu ms after the fault ended no client is served", fault->name,
              (unsigned long long)((until_ns - end_ns) / SL_NS_PER_MS));
    run->healed_ns_max = SL_MAX(run->healed_ns_max, run->probe.ended_ns - end_ns);
}

static void run_heal(struct run *run)
{
    struct sim *sim = run->sim;
    probe_start(run);
    for (uint32_t left = HEAL_FAULTS; left > 0;) {
        const struct heal_fault *fault = &heal_faults[sim_random_below(sim, SL_COUNT(heal_faults))];
        if (!has(run, (enum trouble)fault->trouble)) {
            continue;
        }
        left--;
        sim_run_until(sim, sim_now_ns(sim) + sim_random_below(sim, HEAL_PAUSE_NS));
        fault->make(run);
        heal_wait(run, fault);
        clients_again(run);
    }
}

/* ---- the end of a run ---- */

static void run_to_rest(struct run *run)
{
    run->work.quiet = true;
    run->objects.quiet = true;
    sim_run_until(run->sim, SL_MAX(sim_now_ns(run->sim), sim_disturbed_ns(run->sim)) + QUIET_NS);
    run->work.warming = false;
    run->objects.warming = false;
    contest_calls_over(&run->objects.contest);
    for (uint32_t slot = 0; slot < OBJECTS_SLOTS; slot++) {
        SIM_CHECK(!sim_alive(run->sim, run->clients[slot]), "client %u does not end", slot);
    }
}

static void run_program(struct run *run, void (*program)(void *), const char *what)
{
    run->objects.verified = false;
    (void)sim_start_program(run->sim, program, &run->objects);
    uint64_t end_ns = sim_now_ns(run->sim) + VERIFY_NS;
    while (!run->objects.verified && sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 50 * SL_NS_PER_MS);
    }
    SIM_CHECK(run->objects.verified, "%s does not end", what);
}

static void run_verify(struct run *run)
{
    if (!sim_alive(run->sim, run->engines[run->engine_count - 1])) {
        engine_start(run);
    }
    run->work.verifying = true;
    uint64_t end_ns = sim_now_ns(run->sim) + VERIFY_NS;
    while (run->work.verify_next < WORKLOAD_CHAINS && sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 50 * SL_NS_PER_MS);
    }
    SIM_CHECK(run->work.verify_next == WORKLOAD_CHAINS, "only %u chains could be verified",
              run->work.verify_next);
    run_program(run, objects_verifier, "the verification of objects");
    sim_run_until(run->sim, sim_now_ns(run->sim) + SL_NS_PER_S);
    check_node(run, true);
}

/* Removed values stay removed, whichever process restarts. */
static void run_remove(struct run *run)
{
    struct sim *sim = run->sim;
    run_program(run, objects_remover, "the removal of all");
    sim_run_until(sim, sim_now_ns(sim) + SL_NS_PER_S);
    check_node(run, true);
    SIM_CHECK(sim_metric(sim, run->registrar, "used_bytes") == 0, "space is lost");
    for (uint32_t i = 0; i < run->victim_count; i++) {
        sim_kill(sim, run->victims[i], sim_random_below(sim, 60 * SL_NS_PER_MS));
    }
    sim_run_until(sim, sim_now_ns(sim) + 2 * SL_NS_PER_S);
    uint64_t there = sim_metric(sim, run->registrar, "object_count") +
                     sim_metric(sim, run->registrar, "block_count") +
                     sim_metric(sim, run->registrar, "disk_object_count");
    SIM_CHECK(there == 0, "all was removed, yet %llu came back", (unsigned long long)there);
}

static void run_print(const struct run *run)
{
    const struct workload *work = &run->work;
    const struct objects *objects = &run->objects;
#define U(x) ((unsigned long long)(x))
    printf(
        "%s: %llu loads (%llu blocks), %llu stores (%llu blocks, %llu existed), %llu failed, "
        "%llu unanswered, %llu cancelled, %llu unfenced, %llu verified, by layers %llu stores and "
        "%llu layers reported, longest wait %llu ms\n",
        run->scenario->name, U(work->loads), U(work->blocks_loaded), U(work->stores),
        U(work->blocks_stored), U(work->blocks_existed), U(work->failed), U(work->unanswered),
        U(work->cancelled), U(work->waited_for_fence), U(work->verified), U(work->stored_by_layers),
        U(work->layers_reported), U(work->longest_wait_ns / SL_NS_PER_MS));
    printf(
        "%llu puts (%llu failed), %llu gets (%llu found, %llu missed, %llu failed), %llu pinned, "
        "%llu removes, %llu replaced, %llu flushes, %llu prefetched, %llu leases taken, %llu "
        "heeded, slowest %llu "
        "ms; memory %llu KiB, disk %llu "
        "KiB; "
        "%llu events, hash %016llx\n",
        U(objects->puts), U(objects->put_failed), U(objects->gets), U(objects->found),
        U(objects->missed), U(objects->get_failed), U(objects->pinned), U(objects->removes),
        U(objects->replaces), U(objects->flushes), U(objects->prefetched), U(objects->leases_taken),
        U(objects->leases_heeded), U(objects->slowest_ns / SL_NS_PER_MS),
        U(run->memory_peak / 1024), U(sim_disk_bytes_peak(run->sim) / 1024),
        U(sim_event_count(run->sim)), U(sim_hash(run->sim)));
    if (run->probe.run != NULL) {
        printf("served again %llu us after a fault was over, at most; %llu hung\n",
               U(run->healed_ns_max / SL_NS_PER_US), U(sim_supervisor_kills(run->sim)));
    }
#undef U
}

/* The seed chooses disk_admission: mostly all, else values wanted twice, or as much as a budget of
 * bytes allows. With the latter two, values that were not flushed may be lost. */
static const char *const *admission_of(uint64_t seed, const struct scenario *scenario)
{
    static const char *const drawn[][2] = {
        {"disk_admission", "second"}, {"disk_write_budget", "1MiB"}, {"disk_admission", "reuse"}};
    uint64_t round = seed / SL_COUNT(scenarios);
    return scenario->disk && round % 2 == 1 ? drawn[round / 2 % SL_COUNT(drawn)] : NULL;
}

/* Returns the hash of all events. */
static uint64_t run_seed(uint64_t seed, const struct scenario *scenario, bool heal)
{
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    bool small = (scenario->trouble & TROUBLE_SMALL) != 0;
    const char *const *plain =
        settings_of[scenario->ample][small ? 3 : scenario->disk + scenario->two];
    const char *settings[SETTINGS_MAX + 4] = {0};
    uint32_t setting_count = 0;
    for (; plain[setting_count] != NULL; setting_count++) {
        settings[setting_count] = plain[setting_count];
    }
    if ((scenario->trouble & TROUBLE_LEASES) != 0) {
        settings[setting_count++] = "lease_ttl";
        settings[setting_count++] = "60ms";
    }
    const char *const *admission = admission_of(seed, scenario);
    for (uint32_t i = 0; admission != NULL && i < 2; i++) {
        settings[setting_count++] = admission[i];
    }
    struct sim_options options = {
        .seed = seed,
        .settings = settings,
        .delay_ns_max = scenario->delay_ns_max,
        .late_of = scenario->late_of,
        .log = getenv("SL_SIM_LOG") != NULL,
    };
    sim_node_mutants_init(heal);
    run->scenario = scenario;
    run->sim = sim_create(&options);
    if (has(run, TROUBLE_HANGS)) {
        sim_supervise(run->sim);
    }
    bool kept = scenario->disk && admission == NULL && !small;
    bool lossless = (scenario->ample || kept) && !small && !has(run, TROUBLE_REMOVALS);
    run->work = (struct workload){
        .seed = seed, .piece_bytes = scenario->ample ? 700 : 6000, .nothing_is_lost = lossless};
    run->objects.nothing_is_lost = scenario->ample || kept;
    run->objects.disk = scenario->disk;
    run->objects.leases = (scenario->trouble & TROUBLE_LEASES) != 0;
    run->objects.strict = scenario->ample;
    run->objects.hostile_to_blocks = has(run, TROUBLE_REMOVALS);
    run->objects.flushed = workload_flushed;
    run->objects.context = &run->work;
    objects_init(&run->objects, run->sim);
    run->objects.uncontested = heal; /* in such long runs histories would never end */
    node_start(run);
    if (heal) {
        run_heal(run);
    } else {
        run_active(run, ACTIVE_NS);
        if (has(run, TROUBLE_POWER)) {
            power_cut(run);
            run_active(run, ACTIVE_NS);
        }
    }
    run_to_rest(run);
    run_verify(run);
    run_remove(run);
    contest_check(&run->objects.contest);
    if (getenv("SL_SIM_SEED") != NULL) {
        run_print(run);
    }
    uint64_t hash = sim_hash(run->sim);
    sim_destroy(&run->sim);
    free(run);
    return hash;
}

static uint64_t run_of(uint64_t seed)
{
    return run_seed(seed, &scenarios[seed % SL_COUNT(scenarios)], false);
}

/* Scenarios without late messages: with those, a disturbance has no clear end. */
static const struct scenario heal_scenarios[] = {
    {"heals: memory, kills and stops", TROUBLE_PROCESSES, true, false, 0, 0, false},
    {"heals: tiny memory, kills and stops", TROUBLE_PROCESSES, false, false, 0, 0, false},
    {"heals: a disk, kills and stops", TROUBLE_PROCESSES, false, true, 0, 0, false},
    {"heals: a disk, clocks", TROUBLE_CLOCKS | TROUBLE_KILLS, true, true, 0, 0, false},
    {"heals: a disk, errors", TROUBLE_DISK | TROUBLE_KILLS, false, true, 0, 0, false},
    {"heals: a disk, power cuts", TROUBLE_POWER | TROUBLE_KILLS, true, true, 0, 0, false},
    {"heals: hangs", TROUBLE_HANGS | TROUBLE_PROCESSES, true, false, 0, 0, false},
    {"heals: a disk, hangs, clocks", TROUBLE_HANGS | TROUBLE_CLOCKS | TROUBLE_KILLS, true, true, 0,
     0, false},
    {"heals: two disks", TROUBLE_DISK | TROUBLE_AWAY | TROUBLE_PROCESSES, false, true, 0, 0, true},
};

static uint64_t heal_of(uint64_t seed)
{
    return run_seed(seed, &heal_scenarios[seed % SL_COUNT(heal_scenarios)], true);
}

static const char *heal_name_of(uint64_t seed)
{
    return heal_scenarios[seed % SL_COUNT(heal_scenarios)].name;
}

static const char *name_of(uint64_t seed)
{
    return scenarios[seed % SL_COUNT(scenarios)].name;
}

int main(int argc, char **argv)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_of, name_of, NULL};
    static const struct sim_seeds heals = {HEALS_STANDARD, heal_of, heal_name_of, "--heal"};
    if (argc > 1 && strcmp(argv[1], "--heal") == 0) {
        return sim_seeds_main(&heals);
    }
    return argc > 1 && strcmp(argv[1], "--mutants") == 0 ? sim_node_mutants_main(&seeds, &heals)
                                                         : sim_seeds_main(&seeds);
}
