/* actors/swapper/jobs.h - COPYs that are queued, in progress or just answered.
 *
 * A COPY is resent while unanswered, so one may arrive twice, the second long after the first was
 * answered. To do it again then would touch device blocks and extents that are no longer lent. So a
 * COPY is known by sender and sequence: one that is queued is not queued again, one of the last
 * answered gets the same answer again, and an older one is dropped. */
#ifndef SL_SWAPPER_JOBS_H
#define SL_SWAPPER_JOBS_H

#include "ipc/msg/sl_msg.h"
#include "runtime/base/sl_digest.h"

#define SW_JOBS_MAX    256u
#define SW_ITEMS_MAX   (4u * SL_BATCH_MAX) /* of all queued jobs together */
#define SW_ANSWERS_MAX 16u                 /* kept to be given again */

enum sw_job_state { SW_JOB_FREE, SW_JOB_QUEUED, SW_JOB_ANSWERED };
enum sw_event_state {
    SW_EVENT_OVER, /* or there is none */
    SW_EVENT_TOLD, /* by its handle */
    SW_EVENT_OPEN,
};

struct sw_job {
    enum sw_job_state state;
    bool out;
    bool chunked; /* hashes of chunks are answered instead of digests */
    bool looks;   /* out: nothing is copied, what lies in the blocks is digested */
    bool checked; /* items against the engine's pools and the arenas */
    struct sl_return back;
    uint64_t engine_id;
    uint64_t turn; /* the queued job with the least is next; grows with each slice: round robin */
    uint32_t item_count, item_capacity;
    uint32_t next_item;
    uint32_t slices;   /* on their way */
    uint32_t verified; /* items that need not be looked at again: verify.c */
    bool verify_due;   /* the next of them is to be read */
    bool verify_all;   /* each of them */
    uint32_t done_count;
    uint64_t bytes;
    enum sw_event_state event_state; /* no slice is done before SW_EVENT_OVER */
    unsigned char event_handle[SL_EVENT_BYTES];
    void *event;                 /* of the device; SW_EVENT_OPEN */
    uint64_t event_asked_ns;     /* when it was first asked for */
    struct sl_item_piece *items; /* owned */
    unsigned char *done;         /* bitmap */
    unsigned char *digests;      /* 16 bytes an item */
    unsigned char *chunks;       /* hashes, 8 bytes each; NULL: none are asked for */
    uint64_t chunk_bytes;        /* of all items */
    uint64_t chunk_at;           /* where those of next_item go */
    sl_err code;                 /* of the answer; queued: what a slice failed with */
    struct sl_error why;
};

struct sw_jobs; /* opaque; one thread */

sl_err sw_jobs_create(struct sw_jobs **out, struct sl_error *why);
void sw_jobs_destroy(struct sw_jobs **jobs);

enum sw_known {
    SW_NEW,
    SW_QUEUED,   /* an answer will come */
    SW_ANSWERED, /* *job holds the answer */
    SW_OLD,      /* answered long ago */
    SW_FENCED,   /* its op was fenced after it was sent */
};
enum sw_known sw_jobs_known(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **job);
/* Queues a copy of the COPY. Errors: SL_ERR_LIMIT (jobs or items), SL_ERR_NO_MEMORY. */
sl_err sw_jobs_add(struct sw_jobs *jobs, const struct sl_msg *msg, struct sw_job **out,
                   struct sl_error *why);
/* The job is answered: remembers that, and its answer for a while. */
void sw_jobs_end(struct sw_jobs *jobs, struct sw_job *job);
/* Whether a FENCE (of an op) covers the job: of its op, and not sent behind the fence by the same
 * sender, who may go on with the op after the answer. Op id 0: all jobs of the sender so far;
 * sequence numbers grow over the lives of an actor, so a coordinator that starts fences what its
 * predecessor left. */
bool sw_job_is_before(const struct sw_job *job, const struct sl_msg *fence);
/* No COPY of the fence's op is taken any more that its sender numbered before the fence. */
void sw_jobs_fence(struct sw_jobs *jobs, const struct sl_msg *fence);
/* A slice was done: behind all others. */
void sw_jobs_turn(struct sw_jobs *jobs, struct sw_job *job);
/* Walks queued jobs: *cursor starts at 0; NULL at the end. The job given may be ended. */
struct sw_job *sw_jobs_each(struct sw_jobs *jobs, uint32_t *cursor);
uint32_t sw_jobs_queued(const struct sw_jobs *jobs);

#endif
