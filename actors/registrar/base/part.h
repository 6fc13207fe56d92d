/* actors/registrar/base/part.h - what the registrar is made of.
 *
 * A part has its own state, settings, metrics, messages, deadlines and clean-up, and says so in one
 * row (struct reg_part) of the table in parts.c. The actor walks the table; it knows no part by
 * name. A part that has nothing to do at some step leaves that field empty. */
#ifndef SL_REGISTRAR_BASE_PART_H
#define SL_REGISTRAR_BASE_PART_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/base/events.h"

#include <stddef.h>

/* When a part's turn comes in a walk; REG_TURN_ANY comes last, in the order of the table. Order
 * matters: what ends frees space, freed space goes to the request that waited longest, and what
 * goes to the disks is chosen after that. The simulator and the unit tests pin it exactly. */
enum reg_turn {
    REG_TURN_ANY,

    /* tick: what time has ended */
    REG_TICK_POPULATE = 1,
    REG_TICK_ACCESSES, /* before anything is chosen by recency */
    REG_TICK_PEERS,    /* whose death waited: its claims end like any */
    REG_TICK_RESERVATIONS,
    REG_TICK_HELD,
    REG_TICK_HOLDS,
    REG_TICK_POOL_REQUESTS,
    REG_TICK_CONTRIBUTIONS,
    REG_TICK_POOLS,
    REG_TICK_TRANSIENTS,
    REG_TICK_LEASES,
    REG_TICK_PARKING,
    REG_TICK_PROMOTION,
    REG_TICK_RETIRED,
    REG_TICK_SCAN,

    /* after: what follows from whatever just happened */
    REG_AFTER_POPULATE = 1,
    REG_AFTER_CONTRIBUTIONS,
    REG_AFTER_FENCES,
    REG_AFTER_CHARGES,
    REG_AFTER_PROMOTION, /* loads come before stores that wait for space */
    REG_AFTER_RECLAIM,
    REG_AFTER_PARKING,
    REG_AFTER_ADMISSION,
    REG_AFTER_MEMBERS, /* disks learn that something changes before it is written */
    REG_AFTER_WRITES,
    REG_AFTER_REMOVES, /* makes tombstones, which go out next */
    REG_AFTER_FORGETS,
    REG_AFTER_FLUSHES,

    /* recovered: who died while no registrar looked */
    REG_RECOVERED_PEERS = 1,
    REG_RECOVERED_ENGINES,
    REG_RECOVERED_POOLS,
    REG_RECOVERED_CONTRIBUTIONS,
    REG_RECOVERED_GROUPS,
    REG_RECOVERED_RETIRED, /* what all of these gave up */

    /* arrived */
    REG_ARRIVED_FENCES = 1,
    REG_ARRIVED_DISKS,

    /* left: requests first, then what the process was writing, then the disk that it served */
    REG_LEFT_PARKING = 1,
    REG_LEFT_PROMOTION,
    REG_LEFT_FLUSHES,
    REG_LEFT_REMOVES,
    REG_LEFT_GROUPS,
    REG_LEFT_CLAIMS,
    REG_LEFT_DISKS,
    REG_LEFT_FENCES,
    REG_LEFT_ENGINES,
    REG_LEFT_CONTRIBUTIONS,

    /* died */
    REG_DIED_ENGINES = 1,
    REG_DIED_POOLS,
    REG_DIED_CONTRIBUTIONS,
    REG_DIED_RETIRED, /* its pins are gone */

    /* committed: a hold stands in the record before anybody could evict or end the block */
    REG_COMMITTED_HOLDS = 1,
    REG_COMMITTED_WRITES,
    REG_COMMITTED_TRANSIENTS,
    REG_COMMITTED_EVICT,

    /* switched */
    REG_SWITCHED_CHARGES = 1,
    REG_SWITCHED_SEGMENTS,
    REG_SWITCHED_ADMISSION,
    REG_SWITCHED_EVICT,
};

#define REG_METRIC(state, member) SL_METRIC_ROW(state, metric.member, #member)

enum reg_job { REG_JOB_POPULATE = 1, REG_JOB_RECORD }; /* cookies of what helper threads do */

struct reg_handler { /* of a request */
    uint32_t type;
    void (*handle)(struct registrar *self, const struct sl_msg *msg);
};

struct reg_call { /* something asked of another actor; index: of the call's cookie */
    enum reg_call_kind kind;
    void (*reply)(struct registrar *self, uint32_t index, const struct sl_msg *msg);
    void (*expired)(struct registrar *self, uint32_t index); /* NULL: it has no deadline */
};

struct reg_blob { /* a note of the index; the part owns it from restore on */
    uint32_t tag;
    sl_err (*restore)(struct registrar *self, sl_ref note, const void *bytes, uint32_t length_bytes,
                      struct sl_error *why);
};

