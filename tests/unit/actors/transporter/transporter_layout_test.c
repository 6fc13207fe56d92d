/* tests/unit/actors/transporter/transporter_layout_test.c - where a part of a block is: layers,
 * runs and ranges, compared with a walk byte by byte; invalid registrations are refused. */
#include "actors/transporter/regions/layout.h"
#include "cuda/sl_device.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define REGIONS_MAX 64u

static struct {
    struct sl_body_engine_get_reply body;
    struct sl_item_pool pools[2];
    struct sl_item_region regions[REGIONS_MAX];
    struct tr_span spans[REGIONS_MAX];
    uint32_t span_count;
    struct tr_layout layout;
} bed;

static struct sl_item_region *region_put(const struct sl_item_region *like)
{
    struct sl_item_region *region = &bed.regions[bed.body.regions.count++];
    *region = *like;
    region->handle_kind = region->handle_kind == 0 ? SL_MEMORY_SHARED_FD : region->handle_kind;
    return region;
}

static void bed_empty(void)
{
    memset(&bed, 0, sizeof(bed));
    bed.pools[0].part_count = 0;
    bed.pools[1].part_count = 4;
    bed.body.world = 2;
    bed.body.pools.at = bed.pools;
    bed.body.pools.count = 2;
    bed.body.regions.at = bed.regions;
}

/* Each buffer is a span; the buffer is the fd of the region. */
static sl_err bed_make(struct sl_error *why)
{
    sl_err err = tr_layout_make(&bed.body, &bed.layout, why);
    for (uint32_t i = 0; err == SL_OK && i < bed.layout.layer_count; i++) {
        struct tr_layer *layer = &bed.layout.layers[i];
        const struct sl_item_region *region = &bed.regions[layer->region];
        layer->buffer =
            region->handle_kind == SL_MEMORY_SHARED_FD ? (uint32_t)region->fd : TR_NO_SPAN;
    }
    if (err == SL_OK) {
        tr_layout_spans(&bed.layout, bed.spans, bed.span_count);
    }
    return err;
}

static void span_put(uint32_t buffer, uint64_t offset_bytes)
{
    bed.spans[bed.span_count++] =
        (struct tr_span){.buffer = buffer, .offset_bytes = offset_bytes, .length_bytes = 1u << 20};
}

/* ---- ranges, against a walk byte by byte ---- */

/* Two layers of runs in reverse order, then one in another buffer whose piece is one run. */
static void three_layers(void)
{
    bed_empty();
    (void)region_put(&(struct sl_item_region){.rank = 1,
                                              .pool = 1,
                                              .part = 2,
                                              .layer = 2,
                                              .fd = 1,
                                              .offset_bytes = 300,
                                              .length_bytes = 1000,
                                              .block_stride_bytes = 100,
                                              .piece_bytes = 40,
                                              .block_count = 9});
    (void)region_put(&(struct sl_item_region){.rank = 1,
                                              .pool = 1,
                                              .part = 2,
                                              .layer = 1,
                                              .offset_bytes = 2016,
                                              .length_bytes = 1000,
                                              .block_stride_bytes = 128,
                                              .piece_bytes = 24,
                                              .block_count = 7,
                                              .fragment_bytes = 8,
                                              .fragment_stride_bytes = 32});
    (void)region_put(&(struct sl_item_region){.rank = 1,
                                              .pool = 1,
                                              .part = 2,
                                              .layer = 0,
                                              .offset_bytes = 1016,
                                              .length_bytes = 1000,
                                              .block_stride_bytes = 128,
                                              .piece_bytes = 24,
                                              .block_count = 7,
                                              .fragment_bytes = 8,
                                              .fragment_stride_bytes = 32});
    (void)region_put(&(struct sl_item_region){.rank = 0,
                                              .length_bytes = 100,
                                              .block_stride_bytes = 10,
                                              .piece_bytes = 10,
                                              .block_count = 10});
    span_put(0, 0);
    span_put(0, 1000);
    span_put(0, 2000);
    span_put(1, 200);
    ck_assert_int_eq(bed_make(NULL), SL_OK);
}

