/* tests/sim/sim_pools_test.c - the table of pools under kills and stops of the registrar and of its
 * clients.
 *
 * Clients make pools, wait for them, map them, are notified of their end and release them, with
 * libsluice as shipped. The test compares with the truth: a pool has one owner; a revoked pool is
 * mapped by no living process, and no client gets it again; every wait ends by its deadline; when
 * all is quiet no pool is left. */
#include "actors/registrar/registrar.h"
#include "client/include/sluice.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 60u
#endif
#define CLIENTS    5u
#define POOLS      2u
#define POOL_BYTES 4096u
#define ACTIVE_NS  (20 * SL_NS_PER_S)
#define QUIET_NS   (15 * SL_NS_PER_S)
#define CALL_NS    SL_NS_PER_S
/* A client that is unknown after a restart sends HELLO first, and retries end slightly late. */
#define SLACK_NS (500 * SL_NS_PER_MS)

static const char *const settings[] = {"ranks",
                                       "1",
                                       "memory",
                                       "1MiB",
                                       "memory_chunk",
                                       "1MiB",
                                       "index_memory",
                                       "2MiB",
                                       "index_keys",
                                       "1024",
                                       "clients_max",
                                       "64",
                                       "reservations_max",
                                       "64",
                                       "populate_threads",
                                       "1",
                                       "message_bytes_max",
                                       "1MiB",
                                       NULL};

struct bed;
struct client {
    struct bed *all;
    uint32_t number, node;
    uint64_t owns[POOLS], maps[POOLS]; /* epochs: the truth, which the node does not know */
};
struct bed {
    struct sim *sim;
    struct client clients[CLIENTS];
    uint32_t registrar;
    bool quiet;
    uint64_t ended[POOLS]; /* newest epoch that was revoked */
    uint64_t made, published, revoked, mapped, over, left, timeouts, died, kills, stops;
};

/* ---- the truth ---- */

static bool lives(const struct bed *bed, const struct client *client)
{
    return sim_alive(bed->sim, client->node);
}

static void must_be_alone(const struct client *self, uint32_t pool)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *other = &self->all->clients[i];
        SIM_CHECK(other == self || !lives(self->all, other) || other->owns[pool] == 0,
                  "pool %u has two owners: clients %u and %u", pool, self->number, i);
    }
}

static void must_be_unmapped(const struct client *self, uint32_t pool, uint64_t epoch)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct client *other = &self->all->clients[i];
        SIM_CHECK(!lives(self->all, other) || other->maps[pool] != epoch,
                  "pool %u is revoked, and client %u maps it", pool, i);
    }
}

struct timed {
    uint64_t began_ns, stalled_ns, timeout_ns;
};

static struct timed timed_start(const struct client *self, uint64_t timeout_ns)
{
    return (struct timed){sim_now_ns(self->all->sim), sim_stalled_ns(), timeout_ns};
}

static void timed_end(const struct client *self, const struct timed *timed, const char *what)
{
    uint64_t took_ns = sim_now_ns(self->all->sim) - timed->began_ns;
    took_ns -= SL_MIN(took_ns, sim_stalled_ns() - timed->stalled_ns);
    SIM_CHECK(took_ns <= timed->timeout_ns + SLACK_NS, "%s took %" PRIu64 " ms of %" PRIu64, what,
              took_ns / SL_NS_PER_MS, timed->timeout_ns / SL_NS_PER_MS);
}

/* ---- a client ---- */

static struct sl_pool_key key_of(uint32_t pool)
{
    static const char *const names[POOLS] = {"attention", "mamba"};
    return (struct sl_pool_key){.deployment = "sim", .rank = 0, .pool = names[pool]};
}

static void pool_give_back(struct client *self, uint32_t index, struct sl_pool **pool)
{
    self->owns[index] = 0;
    self->maps[index] = 0;
    sl_pool_release(pool);
}

