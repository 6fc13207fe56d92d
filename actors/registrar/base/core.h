/* actors/registrar/base/core.h - what all parts of the registrar share.
 *
 * State that must survive the process is in records of the index; parts rebuild everything else
 * from them (recover.c). Each part declares its state in its own header. This header only names the
 * types, so a user of a part includes that part's header. */
#ifndef SL_REGISTRAR_BASE_CORE_H
#define SL_REGISTRAR_BASE_CORE_H

#include "ipc/msg/sl_msg.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_leases.h"
#include "ipc/shm/sl_pins.h"
#include "ipc/shm/sl_settled.h"

#include <string.h>

#define REG_NONE       UINT32_MAX
#define REG_NAME_BYTES 32u
#define REG_PARTS_MAX  512u                 /* parts of a block, from the message table */
#define REG_TICK_NS    (100 * SL_NS_PER_MS) /* longest wait between ticks, which read access rings */
/* A node is at rest when nothing has happened for REG_REST_AFTER_NS; ticks would cost more than
 * they find. Its next readers may fill their access rings before a tick: the oldest uses are then
 * overwritten, which makes recency less exact. */
#define REG_REST_AFTER_NS (2 * SL_NS_PER_S)
#define REG_REST_TICK_NS  (500 * SL_NS_PER_MS)

/* A registrar that sees a deadline this late was itself stopped or starved: it asks again, at most
 * REG_LATES_MAX times in a row. */
#define REG_LATE_NS   (100 * SL_NS_PER_MS)
#define REG_LATES_MAX 3u

/* Requests that wait for memory, and whether some was freed. Parts communicate by it. */
struct reg_space {
    bool freed; /* since the waiting requests were last tried */
    uint32_t waiting_count;
    bool fetch_blocked;        /* reads from disk wait until memory is freed */
    uint64_t fetch_blocked_ns; /* since when no such read got an extent; 0: the last did */
    bool copies_wanted; /* a leased unit that admission had refused blocked an eviction: write it */
    uint64_t contributed_bytes; /* sum of the contributions; UINT64_MAX: the setting is off */
};

struct reg_settings { /* used by several parts */
    uint64_t memory, memory_chunk, disk, index_memory, index_keys, reservation_ttl_ns,
        fence_timeout_ns, message_bytes_max;
    struct sl_lease_times leases;
    uint32_t reservations_max, clients_max, ranks, queue_messages;
};

struct reg_part; /* part.h */

struct registrar {
    struct sl_env *env;
    struct reg_settings set;
    struct sl_arena *arena;
    struct sl_alloc *alloc;
    struct sl_index *index;
    struct sl_settled *settled; /* requests carried out lately, also by the previous registrar */
    struct sl_calls *calls;
    struct reg_space space;
    uint64_t *codes; /* scratch of replies: SL_BATCH_MAX */
    bool draining;
    uint64_t rest_from_ns; /* the node is at rest from then on, unless something happens */
    char health_reason[SL_METRICS_REASON_BYTES];

    struct reg_walks *walks; /* part.h */
    /* the states of the parts (parts.c) */
    struct reg_peers *peers;
    struct reg_claims *claims;
    struct reg_groups *groups;
    struct reg_units *units;
    struct reg_gone *gone;
    struct reg_retired *retired;
    struct reg_seen *seen;
    struct reg_lease_ends *lease_ends;
    struct reg_bundles *bundles;
    struct reg_ghosts *ghosts;
    struct reg_populate *populate;
    struct reg_give_back *give_back;
    struct reg_accesses *accesses;
    struct reg_evict *evict;
    struct reg_contributions *contributions;
    struct reg_tier *tier;
    struct reg_writes *writes;
    struct reg_admission *admission;
    struct reg_answers *answers;
    struct reg_promotion *promotion;
    struct reg_tombstones *tombstones;
    struct reg_removes *removes;
    struct reg_scratch *scratch;
    struct reg_space_queue *space_queue;
    struct reg_prealloc *ahead;
    struct reg_reservations *reservations;
    struct reg_transients *transients;
    struct reg_holds *holds;
    struct reg_engines *engines;
    struct reg_ends *ends;
    struct reg_pools *pools;
    struct reg_recorder *recorder;
};

/* Something happened: the node is not at rest. */
static inline void reg_busy(struct registrar *self)
{
    self->rest_from_ns = self->env->now_ns + REG_REST_AFTER_NS;
}

/* cookies of calls */
enum reg_call_kind {
    REG_CALL_FENCE = 1,
    REG_CALL_WRITE,
    REG_CALL_READ,
    REG_CALL_FORGET,
    REG_CALL_DISK_FENCE,
    REG_CALL_MEMBERS,
    REG_CALL_POOL,
    REG_CALL_ENGINE_OVER,
    REG_CALL_ENGINE_NOTE,
    REG_CALL_COUNT
};
static inline uint64_t reg_cookie(enum reg_call_kind kind, uint32_t index)
{
    return ((uint64_t)kind << 32) | index;
}

static inline bool reg_has_disks(const struct registrar *self)
{
    return self->set.disk > 0;
}
/* Whether the value is on a disk of this node. Its record may still name a place on one that the
 * node had at an earlier start. */
static inline bool reg_is_on_disk(const struct registrar *self, const struct sl_entry *entry)
{
    return entry->disk.valid != 0 && reg_has_disks(self);
}

static inline struct sl_key reg_key_of(const char *zero_terminated)
{
    return (struct sl_key){.at = zero_terminated, .length = (uint32_t)strlen(zero_terminated)};
}
static inline struct sl_key reg_key(const struct sl_text *text)
{
    return (struct sl_key){.at = text->at, .length = (uint32_t)text->length};
}

uint64_t reg_hash(const void *key, uint64_t length); /* by which messages name a key */
static inline bool reg_proc_none(struct sl_proc_id proc)
{
    return proc.pid == 0;
}

/* Sends a reply that carries one code per requested item. */
void reg_reply_codes(struct registrar *self, const struct sl_reply_route *to, uint64_t *codes,
                     uint64_t count);
/* The same for the message being handled, with the first count of self->codes. */
void reg_answer_codes(struct registrar *self, const struct sl_msg *msg, uint64_t count);
void reg_log(struct registrar *self, enum sl_log_level level, uint64_t trace_id, const char *format,
             ...) SL_PRINTF(4, 5);

/* tags of BLOB records */
enum {
    REG_BLOB_PEER = 1,
    REG_BLOB_ENGINE = 2,
    REG_BLOB_FORGET = 3,
    REG_BLOB_DISK = 4,
    REG_BLOB_MEMBERS = 5,
    REG_BLOB_POOL = 6,
    REG_BLOB_CONTRIBUTION = 7,
    REG_BLOB_LEARNT = 8,
    REG_BLOB_RECORDING = 9,
    REG_BLOB_GONE = 10,
    REG_BLOB_TAGS, /* below this */
};

#endif
