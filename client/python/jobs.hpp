/* client/python/jobs.hpp - a pool of threads that runs batches of calls, without Python. */
#ifndef SL_CLIENT_PYTHON_JOBS_HPP
#define SL_CLIENT_PYTHON_JOBS_HPP

#include "client/include/sluice.h"

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace py
{

enum class task {
    put,    /* stores pieces as values; an existing key is success */
    get,    /* reads values into pieces; a value whose size differs from its piece is a failure */
    look,   /* whether this node or a peer has the value */
    remove, /* removes from this node */
};
struct job;
using job_list = std::list<std::unique_ptr<job>>;
struct job {
    virtual ~job() = default;
    uint64_t id = 0; /* > 0, in the order of submission; set by submit */
    task kind = task::look;
    uint64_t timeout_ns = 0; /* from the submission on; > 0 */
    uint32_t count = 0;
    const sl_object_key *keys = nullptr; /* [count] */
    sl_iov *pieces = nullptr;            /* [count]; NULL for look, remove */
    sl_err *codes = nullptr;             /* [count]; valid when the job has ended */
    sl_error why = {};                   /* of the first failure; SL_OK: none */

  private: /* for the pool */
    friend class jobs;
    uint64_t deadline_ns = 0, slice_bytes = 0;
    uint32_t taken = 0, settled = 0;
    job_list::iterator place;
};

/* The pool; any thread may call it. It owns each job from submission until the job is drained. */
class jobs
{
  public:
    /* Borrows the client. depth (1..65,536): queued and running jobs at most. */
    jobs(sl_client *borrowed, uint32_t depth) : client(borrowed), depth_max(depth)
    {
    }
    /* thread_count: 1..64. With several threads the first one prefers puts and removals, and the
     * last one runs only gets and lookups: puts wait for actors, and gets from memory do not. why:
     * all zero. Call stop() afterwards, also on failure. */
    sl_err start(uint32_t thread_count, sl_error *why);
    /* Ends queued jobs with SL_ERR_CANCELLED and waits for running ones, which end by their
     * deadline. Returns the jobs that were not drained. */
    job_list stop();
    /* An eventfd that is readable while ended jobs have not been drained; borrowed. */
    [[nodiscard]] int event_fd() const
    {
        return fd;
    }
    /* Queues the job without waiting and returns its id. The job ends by its deadline; at once if
     * it has no keys, and with SL_ERR_LIMIT for each key if depth jobs are queued or running. */
    uint64_t submit(std::unique_ptr<job> given);
    job_list drain();   /* removes and returns ended jobs, oldest first */
    uint32_t pending(); /* queued and running jobs */
    /* Waits until no job is queued or running; false after timeout_ns. */
    bool wait(uint64_t timeout_ns);

  private:
    enum lane { reads = 0, writes = 1, lane_count = 2 };
    struct slice {
        job *of;
        uint32_t first, count;
    };
    void run(lane preferred, bool alone);
    void run_slice(const slice &part, sl_error *why);
    sl_err copy_slice(const slice &part, uint64_t left_ns, sl_error *why);
    void expire();
    bool take(lane from, slice *out);
    void give_up(lane of, sl_err code);
    void settled(job &of, uint32_t count, const sl_error *why);
    void end(job &gone);

    sl_client *client;
    int fd = -1;
    const uint32_t depth_max;
    std::vector<std::thread> threads;
    std::mutex lock; /* for all below; held briefly, without the GIL */
    std::condition_variable work, idle;
    job_list lanes[lane_count]; /* jobs with slices that no thread has taken */
    job_list taken, ended;      /* moved from list to list, so that no thread allocates */
    uint64_t next_id = 0;
    uint32_t pending_count = 0;
    bool stopping = false;
};

/* Looks keys up in the caller's thread. codes[i]: SL_OK, SL_ERR_NOT_FOUND, or why it is not known.
 * Peers are asked if there are any, for timeout_ns in total (0: op_timeout). */
void look_at(sl_client *client, const sl_object_key *keys, uint32_t count, sl_err *codes,
             uint64_t timeout_ns, sl_error *why);

} // namespace py

#endif
