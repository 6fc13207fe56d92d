/* tests/sim/sim_members_test.c - two disks that appear in any order, or one long after the other,
 * over a series of node lives. The disks fail, and the power is cut at any time. Each path always
 * leads to the same disk, so neither may begin empty: durable values are found when both are back,
 * removed ones are not.
 *
 * Choosing seeds: sim_seeds.h. */
#include "actors/registrar/registrar.h"
#include "actors/tierer/tierer.h"
#include "client/include/sluice.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 200u
#endif
#define LIVES       5u
#define KEYS_MAX    64u
#define VALUE_BYTES 5000u
#define CALL_NS     (2 * SL_NS_PER_S)
#define PROGRAM_NS  (60 * SL_NS_PER_S)
#define LATE_NS     (21 * SL_NS_PER_S) /* longer than a present disk waits for another one */
#define CUT_NS      (4 * SL_NS_PER_MS)

static const char *const settings[] = {"ranks",
                                       "1",
                                       "memory",
                                       "4MiB",
                                       "memory_chunk",
                                       "4MiB",
                                       "index_memory",
                                       "2MiB",
                                       "index_keys",
                                       "4096",
                                       "io_grace",
                                       "1s",
                                       "clients_max",
                                       "64",
                                       "reservations_max",
                                       "1024",
                                       "populate_threads",
                                       "1",
                                       "message_bytes_max",
                                       "1MiB",
                                       "disk",
                                       "64MiB",
                                       "disk_segment",
                                       "1MiB",
                                       "disk_path",
                                       "/one,/two",
                                       NULL};

enum outcome { FATE_UNKNOWN, FATE_DURABLE, FATE_GONE };

struct run {
    struct sim *sim;
    uint32_t registrar, tierers[SIM_DISKS];
    enum outcome outcomes[KEYS_MAX];
    uint32_t key_count;
    uint32_t put_count, remove_count; /* for the next run of the program */
    bool flush;
    bool done; /* the program has finished */
    bool late; /* a disk is late in this life */
    uint32_t late_lives, durable, gone;
};

static struct sl_object_key key_name(uint32_t key, char text[16])
{
    int length = snprintf(text, 16, "key.%u", key);
    return (struct sl_object_key){.at = text, .length = (uint32_t)length};
}

static void value_fill(unsigned char out[VALUE_BYTES], uint32_t key)
{
    for (uint32_t i = 0; i < VALUE_BYTES; i++) {
        out[i] = (unsigned char)(key * 31 + i);
    }
}

static struct sl_client *client_open(const struct run *run)
{
    struct sl_client *client = NULL;
    while (sim_client_open(run->sim, 0, NULL, &client) != SL_OK) {
        sim_sleep(20 * SL_NS_PER_MS);
    }
    return client;
}

/* ---- what clients do ---- */

static void work_run(void *context)
{
    struct run *run = context;
    unsigned char value[VALUE_BYTES];
    struct sl_client *client = client_open(run);
    char text[16];
    uint32_t first = run->key_count;
    for (uint32_t i = 0; i < run->put_count && run->key_count < KEYS_MAX; i++) {
        uint32_t key = run->key_count++;
        value_fill(value, key);
        (void)sl_put(client, key_name(key, text), value, sizeof(value), CALL_NS, NULL);
    }
    bool flushed = run->flush && sl_flush(client, CALL_NS, NULL) == SL_OK;
    for (uint32_t key = first; key < run->key_count; key++) {
        /* A put without an answer may show; the flush came later and covers it. */
        bool there = sl_exists(client, key_name(key, text)) == SL_OK;
        run->outcomes[key] = flushed && there ? FATE_DURABLE : FATE_UNKNOWN;
    }
    for (uint32_t i = 0; i < run->remove_count && first > 0; i++) {
        uint32_t key = (uint32_t)sim_random_below(run->sim, first);
        sl_err err = sl_remove(client, key_name(key, text), CALL_NS, NULL);
        bool gone = err == SL_OK || (err == SL_ERR_NOT_FOUND && run->outcomes[key] == FATE_GONE);
        run->outcomes[key] = gone ? FATE_GONE : FATE_UNKNOWN;
    }
    sl_client_close(&client);
    run->done = true;
}

static void verify_run(void *context)
{
    struct run *run = context;
    unsigned char want[VALUE_BYTES], got[VALUE_BYTES];
    struct sl_client *client = client_open(run);
    for (uint32_t key = 0; key < run->key_count; key++) {
        char text[16];
        uint64_t length = 0;
        struct sl_buffer buffer = {.at = got, .length_bytes = sizeof(got)};
        sl_err err = sl_get(client, key_name(key, text), buffer, &length, CALL_NS, NULL);
        SIM_CHECK(err == SL_OK || run->outcomes[key] != FATE_DURABLE, "%s was durable: %s", text,
                  sl_err_text(err));
        SIM_CHECK(err != SL_OK || run->outcomes[key] != FATE_GONE, "%s was removed and is back",
                  text);
        value_fill(want, key);
        SIM_CHECK(err != SL_OK || (length == VALUE_BYTES && memcmp(want, got, length) == 0),
                  "wrong bytes: %s", text);
        run->durable += run->outcomes[key] == FATE_DURABLE;
        run->gone += run->outcomes[key] == FATE_GONE;
    }
    sl_client_close(&client);
    run->done = true;
}