static void own(struct client *self, struct sl_client *client, uint32_t index)
{
    struct bed *all = self->all;
    struct sl_pool_key key = key_of(index);
    struct sl_pool *pool = NULL;
    struct sl_pool_memory memory = {.kind = SL_POOL_MEMORY_CUDA_IPC, .fd = -1, .handle = {1}};
    struct timed timed = timed_start(self, CALL_NS);
    sl_err err = sl_pool_create(client, &key, POOL_BYTES, CALL_NS, &pool, NULL);
    timed_end(self, &timed, "create");
    if (err != SL_OK) {
        return;
    }
    uint64_t epoch = sl_pool_epoch(pool);
    must_be_alone(self, index);
    SIM_CHECK(epoch > all->ended[index], "epoch %" PRIu64 " is over and given again", epoch);
    self->owns[index] = epoch;
    all->made++;
    sim_sleep(sim_random_below(all->sim, 200 * SL_NS_PER_MS));
    bool publish = sim_random_below(all->sim, 8) != 0;
    if (!publish || sl_pool_publish(pool, &memory, CALL_NS, NULL) != SL_OK) {
        pool_give_back(self, index, &pool);
        return;
    }
    all->published++;
    sim_sleep(sim_random_below(all->sim, SL_NS_PER_S));
    self->owns[index] = 0; /* another client may make it again before this answer arrives */
    err = SL_ERR_TIMEOUT;
    for (uint32_t tries = 0; err != SL_OK && tries < 6; tries++) {
        timed = timed_start(self, CALL_NS);
        err = sl_pool_revoke(pool, CALL_NS, NULL);
        timed_end(self, &timed, "revoke");
    }
    if (err == SL_OK) {
        must_be_unmapped(self, index, epoch);
        all->ended[index] = SL_MAX(all->ended[index], epoch);
        all->revoked++;
    }
    pool_give_back(self, index, &pool);
}

static void map(struct client *self, struct sl_client *client, uint32_t index)
{
    struct bed *all = self->all;
    struct sl_pool_key key = key_of(index);
    struct sl_pool *pool = NULL;
    uint64_t timeout_ns = 50 * SL_NS_PER_MS + sim_random_below(all->sim, 2 * SL_NS_PER_S);
    struct timed timed = timed_start(self, timeout_ns);
    sl_err err = sl_pool_await(client, &key, timeout_ns, &pool, NULL);
    timed_end(self, &timed, "await");
    all->timeouts += err == SL_ERR_TIMEOUT;
    all->died += err == SL_ERR_PEER_DIED;
    if (err != SL_OK) {
        return;
    }
    self->maps[index] = sl_pool_epoch(pool);
    all->mapped++;
    SIM_CHECK(self->maps[index] > all->ended[index], "pool %u: epoch %" PRIu64 " was revoked",
              index, self->maps[index]);
    uint64_t until_ns = sim_now_ns(all->sim) + sim_random_below(all->sim, 3 * SL_NS_PER_S);
    bool over = false;
    while (!over && sim_now_ns(all->sim) < until_ns) {
        timed = timed_start(self, 200 * SL_NS_PER_MS);
        over = sl_pool_wait_over(pool, 200 * SL_NS_PER_MS, NULL) == SL_OK;
        timed_end(self, &timed, "wait_over");
    }
    all->over += over;
    all->left += !over;
    pool_give_back(self, index, &pool);
}

static void client_run(void *context)
{
    struct client *self = context;
    struct sim *sim = self->all->sim;
    struct sl_client *client = NULL;
    while (!self->all->quiet && sim_client_open(sim, 0, NULL, &client) != SL_OK) {
        sim_sleep(50 * SL_NS_PER_MS);
    }
    while (!self->all->quiet) {
        uint32_t pool = (uint32_t)sim_random_below(sim, POOLS);
        if (sim_random_below(sim, 5) < 2) {
            own(self, client, pool);
        } else {
            map(self, client, pool);
        }
        sim_sleep(sim_random_below(sim, 100 * SL_NS_PER_MS));
    }
    sl_client_close(&client);
}

