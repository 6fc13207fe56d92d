/* tests/fuzz/fuzz_queue.c - both ends of a ring whose shared bytes are overwritten between any two
 * steps: neither may crash, read outside the ring, or loop forever.
 *
 * Input: steps of one byte and, by the step, more: 0 write a frame (u16 length); 1 read one; 2 put
 * u64 at tail; 3 put u64 at head; 4 put a byte at u16 of the ring; 5 put a forged head word that
 * fits (u16 position, u16 length, u8 kind); 6 sleep and wake. */
#include "ipc/msg/sl_queue.h"

#include <stdlib.h>
#include <string.h>

#define RING 4096u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

struct input {
    const uint8_t *at;
    size_t left;
};

static uint64_t take(struct input *input, size_t bytes)
{
    uint64_t value = 0;
    size_t taken = SL_MIN(bytes, input->left);
    memcpy(&value, input->at, taken);
    input->at += taken;
    input->left -= taken;
    return value;
}

static void expect(bool right)
{
    if (!right) {
        abort();
    }
}

struct rig {
    struct sl_queue_shared shared;
    struct sl_queue_writer writer, other; /* other: makes head words that fit */
    struct sl_queue_reader reader;
    unsigned char *ring; /* on the heap: the sanitizer detects accesses past its ends */
    unsigned char *scratch;
    unsigned char *frame;
};

static void step_write(struct rig *rig, struct input *input)
{
    bool doorbell = false;
    size_t length = take(input, 2) % 600;
    memset(rig->frame, (int)length, length);
    uint64_t before = rig->writer.tail;
    sl_err err = sl_queue_write(&rig->writer, 1, rig->frame, length, &doorbell);
    expect(err == SL_OK || err == SL_ERR_LIMIT || err == SL_ERR_PROTOCOL ||
           (err == SL_ERR_INVALID && length > sl_queue_frame_bytes_max(RING)));
    expect((err == SL_OK) == (rig->writer.tail != before));
}

static void step_read(struct rig *rig)
{
    uint8_t kind = 0;
    size_t length = 0;
    uint64_t before = rig->reader.head;
    sl_err err =
        sl_queue_read(&rig->reader, rig->frame, sl_queue_frame_bytes_max(RING), &kind, &length);
    expect(err == SL_OK || err == SL_ERR_NOT_FOUND || err == SL_ERR_PROTOCOL);
    expect(err != SL_OK || (kind != 0 && length <= sl_queue_frame_bytes_max(RING)));
    expect(rig->reader.head - before <= RING && (err == SL_OK) == (rig->reader.head != before));
}

static void step_forge(struct rig *rig, struct input *input)
{
    bool doorbell;
    uint64_t at = sl_align_up(take(input, 2) % RING, 8) % RING;
    size_t length = take(input, 2) % (sl_queue_frame_bytes_max(RING) + 1);
    uint8_t kind = (uint8_t)(take(input, 1) | 1);
    struct sl_queue_shared apart = {0};
    /* The reader's next position, or any position in its present round. */
    rig->other.shared = &apart;
    rig->other.tail = rig->other.head_seen =
        at == 0 ? rig->reader.head : (rig->reader.head & ~(uint64_t)(RING - 1)) + at;
    atomic_store(&apart.head, rig->other.tail);
    expect(sl_queue_write(&rig->other, kind, rig->frame, length, &doorbell) == SL_OK);
    memcpy(rig->ring + (rig->other.tail - sl_align_up(length, 8) - 8) % RING,
           rig->scratch + (rig->other.tail - sl_align_up(length, 8) - 8) % RING, 8);
}

static void steps(struct rig *rig, struct input *input)
{
    while (input->left > 0) {
        switch (take(input, 1) % 7) {
        case 0:
            step_write(rig, input);
            break;
        case 1:
            step_read(rig);
            break;
        case 2:
            atomic_store(&rig->shared.tail, take(input, 8));
            break;
        case 3:
            atomic_store(&rig->shared.head, take(input, 8));
            break;
        case 4: {
            uint64_t at = take(input, 2) % RING;
            rig->ring[at] = (unsigned char)take(input, 1);
            break;
        }
        case 5:
            step_forge(rig, input);
            break;
        default:
            sl_queue_announce(&rig->reader);
            sl_queue_fence();
            (void)sl_queue_ready(&rig->reader);
            sl_queue_awake(&rig->reader);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    struct rig rig = {
        .ring = calloc(1, RING), .scratch = calloc(1, RING), .frame = calloc(1, RING)};
    expect(rig.ring != NULL && rig.scratch != NULL && rig.frame != NULL);
    sl_queue_writer_init(&rig.writer, &rig.shared, rig.ring, RING);
    sl_queue_writer_init(&rig.other, &rig.shared, rig.scratch, RING);
    sl_queue_reader_init(&rig.reader, &rig.shared, rig.ring, RING);
    struct input input = {.at = bytes, .left = length_bytes};
    steps(&rig, &input);
    /* In any case, the rest is read in fewer steps than the ring has words. */
    uint32_t reads = 0;
    uint64_t before;
    do {
        before = rig.reader.head;
        step_read(&rig);
        expect(++reads <= RING / 8 + 1);
    } while (rig.reader.head != before);
    free(rig.ring);
    free(rig.scratch);
    free(rig.frame);
    return 0;
}
