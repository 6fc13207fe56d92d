/* tests/rdma/rdma_places.c - transfers of blocks between contiguous memory and the layers of a
 * pool, in both directions. One fabric on each of the virtual machine's devices. */
#include "tests/rdma/rdma_places.h"
#include "runtime/net/fabric/core/internal.h"
#include "tests/support/fabric_end.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY (4 * SL_MIB)
#define STRIDE (48 * SL_KIB)
#define REGION (21 * STRIDE) /* whole blocks, below a limit of 1 MiB */
#define LAYERS 40u           /* more than one work request can gather */
#define LAYER  20001u
#define STEP   102400u /* some layers cross the end of a region */

static struct fabric_end a, b; /* a requests, b owns the memory */
static struct sl_fabric_options options_a, options_b;
static struct sl_fabric_place ours[LAYERS], theirs[LAYERS];

static void options_fill(struct fabric_end *end, struct sl_fabric_options *options, const char *nic)
{
    end_options(end, options, "verbs");
    options->nic = nic;
    options->lanes = 2;
    options->connect_ns = 20 * SL_NS_PER_S; /* everything is slow under emulation */
    options->backoff_max_ns = SL_NS_PER_S / 2;
    options->region_bytes_max = SL_MIB;
    end->stride_bytes = STRIDE;
}

static void setup(void)
{
    options_fill(&a, &options_a, "rxe0");
    options_fill(&b, &options_b, "rxe1");
}

static void teardown(void)
{
    end_close(&a);
    end_close(&b);
}

static void join(void)
{
    struct sl_error why = {0};
    ck_assert_msg(end_open(&a, &options_a, MEMORY, 0, &why) == SL_OK, "%s", why.text);
    ck_assert_msg(end_open(&b, &options_b, MEMORY, 0, &why) == SL_OK, "%s", why.text);
    PAIR_UNTIL(&a, &b, a.registered && b.registered);
    PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP && b.link == SL_FABRIC_UP);
    for (uint32_t i = 0; i < LAYERS; i++) {
        ours[i] = (struct sl_fabric_place){
            .memory = a.memory, .offset_bytes = i * STEP, .length_bytes = LAYER};
        theirs[i] = (struct sl_fabric_place){
            .memory = b.memory, .offset_bytes = (LAYERS - 1 - i) * STEP + 7, .length_bytes = LAYER};
    }
    bool crosses = false;
    for (uint32_t i = 0; i < LAYERS; i++) {
        crosses |= ours[i].offset_bytes / REGION != (ours[i].offset_bytes + LAYER - 1) / REGION;
    }
    ck_assert(crosses);
}

static sl_err grant_try(const struct sl_fabric_place *places, uint32_t count, uint64_t each_bytes,
                        uint32_t *grant, uint32_t *key)
{
    struct sl_error why = {0};
    const struct sl_fabric_grant want = {
        .peer = b.peer, .length_bytes = count * each_bytes, .places = places, .place_count = count};
    sl_err err = sl_fabric_grant_add(b.fabric, &want, grant, &why);
    if (err == SL_OK) {
        *key = pair_key(&b, &a);
    }
    return err;
}

static sl_err move(uint32_t key, uint64_t remote_offset, const struct sl_digest *digest)
{
    static uint64_t cookie = 0;
    const struct end_done *done = NULL;
    const struct sl_fabric_piece piece = {.key = key,
                                          .remote_offset_bytes = remote_offset,
                                          .length_bytes = LAYERS * LAYER,
                                          .digest = digest,
                                          .places = ours,
                                          .place_count = LAYERS};
    const struct sl_fabric_transfer transfer = {.peer = a.peer,
                                                .pieces = &piece,
                                                .piece_count = 1,
                                                .deadline_ns =
                                                    sl_clock_monotonic_ns() + 100 * SL_NS_PER_S,
                                                .cookie = ++cookie};
    ck_assert_int_eq(sl_fabric_post(a.fabric, &transfer, NULL), SL_OK);
    PAIR_UNTIL(&a, &b, (done = end_done_of(&a, cookie)) != NULL);
    return done->code;
}

static unsigned char linear[LAYERS * LAYER], image[MEMORY];

/* gather fills `linear` from the places; image_make fills `image` with `linear` at them. */
static void gather(const unsigned char *bytes, const struct sl_fabric_place *places)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        memcpy(linear + i * LAYER, bytes + places[i].offset_bytes, LAYER);
    }
}

static void image_make(const unsigned char *bytes, const struct sl_fabric_place *places)
{
    memcpy(image, bytes, MEMORY);
    for (uint32_t i = 0; i < LAYERS; i++) {
        memcpy(image + places[i].offset_bytes, linear + i * LAYER, LAYER);
    }
}

