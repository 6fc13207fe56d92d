/* tests/sim/sim_churn_test.c - the limits of memory, index and disks under long churn.
 *
 * Clients put, read, remove and put again far more than the disks hold, while processes are killed,
 * disks fail and the power is cut. After every single event, the space that files really take on
 * the simulated disks, and the memory of arena and index, are compared with the limits: the first
 * sample above one ends the run. Every value that is read is compared as well: no wrong bytes, and
 * no removed value.
 *
 * SL_SIM_CHURN_SECONDS: simulated time (an hour: 3600). Others: sim_seeds.h. */
#include "actors/coordinator/coordinator.h"
#include "actors/keyer/keyer.h"
#include "actors/registrar/registrar.h"
#include "actors/swapper/swapper.h"
#include "actors/tierer/tierer.h"
#include "client/include/sluice.h"
#include "ipc/shm/sl_index.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 4u /* alternating one disk and two disks */
#endif
#define SECONDS_STANDARD 180u
#define CLIENTS          2u
#define KEYS             96u /* of a client */
#define VALUE_BYTES_MAX  (48u * 1024u)
#define MEMORY_BYTES     (1 * SL_MIB)
#define INDEX_BYTES      (2 * SL_MIB)
#define DISK_BYTES       (5 * SL_MIB) /* of each */
#define TROUBLE_NS       (15 * SL_NS_PER_S)

#define SETTINGS                                                                                  \
    "ranks", "1", "memory", "1MiB", "memory_chunk", "1MiB", "index_memory", "2MiB", "index_keys", \
        "4096", "io_grace", "1s", "clients_max", "64", "reservations_max", "1024",                \
        "populate_threads", "1", "message_bytes_max", "1MiB", "disk_segment", "1MiB", "disk"
static const char *const settings_of[SIM_DISKS][40] = {
    {SETTINGS, "5MiB", NULL},
    {SETTINGS, "10MiB", "disk_path", "/one,/two", NULL},
};

struct ceiling {
    const char *name;
    uint64_t bytes_max, bytes_peak, samples;
};
enum { CEILING_MEMORY, CEILING_INDEX, CEILING_DISK, CEILINGS = CEILING_DISK + SIM_DISKS };

struct key {
    uint32_t last;  /* last version put; 0: none */
    uint32_t floor; /* lower versions were removed */
};

struct churn;
struct client {
    struct churn *all;
    uint32_t number, node;
    struct key keys[KEYS];
};

struct churn {
    struct sim *sim;
    uint32_t disk_count;
    struct ceiling ceilings[CEILINGS];
    struct client clients[CLIENTS];
    uint32_t victims[8], victim_count, registrar, tierer;
    bool quiet;
    uint64_t puts, put_fine, gets, found, removes, remove_fine, kills, power_cuts, faults;
};

/* ---- samples ---- */

static void sample(struct ceiling *ceiling, uint64_t bytes, uint64_t now_ns)
{
    ceiling->samples++;
    ceiling->bytes_peak = SL_MAX(ceiling->bytes_peak, bytes);
    SIM_CHECK(bytes <= ceiling->bytes_max, "%s: %llu bytes at %.6f s, the ceiling is %llu",
              ceiling->name, (unsigned long long)bytes, (double)now_ns / 1e9,
              (unsigned long long)ceiling->bytes_max);
}

/* The memory of the machine that the index's shm file takes. */
static uint64_t index_bytes(const struct churn *churn)
{
    char path[300];
    struct stat status;
    (void)snprintf(path, sizeof(path), "%.280s/index", sim_shm_dir(churn->sim, 0));
    return stat(path, &status) == 0 ? (uint64_t)status.st_blocks * 512 : 0;
}

static void look(void *context)
{
    struct churn *churn = context;
    uint64_t now_ns = sim_now_ns(churn->sim);
    for (uint32_t i = 0; i < churn->disk_count; i++) {
        sample(&churn->ceilings[CEILING_DISK + i], sim_disk_bytes(churn->sim, i), now_ns);
    }
    sample(&churn->ceilings[CEILING_INDEX], index_bytes(churn), now_ns);
    if (sim_alive(churn->sim, churn->registrar)) {
        sample(&churn->ceilings[CEILING_MEMORY],
               sim_metric(churn->sim, churn->registrar, "used_bytes"), now_ns);
    }
}

