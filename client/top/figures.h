/* client/top/figures.h - what a node counts, as few figures that a person looks at: at one moment,
 * and what came in between two. Of the same table as monitoring's text (client/metrics). */
#ifndef SL_CLIENT_TOP_FIGURES_H
#define SL_CLIENT_TOP_FIGURES_H

#include "ipc/sl_counts.h"
#include "runtime/sl_error.h"

#include <stdbool.h>

#define TOP_ACTORS_MAX 64u
#define TOP_DISKS_MAX  64u
#define TOP_MODELS_MAX 64u
#define TOP_NAME_BYTES 64u

/* Where something was found; none: nowhere. */
enum top_where { TOP_MEMORY, TOP_DISK, TOP_REMOTE, TOP_NONE, TOP_WHERE_COUNT };
extern const char *const top_where_names[TOP_WHERE_COUNT];

/* How many took so long, those of lower buckets left out; ends as in sl_counts_bucket_ends_ns. */
struct top_times {
    uint64_t buckets[SL_COUNTS_BUCKETS];
};
struct top_actor {
    char name[TOP_NAME_BYTES];
    char state[16]; /* "ready", ...; "dead" */
    bool up;
    uint64_t restarts, resident_bytes, received, sent;
    uint64_t cpu_ns, uptime_ns, silence_ns;
};
struct top_disk {
    char name[TOP_NAME_BYTES]; /* of its tierer */
    uint64_t queue, in_flight, live_bytes, used_bytes, ceiling_bytes, io_errors, corrupt;
    uint64_t read_bytes, written_bytes;
    uint64_t budget_bytes, budget_left_bytes, today_bytes, ever_bytes; /* budget 0: none */
    struct top_times read, write;
};
/* All engines that use one model: of single ones nothing is counted. */
struct top_model {
    char id[TOP_NAME_BYTES];   /* as in keys; "other": of those that came late */
    char name[TOP_NAME_BYTES]; /* that engines gave; "": none */
    uint64_t load_blocks[TOP_WHERE_COUNT], load_bytes;
    uint64_t look_found, look_missing, stored, existed, refused, store_bytes;
};
/* All of counters is since the node was started. */
struct top_figures {
    uint64_t at_ns; /* monotonic */
    uint64_t get_keys[TOP_WHERE_COUNT], get_bytes[TOP_WHERE_COUNT];
    uint64_t load_blocks[TOP_WHERE_COUNT], load_bytes;
    uint64_t get_seen, load_seen; /* of those found nowhere: unlimited memory would have had them */
    uint64_t look_found, look_missing;              /* keys and blocks */
    uint64_t stored, existed, refused, store_bytes; /* blocks of engines */
    uint64_t ops_active;
    uint64_t evicted_units, evicted_bytes;
    uint64_t memory_used_bytes, memory_ceiling_bytes, index_keys, index_blocks;
    uint64_t write_behind_keys;
    uint64_t clients, engines, peers_alive, sessions;
    struct top_times get[TOP_NONE], load, store;
    struct top_actor actors[TOP_ACTORS_MAX]; /* in the order of their names */
    struct top_disk disks[TOP_DISKS_MAX];
    struct top_model models[TOP_MODELS_MAX];
    uint32_t actor_count, disk_count, model_count;
};

/* Shared memory and /proc alone are read: no actor is asked. Errors: as scrape_node. */
sl_err top_figures_read(const char *shm_dir, struct top_figures *out, struct sl_error *why);
/* What came from then to now. Gauges are those of now, and so is everything where then is of an
 * earlier life of the node (its counters were higher). out->at_ns is the time in between, 1 at
 * least. */
void top_figures_between(const struct top_figures *then, const struct top_figures *now,
                         struct top_figures *out);

/* The end of the bucket in which this share (0 to 1) of all lies, in ns; 0: nothing was timed. */
uint64_t top_times_quantile(const struct top_times *times, double share);
/* Keys and blocks of gets and loads that were found, that unlimited memory would have found (at most
 * as many as there were), and all that were asked for. */
struct top_hits {
    uint64_t hits, ceiling, references;
};
struct top_hits top_hits_of(const struct top_figures *figures);
/* All that was asked for; those found nowhere included. */
uint64_t top_where_sum(const uint64_t counts[TOP_WHERE_COUNT]);
/* Part of a whole in percent; 0 of nothing. */
double top_percent(uint64_t part, uint64_t whole);

#endif
