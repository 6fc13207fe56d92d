/* tests/unit/ipc/msg/queue_test.c - the ring of frames: frames are read as written, complete and in
 * order; a full ring, a hostile peer and a killed one only cost an answer. */
#include "ipc/msg/sl_queue.h"
#include "runtime/base/sl_clock.h"

#include <check.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RING 4096u
#define KIND 7u

/* A ring with both ends, in memory that a forked child shares. */
struct rig {
    struct sl_queue_shared *shared;
    unsigned char *ring;
    uint64_t ring_bytes;
    struct sl_queue_writer writer;
    struct sl_queue_reader reader;
};

static void rig_make(struct rig *rig, uint64_t ring_bytes)
{
    unsigned char *at =
        mmap(NULL, 4096 + ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    *rig = (struct rig){.shared = (void *)at, .ring = at + 4096, .ring_bytes = ring_bytes};
    sl_queue_writer_init(&rig->writer, rig->shared, rig->ring, ring_bytes);
    sl_queue_reader_init(&rig->reader, rig->shared, rig->ring, ring_bytes);
}

static void rig_free(struct rig *rig)
{
    (void)munmap(rig->shared, 4096 + rig->ring_bytes);
}

/* Moves the ring to `position`, from which it behaves as when new. */
static void rig_turn(struct rig *rig, uint64_t position)
{
    atomic_store(&rig->shared->tail, position);
    atomic_store(&rig->shared->head, position);
    rig->writer.tail = rig->writer.head_seen = position;
    rig->reader.head = rig->reader.tail_seen = position;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Bytes that depend only on the number of the frame. */
static void fill(unsigned char *bytes, size_t length, uint64_t number)
{
    uint64_t state = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (unsigned char)(next_random(&state) >> 32);
    }
}

static size_t length_of(uint64_t number, size_t most)
{
    uint64_t state = number * UINT64_C(0xd1342543de82ef95) + 99;
    return (size_t)(next_random(&state) >> 20) % (most + 1);
}

static sl_err put(struct rig *rig, const void *frame, size_t length)
{
    bool doorbell = false;
    return sl_queue_write(&rig->writer, KIND, frame, length, &doorbell);
}

/* Takes the next frame and checks its number and length. */
static void expect(struct rig *rig, uint64_t number, size_t length)
{
    unsigned char want[RING];
    unsigned char got[RING];
    uint8_t kind = 0;
    size_t got_length = 0;
    fill(want, length, number);
    ck_assert_int_eq(sl_queue_read(&rig->reader, got, sizeof(got), &kind, &got_length), SL_OK);
    ck_assert_uint_eq(kind, KIND);
    ck_assert_uint_eq(got_length, length);
    ck_assert_mem_eq(got, want, length);
}

START_TEST(every_length_at_every_place_of_the_ring)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[RING];
        size_t most = sl_queue_frame_bytes_max(RING);
        for (size_t length = 0; length <= most; length += length < 40 ? 1 : 13) {
            for (uint64_t at = 0; at < RING; at += 8) {
                rig_turn(&rig, at);
                memset(rig.ring, 0xee, RING);
                fill(frame, length, at);
                ck_assert_int_eq(put(&rig, frame, length), SL_OK);
                expect(&rig, at, length);
                ck_assert(!sl_queue_ready(&rig.reader));
            }
        }
        rig_free(&rig);
    }
END_TEST

START_TEST(positions_may_pass_the_end_of_their_numbers)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[64];
        rig_turn(&rig, UINT64_MAX - 7 - 160);
        for (uint64_t i = 0; i < 20; i++) {
            fill(frame, sizeof(frame), i);
            ck_assert_int_eq(put(&rig, frame, sizeof(frame)), SL_OK);
            expect(&rig, i, sizeof(frame));
        }
        ck_assert_uint_lt(rig.reader.head, RING);
        rig_free(&rig);
    }
END_TEST

