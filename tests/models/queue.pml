/* queue.pml - a ring between one producer and one consumer: sleeping, and waking the sleeper.
 *
 * The consumer about to sleep sets `sleeping`, fences (seq_cst), looks at the ring's `tail` again, then
 * sleeps until the doorbell. The producer writes its data, publishes `tail` (release), fences (seq_cst),
 * reads `sleeping`, and rings the doorbell only if it is set. The doorbell is an eventfd: a ring stays
 * there until the consumer takes it.
 *
 * Safe means: what is read is what was written, each once and in order. Live means: no lost wake-up. A
 * consumer asleep with data in the ring and no doorbell under way is an invalid end state, since nothing
 * can happen any more; Spin looks for those. With DEATH the producer may die before any of its steps, and
 * the sleeper looks again by itself (after 50 ms, or at the news of the death): Spin's timeout.
 *
 * Without one of its fences the model must fail; tests/models/models_test.py checks each:
 *   NO_FENCE_SLEEP    the consumer's fence between `sleeping` and its second look at `tail`
 *   NO_FENCE_RING     the producer's fence between `tail` and its look at `sleeping`
 *   NO_RELEASE_TAIL   release of `tail`: data before it
 *   NO_ACQUIRE_TAIL   acquire of `tail`: data after it
 *   NO_RELEASE_HEAD   release of `head`: the data was read before its place is released
 *   NO_RECHECK        the second look at `tail` left out
 *   NO_LOOK_AGAIN     with DEATH: a sleeper that waits only for the doorbell */
#define RING     2 /* places */
#ifndef ITEMS
#define ITEMS    4
#endif
#define DATA     0 /* of each place */
#define TAIL     2
#define HEAD     3
#define SLEEPING 4
#define WORDS    5
#define THREADS  2
#define PRODUCER 0
#define CONSUMER 1
#define BUFFER   4
#include "memory.pml"

byte doorbell;     /* an eventfd: the kernel's, not in a store buffer */
bit producer_done; /* or dead */

#ifdef DEATH
#define may_die if :: goto done :: skip fi
#else
#define may_die skip
#endif

active proctype producer()
{
    byte scan_at, tail, head;
    bit sleeping;
    do
    :: tail < ITEMS ->
        /* A full ring makes the caller try again later. */
        do
        :: load(PRODUCER, HEAD, head);
            if
            :: tail - head < RING -> break
            :: else -> (memory[HEAD] != head)
            fi
        od;
        may_die;
        store(PRODUCER, DATA + tail % RING, tail + 1);
        may_die;
        tail++;
#ifdef NO_RELEASE_TAIL
        store(PRODUCER, TAIL, tail);
#else
        store_release(PRODUCER, TAIL, tail);
#endif
        may_die;
#ifndef NO_FENCE_RING
        fence_seq_cst(PRODUCER);
#endif
        load(PRODUCER, SLEEPING, sleeping);
        may_die;
        if
        :: sleeping -> doorbell = 1
        :: else -> skip
        fi;
        sleeping = 0;
        head = 0
    :: else -> break
    od;
done:
    producer_done = 1
}

active proctype consumer()
{
    byte scan_at, head, tail, data;
    do
    :: load(CONSUMER, TAIL, tail);
#ifdef NO_ACQUIRE_TAIL
        if
        :: load(CONSUMER, DATA + head % RING, data); load(CONSUMER, TAIL, tail)
        :: load(CONSUMER, TAIL, tail); load(CONSUMER, DATA + head % RING, data)
        fi;
#endif
        if
        :: tail != head ->
#ifndef NO_ACQUIRE_TAIL
            load(CONSUMER, DATA + head % RING, data);
#endif
#ifdef NO_RELEASE_HEAD
            if
            :: store(CONSUMER, HEAD, head + 1); load(CONSUMER, DATA + head % RING, data)
            :: skip
            fi;
#endif
            assert(data == head + 1);
            head++;
            data = 0;
            store_release(CONSUMER, HEAD, head)
        :: else ->
            store(CONSUMER, SLEEPING, 1);
#ifndef NO_FENCE_SLEEP
            fence_seq_cst(CONSUMER);
#endif
#ifdef NO_RECHECK
            tail = head;
#else
            load(CONSUMER, TAIL, tail);
#endif
            if
            :: tail == head ->
asleep:
                if
                :: atomic { doorbell == 1 -> doorbell = 0 }
#ifdef DEATH
#ifndef NO_LOOK_AGAIN
                :: timeout
#endif
#endif
                :: producer_done && buffers[PRODUCER].count == 0 && doorbell == 0 &&
                    memory[TAIL] == head -> goto done /* nothing is left: end */
                fi
            :: else -> skip
            fi;
            store(CONSUMER, SLEEPING, 0)
        fi;
        tail = 0
    od;
done:
    skip
}
