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
    /* SL_ERR_FOREIGN: it is none of these, or counts no more, and goes. */
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
    void (*tick)(struct registrar *self);      /* what time has ended */
    void (*after)(struct registrar *self);     /* what follows from whatever just happened */
    void (*recovered)(struct registrar *self); /* who died while no registrar looked */
    uint64_t (*next_ns)(const struct registrar *self); /* SL_NEVER_NS: nothing is due */
    void (*job_ended)(struct registrar *self, enum reg_job job, sl_err code);

    /* Processes. arrived, left: as the peer of this slot, which is still there; died: in all its
     * roles. knows: it has a role here, so it is watched already. */
    void (*arrived)(struct registrar *self, uint32_t peer, bool restored);
    void (*left)(struct registrar *self, uint32_t peer);
    void (*died)(struct registrar *self, struct sl_proc_id proc);
    void (*leaving)(struct registrar *self,
                    uint32_t peer); /* before left: its pins are still open */
    bool (*knows)(const struct registrar *self, struct sl_proc_id proc);

    /* Records (events.h). dropped is told just before it happens, the others when it has; all
     * before the caller goes on. */
    void (*committed)(struct registrar *self, const struct reg_committed *what);
    void (*switched)(struct registrar *self, const struct reg_switched *what);
    void (*used)(struct registrar *self, const struct reg_used *what);
    void (*wanted)(struct registrar *self, sl_ref unit);
    void (*dropped)(struct registrar *self, const struct reg_dropped *what);
    void (*freed)(struct registrar *self, sl_ref ref);
    void (*disk_known)(struct registrar *self); /* a disk has said all that it holds */
    /* Its tierer has left, or the disk will not come back (gone): what it was asked is void. */
    void (*disk_left)(struct registrar *self, uint32_t disk);

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
    REG_WALK_DISK_LEFT,
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