START_TEST(full_ring_is_a_limit_until_the_reader_takes)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[56]; /* 64 with its head: the ring fills exactly */
        for (uint64_t i = 0; i < RING / 64; i++) {
            ck_assert(sl_queue_has_room(&rig.writer, sizeof(frame)));
            fill(frame, sizeof(frame), i);
            ck_assert_int_eq(put(&rig, frame, sizeof(frame)), SL_OK);
        }
        ck_assert(!sl_queue_has_room(&rig.writer, 0));
        ck_assert_int_eq(put(&rig, frame, 0), SL_ERR_LIMIT);

        expect(&rig, 0, sizeof(frame));

        ck_assert(!sl_queue_has_room(&rig.writer, sizeof(frame) + 1));
        fill(frame, sizeof(frame), RING / 64);
        ck_assert_int_eq(put(&rig, frame, sizeof(frame)), SL_OK);
        for (uint64_t i = 1; i <= RING / 64; i++) {
            expect(&rig, i, sizeof(frame));
        }
        ck_assert(!sl_queue_ready(&rig.reader));
        rig_free(&rig);
    }
END_TEST

START_TEST(too_long_a_frame_is_refused_and_changes_nothing)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[RING] = {0};
        uint8_t kind;
        size_t length;
        ck_assert_int_eq(put(&rig, frame, sl_queue_frame_bytes_max(RING) + 1), SL_ERR_INVALID);
        ck_assert(!sl_queue_has_room(&rig.writer, sl_queue_frame_bytes_max(RING) + 1));
        ck_assert_int_eq(sl_queue_write(&rig.writer, 0, frame, 8, &(bool){false}), SL_ERR_INVALID);
        ck_assert_int_eq(sl_queue_read(&rig.reader, frame, sizeof(frame), &kind, &length),
                         SL_ERR_NOT_FOUND);
        rig_free(&rig);
    }
END_TEST

START_TEST(random_traffic_arrives_whole_and_in_order)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[RING];
        size_t most = sl_queue_frame_bytes_max(RING);
        uint64_t written = 0;
        uint64_t read = 0;
        uint64_t random = 4711;
        while (read < 20000) {
            if (next_random(&random) % 2 == 0 && written < 20000) {
                size_t length = length_of(written, most);
                fill(frame, length, written);
                sl_err err = put(&rig, frame, length);
                ck_assert(err == SL_OK || err == SL_ERR_LIMIT);
                written += err == SL_OK ? 1 : 0;
            } else if (sl_queue_ready(&rig.reader)) {
                expect(&rig, read, length_of(read, most));
                read++;
            }
        }
        rig_free(&rig);
    }
END_TEST

static const uint64_t unfit[] = {0, 1, 2048, 4095, 4097, 12288, UINT64_C(128) << 20};

START_TEST(unfit_sizes_are_told)
    {
        ck_assert(!sl_queue_bytes_valid(unfit[_i]));
        ck_assert(sl_queue_bytes_valid(4096));
        ck_assert(sl_queue_bytes_valid(64 * SL_MIB));
    }
END_TEST

/* -------------------------------------------------- hostile peers
 * -------------------------------------------------- */

/* Reads until the ring is empty or an error; the frames are at most what the ring can hold. */
static sl_err read_out(struct rig *rig)
{
    unsigned char frame[RING];
    uint8_t kind;
    size_t length;
    for (uint32_t i = 0; i <= RING / 8; i++) {
        sl_err err = sl_queue_read(&rig->reader, frame, sizeof(frame), &kind, &length);
        if (err != SL_OK) {
            return err;
        }
        ck_assert_uint_le(length, sl_queue_frame_bytes_max(RING));
    }
    ck_abort_msg("more frames than a ring can hold");
}

/* Puts a few frames into the ring, from a position where some wrap. */
static void rig_load(struct rig *rig)
{
    unsigned char frame[400];
    rig_turn(rig, RING - 1024);
    memset(rig->ring, 0, RING);
    for (uint64_t i = 0; i < 6; i++) {
        fill(frame, 40 + 50 * i, i);
        ck_assert_int_eq(put(rig, frame, 40 + 50 * i), SL_OK);
    }
}

START_TEST(hostile_tail_is_a_protocol_error)
    {
        static const uint64_t shifts[] = {1,
                                          2,
                                          3,
                                          4,
                                          7,
                                          UINT64_MAX,
                                          RING + 8,
                                          RING * 2,
                                          1u << 31,
                                          UINT64_C(1) << 63,
                                          UINT64_C(1) << 40};
        struct rig rig;
        rig_make(&rig, RING);
        for (uint32_t i = 0; i < SL_COUNT(shifts); i++) {
            rig_load(&rig);
            atomic_store(&rig.shared->tail, rig.reader.head + shifts[i]);
            ck_assert_int_eq(read_out(&rig), SL_ERR_PROTOCOL);
            /* The error stays: no frame was taken. */
            ck_assert_int_eq(read_out(&rig), SL_ERR_PROTOCOL);
        }
        /* A tail that is set back before the reader's position. */
        rig_load(&rig);
        ck_assert_int_eq(read_out(&rig), SL_ERR_NOT_FOUND);
        atomic_store(&rig.shared->tail, rig.reader.head - 8);
        ck_assert_int_eq(read_out(&rig), SL_ERR_PROTOCOL);
        rig_free(&rig);
    }
