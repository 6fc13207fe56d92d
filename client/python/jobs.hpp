/* client/python/jobs.hpp - batches that threads carry out, without Python. */
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
    put,    /* pieces into values; a key that exists is fine */
    get,    /* values into pieces; a value of another size than its piece is a failure */
    look,   /* whether this node or a peer has it */
    remove, /* of this node */
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
    sl_piece *pieces = nullptr;          /* [count]; NULL where there are no values */
    sl_err *codes = nullptr;             /* [count]; valid when it has ended */
    sl_error why = {};                   /* of the first failure; code SL_OK: none */

  private: /* of the pool */
    friend class jobs;
    uint64_t deadline_ns = 0, slice_bytes = 0;
    uint32_t taken = 0, settled = 0;
    job_list::iterator place;
};

/* Any thread. Each job belongs to the pool from its submission until it is drained. */
class jobs
{
  public:
    /* thread_count 1..64. depth_max (1..65,536): jobs that wait or run. Borrows the client. With
     * more than one thread the first one prefers puts and removals, and the last one takes gets and
     * looks alone: puts wait for actors, which gets from memory do not. */
    jobs(sl_client *borrowed, uint32_t depth) : client(borrowed), depth_max(depth)
    {
    }
    /* why: all zero. Errors: SL_ERR_INVALID, SL_ERR_OS. After it stop() is called. */
    sl_err start(uint32_t thread_count, sl_error *why);
    /* Jobs that wait end with SL_ERR_CANCELLED, those that run end by their deadline and are waited
     * for. Gives what was not drained. */
    job_list stop();
    /* An eventfd that is readable while ended jobs were not drained; borrowed. */
    [[nodiscard]] int event_fd() const
    {
        return fd;
    }
    /* Takes the job and waits for nothing. It ends at its deadline at the latest, and at once, with
     * SL_ERR_LIMIT for each key, where depth_max are there. Gives its id. */
    uint64_t submit(std::unique_ptr<job> given);
    job_list drain();   /* what has ended, the first one first */
    uint32_t pending(); /* that wait or run */
    /* Waits until none waits or runs. false: not within timeout_ns. */
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
    std::mutex lock; /* of all below; held without the interpreter's, and shortly */
    std::condition_variable work, idle;
    job_list lanes[lane_count]; /* of which slices are left to be taken */
    job_list taken, ended;      /* moved from list to list, so that no thread allocates */
    uint64_t next_id = 0;
    uint32_t pending_count = 0;
    bool stopping = false;
};

/* A look in the caller's thread: codes[i] is SL_OK or SL_ERR_NOT_FOUND, or why it is not known.
 * Peers are asked where there are any, for timeout_ns at most in all (0: op_timeout). */
void look_at(sl_client *client, const sl_object_key *keys, uint32_t count, sl_err *codes,
             uint64_t timeout_ns, sl_error *why);

} // namespace py

#endif
