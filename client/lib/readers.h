/* client/lib/readers.h - which threads read shared memory now, so that memory of a node that is
 * gone is unmapped when no thread uses it any more.
 *
 * A thread that uses an attachment without holding it (internal.h) is in a section meanwhile. What
 * was made unreachable is free of readers when every section that had begun by then is over. A
 * section costs a reader two stores to a line of its own: the order between its store and its look
 * at the attachment comes from membarrier(2), which the side that lets go calls. Where the system
 * has none, the reader has a fence. Sections nest; one that waits keeps memory, and nothing else.
 */
#ifndef SL_CLIENT_LIB_READERS_H
#define SL_CLIENT_LIB_READERS_H

#include "runtime/base/sl_base.h"

#include <stdatomic.h>

struct sl_reader {          /* of one thread */
    _Atomic uint64_t since; /* the time that its section began at; 0: in none */
    uint32_t depth;         /* its own; of sections within one another */
    uint32_t number;        /* of the thread among the living; UINT32_MAX: of those that share */
    bool slow;              /* fences by itself, or is the one that threads share */
    bool shared;
    bool used; /* these two: under the lock of the list */
    struct sl_reader *next;
};

/* Counted by sl_readers_retire; begins at 1. */
extern _Atomic uint64_t sl_readers_now;
/* NULL: this thread has not been in a section yet. */
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
        /* Acquire: of a time that was counted behind the end of an attachment that end is seen. */
        atomic_store_explicit(&self->since,
                              atomic_load_explicit(&sl_readers_now, memory_order_acquire),
                              memory_order_relaxed);
    }
    /* Before any look at what may go: sl_readers_retire makes it hold between processors, too. */
    atomic_signal_fence(memory_order_seq_cst);
    return self;
}

/* Out of the section; in the thread that entered it. */
static inline void sl_reader_leave(struct sl_reader *self)
{
    if (__builtin_expect(self->slow, 0)) {
        sl_reader_leave_slow(self);
        return;
    }
    if (--self->depth == 0) {
        /* Partner of the acquire in sl_readers_passed: all that was read was read before. */
        atomic_store_explicit(&self->since, 0, memory_order_release);
    }
}

/* SL_AUTO(reader): left at the end of the block. */
static inline void sl_auto_reader(void *at)
{
    sl_reader_leave(*(struct sl_reader **)at);
}

/* For sl_readers_passed, about what no new section can reach any more. 0: the system would not
 * say; try again later. */
uint64_t sl_readers_retire(void);
/* Whether every section that had begun when it was retired is over. */
bool sl_readers_passed(uint64_t retired);

#endif