END_TEST

START_TEST(hostile_head_is_a_protocol_error)
    {
        static const int64_t shifts[] = {8, 4096, -8, 1, 7, INT64_MIN, -4096 * 3};
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char frame[400] = {0};
        for (uint32_t i = 0; i < SL_COUNT(shifts); i++) {
            rig_turn(&rig, 8192);
            sl_err err = SL_OK;
            while (err == SL_OK) {
                err = put(&rig, frame, sizeof(frame));
            }
            ck_assert_int_eq(err, SL_ERR_LIMIT);
            uint64_t base = shifts[i] > 0 && shifts[i] % 8 == 0 ? rig.writer.tail : 8192;
            atomic_store(&rig.shared->head, base + (uint64_t)shifts[i]);
            ck_assert_int_eq(put(&rig, frame, sizeof(frame)), SL_ERR_PROTOCOL);
        }
        rig_free(&rig);
    }
END_TEST

START_TEST(every_changed_byte_of_a_head_word_is_refused)
    {
        struct rig rig;
        rig_make(&rig, RING);
        for (uint32_t byte = 0; byte < 8; byte++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                rig_load(&rig);
                rig.ring[(rig.reader.head & (RING - 1)) + byte] ^= (unsigned char)(1u << bit);
                ck_assert_int_eq(read_out(&rig), SL_ERR_PROTOCOL);
            }
        }
        rig_free(&rig);
    }
END_TEST

START_TEST(frame_of_an_earlier_round_is_refused)
    {
        struct rig rig;
        rig_make(&rig, RING);
        rig_load(&rig);
        uint64_t begin = rig.reader.head;
        uint64_t end = rig.writer.tail;
        /* The writer claims that it has written the same again, a round later, and has not. */
        rig_turn(&rig, begin + RING);
        atomic_store(&rig.shared->tail, end + RING);
        ck_assert_int_eq(read_out(&rig), SL_ERR_PROTOCOL);
        rig_turn(&rig, begin);
        atomic_store(&rig.shared->tail, end);
        ck_assert_int_eq(read_out(&rig), SL_ERR_NOT_FOUND);
        rig_free(&rig);
    }
END_TEST

/* A frame that claims each of these lengths with a valid check: only bounds protect the reader. */
START_TEST(forged_lengths_stay_within_what_is_visible)
    {
        struct rig rig;
        rig_make(&rig, RING);
        unsigned char got[RING];
        unsigned char frame[504] = {0};
        uint8_t kind;
        size_t length;
        for (size_t claimed = 0; claimed <= sizeof(frame); claimed++) {
            rig_turn(&rig, RING - 16);
            ck_assert_int_eq(put(&rig, frame, claimed), SL_OK);
            uint64_t whole = rig.writer.tail;
            /* The visible bytes end before the frame does. */
            for (uint64_t tail = RING - 16 + 8; tail < whole; tail += 8) {
                atomic_store(&rig.shared->tail, tail);
                rig.reader.head = rig.reader.tail_seen = RING - 16;
                ck_assert_int_eq(sl_queue_read(&rig.reader, got, sizeof(got), &kind, &length),
                                 SL_ERR_PROTOCOL);
            }
            /* And into a buffer that is too small. */
            atomic_store(&rig.shared->tail, whole);
            rig.reader.head = rig.reader.tail_seen = RING - 16;
            if (claimed > 0) {
                ck_assert_int_eq(sl_queue_read(&rig.reader, got, claimed - 1, &kind, &length),
                                 SL_ERR_PROTOCOL);
            }
        }
        rig_free(&rig);
    }
END_TEST