struct byte {
    uint32_t span;
    uint64_t offset_bytes;
};
/* The position of byte i of block `block`, computed by hand. */
static struct byte byte_of(uint32_t block, uint64_t i)
{
    if (i >= 48) {
        return (struct byte){.span = 3, .offset_bytes = 100 + block * 100u + (i - 48)};
    }
    uint64_t in = i % 24;
    return (struct byte){.span = i < 24 ? 1 : 2,
                         .offset_bytes = 16 + block * 128u + in / 8 * 32 + in % 8};
}

START_TEST(every_range_of_a_part_is_where_its_bytes_are)
    {
        three_layers();
        struct tr_slot slot = {.rank = 1, .pool = 1, .part = 2, .device_block = (uint32_t)_i};
        ck_assert_uint_eq(tr_layout_row(&bed.layout, &slot)->of.length_bytes, 88);
        ck_assert_uint_eq(tr_layout_row(&bed.layout, &slot)->of.block_count, 7);
        for (uint64_t from = 0; from < 88; from++) {
            for (uint64_t length = 1; length <= 88 - from; length++) {
                struct tr_runs runs;
                struct tr_run run;
                uint64_t at = from;
                ck_assert_int_eq(
                    tr_runs_begin(&bed.layout, &slot, (struct tr_range){from, length}, &runs, NULL),
                    SL_OK);
                while (tr_runs_next(&runs, &run)) {
                    ck_assert_uint_gt(run.length_bytes, 0);
                    for (uint64_t i = 0; i < run.length_bytes; i++) {
                        struct byte want = byte_of((uint32_t)_i, at++);
                        ck_assert_uint_eq(run.span, want.span);
                        ck_assert_uint_eq(run.offset_bytes + i, want.offset_bytes);
                    }
                }
                ck_assert_uint_eq(at, from + length);
            }
        }
        tr_layout_fini(&bed.layout);
    }
END_TEST

/* Adjacent memory is one run: all heads of a page, adjacent layers. */
START_TEST(runs_that_follow_each_other_are_one)
    {
        struct tr_runs runs;
        struct tr_run run;
        bed_empty();
        for (uint32_t layer = 0; layer < 3; layer++) {
            (void)region_put(&(struct sl_item_region){.layer = layer,
                                                      .offset_bytes = layer * 64u,
                                                      .length_bytes = 4000,
                                                      .block_stride_bytes = 192,
                                                      .piece_bytes = 64,
                                                      .block_count = 20,
                                                      .fragment_bytes = 16,
                                                      .fragment_stride_bytes = 16});
        }
        span_put(0, 0);
        ck_assert_int_eq(bed_make(NULL), SL_OK);
        struct tr_slot slot = {.part = 3, .device_block = 5}; /* without part_count it is part 0 */

        ck_assert_int_eq(tr_runs_begin(&bed.layout, &slot, (struct tr_range){8, 180}, &runs, NULL),
                         SL_OK);
        ck_assert(tr_runs_next(&runs, &run));
        ck_assert_uint_eq(run.offset_bytes, 5 * 192 + 8);
        ck_assert_uint_eq(run.length_bytes, 180);
        ck_assert(!tr_runs_next(&runs, &run));
        tr_layout_fini(&bed.layout);
    }
END_TEST

