/* ipc/msg/sl_queue.c - a ring of frames in shared memory; the header describes the protocol. */
#include "ipc/msg/sl_queue.h"

#include <string.h>

#define ALIGN_BYTES      UINT64_C(8)
#define HEAD_WORD_BYTES  UINT64_C(8)
#define FRAMES_OF_A_RING 8u

/* Head word: bits 0..31 length, 32..39 kind, 40..63 check. */
#define KIND_SHIFT  32
#define CHECK_SHIFT 40

bool sl_queue_bytes_valid(uint64_t ring_bytes)
{
    return ring_bytes >= SL_QUEUE_BYTES_MIN && ring_bytes <= SL_QUEUE_BYTES_MAX &&
           (ring_bytes & (ring_bytes - 1)) == 0;
}

uint64_t sl_queue_frame_bytes_max(uint64_t ring_bytes)
{
    return ring_bytes / FRAMES_OF_A_RING - HEAD_WORD_BYTES;
}

void sl_queue_writer_init(struct sl_queue_writer *writer, struct sl_queue_shared *shared,
                          void *ring, uint64_t ring_bytes)
{
    SL_ASSERT(sl_queue_bytes_valid(ring_bytes));
    *writer = (struct sl_queue_writer){.shared = shared, .ring = ring, .ring_bytes = ring_bytes};
}

void sl_queue_reader_init(struct sl_queue_reader *reader, struct sl_queue_shared *shared,
                          const void *ring, uint64_t ring_bytes)
{
    SL_ASSERT(sl_queue_bytes_valid(ring_bytes));
    *reader = (struct sl_queue_reader){.shared = shared, .ring = ring, .ring_bytes = ring_bytes};
}

/* Depends on position, length and kind, so that data from an earlier round of the ring, a cut frame
 * or a stray write do not match. It is no defence against a hostile peer; bounds are. */
static uint64_t head_word_of(uint64_t position, uint64_t length_bytes, uint8_t kind)
{
    uint64_t low = length_bytes | (uint64_t)kind << KIND_SHIFT;
    uint64_t mixed = (position ^ low * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xff51afd7ed558ccd);
    return low | (mixed >> CHECK_SHIFT | 1) << CHECK_SHIFT;
}

static uint64_t frame_room(uint64_t length_bytes)
{
    return HEAD_WORD_BYTES + sl_align_up(length_bytes, ALIGN_BYTES);
}

/* ---------------------------------------------------- writing */

/* Makes sure of room for need_bytes, by the last known position of the reader, otherwise by reading
 * it again. */
static sl_err writer_need(struct sl_queue_writer *writer, uint64_t need_bytes)
{
    if (writer->ring_bytes - (writer->tail - writer->head_seen) >= need_bytes) {
        return SL_OK;
    }
    uint64_t head = atomic_load_explicit(&writer->shared->head, memory_order_acquire);
    /* It is between its old value and our tail; it never moves back. */
    if (writer->tail - head > writer->tail - writer->head_seen || head % ALIGN_BYTES != 0) {
        return SL_ERR_PROTOCOL;
    }
    writer->head_seen = head;
    return writer->ring_bytes - (writer->tail - head) >= need_bytes ? SL_OK : SL_ERR_LIMIT;
}

bool sl_queue_has_room(struct sl_queue_writer *writer, size_t length_bytes)
{
    return length_bytes <= sl_queue_frame_bytes_max(writer->ring_bytes) &&
           writer_need(writer, frame_room(length_bytes)) == SL_OK;
}

static void copy_in(const struct sl_queue_writer *writer, uint64_t position, const void *frame,
                    uint64_t length_bytes)
{
    uint64_t at = position & (writer->ring_bytes - 1);
    uint64_t first_bytes = SL_MIN(length_bytes, writer->ring_bytes - at);
    memcpy(writer->ring + at, frame, first_bytes);
    if (first_bytes < length_bytes) {
        memcpy(writer->ring, (const unsigned char *)frame + first_bytes,
               length_bytes - first_bytes);
    }
}