START_TEST(random_bytes_in_every_field_end_in_an_answer)
    {
        struct rig rig;
        rig_make(&rig, RING);
        uint64_t random = 815;
        unsigned char frame[400] = {0};
        uint32_t refused = 0;
        for (uint32_t round = 0; round < 20000; round++) {
            rig_load(&rig);
            for (uint64_t hits = next_random(&random) % 6; hits > 0; hits--) {
                unsigned char value = (unsigned char)next_random(&random);
                uint64_t at = next_random(&random);
                switch (next_random(&random) % 4) {
                case 0:
                    ((unsigned char *)&rig.shared->tail)[at % 8] = value;
                    break;
                case 1:
                    ((unsigned char *)&rig.shared->head)[at % 8] = value;
                    break;
                case 2:
                    ((unsigned char *)&rig.shared->sleeping)[at % 4] = value;
                    break;
                default:
                    rig.ring[at % RING] = value;
                }
            }
            sl_err err = read_out(&rig);
            ck_assert(err == SL_ERR_NOT_FOUND || err == SL_ERR_PROTOCOL);
            refused += err == SL_ERR_PROTOCOL ? 1 : 0;
            for (uint32_t i = 0; i < 100 && err != SL_ERR_LIMIT; i++) {
                err = put(&rig, frame, sizeof(frame));
                ck_assert(err == SL_OK || err == SL_ERR_LIMIT || err == SL_ERR_PROTOCOL);
            }
        }
        ck_assert_uint_gt(refused, 1000);
        rig_free(&rig);
    }
END_TEST

/* --------------------------------------------------- two sides
 * --------------------------------------------------- */

START_TEST(doorbell_is_asked_for_once_a_sleep)
    {
        struct rig rig;
        rig_make(&rig, RING);
        bool doorbell = true;
        ck_assert_int_eq(sl_queue_write(&rig.writer, KIND, "x", 1, &doorbell), SL_OK);
        ck_assert(!doorbell); /* awake */
        ck_assert_int_eq(read_out(&rig), SL_ERR_NOT_FOUND);
        sl_queue_announce(&rig.reader);
        sl_queue_fence();
        ck_assert(!sl_queue_ready(&rig.reader));
        ck_assert_int_eq(sl_queue_write(&rig.writer, KIND, "x", 1, &doorbell), SL_OK);
        ck_assert(doorbell);
        ck_assert_int_eq(sl_queue_write(&rig.writer, KIND, "x", 1, &doorbell), SL_OK);
        ck_assert(!doorbell); /* it rings already */
        sl_queue_announce(&rig.reader);
        sl_queue_awake(&rig.reader);
        ck_assert_int_eq(sl_queue_write(&rig.writer, KIND, "x", 1, &doorbell), SL_OK);
        ck_assert(!doorbell);
        rig_free(&rig);
    }
END_TEST

#define THREAD_FRAMES 100000u
struct pair {
    struct rig rig;
    int bell;
    uint64_t bells;  /* the writer's count */
    uint64_t sleeps; /* announced by the reader; a frame may arrive before */
    uint64_t late;   /* frames without a doorbell */
};

static void *write_all(void *context)
{
    struct pair *pair = context;
    unsigned char frame[RING];
    for (uint64_t i = 0; i < THREAD_FRAMES;) {
        size_t length = length_of(i, 200);
        bool doorbell = false;
        fill(frame, length, i);
        sl_err err = sl_queue_write(&pair->rig.writer, KIND, frame, length, &doorbell);
        if (err == SL_ERR_LIMIT) {
            (void)sched_yield();
            continue;
        }
        ck_assert_int_eq(err, SL_OK);
        if (doorbell) {
            const uint64_t one = 1;
            pair->bells++;
            ck_assert_int_eq(write(pair->bell, &one, sizeof(one)), (ssize_t)sizeof(one));
        }
        if (i % 997 == 0) {
            (void)sched_yield(); /* let the reader run dry and sleep */
        }
        i++;
    }
    return NULL;
}

/* Sleeps as the protocol requires. Counts a sleep that ends by its limit although a frame waits,
 * which is a lost wake-up. */
static void sleep_until_bell(struct pair *pair)
{
    sl_queue_announce(&pair->rig.reader);
    pair->sleeps++;
    sl_queue_fence();
    if (!sl_queue_ready(&pair->rig.reader)) {
        struct pollfd polled = {.fd = pair->bell, .events = POLLIN};
        uint64_t rings;
        if (poll(&polled, 1, 10000) == 0) {
            pair->late += sl_queue_ready(&pair->rig.reader) ? 1 : 0;
        } else {
            ck_assert_int_eq(read(pair->bell, &rings, sizeof(rings)), (ssize_t)sizeof(rings));
        }
    }
    sl_queue_awake(&pair->rig.reader);
}

