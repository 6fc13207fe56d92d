/* tests/unit/ipc/msg/layout_test.c - regions of a registration in any order, as rows and layers;
 * invalid ones are refused by region and field. */
#include "ipc/msg/sl_layout.h"

#include <check.h>
#include <string.h>

#define REGIONS_MAX 32u
#define ALL_RANKS   SL_LAYOUT_ALL

static struct {
    struct sl_body_engine_get_reply body;
    struct sl_item_pool pools[2];
    struct sl_item_region regions[REGIONS_MAX];
} bed;

static struct sl_item_region *put(uint64_t rank, uint64_t pool, uint64_t part, uint64_t layer)
{
    struct sl_item_region *region = &bed.regions[bed.body.regions.count++];
    *region = (struct sl_item_region){.rank = rank,
                                      .pool = pool,
                                      .part = part,
                                      .layer = layer,
                                      .length_bytes = 8 * 64,
                                      .block_stride_bytes = 64,
                                      .piece_bytes = 10 + layer,
                                      .block_count = 8};
    return region;
}

/* Pool 0 has a part a rank, of two layers; pool 1 has parts 0 and 3 of four. Layers and ranks are
 * in descending order. */
static void setup(void)
{
    memset(&bed, 0, sizeof(bed));
    bed.pools[1].part_count = 4;
    bed.body.world = 2;
    bed.body.pools.at = bed.pools;
    bed.body.pools.count = 2;
    bed.body.regions.at = bed.regions;
    for (uint64_t rank = 2; rank-- > 0;) {
        for (uint64_t layer = 2; layer-- > 0;) {
            put(rank, 1, 3, layer);
            put(rank, 1, 0, layer)->block_count -= layer;
            put(rank, 0, 0, layer);
        }
    }
}

START_TEST(rows_and_layers_are_in_their_order)
    {
        struct sl_layout layout;
        struct sl_error why = {0};

        ck_assert_msg(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why) == SL_OK, "%s", why.text);

        ck_assert_uint_eq(layout.row_count, 6);
        ck_assert_uint_eq(layout.layer_count, bed.body.regions.count);
        for (uint32_t i = 0; i < layout.row_count; i++) {
            const struct sl_layout_row *row = &layout.rows[i];
            ck_assert_uint_eq(row->rank, i / 3);
            ck_assert_uint_eq(row->pool, i % 3 == 0 ? 0 : 1);
            ck_assert_uint_eq(row->part, i % 3 == 2 ? 3 : 0);
            ck_assert_uint_eq(row->first_layer, 2 * i);
            ck_assert_uint_eq(row->layer_count, 2);
            ck_assert_uint_eq(row->length_bytes, 21);
            ck_assert_uint_eq(row->block_count, i % 3 == 1 ? 7 : 8);
            for (uint32_t k = 0; k < 2; k++) {
                const struct sl_layout_layer *layer = &layout.layers[row->first_layer + k];
                const struct sl_item_region *region = &bed.regions[layer->region];
                ck_assert_uint_eq(layer->part_offset_bytes, 10 * k);
                ck_assert(region->rank == row->rank && region->pool == row->pool &&
                          region->part == row->part && region->layer == k);
            }
        }
        sl_layout_fini(&layout);
        sl_layout_fini(&layout);
    }
END_TEST

START_TEST(only_regions_of_the_ranks_are_looked_at)
    {
        struct sl_layout layout;
        struct sl_error why = {0};
        bed.regions[0].piece_bytes = 65; /* of rank 1 */

        ck_assert_msg(sl_layout_make(&bed.body, 1, &layout, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(layout.row_count, 3);
        ck_assert_uint_eq(layout.layer_count, 6);
        ck_assert_uint_eq(layout.rows[2].rank, 0);
        sl_layout_fini(&layout);

        ck_assert_int_eq(sl_layout_make(&bed.body, 2, &layout, &why), SL_ERR_INVALID);
        ck_assert_int_eq(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why), SL_ERR_INVALID);
    }
END_TEST

START_TEST(no_regions_are_no_rows)
    {
        struct sl_layout layout;
        struct sl_error why = {0};
        bed.body.regions.count = 0;

        ck_assert_int_eq(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why), SL_OK);

        ck_assert_uint_eq(layout.row_count, 0);
        sl_layout_fini(&layout);
    }