/* Clears the flag, so that one sleep costs one doorbell. */
static bool reader_sleeps(struct sl_queue_writer *writer)
{
    sl_queue_fence(); /* makes tail visible before sleeping is read: see the header */
    return atomic_load_explicit(&writer->shared->sleeping, memory_order_relaxed) != 0 &&
           atomic_exchange_explicit(&writer->shared->sleeping, 0, memory_order_relaxed) != 0;
}

sl_err sl_queue_write(struct sl_queue_writer *writer, uint8_t kind, const void *frame,
                      size_t length_bytes, bool *doorbell)
{
    if (length_bytes > sl_queue_frame_bytes_max(writer->ring_bytes) || kind == 0) {
        return SL_ERR_INVALID;
    }
    uint64_t need_bytes = frame_room(length_bytes);
    sl_err err = writer_need(writer, need_bytes);
    if (err != SL_OK) {
        return err;
    }
    uint64_t word = head_word_of(writer->tail, length_bytes, kind);
    memcpy(writer->ring + (writer->tail & (writer->ring_bytes - 1)), &word, sizeof(word));
    if (length_bytes > 0) {
        copy_in(writer, writer->tail + HEAD_WORD_BYTES, frame, length_bytes);
    }
    writer->tail += need_bytes;
    atomic_store_explicit(&writer->shared->tail, writer->tail, memory_order_release);
    *doorbell = reader_sleeps(writer);
    return SL_OK;
}

/* ---------------------------------------------------- reading */

/* Reads the writer's position if everything before the last known one has been consumed. */
static sl_err reader_look(struct sl_queue_reader *reader)
{
    if (reader->tail_seen != reader->head) {
        return SL_OK;
    }
    uint64_t tail = sl_queue_tail(reader);
    if (tail == reader->head) {
        return SL_ERR_NOT_FOUND;
    }
    /* Subtraction turns a tail that moved back into a number far above the ring. */
    if (tail - reader->head > reader->ring_bytes || tail % ALIGN_BYTES != 0) {
        return SL_ERR_PROTOCOL;
    }
    reader->tail_seen = tail;
    return SL_OK;
}

static void copy_out(const struct sl_queue_reader *reader, uint64_t position, void *out,
                     uint64_t length_bytes)
{
    uint64_t at = position & (reader->ring_bytes - 1);
    uint64_t first_bytes = SL_MIN(length_bytes, reader->ring_bytes - at);
    memcpy(out, reader->ring + at, first_bytes);
    if (first_bytes < length_bytes) {
        memcpy((unsigned char *)out + first_bytes, reader->ring, length_bytes - first_bytes);
    }
}

sl_err sl_queue_read(struct sl_queue_reader *reader, void *buffer, size_t buffer_bytes,
                     uint8_t *kind, size_t *length_bytes)
{
    sl_err err = reader_look(reader);
    if (err != SL_OK) {
        return err;
    }
    uint64_t word;
    /* volatile: the word is read once, so that the checked value is the one used. */
    word = *(const volatile uint64_t *)(const void *)(reader->ring +
                                                      (reader->head & (reader->ring_bytes - 1)));
    uint64_t length = (uint32_t)word;
    uint8_t frame_kind = (uint8_t)(word >> KIND_SHIFT);
    if (word != head_word_of(reader->head, length, frame_kind) || frame_kind == 0 ||
        length > sl_queue_frame_bytes_max(reader->ring_bytes) ||
        frame_room(length) > reader->tail_seen - reader->head || length > buffer_bytes) {
        return SL_ERR_PROTOCOL;
    }
    if (length > 0) {
        copy_out(reader, reader->head + HEAD_WORD_BYTES, buffer, length);
    }
    reader->head += frame_room(length);
    atomic_store_explicit(&reader->shared->head, reader->head, memory_order_release);
    *kind = frame_kind;
    *length_bytes = length;
    return SL_OK;
}
