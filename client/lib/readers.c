/* client/lib/readers.c - see readers.h.
 *
 * Why it is correct: a reader stores its time, then reads the attachment pointer. The other side
 * makes the attachment unreachable, calls membarrier, increments the time, then checks the readers.
 * On the reader's processor the barrier occurred either before its read, which then finds the
 * attachment unreachable, or after its store, which is then seen. Time is loaded before it is
 * stored, so a section may appear older than it is: it is only waited for longer. */
#include "client/lib/readers.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint64_t sl_readers_now = 1;
_Thread_local struct sl_reader *sl_reader_self;

static struct {
    pthread_mutex_t lock;    /* guards the list, not what readers store */
    struct sl_reader *first; /* one for each thread that entered a section; reused, never freed */
    uint32_t count;          /* length of the list */
    struct sl_reader shared; /* for threads without memory for their own */
    pthread_key_t key;       /* its destructor runs at the end of a thread */
    bool keyed;
    bool barrier; /* the system has membarrier */
} readers = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .shared = {.number = UINT32_MAX, .slow = true, .shared = true}};
static pthread_once_t readers_once = PTHREAD_ONCE_INIT;

static bool membarrier_do(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

static void thread_ended(void *at)
{
    struct sl_reader *self = at;
    sl_reader_self = NULL;
    pthread_mutex_lock(&readers.lock);
    self->depth = 0; /* a thread that ended within a section reads no more */
    atomic_store_explicit(&self->since, 0, memory_order_release);
    self->used = false;
    pthread_mutex_unlock(&readers.lock);
}

static void fork_begins(void)
{
    pthread_mutex_lock(&readers.lock);
}

static void fork_ends(void)
{
    pthread_mutex_unlock(&readers.lock);
}

/* In the child only the forking thread exists. */
static void fork_ends_in_child(void)
{
    for (struct sl_reader *at = readers.first; at != NULL; at = at->next) {
        if (at != sl_reader_self) {
            at->depth = 0;
            at->used = false;
            atomic_store_explicit(&at->since, 0, memory_order_relaxed);
        }
    }
    if (sl_reader_self != &readers.shared) {
        atomic_store_explicit(&readers.shared.since, 0, memory_order_relaxed);
    }
    pthread_mutex_unlock(&readers.lock);
}

static void readers_begin(void)
{
    readers.barrier = membarrier_do(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                      membarrier_do(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    readers.keyed = pthread_key_create(&readers.key, thread_ended) == 0;
    (void)pthread_atfork(fork_begins, fork_ends, fork_ends_in_child);
}

/* Under the lock. */
static struct sl_reader *reader_take(void)
{
    struct sl_reader *found = readers.first;
    while (found != NULL && found->used) {
        found = found->next;
    }
    /* A line of its own, so that sections of other threads do not contend for it. */
    if (found == NULL &&
        posix_memalign((void **)&found, 128, sl_align_up(sizeof *found, 128)) == 0) {
        *found = (struct sl_reader){
            .number = readers.count++, .slow = !readers.barrier, .next = readers.first};
        readers.first = found;
    }
    return found;
}

struct sl_reader *sl_reader_make(void)
{
    (void)pthread_once(&readers_once, readers_begin);
    pthread_mutex_lock(&readers.lock);
    struct sl_reader *self = readers.keyed ? reader_take() : NULL;
    if (self != NULL) {
        self->used = pthread_setspecific(readers.key, self) == 0;
        self = self->used ? self : NULL; /* the end of the thread would not be noticed */
    }
    pthread_mutex_unlock(&readers.lock);
    sl_reader_self = self != NULL ? self : &readers.shared;
    return sl_reader_self;
}

void sl_reader_enter_slow(struct sl_reader *self)
{
    if (self->shared) { /* since: number of threads in a section */
        (void)atomic_fetch_add_explicit(&self->since, 1, memory_order_seq_cst);
    } else if (self->depth++ == 0) {
        atomic_store_explicit(&self->since,
                              atomic_load_explicit(&sl_readers_now, memory_order_acquire),
                              memory_order_seq_cst);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

void sl_reader_leave_slow(struct sl_reader *self)
{
    if (self->shared) {
        (void)atomic_fetch_sub_explicit(&self->since, 1, memory_order_release);
    } else if (--self->depth == 0) {
        atomic_store_explicit(&self->since, 0, memory_order_release);
    }
}

uint64_t sl_readers_retire(void)
{
    (void)pthread_once(&readers_once, readers_begin);
    atomic_thread_fence(memory_order_seq_cst);
    /* Registers again, since a fork may have lost the registration. If that fails, nothing is known
     * about the readers. */
    if (readers.barrier && !membarrier_do(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
        !(membarrier_do(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
          membarrier_do(MEMBARRIER_CMD_PRIVATE_EXPEDITED))) {
        return 0;
    }
    return atomic_fetch_add_explicit(&sl_readers_now, 1, memory_order_acq_rel) + 1;
}

bool sl_readers_passed(uint64_t retired)
{
    pthread_mutex_lock(&readers.lock);
    bool passed = atomic_load_explicit(&readers.shared.since, memory_order_acquire) == 0;
    for (const struct sl_reader *at = readers.first; passed && at != NULL; at = at->next) {
        uint64_t since = atomic_load_explicit(&at->since, memory_order_acquire);
        passed = since == 0 || since >= retired;
    }
    pthread_mutex_unlock(&readers.lock);
    return passed;
}
