/* tests/sim/sim_directory_test.c - three nodes that know each other only from the directory, under
 * random disturbances. Its server dies and returns with all data, none, or an earlier state; it
 * stops, is slow, or cannot be reached by some hosts. Transporters and nodes are killed, stopped,
 * or return empty.
 *
 * Checked: no wrong bytes; every call ends by its deadline, and no failure of the server makes one
 * fail. A node whose record is at the server has reported all its keys. If nothing is disturbed, or
 * only a server loses its data, other nodes' values are found. When the disturbances are over, the
 * server knows all keys of each node, and every node can read the values of all others. Choosing
 * seeds: sim_seeds.h. */
#include "actors/registrar/registrar.h"
#include "actors/transporter/transporter.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_index_changes.h"
#include "runtime/net/directory/directory.h"
#include "tests/sim/sim_directory_mutants.h"
#include "tests/sim/sim_far.h"
#include "tests/sim/sim_redis.h"
#include "tests/sim/sim_seeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef SEEDS_STANDARD
#define SEEDS_STANDARD 200u
#endif
#define HOSTS          3u
#define WARM_UP_NS     (5 * SL_NS_PER_S) /* failures are excused for the first four */
#define ACTIVE_NS      (12 * SL_NS_PER_S)
#define QUIET_NS       (14 * SL_NS_PER_S) /* twice the longest pause between attempts to connect */
#define VERIFY_NS      (120 * SL_NS_PER_S)
#define TOLD_NS        (1500 * SL_NS_PER_MS) /* older keys must be reported before the record */
#define SERVER_NS_SLOW (400 * SL_NS_PER_MS)

enum trouble {
    SERVER_EMPTY = 1, /* it dies and returns with no data */
    SERVER_KEPT = 2,
    SERVER_OLD = 4,
    SERVER_STOPS = 8,
    SERVER_SLOW = 16,
    SERVER_CUT = 32, /* a host cannot reach it */
    DOORS = 64,      /* transporters are killed and stopped */
    NODES = 128,     /* registrars as well */
    POWER = 256,     /* a node returns empty */
    LINKS = 512      /* between hosts: cut */
};

struct scenario {
    const char *name;
    uint32_t trouble;
};
#define SERVER_ALL \
    (SERVER_EMPTY | SERVER_KEPT | SERVER_OLD | SERVER_STOPS | SERVER_SLOW | SERVER_CUT)
static const struct scenario scenarios[] = {
    {"undisturbed", 0},
    {"the server returns empty", SERVER_EMPTY},
    {"the server dies", SERVER_EMPTY | SERVER_KEPT | SERVER_OLD},
    {"the server stops and is slow", SERVER_STOPS | SERVER_SLOW},
    {"hosts do not reach the server", SERVER_CUT | SERVER_EMPTY},
    {"the server, transporters", SERVER_ALL | DOORS},
    {"the server, nodes", SERVER_ALL | NODES | POWER},
    {"everything", SERVER_ALL | DOORS | NODES | POWER | LINKS},
};
/* Disturbances in which a hint is missing only while the server does not know the node. */
#define CALM  ((uint32_t)SERVER_EMPTY)
#define STALE ((uint32_t)(~(uint32_t)SERVER_EMPTY)) /* may leave hints of removed keys */

#define SETTINGS_COMMON                                                                          \
    "ranks", "1", "index_memory", "2MiB", "index_keys", "4096", "io_grace", "1s", "clients_max", \
        "64", "reservations_max", "1024", "populate_threads", "1", "message_bytes_max", "1MiB",  \
        "memory", "8MiB", "memory_chunk", "8MiB", "cluster_plaintext", "true", "cluster_listen", \
        "10.0.0.1:7400", "fabric", "tcp", "fabric_address", "127.0.0.1", "fabric_lanes", "2",    \
        "fabric_depth", "4", "fabric_unit", "16KiB", "fabric_progress_timeout", "500ms",         \
        "peer_heartbeat", "200ms", "peer_timeout", "300ms", "peer_backoff", "100ms",             \
        "peer_missing_ttl", "200ms", "remote_pin_ttl", "250ms", "fetch_batches_max", "4",        \
        "directory", "redis", "directory_url", SIM_REDIS_URL, "directory_node_ttl", "2s",        \
        "directory_walk", "50ms"
#define SETTINGS_MAX 80

struct host {
    uint32_t registrar, door;
    uint32_t clients[FAR_SLOTS];
    const char *settings[SETTINGS_MAX];
};
struct run {
    struct sim *sim;
    const struct scenario *scenario;
    struct far far;
    struct host hosts[HOSTS];
    uint64_t records, told; /* records seen; keys that were looked for then */
};

static const char *const names[HOSTS] = {"a", "b", "c"};

static bool has(const struct run *run, uint32_t trouble)
{
    return (run->scenario->trouble & trouble) != 0;
}

/* ---- what the server knows ---- */

static void hint_key(char out[64], const char *key, uint32_t length)
{
    (void)snprintf(out, 64, "sluice:default:k:%016" PRIx64, sl_key_id(key, length));
}