struct reg_part {
    const char *name;
    size_t state_at;    /* of the pointer to its state in struct registrar */
    size_t state_bytes; /* arrives zeroed; 0: it has none */

    const struct sl_metric_row *metrics;
    uint32_t metric_count;
    const struct reg_handler *handlers;
    uint32_t handler_count;
    const struct reg_call *calls;
    uint32_t call_count;
    const struct reg_blob *blobs;
    uint32_t blob_count;

    /* Start and end. init: the index is open, nothing is recovered; fini: also after a failed init,
     * changes nothing in shared memory. */
    void (*settings)(struct registrar *self);
    sl_err (*init)(struct registrar *self, struct sl_error *why);
    void (*started)(struct registrar *self);
    void (*drain)(struct registrar *self);
    bool (*drains)(const struct registrar *self); /* something a drain waits for */
    void (*fini)(struct registrar *self);

    /* Steps. */
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self);
    } tick, after, recovered;
    uint64_t (*next_ns)(const struct registrar *self); /* SL_NEVER_NS: nothing is due */
    void (*job_ended)(struct registrar *self, enum reg_job job, sl_err code);

    /* Processes. arrived, left: as the peer of this slot, which is still there; died: in all its
     * roles. knows: it has a role here, so it is watched already. */
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self, uint32_t peer, bool restored);
    } arrived;
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self, uint32_t peer);
    } left;
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self, struct sl_proc_id proc);
    } died;
    void (*leaving)(struct registrar *self,
                    uint32_t peer); /* before left: its pins are still open */
    bool (*knows)(const struct registrar *self, struct sl_proc_id proc);

    /* Records (events.h). dropped is told just before it happens, the others when it has; all
     * before the caller goes on. */
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self, const struct reg_committed *what);
    } committed;
    struct {
        enum reg_turn turn;
        void (*run)(struct registrar *self, const struct reg_switched *what);
    } switched;
    void (*used)(struct registrar *self, const struct reg_used *what);
    void (*wanted)(struct registrar *self, sl_ref unit);
    void (*dropped)(struct registrar *self, const struct reg_dropped *what);
    void (*freed)(struct registrar *self, sl_ref ref);
    void (*disk_known)(struct registrar *self); /* a disk has said all that it holds */

    /* What lower parts ask of a higher one; one part answers. index_room drops units from the
     * index: false, none could go. copy_required: a value may leave memory only when a disk has it.
     */
    bool (*index_room)(struct registrar *self);
    bool (*copy_required)(const struct registrar *self);

    /* What people see. health: what is wrong, true when it says something; starting: why the node
     * is not ready yet, NULL: it is. */
    void (*gauges)(struct registrar *self);
    bool (*health)(struct registrar *self, char *reason, size_t reason_bytes);
    const char *(*starting)(const struct registrar *self);
};

/* For the fields of a row. */
#define REG_METRICS(list)  .metrics = (list), .metric_count = SL_COUNT(list)
#define REG_HANDLERS(list) .handlers = (list), .handler_count = SL_COUNT(list)
#define REG_CALLS(list)    .calls = (list), .call_count = SL_COUNT(list)
#define REG_BLOBS(list)    .blobs = (list), .blob_count = SL_COUNT(list)
#define REG_STATE(member, type) \
    .state_at = offsetof(struct registrar, member), .state_bytes = sizeof(struct type)

/* ---- the table, and who takes part in which walk ---- */

enum reg_walk {
    REG_WALK_TICK,
    REG_WALK_AFTER,
    REG_WALK_RECOVERED,
    REG_WALK_NEXT,
    REG_WALK_ARRIVED,
    REG_WALK_LEAVING,
    REG_WALK_LEFT,
    REG_WALK_DIED,
    REG_WALK_KNOWS,
    REG_WALK_GAUGES,
    REG_WALK_COMMITTED,
    REG_WALK_USED,
    REG_WALK_SWITCHED,
    REG_WALK_WANTED,
    REG_WALK_DROPPED,
    REG_WALK_FREED,
    REG_WALK_DISK_KNOWN,
    REG_WALK_COUNT
};
#define REG_TABLE_MAX     48u
#define REG_MSG_TYPES_MAX 256u

struct reg_walks {
    const struct reg_part *of[REG_WALK_COUNT][REG_TABLE_MAX + 1]; /* NULL behind the last */
    void (*handlers[REG_MSG_TYPES_MAX])(struct registrar *self, const struct sl_msg *msg);
    const struct reg_call *calls[REG_CALL_COUNT];
    bool (*index_room)(struct registrar *self);
    bool (*copy_required)(const struct registrar *self);
};

#define REG_EACH(self, walk, part) \
    for (const struct reg_part *const *part = (self)->walks->of[walk]; *(part) != NULL; (part)++)

#endif