/* ---- values: their bytes carry their key and version ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t word_of(uint32_t client, uint32_t key, uint32_t version)
{
    return (uint64_t)client << 56 | (uint64_t)key << 32 | version;
}

static uint64_t value_bytes(uint64_t word)
{
    static const uint32_t sizes[] = {8, 600, 4096, 9000, 20000, VALUE_BYTES_MAX};
    return sizes[mix(word + 1) % SL_COUNT(sizes)];
}

static void value_fill(unsigned char *out, uint64_t word)
{
    uint64_t bytes = value_bytes(word);
    for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t next = at == 0 ? word : mix(word + at);
        memcpy(out + at, &next, SL_MIN(sizeof(next), bytes - at));
    }
}

static void value_check(const struct client *self, uint32_t key, const unsigned char *bytes,
                        uint64_t length_bytes)
{
    static unsigned char want[VALUE_BYTES_MAX + 8];
    const struct key *known = &self->keys[key];
    uint64_t word = 0;
    memcpy(&word, bytes, SL_MIN(sizeof(word), length_bytes));
    uint32_t version = (uint32_t)word;
    SIM_CHECK(word == word_of(self->number, key, version) && version <= known->last &&
                  length_bytes == value_bytes(word),
              "wrong bytes: key %u gives %llu bytes that begin with %016llx", key,
              (unsigned long long)length_bytes, (unsigned long long)word);
    SIM_CHECK(version >= known->floor, "key %u: version %u was removed and is back", key, version);
    value_fill(want, word);
    SIM_CHECK(memcmp(bytes, want, length_bytes) == 0, "wrong bytes: key %u, version %u", key,
              version);
}

/* ---- a client ---- */

static struct sl_object_key key_name(const struct client *self, uint32_t key, char text[32])
{
    int length = snprintf(text, 32, "churn.%u.%u", self->number, key);
    return (struct sl_object_key){.at = text, .length = (uint32_t)length};
}

static void client_step(struct client *self, struct sl_client *client, unsigned char *memory)
{
    struct churn *all = self->all;
    uint32_t key = (uint32_t)sim_random_below(all->sim, KEYS);
    struct key *known = &self->keys[key];
    struct sl_buffer buffer = {.at = memory, .length_bytes = VALUE_BYTES_MAX};
    char text[32];
    struct sl_object_key name = key_name(self, key, text);
    uint64_t what = sim_random_below(all->sim, 100), length = 0;
    if (what < 50) {
        known->last++;
        value_fill(memory, word_of(self->number, key, known->last));
        length = value_bytes(word_of(self->number, key, known->last));
        all->puts++;
        all->put_fine += sl_put(client, name, memory, length, 2 * SL_NS_PER_S, NULL) == SL_OK;
    } else if (what < 75) {
        all->gets++;
        if (sl_get(client, name, buffer, &length, 2 * SL_NS_PER_S, NULL) == SL_OK) {
            all->found++;
            value_check(self, key, memory, length);
        }
    } else if (what < 99) {
        sl_err err = sl_remove(client, name, 2 * SL_NS_PER_S, NULL);
        all->removes++;
        if (err == SL_OK || err == SL_ERR_NOT_FOUND) {
            all->remove_fine++;
            known->floor = known->last + 1;
        }
    } else {
        (void)sl_flush(client, 2 * SL_NS_PER_S, NULL);
    }
}

static void client_run(void *context)
{
    struct client *self = context;
    struct sim *sim = self->all->sim;
    struct sl_client *client = NULL;
    unsigned char *memory = malloc(VALUE_BYTES_MAX + 8);
    SIM_CHECK(memory != NULL, "out of memory");
    while (!self->all->quiet && sim_client_open(sim, 0, NULL, &client) != SL_OK) {
        sim_sleep(50 * SL_NS_PER_MS);
    }
    while (!self->all->quiet) {
        client_step(self, client, memory);
        sim_sleep(sim_random_below(sim, 40 * SL_NS_PER_MS));
    }
    sl_client_close(&client);
    free(memory);
}

static void clients_start(struct churn *churn)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        churn->clients[i].node = sim_start_program(churn->sim, client_run, &churn->clients[i]);
    }
}

/* ---- disturbances ---- */

static void make_trouble(struct churn *churn)
{
    struct sim *sim = churn->sim;
    uint32_t victim = churn->victims[sim_random_below(sim, churn->victim_count)];
    switch (sim_random_below(sim, 8)) {
    case 0:
        if (churn->disk_count > 1 &&
            sim_random_below(sim, 2) == 0) { /* longer than it is waited for */
            sim_kill(sim, churn->tierer, sim_random_below(sim, 60 * SL_NS_PER_S));
        }
        sim_power_cut(sim, 0, 100 * SL_NS_PER_MS);
        clients_start(churn);
        churn->power_cuts++;
        break;
    case 1:
    case 2:
        sim_disk_fault(sim, (uint32_t)sim_random_below(sim, churn->disk_count),
                       (enum sim_fault)sim_random_below(sim, SIM_FAULT_COUNT),
                       sim_random_below(sim, 3 * SL_NS_PER_S));
        churn->faults++;
        break;
    case 3:
        if (sim_alive(sim, victim)) {
            sim_stop(sim, victim, sim_random_below(sim, 3 * SL_NS_PER_S));
        }
        break;
    default:
        sim_kill(sim, victim, sim_random_below(sim, 60 * SL_NS_PER_MS));
        churn->kills++;
        break;
    }
}