static bool is_told(struct run *run, const char *key, uint32_t length, uint32_t host,
                    uint64_t incarnation)
{
    char hint[64], life[24];
    hint_key(hint, key, length);
    (void)snprintf(life, sizeof(life), "%" PRIu64, incarnation);
    const char *told = sim_redis_get(run->sim, hint, names[host]);
    return told != NULL && strcmp(told, life) == 0;
}

/* Keys are sent first and then the record: a node with a record has reported all its keys. */
static void record_stands(void *context, const char *key, const char *text, uint64_t sent_ns)
{
    struct run *run = context;
    if (strncmp(key, "sluice:default:t:", 17) == 0) {
        return; /* the server lost this life's record and has the previous one */
    }
    uint64_t incarnation = strtoull(text + strlen("1 "), NULL, 10);
    uint32_t host = (uint32_t)(key[strlen(key) - 1] - 'a');
    SIM_CHECK(strncmp(key, "sluice:default:n:", 17) == 0 && host < HOSTS && incarnation > 0,
              "a record '%s' of '%s'", text, key);
    run->records++;
    uint64_t disturbed_ns = run->far.disturbed_ns[host] + TOLD_NS;
    for (uint32_t i = 0; i < FAR_KEYS && disturbed_ns < sent_ns; i++) {
        const struct far_key *known = &run->far.keys[host][i];
        char text_of_key[16];
        int length = snprintf(text_of_key, sizeof(text_of_key), "far.%u", i);
        if (known->present && known->since_ns + TOLD_NS < sent_ns) {
            SIM_CHECK(is_told(run, text_of_key, (uint32_t)length, host, incarnation),
                      "host %u has a record, yet it has not reported %s", host, text_of_key);
            run->told++;
        }
    }
}

struct hints {
    struct run *run;
    uint32_t host;
    const struct sl_index_view *view;
    uint64_t incarnation, right;
};

static void hint_count(void *context, const char *key, const char *field, const char *value)
{
    struct hints *hints = context;
    (void)key;
    hints->right +=
        strcmp(field, names[hints->host]) == 0 && strtoull(value, NULL, 10) == hints->incarnation;
}

/* At rest: the server has a hint for each key of the node, and no other. */
static void check_hints(struct run *run, uint32_t host)
{
    static char key[SL_KEY_BYTES_MAX + 1];
    struct hints hints = {.run = run, .host = host};
    struct sl_index_view *view = NULL;
    struct sl_error why = {0};
    struct sl_entry entry;
    uint64_t cursor = 0, count = 0;
    char record[64];
    SIM_CHECK(sl_index_view_open(sim_shm_dir(run->sim, host), &view, &why) == SL_OK, "%s",
              why.text);
    hints.incarnation = SL_MAX(sl_index_view_birth(view), 1u);
    (void)snprintf(record, sizeof(record), "sluice:default:n:%s", names[host]);
    const char *stands = sim_redis_get(run->sim, record, NULL);
    SIM_CHECK(stands != NULL && strtoull(stands + strlen("1 "), NULL, 10) == hints.incarnation,
              "host %u is not at the server: '%s'", host, stands == NULL ? "" : stands);
    while (sl_index_scan(view, &cursor, &entry, key)) {
        SIM_CHECK(is_told(run, key, entry.key_length, host, hints.incarnation),
                  "host %u is at rest, and its key %s is not at the server", host, key);
        count++;
    }
    sim_redis_each(run->sim, hint_count, &hints);
    SIM_CHECK(has(run, STALE) || hints.right == count,
              "host %u has %" PRIu64 " keys, the server knows of %" PRIu64, host, count,
              hints.right);
    sl_index_view_close(&view);
}

/* ---- processes ---- */

static void clients_start(struct run *run, uint32_t host)
{
    sim_host_use(run->sim, host);
    for (uint32_t i = 0; i < FAR_SLOTS; i++) {
        run->hosts[host].clients[i] =
            sim_start_program(run->sim, far_client, &run->far.slots[host][i]);
    }
}

static void host_settings(struct host *host, uint32_t number)
{
    static const char *const common[] = {SETTINGS_COMMON};
    memcpy(host->settings, common, sizeof(common));
    host->settings[SL_COUNT(common)] = "node_name";
    host->settings[SL_COUNT(common) + 1] = names[number];
    host->settings[SL_COUNT(common) + 2] = NULL;
}

static void host_start(struct run *run, uint32_t number)
{
    struct host *host = &run->hosts[number];
    sim_host_use(run->sim, number);
    host->registrar = sim_start(run->sim, &sl_registrar_actor, 0, NULL, NULL);
    host->door = sim_start(run->sim, &sl_transporter_actor, 0, NULL, NULL);
    clients_start(run, number);
}

/* ---- disturbances ---- */

static uint64_t span(struct sim *sim)
{
    static const uint64_t spans_ns[] = {50 * SL_NS_PER_MS, 300 * SL_NS_PER_MS, SL_NS_PER_S,
                                        4 * SL_NS_PER_S};
    return 1 + sim_random_below(sim, spans_ns[sim_random_below(sim, SL_COUNT(spans_ns))]);
}