START_TEST(a_block_is_read_into_the_layers_of_a_pool)
    {
        uint32_t key = 0;
        join();
        ck_assert_uint_gt(a.fabric->rails[0]->spans_max, 1); /* otherwise nothing is gathered */
        ck_assert_uint_lt(a.fabric->rails[0]->spans_max, LAYERS);
        if (_i > 0) { /* like a device that gathers less */
            a.fabric->rails[0]->spans_max = (uint32_t)_i;
        }
        pattern_fill(a.bytes, MEMORY, 1);
        pattern_fill(b.bytes, MEMORY, 2);
        pair_grant(&b, &a, 0, MEMORY, &key);
        memcpy(linear, b.bytes + REGION - 5000,
               sizeof(linear)); /* also across a region's end there */
        image_make(a.bytes, ours);
        struct sl_digest right = sl_digest_of(linear, sizeof(linear)), wrong = right;
        wrong.high ^= 1;

        ck_assert_int_eq(move(key, REGION - 5000, &wrong), SL_ERR_CORRUPT);
        pattern_fill(a.bytes, MEMORY, 1);
        ck_assert_int_eq(move(key, REGION - 5000, &right), SL_OK);

        ck_assert_mem_eq(a.bytes, image, MEMORY);
        ck_assert_int_eq(a.link, SL_FABRIC_UP);
    }
END_TEST

static const enum sl_fabric_windows ways[] = {SL_FABRIC_WINDOWS_ANY, SL_FABRIC_WINDOWS_NEVER};

/* Memory that peers may not read is readable by a ticket while the ticket lasts. */
START_TEST(layers_are_read_from_layers_while_their_ticket_lasts)
    {
        uint32_t key = 0, grant = 0;
        options_b.windows = ways[_i];
        b.unread = true;
        join();
        pattern_fill(a.bytes, MEMORY, 3);
        pattern_fill(b.bytes, MEMORY, 4);
        ck_assert_int_eq(grant_try(theirs, LAYERS, LAYER, &grant, &key), SL_OK);
        gather(b.bytes, theirs);
        image_make(a.bytes, ours);
        struct sl_digest digest = sl_digest_of(linear, sizeof(linear));

        ck_assert_int_eq(move(key, 0, &digest), SL_OK);

        ck_assert_mem_eq(a.bytes, image, MEMORY);
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_ERR_BUSY);
        ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
        PAIR_UNTIL(&a, &b, b.grants_ended == 1);
        memset(b.bytes, 0x33, MEMORY);
        ck_assert_int_eq(move(key, 0, NULL), SL_ERR_PERMISSION);
        ck_assert_mem_eq(a.bytes, image, MEMORY);
        PAIR_UNTIL(&a, &b, a.link == SL_FABRIC_UP); /* the error broke the queue pairs */
        ck_assert_int_eq(fabric_memory_drop(b.fabric, b.memory), SL_OK);
    }
END_TEST

/* More ranges than can be bound or registered at once are granted in slices; none remains. */
START_TEST(tickets_of_many_places_come_and_go)
    {
        enum { MANY = 160, SMALL = 64 };
        static struct sl_fabric_place places[MANY];
        uint32_t key = 0, grant = 0;
        options_b.windows = ways[_i];
        b.unread = true;
        join();
        for (uint32_t i = 0; i < MANY; i++) {
            places[i] = (struct sl_fabric_place){
                .memory = b.memory, .offset_bytes = i * 128, .length_bytes = SMALL};
        }
        for (uint32_t round = 1; round <= 10; round++) {
            ck_assert_int_eq(grant_try(places, round % 2 == 0 ? MANY : 64, SMALL, &grant, &key),
                             SL_OK);
            ck_assert_int_eq(sl_fabric_grant_end(b.fabric, grant), SL_OK);
            PAIR_UNTIL(&a, &b, b.grants_ended == round);
            ck_assert_uint_eq(b.fabric->places.used_count, 0);
            sl_fabric_key_close(a.fabric, key);
        }
        for (uint32_t i = 0; i < MANY; i++) { /* neighbours are one range */
            places[i].offset_bytes = i * SMALL;
        }
        ck_assert_int_eq(grant_try(places, MANY, SMALL, &grant, &key), SL_OK);
        ck_assert_uint_eq(b.fabric->places.used_count, 1);
        ck_assert_int_eq(b.link, SL_FABRIC_UP);
    }
END_TEST

TCase *rdma_places_tests(void)
{
    TCase *tests = tcase_create("places");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 400);
    tcase_add_loop_test(tests, a_block_is_read_into_the_layers_of_a_pool, 0, 3);
    tcase_add_loop_test(tests, layers_are_read_from_layers_while_their_ticket_lasts, 0, 2);
    tcase_add_loop_test(tests, tickets_of_many_places_come_and_go, 0, 2);
    return tests;
}