START_TEST(two_threads_pass_everything_in_order_and_no_wake_up_is_lost)
    {
        struct pair pair = {.bell = eventfd(0, EFD_NONBLOCK)};
        pthread_t thread;
        rig_make(&pair.rig, RING);
        ck_assert_int_eq(pthread_create(&thread, NULL, write_all, &pair), 0);
        for (uint64_t i = 0; i < THREAD_FRAMES; i++) {
            while (!sl_queue_ready(&pair.rig.reader)) {
                sleep_until_bell(&pair);
            }
            expect(&pair.rig, i, length_of(i, 200));
        }
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        ck_assert_uint_eq(pair.late, 0);
        ck_assert_uint_le(pair.bells, pair.sleeps);
        (void)printf("queue: %u frames, %" PRIu64 " sleeps, %" PRIu64 " doorbells\n", THREAD_FRAMES,
                     pair.sleeps, pair.bells);
        (void)close(pair.bell);
        rig_free(&pair.rig);
    }
END_TEST

/* A child writes frames until it is killed at an arbitrary moment. The visible frames are then
 * complete and in order, and the reader ends at the last one. */
START_TEST(killed_writer_leaves_whole_frames_in_order)
    {
        uint64_t random = 1234567;
        uint64_t total = 0;
        for (uint32_t round = 0; round < 60; round++) {
            struct rig rig;
            rig_make(&rig, RING);
            size_t most = sl_queue_frame_bytes_max(RING);
            pid_t pid = fork();
            ck_assert_int_ge(pid, 0);
            if (pid == 0) {
                unsigned char frame[RING];
                (void)alarm(60);
                for (uint64_t i = 0;;) {
                    size_t length = length_of(i, most);
                    fill(frame, length, i);
                    i += put(&rig, frame, length) == SL_OK ? 1 : 0;
                }
            }
            uint64_t read = 0;
            uint64_t kill_after = next_random(&random) % 3000;
            uint64_t spins = next_random(&random) % 2000;
            bool killed = false;
            for (;;) {
                if (!killed && read >= kill_after) {
                    for (volatile uint64_t i = 0; i < spins; i++) {
                        /* a part of the next frame is written */
                    }
                    ck_assert_int_eq(kill(pid, SIGKILL), 0);
                    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
                    killed = true;
                }
                if (sl_queue_ready(&rig.reader)) {
                    expect(&rig, read, length_of(read, most));
                    read++;
                } else if (killed) {
                    break;
                }
            }
            ck_assert_uint_eq(sl_queue_tail(&rig.reader), rig.reader.head);
            total += read;
            rig_free(&rig);
        }
        (void)printf("queue: %" PRIu64 " whole frames of 60 killed writers\n", total);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue");
    TCase *ring = tcase_create("ring");
    tcase_set_timeout(ring, 300);
    tcase_add_test(ring, every_length_at_every_place_of_the_ring);
    tcase_add_test(ring, positions_may_pass_the_end_of_their_numbers);
    tcase_add_test(ring, full_ring_is_a_limit_until_the_reader_takes);
    tcase_add_test(ring, too_long_a_frame_is_refused_and_changes_nothing);
    tcase_add_test(ring, random_traffic_arrives_whole_and_in_order);
    tcase_add_loop_test(ring, unfit_sizes_are_told, 0, SL_COUNT(unfit));
    suite_add_tcase(suite, ring);
    TCase *hostile = tcase_create("hostile peer");
    tcase_set_timeout(hostile, 300);
    tcase_add_test(hostile, hostile_tail_is_a_protocol_error);
    tcase_add_test(hostile, hostile_head_is_a_protocol_error);
    tcase_add_test(hostile, every_changed_byte_of_a_head_word_is_refused);
    tcase_add_test(hostile, frame_of_an_earlier_round_is_refused);
    tcase_add_test(hostile, forged_lengths_stay_within_what_is_visible);
    tcase_add_test(hostile, random_bytes_in_every_field_end_in_an_answer);
    suite_add_tcase(suite, hostile);
    TCase *two = tcase_create("two sides");
    tcase_set_timeout(two, 500);
    tcase_add_test(two, doorbell_is_asked_for_once_a_sleep);
    tcase_add_test(two, two_threads_pass_everything_in_order_and_no_wake_up_is_lost);
    tcase_add_test(two, killed_writer_leaves_whole_frames_in_order);
    suite_add_tcase(suite, two);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
