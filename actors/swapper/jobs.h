/* actors/swapper/jobs.h - COPYs that are queued, in progress or just answered.
 *
 * A COPY is resent until it is answered, so it may arrive twice, the second time long after its
 * answer. Running it again would touch device blocks and extents that are reused by then. So a COPY
 * is known by sender and sequence. A queued one is not queued again, one of the last answers is
 * repeated, and an older one is dropped. */
#ifndef SL_SWAPPER_JOBS_H
#define SL_SWAPPER_JOBS_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_digest.h"

#define SW_JOBS_MAX    256u
#define SW_ITEMS_MAX   (4u * SL_BATCH_MAX) /* of all queued jobs together */
#define SW_ANSWERS_MAX 16u                 /* kept to be repeated */

enum sw_job_state { SW_JOB_FREE, SW_JOB_QUEUED, SW_JOB_ANSWERED };
enum sw_event_state {
    SW_EVENT_OVER, /* or no event */
    SW_EVENT_NEW,  /* not opened yet */
    SW_EVENT_OPEN,
};

struct sw_job {
    enum sw_job_state state;
    bool out;
    bool chunked; /* answers hashes of chunks instead of digests */
    bool looks;   /* out: digests the blocks and copies nothing */
    bool checked; /* items were checked with the engine's pools and the arena */
    struct sl_reply_route back;
    uint64_t engine_id;
    uint64_t turn; /* the queued job with the lowest is next; grows with each slice: round robin */
    uint32_t item_count, item_capacity;
    uint32_t next_item;
    uint32_t slices;   /* in flight */
    uint32_t verified; /* items that need no more checks: verify.c */
    bool verify_due;   /* the next of them is to be verified */
    bool verify_all;   /* each of them */
    uint32_t done_count;
    uint64_t bytes;
    enum sw_event_state event_state; /* no slice starts before SW_EVENT_OVER */
    unsigned char event_handle[SL_EVENT_BYTES];
    void *event;                 /* of the device; SW_EVENT_OPEN */
    uint64_t event_asked_ns;     /* of the first poll */
    struct sl_item_piece *items; /* owned */
    unsigned char *done;         /* bitmap */
    unsigned char *digests;      /* 16 bytes an item */
    unsigned char *chunks;       /* hashes, 8 bytes each; NULL: not requested */
    uint64_t chunk_bytes;        /* of all items */
    uint64_t chunk_at;           /* of the hashes of next_item */
    sl_err code;                 /* of the answer; while queued: of a failed slice */
    struct sl_error why;
};

struct sw_jobs; /* opaque; one thread */

sl_err sw_jobs_create(struct sw_jobs **out, struct sl_error *why);
void sw_jobs_destroy(struct sw_jobs **jobs);

enum sw_known {
    SW_NEW,
    SW_QUEUED,   /* the answer will follow */
    SW_ANSWERED, /* *job holds the answer */
    SW_OLD,      /* answered long ago */
    SW_FENCED,   /* its op was fenced after it was sent */
};
enum sw_known sw_jobs_known(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **job);
/* Queues a copy of the COPY. Errors: SL_ERR_LIMIT (jobs, items), SL_ERR_NO_MEMORY,
 * SL_ERR_INVALID. */
sl_err sw_jobs_add(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **out,
                   struct sl_error *why);
/* The job was answered: keeps its answer for a while. */
void sw_jobs_end(struct sw_jobs *jobs, struct sw_job *job);
/* Whether a FENCE covers the job. With an op id: a job of that op, unless the same sender sent it
 * after the fence to continue the op. Op id 0: all earlier jobs of the sender. Sequence numbers
 * grow over restarts, so a new coordinator fences what its predecessor left. */
bool sw_job_is_before(const struct sw_job *job, const struct sl_msg *fence);
/* From now on refuses COPYs of the fence's op that its sender numbered before the fence. */
void sw_jobs_fence(struct sw_jobs *jobs, const struct sl_msg *fence);
/* After a slice: the job gets the last turn. */
void sw_jobs_turn(struct sw_jobs *jobs, struct sw_job *job);
/* Walks queued jobs: *cursor starts at 0; NULL at the end. The job given may be ended. */
struct sw_job *sw_jobs_each(struct sw_jobs *jobs, uint32_t *cursor);
uint32_t sw_jobs_queued(const struct sw_jobs *jobs);

#endif
