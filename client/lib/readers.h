/* client/lib/readers.h - tracks the threads that read shared memory, so that memory of a node that
 * has ended is unmapped when no thread uses it any more.
 *
 * A thread that uses an attachment without holding it (internal.h) does so in a section. An
 * unreachable attachment has no readers when every section that had begun before has ended. A
 * section costs a reader two stores to its own line: the order between its store and its read of
 * the attachment is made by membarrier(2), which the releasing side calls. If the system has none,
 * the reader uses a fence. Sections nest; one that waits only delays the unmapping. */
#ifndef SL_CLIENT_LIB_READERS_H
#define SL_CLIENT_LIB_READERS_H

#include "runtime/base/sl_base.h"

#include <stdatomic.h>

struct sl_reader {          /* of one thread */
    _Atomic uint64_t since; /* time at which its section began; 0: not in one */
    uint32_t depth;         /* its own; nesting depth of sections */
    uint32_t number; /* of the thread among living ones; UINT32_MAX: those that share a line */
    bool slow;       /* uses fences, or is the line that threads share */
    bool shared;
    bool used; /* these two: under the lock of the list */
    struct sl_reader *next;
};

/* Incremented by sl_readers_retire; begins at 1. */
extern _Atomic uint64_t sl_readers_now;
/* NULL: this thread has not entered a section yet. */
extern _Thread_local struct sl_reader *sl_reader_self;
struct sl_reader *sl_reader_make(void);
void sl_reader_enter_slow(struct sl_reader *self);
void sl_reader_leave_slow(struct sl_reader *self);

static inline struct sl_reader *sl_reader_enter(void)
{
    struct sl_reader *self = sl_reader_self;
    if (__builtin_expect(self == NULL, 0)) {
        self = sl_reader_make();
    }
    if (__builtin_expect(self->slow, 0)) {
        sl_reader_enter_slow(self);
        return self;
    }
    if (self->depth++ == 0) {
        /* Acquire: a thread that reads a time counted after the end of an attachment also sees that
         * end. */
        atomic_store_explicit(&self->since,
                              atomic_load_explicit(&sl_readers_now, memory_order_acquire),
                              memory_order_relaxed);
    }
    /* Before any read of memory that may be unmapped; sl_readers_retire makes this order hold
     * between processors. */
    atomic_signal_fence(memory_order_seq_cst);
    return self;
}

/* Leaves the section; in the thread that entered it. */
static inline void sl_reader_leave(struct sl_reader *self)
{
    if (__builtin_expect(self->slow, 0)) {
        sl_reader_leave_slow(self);
        return;
    }
    if (--self->depth == 0) {
        /* Release, partner of the acquire in sl_readers_passed: all reads of the section are
         * done. */
        atomic_store_explicit(&self->since, 0, memory_order_release);
    }
}

/* For SL_AUTO(reader): leaves the section at the end of the block. */
static inline void sl_auto_reader(void *at)
{
    sl_reader_leave(*(struct sl_reader **)at);
}

/* Returns a number for sl_readers_passed, for memory that no new section can reach. 0: the system
 * refused; try again later. */
uint64_t sl_readers_retire(void);
/* Whether every section that had begun when it was retired has ended. */
bool sl_readers_passed(uint64_t retired);

#endif