static void program_run(struct run *run, void (*program)(void *context))
{
    uint64_t end_ns = sim_now_ns(run->sim) + PROGRAM_NS;
    run->done = false;
    (void)sim_start_program(run->sim, program, run);
    while (!run->done && sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 5 * SL_NS_PER_MS);
    }
    SIM_CHECK(run->done, "a program does not end");
}

static void work(struct run *run, bool flush)
{
    run->put_count = (uint32_t)sim_random_below(run->sim, 4);
    run->remove_count = (uint32_t)sim_random_below(run->sim, 2);
    run->flush = flush;
    program_run(run, work_run);
}

/* ---- a life ---- */

static void wait_ready(struct run *run)
{
    uint64_t end_ns = sim_now_ns(run->sim) + PROGRAM_NS;
    while ((!sim_alive(run->sim, run->registrar) ||
            sim_metric(run->sim, run->registrar, "disk_ready") == 0) &&
           sim_now_ns(run->sim) < end_ns) {
        sim_run_until(run->sim, sim_now_ns(run->sim) + 10 * SL_NS_PER_MS);
    }
    SIM_CHECK(sim_metric(run->sim, run->registrar, "disk_ready") != 0, "a disk is not ready");
}

/* Chooses the disk that appears only after the other has been served for a while. */
static void disk_hold(struct run *run)
{
    uint64_t late = sim_random_below(run->sim, SIM_DISKS + 1);
    run->late = late < SIM_DISKS;
    if (run->late) {
        sim_kill(run->sim, run->tierers[late], LATE_NS + 3 * SL_NS_PER_S);
        run->late_lives++;
    }
}

/* Meanwhile the registrar may be restarted. */
static void life_begin(struct run *run)
{
    struct sim *sim = run->sim;
    if (!run->late) {
        sim_run_until(sim, sim_now_ns(sim) + sim_random_below(sim, SL_NS_PER_S));
        return;
    }
    if (sim_random_below(sim, 4) > 0) {
        sim_run_until(sim, sim_now_ns(sim) + LATE_NS);
        work(run, sim_random_below(sim, 2) == 0);
        if (sim_random_below(sim, 3) == 0) {
            sim_kill(sim, run->registrar, sim_random_below(sim, 60 * SL_NS_PER_MS));
        }
    }
    sim_run_until(sim, sim_now_ns(sim) + LATE_NS + 3 * SL_NS_PER_S);
}

/* A disk fails for a while, and a tierer is killed. */
static void trouble(struct run *run)
{
    struct sim *sim = run->sim;
    if (sim_random_below(sim, 2) == 0) {
        sim_disk_fault(sim, (uint32_t)sim_random_below(sim, SIM_DISKS),
                       sim_random_below(sim, 2) == 0 ? SIM_FAULT_WRITE : SIM_FAULT_SYNC,
                       sim_random_below(sim, 300 * SL_NS_PER_MS));
        work(run, sim_random_below(sim, 2) == 0);
        sim_kill(sim, run->tierers[sim_random_below(sim, SIM_DISKS)],
                 sim_random_below(sim, 60 * SL_NS_PER_MS));
    }
}

static void life(struct run *run)
{
    struct sim *sim = run->sim;
    life_begin(run);
    wait_ready(run);
    sim_run_until(sim, sim_now_ns(sim) + SL_NS_PER_S);
    program_run(run, verify_run);
    trouble(run);
    if (sim_random_below(sim, 4) > 0) {
        work(run, true);
    }
    if (sim_random_below(sim, 2) == 0) { /* during the work */
        work(run, false);
        sim_run_until(sim, sim_now_ns(sim) + sim_random_below(sim, CUT_NS));
    }
}

/* Returns the hash of all events. */
static uint64_t run_seed(uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    struct sim_options options = {
        .seed = seed, .settings = settings, .log = getenv("SL_SIM_LOG") != NULL};
    run->sim = sim_create(&options);
    run->registrar = sim_start(run->sim, &sl_registrar_actor, 0, NULL, NULL);
    for (uint32_t i = 0; i < SIM_DISKS; i++) {
        run->tierers[i] = sim_start(run->sim, &sl_tierer_actor, i, NULL, NULL);
    }
    disk_hold(run);
    for (uint32_t i = 0; i < LIVES; i++) {
        life(run);
        if (i + 1 < LIVES) {
            disk_hold(run);
            sim_power_cut(run->sim, 0, 100 * SL_NS_PER_MS);
        }
    }
    program_run(run, verify_run);
    if (getenv("SL_SIM_SEED") != NULL) {
        printf("%u values, found durable %u times, gone %u times; in %u of %u lives a disk came "
               "late\n",
               run->key_count, run->durable, run->gone, run->late_lives, LIVES);
    }
    uint64_t hash = sim_hash(run->sim);
    sim_destroy(&run->sim);
    free(run);
    return hash;
}

static const char *name_of(uint64_t seed)
{
    (void)seed;
    return "two disks, in any order";
}

int main(void)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_seed, name_of, NULL};
    return sim_seeds_main(&seeds);
}