END_TEST

#define AT(field) offsetof(struct sl_item_region, field)

/* Errors in region 2: rank 1, pool 0, layer 1. */
static const struct {
    size_t field;
    uint64_t value;
    const char *names;
} spoilt[] = {
    {AT(rank), 2, "regions[2].rank"},
    {AT(rank), UINT64_MAX, "regions[2].rank"},
    {AT(pool), 2, "regions[2].pool"},
    {AT(pool), UINT64_MAX, "regions[2].pool"},
    {AT(part), 1, "regions[2].part: 1 of pool 0 with 0"},
    {AT(part), UINT64_MAX, "regions[2].part"},
    {AT(layer), 2, "rank 1, pool 0, part 0 lacks layer 1"},
    {AT(layer), 0, "regions[5].layer: twice"},
    {AT(block_stride_bytes), 10, "regions[2].block_stride_bytes"},
    {AT(block_stride_bytes), UINT64_MAX, "regions[2].block_stride_bytes"},
    {AT(piece_bytes), 65, "regions[2].block_stride_bytes"},
    {AT(piece_bytes), 0, "regions[2].fragment_bytes"},
    {AT(fragment_bytes), 4, "regions[2].fragment_bytes"},  /* does not divide a piece */
    {AT(fragment_bytes), 11, "regions[2].fragment_bytes"}, /* with a stride of 0 */
    {AT(fragment_stride_bytes), 1, "regions[2].fragment_bytes"},
    {AT(block_count), 0, "regions[2].length_bytes"},
    {AT(block_count), 9, "regions[2].length_bytes"},
    {AT(block_count), UINT64_MAX, "regions[2].length_bytes"},
    {AT(length_bytes), 7 * 64 + 10, "regions[2].length_bytes"},
    {AT(offset_bytes), UINT64_MAX, "regions[2].offset_bytes"},
    {AT(offset_bytes), INT64_MAX - 8 * 64 + 1, "regions[2].offset_bytes"},
};

START_TEST(what_cannot_be_is_refused_by_region_and_field)
    {
        struct sl_layout layout;
        struct sl_error why = {0};
        memcpy((unsigned char *)&bed.regions[2] + spoilt[_i].field, &spoilt[_i].value,
               sizeof(spoilt[_i].value));

        ck_assert_int_eq(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why), SL_ERR_INVALID);

        ck_assert_msg(strstr(why.text, spoilt[_i].names) != NULL, "%s", why.text);
    }
END_TEST

START_TEST(a_part_has_at_most_a_gibibyte)
    {
        struct sl_layout layout;
        struct sl_error why = {0};
        for (uint32_t i = 2; i <= 5; i += 3) { /* the layers of a part: 1, then 0 */
            bed.regions[i].piece_bytes = SL_VALUE_BYTES_MAX / 2 + (i == 2);
            bed.regions[i].block_stride_bytes = bed.regions[i].length_bytes = SL_VALUE_BYTES_MAX;
            bed.regions[i].block_count = 1;
        }
        ck_assert_int_eq(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why), SL_ERR_INVALID);
        ck_assert_msg(strstr(why.text, "regions[2].piece_bytes") != NULL, "%s", why.text);

        bed.regions[2].piece_bytes--;

        ck_assert_msg(sl_layout_make(&bed.body, ALL_RANKS, &layout, &why) == SL_OK, "%s", why.text);
        sl_layout_fini(&layout);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *cases = tcase_create("layout");
    tcase_add_checked_fixture(cases, setup, NULL);
    tcase_add_test(cases, rows_and_layers_are_in_their_order);
    tcase_add_test(cases, only_regions_of_the_ranks_are_looked_at);
    tcase_add_test(cases, no_regions_are_no_rows);
    tcase_add_loop_test(cases, what_cannot_be_is_refused_by_region_and_field, 0, SL_COUNT(spoilt));
    tcase_add_test(cases, a_part_has_at_most_a_gibibyte);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