static const struct {
    struct tr_slot slot;
    struct tr_range range;
    sl_err code;
} asked[] = {
    {{.rank = 1, .pool = 1, .part = 2, .device_block = 6}, {87, 1}, SL_OK},
    {{.rank = 1, .pool = 1, .part = 2, .device_block = 7}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2, .device_block = UINT32_MAX}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 1}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 0}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 2, .pool = 1, .part = 2}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 8, .part = 2}, {0, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2}, {0, 89}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2}, {88, 1}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2}, {0, 0}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2}, {UINT64_MAX, 2}, SL_ERR_INVALID},
    {{.rank = 1, .pool = 1, .part = 2}, {1, UINT64_MAX}, SL_ERR_INVALID},
};
START_TEST(what_the_engine_does_not_have_is_refused)
    {
        struct tr_runs runs;
        three_layers();
        ck_assert_int_eq(tr_runs_begin(&bed.layout, &asked[_i].slot, asked[_i].range, &runs, NULL),
                         asked[_i].code);
        tr_layout_fini(&bed.layout);
    }
END_TEST

START_TEST(a_layer_in_other_memory_makes_its_part_unsupported)
    {
        struct tr_runs runs;
        three_layers();
        tr_layout_fini(&bed.layout);
        bed.regions[1].handle_kind = SL_MEMORY_SHARED_FD + 1;
        ck_assert_int_eq(bed_make(NULL), SL_OK);
        struct tr_slot slot = {.rank = 1, .pool = 1, .part = 2};
        ck_assert_int_eq(tr_runs_begin(&bed.layout, &slot, (struct tr_range){0, 1}, &runs, NULL),
                         SL_ERR_UNSUPPORTED);
        slot = (struct tr_slot){0};
        ck_assert_int_eq(tr_runs_begin(&bed.layout, &slot, (struct tr_range){0, 1}, &runs, NULL),
                         SL_OK);
        tr_layout_fini(&bed.layout);
    }
END_TEST

/* ---- registrations that cannot be ---- */

static void double_layer(void)
{
    bed.regions[0].layer = 1;
}
static void missing_layer(void)
{
    bed.regions[2].layer = 3;
}
static void bad_pool(void)
{
    bed.regions[0].pool = 2;
}
static void bad_part(void)
{
    bed.regions[0].part = 4;
}
static void bad_part_count(void)
{
    bed.pools[1].part_count = 65;
}
static void short_length(void)
{
    bed.regions[0].length_bytes = 8 * 100 + 39;
}
static void far_offset(void)
{
    bed.regions[0].offset_bytes = UINT64_MAX - 1;
}
static void far_stride(void)
{
    bed.regions[0].block_stride_bytes = UINT64_MAX / 2;
}
static void no_blocks(void)
{
    bed.regions[0].block_count = 0;
}
static void odd_runs(void)
{
    bed.regions[1].fragment_bytes = 9;
}
static void runs_over_the_stride(void)
{
    bed.regions[1].fragment_stride_bytes = 64;
}
static void runs_that_overlap(void)
{
    bed.regions[1].fragment_stride_bytes = 7;
}
static void (*const spoilers[])(void) = {
    double_layer, missing_layer, bad_pool,  bad_part, bad_part_count,       short_length,
    far_offset,   far_stride,    no_blocks, odd_runs, runs_over_the_stride, runs_that_overlap};
START_TEST(registrations_that_cannot_be_are_refused)
    {
        struct sl_error why = {0};
        three_layers();
        tr_layout_fini(&bed.layout);
        spoilers[_i]();
        ck_assert_int_eq(bed_make(&why), SL_ERR_INVALID);
        ck_assert_uint_gt(strlen(why.text), 0);
        tr_layout_fini(&bed.layout);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("transporter_layout");
    TCase *cases = tcase_create("layout");
    tcase_add_loop_test(cases, every_range_of_a_part_is_where_its_bytes_are, 0, 7);
    tcase_add_test(cases, runs_that_follow_each_other_are_one);
    tcase_add_loop_test(cases, what_the_engine_does_not_have_is_refused, 0, SL_COUNT(asked));
    tcase_add_test(cases, a_layer_in_other_memory_makes_its_part_unsupported);
    tcase_add_loop_test(cases, registrations_that_cannot_be_are_refused, 0, SL_COUNT(spoilers));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
