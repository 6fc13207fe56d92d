/* ipc/msg/sl_queue.h - a ring of frames in shared memory: one process writes, one reads.
 *
 * tail and head count bytes since the beginning (64 bits: they never wrap in practice) and are
 * multiples of 8. A frame is one head word (length, kind, and a check derived from its position),
 * then its bytes, padded to 8. The bytes of a frame may wrap around the end of the ring, a head
 * word never does. Only the store of tail makes a frame visible: a writer that is killed before it
 * leaves nothing.
 *
 * The other side may write any byte at any time. Each side keeps its own position in its own
 * memory, reads every shared word once into a local and checks it, and copies a frame out before
 * using it. A value that cannot be valid is SL_ERR_PROTOCOL: drop the peer.
 *
 * Sleeping: a reader that is about to sleep announces it (`sleeping` = 1), fences (seq_cst) and
 * reads tail again. A writer publishes tail, fences (seq_cst), and only if `sleeping` is set clears
 * the flag and rings the doorbell. One of the two always sees the other's store. Since a writer may
 * die or be stopped between the two, a sleeper polls at least every SL_QUEUE_SLEEP_NS_MAX.
 *
 * Each end belongs to one thread at a time. */
#ifndef SL_QUEUE_H
#define SL_QUEUE_H

#include "runtime/base/sl_error.h"

#include <stdatomic.h>

#define SL_QUEUE_BYTES_MIN (4 * SL_KIB)
#define SL_QUEUE_BYTES_MAX (64 * SL_MIB)
/* If a writer dies its socket ends the sleep, and a stopped one rings when it continues. This bound
 * covers a dead writer whose child still holds the socket. An actor's heartbeat is as frequent. */
#define SL_QUEUE_SLEEP_NS_MAX (500 * SL_NS_PER_MS)
/* Two cache lines: the prefetcher of x86 fetches lines in pairs. */
#define SL_QUEUE_LINE_BYTES 128u

/* In shared memory, zeroed initially; the bytes of the ring are elsewhere in it. */
struct sl_queue_shared {
    /* Written by the writer: end of the last complete frame (release; pairs with the reader's
     * acquire). */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint64_t tail;
    /* Written by the reader: end of the last frame copied out (release; pairs with the writer's
     * acquire). */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint64_t head;
    /* 1: the reader wants the doorbell. Set and cleared by the reader, cleared by a ringing
     * writer. */
    _Alignas(SL_QUEUE_LINE_BYTES) _Atomic uint32_t sleeping;
};
_Static_assert(sizeof(struct sl_queue_shared) == 3 * SL_QUEUE_LINE_BYTES, "shared layout");

struct sl_queue_writer {
    struct sl_queue_shared *shared;
    unsigned char *ring;
    uint64_t ring_bytes;
    uint64_t tail;      /* our own; the shared one is never read back */
    uint64_t head_seen; /* the reader's position when it was last read */
};
struct sl_queue_reader {
    struct sl_queue_shared *shared;
    const unsigned char *ring;
    uint64_t ring_bytes;
    uint64_t head;      /* our own */
    uint64_t tail_seen; /* the writer's position when it was last read */
};

/* Whether it is a power of two within the bounds. */
bool sl_queue_bytes_valid(uint64_t ring_bytes);
/* The longest frame is an eighth of the ring, so that a ring always holds several. */
uint64_t sl_queue_frame_bytes_max(uint64_t ring_bytes);

/* Both borrow memory that both sides have mapped, zeroed initially: shared, and ring_bytes at ring
 * (8-byte aligned). */
void sl_queue_writer_init(struct sl_queue_writer *writer, struct sl_queue_shared *shared,
                          void *ring, uint64_t ring_bytes);
void sl_queue_reader_init(struct sl_queue_reader *reader, struct sl_queue_shared *shared,
                          const void *ring, uint64_t ring_bytes);

/* Copies one frame (0..sl_queue_frame_bytes_max bytes) into the ring and publishes it. kind:
 * 1..255, defined by the caller. *doorbell on success: the reader sleeps, so ring its doorbell.
 * Errors: SL_ERR_LIMIT (full), SL_ERR_INVALID (longer than the ring allows), SL_ERR_PROTOCOL. */
sl_err sl_queue_write(struct sl_queue_writer *writer, uint8_t kind, const void *frame,
                      size_t length_bytes, bool *doorbell);
/* Whether a frame of this length fits now; room never shrinks until the next write. Also false
 * where a write would return SL_ERR_PROTOCOL. */
bool sl_queue_has_room(struct sl_queue_writer *writer, size_t length_bytes);

/* Copies out the next frame, into at most buffer_bytes (sl_queue_frame_bytes_max always suffices).
 * Errors: SL_ERR_NOT_FOUND (empty), SL_ERR_PROTOCOL. Each success consumes at least 8 bytes of the
 * ring, whatever the peer writes. */
sl_err sl_queue_read(struct sl_queue_reader *reader, void *buffer, size_t buffer_bytes,
                     uint8_t *kind, size_t *length_bytes);
/* Whether the reader has not announced that it sleeps. A hint: the peer may write anything
 * there. */
static inline bool sl_queue_reader_is_awake(const struct sl_queue_writer *writer)
{
    return atomic_load_explicit(&writer->shared->sleeping, memory_order_relaxed) == 0;
}
/* Position after the last visible frame. A hostile peer can write any value: only compare it with
 * reader->head, by subtraction. */
static inline uint64_t sl_queue_tail(const struct sl_queue_reader *reader)
{
    return atomic_load_explicit(&reader->shared->tail, memory_order_acquire);
}
/* Position after the last frame that the reader has consumed, as the reader reports it: as
 * above. */
static inline uint64_t sl_queue_head(const struct sl_queue_writer *writer)
{
    return atomic_load_explicit(&writer->shared->head, memory_order_acquire);
}
/* Whether there may be a frame to read. */
static inline bool sl_queue_ready(const struct sl_queue_reader *reader)
{
    return sl_queue_tail(reader) != reader->head;
}

/* ---- going to sleep: announce on every ring, fence once, poll every ring again ---- */
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