/* ---- a run ---- */

static void node_start(struct churn *churn)
{
    const struct sl_actor *const actors[] = {&sl_keyer_actor, &sl_swapper_actor,
                                             &sl_coordinator_actor};
    churn->registrar = sim_start(churn->sim, &sl_registrar_actor, 0, NULL, NULL);
    churn->victims[churn->victim_count++] = churn->registrar;
    for (uint32_t i = 0; i < churn->disk_count; i++) {
        churn->tierer = sim_start(churn->sim, &sl_tierer_actor, i, NULL, NULL);
        churn->victims[churn->victim_count++] = churn->tierer;
    }
    for (size_t i = 0; i < SL_COUNT(actors); i++) {
        (void)sim_start(churn->sim, actors[i], 0, NULL, NULL);
    }
    clients_start(churn);
}

static void churn_print(const struct churn *churn, uint64_t seconds, double wall_s)
{
    printf("churn: %llu s simulated in %.0f s, %u disk%s, %llu puts (%llu fine), %llu gets (%llu "
           "found), %llu removals (%llu fine), %llu kills, %llu power cuts, %llu disk faults\n",
           (unsigned long long)seconds, wall_s, churn->disk_count, churn->disk_count > 1 ? "s" : "",
           (unsigned long long)churn->puts, (unsigned long long)churn->put_fine,
           (unsigned long long)churn->gets, (unsigned long long)churn->found,
           (unsigned long long)churn->removes, (unsigned long long)churn->remove_fine,
           (unsigned long long)churn->kills, (unsigned long long)churn->power_cuts,
           (unsigned long long)churn->faults);
    for (uint32_t i = 0; i < CEILING_DISK + churn->disk_count; i++) {
        const struct ceiling *ceiling = &churn->ceilings[i];
        printf("  %-7s %llu samples, at most %llu of %llu bytes (%.1f %%), over the ceiling 0\n",
               ceiling->name, (unsigned long long)ceiling->samples,
               (unsigned long long)ceiling->bytes_peak, (unsigned long long)ceiling->bytes_max,
               100.0 * (double)ceiling->bytes_peak / (double)ceiling->bytes_max);
    }
}

static uint64_t churn_seconds(void)
{
    const char *text = getenv("SL_SIM_CHURN_SECONDS");
    return text == NULL ? SECONDS_STANDARD : strtoull(text, NULL, 10);
}

/* Returns the hash of all events. */
static uint64_t run_seed(uint64_t seed)
{
    uint64_t seconds = churn_seconds();
    static const char *const names[CEILINGS] = {"memory", "index", "disk 0", "disk 1"};
    static const uint64_t bytes_max[CEILINGS] = {MEMORY_BYTES, INDEX_BYTES, DISK_BYTES, DISK_BYTES};
    struct churn *churn = calloc(1, sizeof(*churn));
    SIM_CHECK(churn != NULL, "out of memory");
    churn->disk_count = 1 + (uint32_t)(seed % SIM_DISKS);
    for (uint32_t i = 0; i < CEILINGS; i++) {
        churn->ceilings[i] = (struct ceiling){.name = names[i], .bytes_max = bytes_max[i]};
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        churn->clients[i].all = churn;
        churn->clients[i].number = i;
    }
    struct sim_options options = {.seed = seed,
                                  .settings = settings_of[churn->disk_count - 1],
                                  .log = getenv("SL_SIM_LOG") != NULL};
    time_t began = time(NULL);
    churn->sim = sim_create(&options);
    sim_observe(churn->sim, look, churn);
    node_start(churn);
    uint64_t end_ns = sim_now_ns(churn->sim) + seconds * SL_NS_PER_S;
    while (sim_now_ns(churn->sim) < end_ns) {
        uint64_t until_ns =
            sim_now_ns(churn->sim) + sim_random_below(churn->sim, 2 * TROUBLE_NS) + SL_NS_PER_S;
        sim_run_until(churn->sim, SL_MIN(until_ns, end_ns));
        make_trouble(churn);
    }
    churn->quiet = true;
    sim_run_until(churn->sim, sim_now_ns(churn->sim) + 10 * SL_NS_PER_S);
    SIM_CHECK(churn->found > 0 && churn->remove_fine > 0, "nothing happened");
    churn_print(churn, seconds, difftime(time(NULL), began));
    fflush(stdout);
    uint64_t hash = sim_hash(churn->sim);
    sim_destroy(&churn->sim);
    free(churn);
    return hash;
}

static const char *seed_name(uint64_t seed)
{
    static char name[64];
    (void)seed;
    (void)snprintf(name, sizeof(name), "churn, SL_SIM_CHURN_SECONDS=%llu",
                   (unsigned long long)churn_seconds());
    return name;
}

int main(void)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_seed, seed_name, NULL};
    return sim_seeds_main(&seeds);
}
