/* ipc/msg/sl_queue.h - a ring of frames in shared memory: one process writes, one reads.
 *
 * tail and head run freely (bytes since the beginning, 64 bits: they never wrap in practice) and
 * are multiples of 8. A frame is one head word (length, kind, and a check made from its position),
 * then its bytes, filled up to 8. The bytes of frames wrap around the end of the ring, head words
 * never do. A frame is visible by the store of tail alone: a writer that is killed half-way leaves
 * nothing.
 *
 * The other side may write any byte at any time. Each side keeps its own position in its own
 * memory, reads every shared word once into a local and checks it, and copies a frame out before
 * anybody looks at it. A value that cannot be right is SL_ERR_PROTOCOL: drop the peer.
 *
 * Sleeping: a reader that is about to sleep announces it (`sleeping` = 1), fences (seq_cst) and
 * looks at tail again; a writer publishes tail, fences (seq_cst), and only when `sleeping` is set
 * takes the flag and rings the doorbell. One of the two always sees the other. A writer that dies
 * or is stopped between the two is why a sleeper looks again at least every SL_QUEUE_SLEEP_NS_MAX.
 *
 * Each end belongs to one thread at a time. */
#ifndef SL_QUEUE_H
#define SL_QUEUE_H

#include "runtime/base/sl_error.h"

#include <stdatomic.h>

#define SL_QUEUE_BYTES_MIN (4 * SL_KIB)
#define SL_QUEUE_BYTES_MAX (64 * SL_MIB)
/* The death of a writer ends the sleep by its socket, and a stopped one rings when it goes on: this
 * is for a child of a dead one that still holds the socket. An actor's heartbeat wakes it as often.
 */
#define SL_QUEUE_SLEEP_NS_MAX (500 * SL_NS_PER_MS)
/* Two cache lines: the prefetcher of x86 fetches lines in pairs. */
#define SL_QUEUE_LINE_BYTES 128u

/* In shared memory, zeroed at the beginning; the bytes of the ring lie elsewhere in it. */
struct sl_queue_shared {
    /* Written by the writer: end of the last whole frame (release; pairs with the reader's
     * acquire). */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint64_t tail;
    /* Written by the reader: end of the last frame that was copied out (release; pairs with the
     * writer's acquire). */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint64_t head;
    /* 1: the reader wants the doorbell. Set and cleared by the reader, taken by the writer. */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint32_t sleeping;
};
_Static_assert(sizeof(struct sl_queue_shared) == 3 * SL_QUEUE_LINE_BYTES, "shared layout");

struct sl_queue_writer {
    struct sl_queue_shared *shared;
    unsigned char *ring;
    uint64_t ring_bytes;
    uint64_t tail;      /* ours; the shared one is never read back */
    uint64_t head_seen; /* the reader's position when it was last looked at */
};
struct sl_queue_reader {
    struct sl_queue_shared *shared;
    const unsigned char *ring;
    uint64_t ring_bytes;
    uint64_t head;      /* ours */
    uint64_t tail_seen; /* the writer's position when it was last looked at */
};

/* Power of two within the bounds. */
bool sl_queue_bytes_are_fit(uint64_t ring_bytes);
/* Longest frame: an eighth of the ring, so that a full ring still is a queue of several. */
uint64_t sl_queue_frame_bytes_max(uint64_t ring_bytes);

/* Both borrow memory that is zeroed and mapped by both sides: shared, and ring_bytes at ring
 * (8-byte aligned). */
void sl_queue_writer_init(struct sl_queue_writer *writer, struct sl_queue_shared *shared,
                          void *ring, uint64_t ring_bytes);
void sl_queue_reader_init(struct sl_queue_reader *reader, struct sl_queue_shared *shared,
                          const void *ring, uint64_t ring_bytes);

/* Copies one frame (0..sl_queue_frame_bytes_max bytes) into the ring and publishes it.
 * kind: 1..255, the caller's. *doorbell on success: the reader sleeps, ring its doorbell. Errors:
 * SL_ERR_LIMIT (full), SL_ERR_INVALID (longer than the ring allows), SL_ERR_PROTOCOL. */
sl_err sl_queue_write(struct sl_queue_writer *writer, uint8_t kind, const void *frame,
                      size_t length_bytes, bool *doorbell);
/* Whether a frame of this length has room now; room never shrinks until the next write. False also
 * where a write would answer SL_ERR_PROTOCOL. */
bool sl_queue_has_room(struct sl_queue_writer *writer, size_t length_bytes);

/* Copies the next frame out, into at most buffer_bytes (sl_queue_frame_bytes_max is enough for
 * all). Errors: SL_ERR_NOT_FOUND (empty), SL_ERR_PROTOCOL. Each success takes at least 8 bytes off
 * the ring, whatever the peer writes. */
sl_err sl_queue_read(struct sl_queue_reader *reader, void *buffer, size_t buffer_bytes,
                     uint8_t *kind, size_t *length_bytes);
/* Whether the reader has not said that it sleeps. A hint: the peer may write anything there. */
static inline bool sl_queue_reader_is_awake(const struct sl_queue_writer *writer)
{
    return atomic_load_explicit(&writer->shared->sleeping, memory_order_relaxed) == 0;
}
/* Position behind the last frame that is visible now. Any value when the peer is hostile: to be
 * compared with reader->head by subtraction alone. */
static inline uint64_t sl_queue_tail(const struct sl_queue_reader *reader)
{
    return atomic_load_explicit(&reader->shared->tail, memory_order_acquire);
}
/* Position behind the last frame that the reader took, by its own word: as above. */
static inline uint64_t sl_queue_head(const struct sl_queue_writer *writer)
{
    return atomic_load_explicit(&writer->shared->head, memory_order_acquire);
}
/* Whether something may be read. */
static inline bool sl_queue_ready(const struct sl_queue_reader *reader)
{
    return sl_queue_tail(reader) != reader->head;
}

/* ---- going to sleep: announce on every ring, fence once, look at every ring again ---- */
static inline void sl_queue_announce(struct sl_queue_reader *reader)
{
    atomic_store_explicit(&reader->shared->sleeping, 1, memory_order_relaxed);
}
static inline void sl_queue_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}
static inline void sl_queue_awake(struct sl_queue_reader *reader)
{
    atomic_store_explicit(&reader->shared->sleeping, 0, memory_order_relaxed);
}

#endif