static void client_start(struct client *client)
{
    memset(client->owns, 0, sizeof(client->owns));
    memset(client->maps, 0, sizeof(client->maps));
    client->node = sim_start_program(client->all->sim, client_run, client);
}

/* ---- disturbances ---- */

static void make_trouble(struct bed *bed)
{
    struct sim *sim = bed->sim;
    struct client *client = &bed->clients[sim_random_below(sim, CLIENTS)];
    uint64_t what = sim_random_below(sim, 8);
    if (what < 3) {
        sim_kill(sim, bed->registrar, sim_random_below(sim, 300 * SL_NS_PER_MS));
        bed->kills++;
    } else if (what < 6) {
        if (sim_alive(sim, client->node)) {
            sim_kill(sim, client->node, SL_NEVER_NS);
        }
        client_start(client);
        bed->kills++;
    } else {
        uint32_t victim = what == 6 ? bed->registrar : client->node;
        if (sim_alive(sim, victim)) {
            sim_stop(sim, victim, sim_random_below(sim, 2 * SL_NS_PER_S));
            bed->stops++;
        }
    }
}

/* Returns the hash of all events. */
static uint64_t run_seed(uint64_t seed)
{
    struct sim_options options = {
        .seed = seed,
        .settings = settings,
        .late_of = seed % 3 == 0 ? 30 : 0,
        .log = getenv("SL_SIM_LOG") != NULL,
    };
    struct bed *bed = calloc(1, sizeof(*bed));
    SIM_CHECK(bed != NULL, "out of memory");
    bed->sim = sim_create(&options);
    bed->registrar = sim_start(bed->sim, &sl_registrar_actor, 0, NULL, NULL);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        bed->clients[i] = (struct client){.all = bed, .number = i};
        client_start(&bed->clients[i]);
    }
    uint64_t end_ns = sim_now_ns(bed->sim) + ACTIVE_NS;
    while (sim_now_ns(bed->sim) < end_ns) {
        sim_run_until(bed->sim, sim_now_ns(bed->sim) + SL_NS_PER_S / 4 +
                                    sim_random_below(bed->sim, 2 * SL_NS_PER_S));
        if (seed % 8 != 7) { /* one run in eight has no disturbance */
            make_trouble(bed);
        }
    }
    bed->quiet = true;
    sim_run_until(bed->sim, sim_now_ns(bed->sim) + QUIET_NS);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        SIM_CHECK(!lives(bed, &bed->clients[i]), "client %u does not end", i);
    }
    SIM_CHECK(sim_alive(bed->sim, bed->registrar), "the registrar is gone");
    SIM_CHECK(sim_metric(bed->sim, bed->registrar, "pool_count") == 0, "pools are left");
    SIM_CHECK(bed->made > 0 && bed->mapped > 0 && bed->over > 0, "nothing happened");
    if (getenv("SL_SIM_SEED") != NULL) {
        printf("%" PRIu64 " made, %" PRIu64 " published, %" PRIu64 " revoked; %" PRIu64
               " mapped, of these %" PRIu64 " notified of the end, %" PRIu64
               " left; waits: %" PRIu64 " timed out, %" PRIu64 " owners died; %" PRIu64
               " kills, %" PRIu64 " stops\n",
               bed->made, bed->published, bed->revoked, bed->mapped, bed->over, bed->left,
               bed->timeouts, bed->died, bed->kills, bed->stops);
    }
    uint64_t hash = sim_hash(bed->sim);
    sim_destroy(&bed->sim);
    free(bed);
    return hash;
}

static const char *seed_name(uint64_t seed)
{
    return seed % 8 == 7 ? "pools, undisturbed" : "pools";
}

int main(void)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_seed, seed_name, NULL};
    return sim_seeds_main(&seeds);
}
