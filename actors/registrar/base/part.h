/* actors/registrar/base/part.h - the interface of the registrar's parts.
 *
 * A part has its own state, settings, metrics, messages, deadlines and clean-up. It declares them
 * in one row (struct reg_part) of the table in parts.c. The actor calls the fields of all rows and
 * knows no part by name; a field that a part does not need stays empty. */
#ifndef SL_REGISTRAR_BASE_PART_H
#define SL_REGISTRAR_BASE_PART_H

#include "actors/registrar/base/core.h"
#include "actors/registrar/base/events.h"

#include <stddef.h>

#define REG_METRIC(state, member) SL_METRIC_ROW(state, metric.member, #member)

enum reg_job { REG_JOB_POPULATE = 1, REG_JOB_RECORD }; /* cookies of helper threads' jobs */

struct reg_handler { /* of a request type */
    uint32_t type;
    void (*handle)(struct registrar *self, const struct sl_msg *msg);
};

struct reg_call { /* a request to another actor; index: from the cookie of the call */
    enum reg_call_kind kind;
    void (*reply)(struct registrar *self, uint32_t index, const struct sl_msg *msg);
    void (*expired)(struct registrar *self, uint32_t index); /* NULL: the call has no deadline */
};

struct reg_blob { /* a note of the index; owned by the part once restored */
    uint32_t tag;
    /* SL_ERR_FOREIGN: the note is not of this kind or no longer valid, and is deleted. */
    sl_err (*restore)(struct registrar *self, sl_ref note, const void *bytes, uint32_t length_bytes,
                      struct sl_error *why);
};

struct reg_part {
    const char *name;
    size_t state_at;    /* offset of the pointer to its state in struct registrar */
    size_t state_bytes; /* the state is zeroed first; 0: none */

    const struct sl_metric_row *metrics;
    uint32_t metric_count;
    const struct reg_handler *handlers;
    uint32_t handler_count;
    const struct reg_call *calls;
    uint32_t call_count;
    const struct reg_blob *blobs;
    uint32_t blob_count;

    /* Start and end. init runs when the index is open and nothing is recovered yet. fini also runs
     * after a failed init and changes nothing in shared memory. */
    void (*settings)(struct registrar *self);
    sl_err (*init)(struct registrar *self, struct sl_error *why);
    void (*started)(struct registrar *self);
    void (*drain)(struct registrar *self);
    bool (*drains)(const struct registrar *self); /* whether a drain must wait */
    void (*fini)(struct registrar *self);

    /* Steps of the event loop. */
    void (*tick)(struct registrar *self);      /* handles what has expired */
    void (*after)(struct registrar *self);     /* reacts to what the last message or tick changed */
    void (*recovered)(struct registrar *self); /* handles deaths while no registrar ran */
    uint64_t (*next_ns)(const struct registrar *self); /* next deadline; SL_NEVER_NS: none */
    void (*job_ended)(struct registrar *self, enum reg_job job, sl_err code);

    /* Processes. arrived and left name the peer's slot, which is still valid; died covers all roles
     * of a process. knows: this part uses the process, so it is watched already. */
    void (*arrived)(struct registrar *self, uint32_t peer, bool restored);
    void (*left)(struct registrar *self, uint32_t peer);
    void (*died)(struct registrar *self, struct sl_proc_id proc);
    void (*leaving)(struct registrar *self, uint32_t peer); /* before left: its pins are open */
    bool (*knows)(const struct registrar *self, struct sl_proc_id proc);

    /* Records (events.h). dropped and freed are called just before the change, the others after. */
    void (*committed)(struct registrar *self, const struct reg_committed *what);
    void (*switched)(struct registrar *self, const struct reg_switched *what);
    void (*used)(struct registrar *self, const struct reg_used *what);
    void (*wanted)(struct registrar *self, sl_ref unit);
    void (*dropped)(struct registrar *self, const struct reg_dropped *what);
    void (*freed)(struct registrar *self, sl_ref ref);
    void (*disk_known)(struct registrar *self); /* a scan has reported all that a disk holds */
    /* The disk's tierer has left, or the disk will not return: requests to it are void. */
    void (*disk_left)(struct registrar *self, uint32_t disk);

    /* Questions of lower folders to a higher one; one part answers. index_room drops units from the
     * index; false: no unit could be dropped. copy_required: a value may leave memory only when it
     * is on disk. */
    bool (*index_room)(struct registrar *self);
    bool (*copy_required)(const struct registrar *self);

    /* Reports. health: fills in what is wrong, false: nothing; starting: why the node is not ready
     * yet, NULL: it is ready. */
    void (*gauges)(struct registrar *self);
    bool (*health)(struct registrar *self, char *reason, size_t reason_bytes);
    const char *(*starting)(const struct registrar *self);
};

/* Initializers for the fields of a row. */
#define REG_METRICS(list)  .metrics = (list), .metric_count = SL_COUNT(list)
#define REG_HANDLERS(list) .handlers = (list), .handler_count = SL_COUNT(list)
#define REG_CALLS(list)    .calls = (list), .call_count = SL_COUNT(list)
#define REG_BLOBS(list)    .blobs = (list), .blob_count = SL_COUNT(list)
#define REG_STATE(member, type) \
    .state_at = offsetof(struct registrar, member), .state_bytes = sizeof(struct type)

/* ---- the table of callbacks ---- */

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
    const struct reg_part *of[REG_WALK_COUNT][REG_TABLE_MAX + 1]; /* ends with NULL */
    void (*handlers[REG_MSG_TYPES_MAX])(struct registrar *self, const struct sl_msg *msg);
    const struct reg_call *calls[REG_CALL_COUNT];
    bool (*index_room)(struct registrar *self);
    bool (*copy_required)(const struct registrar *self);
};

#define REG_EACH(self, walk, part) \
    for (const struct reg_part *const *part = (self)->walks->of[walk]; *(part) != NULL; (part)++)

#endif
