/* client/python/jobs.h - batches that threads of C carry out, without Python. */
#ifndef SL_CLIENT_PYTHON_JOBS_H
#define SL_CLIENT_PYTHON_JOBS_H

#include "client/lib/sluice.h"

#define PY_JOBS_THREADS_MAX 64u
#define PY_JOBS_DEPTH_MAX   65536u

enum py_job_kind {
    PY_JOB_PUT = 0,    /* pieces into values; a key that exists is fine */
    PY_JOB_GET = 1,    /* values into pieces; a value of another size than its piece is a failure */
    PY_JOB_LOOK = 2,   /* whether this node or a peer has it */
    PY_JOB_REMOVE = 3, /* of this node */
};
struct py_job {
    struct py_job *next; /* of a list of ended jobs */
    uint64_t id;         /* > 0, in the order of submission; set by sl_py_jobs_submit */
    enum py_job_kind kind;
    uint64_t timeout_ns; /* from the submission on; > 0 */
    uint32_t count;
    const struct sl_object_key *keys; /* [count] */
    struct sl_piece *pieces;          /* [count]; NULL where there are no values */
    sl_err *codes;                    /* [count]; valid when it has ended */
    struct sl_error why;              /* of the first failure; code SL_OK: none */
    /* The rest belongs to jobs.c. */
    uint64_t deadline_ns, slice_bytes;
    uint32_t taken, settled;
};

/* Any thread. Each job belongs to the pool from its submission until it is drained. */
struct py_jobs;
/* thread_count 1..PY_JOBS_THREADS_MAX. depth_max (1..PY_JOBS_DEPTH_MAX): jobs that wait or run.
 * Borrows the client until destroyed. With more than one thread the first one prefers puts and
 * removals, and the last one takes gets and looks alone: puts wait for actors, which gets from
 * memory do not. Errors: SL_ERR_INVALID, SL_ERR_NO_MEMORY, SL_ERR_OS. */
sl_err sl_py_jobs_create(struct sl_client *client, uint32_t thread_count, uint32_t depth_max,
                         struct py_jobs **out, struct sl_error *why);
/* An eventfd that is readable while ended jobs were not drained; borrowed. */
int sl_py_jobs_fd(const struct py_jobs *jobs);
/* Takes the job and waits for nothing. It ends at its deadline at the latest, and at once, with
 * SL_ERR_LIMIT for each key, where depth_max are there. Gives its id. */
uint64_t sl_py_jobs_submit(struct py_jobs *jobs, struct py_job *job);
/* Gives what has ended, the first one first; NULL: nothing. */
struct py_job *sl_py_jobs_drain(struct py_jobs *jobs);
uint32_t sl_py_jobs_pending(struct py_jobs *jobs); /* that wait or run */
/* Waits until none waits or runs. false: not within timeout_ns. */
bool sl_py_jobs_wait(struct py_jobs *jobs, uint64_t timeout_ns);
/* Jobs that wait end with SL_ERR_CANCELLED, those that run end by their deadline and are waited
 * for. Gives what was not drained. */
struct py_job *sl_py_jobs_destroy(struct py_jobs **jobs);

/* PY_JOB_LOOK in the caller's thread: codes[i] is SL_OK or SL_ERR_NOT_FOUND, or why it is not
 * known. Peers are asked where there are any, for timeout_ns at most (0: op_timeout). */
void sl_py_look(struct sl_client *client, const struct sl_object_key *keys, uint32_t count,
                sl_err *codes, uint64_t timeout_ns, struct sl_error *why);

#endif