static uint32_t any_host(struct run *run)
{
    return (uint32_t)sim_random_below(run->sim, HOSTS);
}

static void actor_trouble(struct run *run, uint32_t host, uint32_t actor)
{
    struct sim *sim = run->sim;
    uint64_t ns = span(sim);
    if (sim_random_below(sim, 2) == 0) {
        far_excuse_until(&run->far, host, sim_now_ns(sim) + ns);
        sim_stop(sim, actor, ns);
    } else {
        ns = sim_random_below(sim, 60 * SL_NS_PER_MS);
        far_excuse_until(&run->far, host, sim_now_ns(sim) + ns);
        sim_kill(sim, actor, ns);
    }
}

static void power_cut(struct run *run, uint32_t host)
{
    uint64_t ns = 1 + sim_random_below(run->sim, 2 * SL_NS_PER_S);
    far_excuse_until(&run->far, host, sim_now_ns(run->sim) + ns);
    sim_power_cut(run->sim, host, ns);
    far_memory_lost(&run->far, host);
    clients_start(run, host);
}

static void make_trouble(struct run *run)
{
    struct sim *sim = run->sim;
    uint32_t trouble = 1u << sim_random_below(sim, 10), host = any_host(run);
    if (!has(run, trouble)) {
        return;
    }
    switch (trouble) {
    case SERVER_EMPTY:
        sim_redis_kill(sim, span(sim), SIM_REDIS_EMPTY);
        break;
    case SERVER_KEPT:
        sim_redis_kill(sim, span(sim), SIM_REDIS_KEPT);
        break;
    case SERVER_OLD:
        sim_redis_kill(sim, span(sim), SIM_REDIS_OLD);
        break;
    case SERVER_STOPS:
        sim_redis_stop(sim, span(sim));
        break;
    case SERVER_SLOW:
        sim_redis_slow(sim, SERVER_NS_SLOW, span(sim));
        break;
    case SERVER_CUT:
        sim_redis_cut(sim, host, span(sim));
        break;
    case DOORS:
        actor_trouble(run, host, run->hosts[host].door);
        break;
    case NODES:
        actor_trouble(run, host, run->hosts[host].registrar);
        actor_trouble(run, host, run->hosts[host].door);
        break;
    case POWER:
        power_cut(run, host);
        break;
    default:
        sim_link_cut(sim, host, (host + 1) % HOSTS, span(sim));
        break;
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
        make_trouble(run);
    }
}

static void run_verify(struct run *run)
{
    struct sim *sim = run->sim;
    for (uint32_t i = 0; i < HOSTS; i++) {
        check_hints(run, i);
    }
    for (uint32_t i = 0; i < HOSTS; i++) {
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
}

static void run_print(const struct run *run)
{
    const struct far *far = &run->far;
    printf(
        "%s: %" PRIu64 " puts (%" PRIu64 " failed), %" PRIu64 " gets (%" PRIu64 " found, %" PRIu64
        " of them were here, %" PRIu64 " missed, %" PRIu64 " failed), slowest %" PRIu64
        " ms; the server took %" PRIu64 " commands, %" PRIu64 " records came to stand, %" PRIu64
        " keys had been reported; %" PRIu64 " events, hash %016" PRIx64 "\n",
        run->scenario->name, far->puts, far->put_failed, far->gets, far->found, far->here,
        far->missed, far->get_failed, far->slowest_ns / SL_NS_PER_MS, sim_redis_commands(run->sim),
        run->records, run->told, sim_event_count(run->sim), sim_hash(run->sim));
}

/* Returns the hash of all events. */
static uint64_t run_of(uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    SIM_CHECK(run != NULL, "out of memory");
    sim_directory_mutants_init();
    run->scenario = &scenarios[seed % SL_COUNT(scenarios)];
    for (uint32_t i = 0; i < HOSTS; i++) {
        host_settings(&run->hosts[i], i);
    }
    struct sim_options options = {
        .seed = seed, .settings = run->hosts[0].settings, .log = getenv("SL_SIM_LOG") != NULL};
    run->sim = sim_create(&options);
    for (uint32_t i = 1; i < HOSTS; i++) {
        (void)sim_host_add(run->sim, run->hosts[i].settings);
    }
    sim_redis_start(run->sim);
    sim_redis_observe(run->sim, record_stands, run);
    run->far.ample = true;
    run->far.calm = (run->scenario->trouble & ~CALM) == 0;
    far_init(&run->far, run->sim, HOSTS);
    for (uint32_t i = 0; i < HOSTS; i++) {
        host_start(run, i);
    }
    run_active(run);
    run->far.quiet = true;
    sim_run_until(run->sim, SL_MAX(sim_now_ns(run->sim), sim_disturbed_ns(run->sim)) + QUIET_NS);
    run_verify(run);
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

/* --mutants: checks that the runs find every mutant of a node's messages to the directory. */
int main(int argc, char **argv)
{
    static const struct sim_seeds seeds = {SEEDS_STANDARD, run_of, name_of, NULL};
    return argc > 1 && strcmp(argv[1], "--mutants") == 0 ? sim_directory_mutants_main(&seeds)
                                                         : sim_seeds_main(&seeds);
}
