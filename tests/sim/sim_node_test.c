/* tests/sim/sim_node_test.c - a whole node under chance: engines store and load while actors are
 * killed, stopped and started again. Checked: every loaded byte is right, what was acknowledged is
 * found, nobody touches device blocks after their fence, every op ends by its deadline, extents
 * never overlap, digests fit, ceilings hold.
 *
 * SL_SIM_SEEDS: how many runs; SL_SIM_FROM: rounds of all scenarios to skip; SL_SIM_SEED: this one
 * alone; SL_SIM_LOG=1: with the actors' logs. */
#include "actors/coordinator/coordinator.h"
#include "actors/keyer/keyer.h"
#include "actors/registrar/registrar.h"
#include "actors/swapper/swapper.h"
#include "actors/tierer/tierer.h"
#include "ipc/sl_index.h"
#include "tests/sim/sim_putter.h"
#include "tests/sim/sim_workload.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS_STANDARD 30u
#define ACTIVE_NS      (3 * SL_NS_PER_S)
#define QUIET_NS       (8 * SL_NS_PER_S) /* the last ops end, fences and reservations too */
#define ENGINES        3u

enum trouble { TROUBLE_NONE, TROUBLE_KILLS, TROUBLE_ALL };

struct scenario {
    const char *name;
    enum trouble trouble;
    bool ample; /* memory for everything: nothing may be lost */
    bool disk;  /* a disk for everything: likewise */
    uint64_t delay_ns_max;
};

static const struct scenario scenarios[] = {
    {"undisturbed", TROUBLE_NONE, true, false, 0},
    {"kills", TROUBLE_KILLS, true, false, 0},
    {"kills and stops", TROUBLE_ALL, true, false, 2 * SL_NS_PER_MS},
    {"tiny memory", TROUBLE_NONE, false, false, 0},
    {"tiny memory, kills and stops", TROUBLE_ALL, false, false, SL_NS_PER_MS},
    {"tiny memory over a disk", TROUBLE_NONE, false, true, 0},
    {"tiny memory over a disk, kills", TROUBLE_KILLS, false, true, 0},
};

static const char *const ample_settings[] = {
    "ranks", "2", "memory", "8MiB", "memory_chunk", "8MiB", "index_memory", "4MiB", NULL};
static const char *const tiny_settings[] = {
    "ranks", "2", "memory", "1MiB", "memory_chunk", "1MiB", "index_memory", "4MiB", NULL};
static const char *const disk_settings[] = {
    "ranks", "2",    "memory", "1MiB",         "memory_chunk", "1MiB", "index_memory",
    "4MiB",  "disk", "60MiB",  "disk_segment", "1MiB",         NULL};

struct run {
    struct sim *sim;
    struct workload work;
    const struct scenario *scenario;
    uint32_t victims[8], victim_count;
    uint32_t engines[16], engine_count;
    uint32_t registrar;
};

/* ---- what holds at any time ---- */

struct extent_seen {
    uint64_t from, to;
};

static int extent_order(const void *a, const void *b)
{
    const struct extent_seen *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

static void check_memory(struct run *run, const struct sl_index_view *view,
                         const struct sl_arena *arena)
{
    struct extent_seen *seen = calloc(65536, sizeof(*seen));
    static char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    uint64_t cursor = 0;
    size_t count = 0;
    SIM_CHECK(seen != NULL, "out of memory");
    while (count < 65536 && sl_index_scan(view, &cursor, &entry, key)) {
        if (entry.extent.generation == 0) {
            continue;
        }
        const void *value =
            sl_arena_at(arena, entry.extent.offset_bytes, entry.extent.length_bytes);
        SIM_CHECK(value != NULL, "%s lies outside of the arena", key);
        SIM_CHECK(sl_digest_equal(sl_digest_of(value, entry.extent.length_bytes), entry.digest),
                  "%s: bytes do not match the digest", key);
        seen[count++] = (struct extent_seen){entry.extent.offset_bytes,
                                             entry.extent.offset_bytes +
                                                 sl_extent_space(entry.extent.length_bytes)};
    }
    qsort(seen, count, sizeof(*seen), extent_order);
    for (size_t i = 1; i < count; i++) {
        SIM_CHECK(seen[i - 1].to <= seen[i].from, "two objects share the arena's byte %llu",
                  (unsigned long long)seen[i].from);
    }
    uint64_t used_bytes = sim_metric(run->sim, run->registrar, "used_bytes");
    ck_assert_uint_le(used_bytes, sl_arena_data_bytes(arena));
    free(seen);
}

static void check_node(struct run *run)
{
    struct sl_index_view *view = NULL;
    struct sl_arena *arena = NULL;
    struct sl_error why = {0};
    if (!sim_alive(run->sim, run->registrar)) {
        return;
    }
    SIM_CHECK(sl_index_view_open(sim_shm_dir(run->sim), &view, &why) == SL_OK, "%s", why.text);
    SIM_CHECK(sl_arena_attach(sim_shm_dir(run->sim), 0, false, &arena, &why) == SL_OK, "%s",
              why.text);
    check_memory(run, view, arena);
    sl_arena_close(&arena);
    sl_index_view_close(&view);
}

/* ---- a run ---- */

static uint32_t engine_start(struct run *run)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "client.%u.0", run->engine_count + 1);
    uint32_t node = sim_start(run->sim, &workload_engine, 0, name, &run->work);
    run->engines[run->engine_count++] = node;
    return node;
}

static void node_start(struct run *run)
{
    run->registrar = sim_start(run->sim, &sl_registrar_actor, 0, NULL, NULL);
    run->victims[run->victim_count++] = run->registrar;
    run->victims[run->victim_count++] = sim_start(run->sim, &sl_keyer_actor, 0, NULL, NULL);
    if (run->scenario->disk) {
        run->victims[run->victim_count++] = sim_start(run->sim, &sl_tierer_actor, 0, NULL, NULL);
    }
    for (uint32_t rank = 0; rank < WORKLOAD_RANKS; rank++) {
        run->victims[run->victim_count++] =
            sim_start(run->sim, &sl_swapper_actor, rank, NULL, NULL);
    }
    run->work.coordinator = sim_start(run->sim, &sl_coordinator_actor, 0, NULL, NULL);
    run->victims[run->victim_count++] = run->work.coordinator;
    if (!run->scenario->disk) { /* there the memory that tierers leave behind is what is scarce */
        run->victims[run->victim_count++] =
            sim_start(run->sim, &putter_client, 0, "client.put.0", &run->work);
    }
    for (uint32_t i = 0; i < ENGINES; i++) {
        (void)engine_start(run);
    }
}

static void make_trouble(struct run *run)
{
    struct sim *sim = run->sim;
    enum trouble trouble = run->scenario->trouble;
    uint32_t victim = run->victims[sim_random_below(sim, run->victim_count)];
    if (!sim_alive(sim, victim)) {
        return;
    }
    if (trouble == TROUBLE_ALL && sim_random_below(sim, 8) == 0 &&
        run->engine_count < SL_COUNT(run->engines)) {
        sim_kill(sim, run->engines[1 + sim_random_below(sim, run->engine_count - 1)],
                 SL_NEVER_NS); /* the first one verifies */
        (void)engine_start(run);
        return;
    }
    if (trouble == TROUBLE_ALL && sim_random_below(sim, 2) == 0) {
        sim_stop(sim, victim,
                 sim_random_below(sim, sim_random_below(sim, 4) == 0 ? 3 * SL_NS_PER_S
                                                                     : 200 * SL_NS_PER_MS));
    } else {
        sim_kill(sim, victim, sim_random_below(sim, 60 * SL_NS_PER_MS));
    }
}

static void run_active(struct run *run)
{
    uint64_t end_ns = sim_now_ns(run->sim) + ACTIVE_NS;
    while (sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 20 * SL_NS_PER_MS +
                                    sim_random_below(run->sim, 200 * SL_NS_PER_MS));
        check_node(run);
        if (run->scenario->trouble != TROUBLE_NONE) {
            make_trouble(run);
        }
    }
}

static void run_seed(uint64_t seed, const struct scenario *scenario)
{
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    struct sim_options options = {
        .seed = seed,
        .settings = scenario->ample  ? ample_settings
                    : scenario->disk ? disk_settings
                                     : tiny_settings,
        .delay_ns_max = scenario->delay_ns_max,
        .log = getenv("SL_SIM_LOG") != NULL,
    };
    run->scenario = scenario;
    run->sim = sim_create(&options);
    run->work = (struct workload){.seed = seed,
                                  .piece_bytes = scenario->ample ? 700 : 6000,
                                  .nothing_is_lost = scenario->ample || scenario->disk};
    node_start(run);
    run_active(run);
    run->work.quiet = true;
    sim_run_until(run->sim, sim_now_ns(run->sim) + QUIET_NS);
    check_node(run);
    run->work.verifying = true;
    sim_run_until(run->sim, sim_now_ns(run->sim) + 5 * SL_NS_PER_S);
    check_node(run);
    const struct workload *work = &run->work;
    if (getenv("SL_SIM_SEED") != NULL) {
        printf("%s: %llu loads (%llu blocks), %llu stores (%llu blocks, %llu existed), %llu "
               "failed, %llu unanswered, %llu cancelled, "
               "%llu unfenced, %llu verified, %llu published, %llu too late, longest wait %llu ms, "
               "%llu events\n",
               scenario->name, (unsigned long long)work->loads,
               (unsigned long long)work->blocks_loaded, (unsigned long long)work->stores,
               (unsigned long long)work->blocks_stored, (unsigned long long)work->blocks_existed,
               (unsigned long long)work->failed, (unsigned long long)work->unanswered,
               (unsigned long long)work->cancelled, (unsigned long long)work->waited_for_fence,
               (unsigned long long)work->verified, (unsigned long long)work->published,
               (unsigned long long)work->publish_late,
               (unsigned long long)(work->longest_wait_ns / SL_NS_PER_MS),
               (unsigned long long)sim_event_count(run->sim));
    }
    SIM_CHECK(scenario->disk || work->published > 20, "only %llu objects were published",
              (unsigned long long)work->published);
    SIM_CHECK(sim_metric(run->sim, run->registrar, "ahead_bytes") == 0,
              "grants ahead of use outlive their time");
    SIM_CHECK(work->verify_next == WORKLOAD_CHAINS, "only %u chains could be verified",
              work->verify_next);
    ck_assert_uint_gt(work->loads, 20);
    ck_assert_uint_gt(work->blocks_stored, 20);
    ck_assert_uint_gt(work->blocks_loaded, 20);
    sim_destroy(&run->sim);
    free(run);
}

/* Each seed in a process of its own: killed actors leave mappings behind, which only its end takes
 * away. */
static void run_child(uint64_t seed, const struct scenario *scenario)
{
    if (getenv("SL_SIM_SEED") != NULL) {
        run_seed(seed, scenario);
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        run_seed(seed, scenario);
        _exit(0); /* no search for leaks: the heaps of killed actors are meant to be lost */
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        sim_sweep((uint32_t)child, seed);
        fprintf(stderr, "scenario '%s' failed: replay it with SL_SIM_SEED=%llu\n", scenario->name,
                (unsigned long long)seed);
    }
    SIM_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "scenario '%s': replay with SL_SIM_SEED=%llu", scenario->name,
              (unsigned long long)seed);
}

START_TEST(node_keeps_its_promises)
    {
        const char *one = getenv("SL_SIM_SEED"), *many = getenv("SL_SIM_SEEDS");
        uint64_t count = many != NULL ? strtoull(many, NULL, 10) : SEEDS_STANDARD;
        const char *from = getenv("SL_SIM_FROM");
        uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 0;
        if (one != NULL) {
            uint64_t seed = strtoull(one, NULL, 10);
            if ((seed - 1) % SL_COUNT(scenarios) == (uint64_t)_i) {
                run_child(seed, &scenarios[_i]);
            }
            return;
        }
        uint64_t share = (count + SL_COUNT(scenarios) - 1) / SL_COUNT(scenarios);
        for (uint64_t i = 0; i < share; i++) {
            run_child(1 + (first + i) * SL_COUNT(scenarios) + (uint64_t)_i, &scenarios[_i]);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_node");
    TCase *node = tcase_create("node");
    tcase_set_timeout(node, 600);
    tcase_add_loop_test(node, node_keeps_its_promises, 0, SL_COUNT(scenarios));
    suite_add_tcase(suite, node);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
