/* tests/unit/ipc/shm/alloc_test.c - the allocator against a simple model; prints its speed and
 * fragmentation. */
#include "ipc/shm/sl_arena.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <signal.h>

#define PAGE SL_PAGE_BYTES

static struct sl_alloc *alloc_of(uint64_t data_bytes, uint64_t chunk_bytes,
                                 uint64_t populated_bytes)
{
    struct sl_alloc *alloc = NULL;
    struct sl_error why = {0};
    struct sl_alloc_options options = {.data_bytes = data_bytes, .chunk_bytes = chunk_bytes};
    ck_assert_sl_ok(sl_alloc_create(&options, &alloc, &why), why);
    sl_alloc_grow(alloc, populated_bytes);
    return alloc;
}

static const struct {
    uint64_t length, space;
} spaces[] = {
    {1, 64},      {64, 64},     {65, 128},    {4032, 4032},
    {4033, 4096}, {4096, 4096}, {4097, 8192}, {SL_GIB, SL_GIB},
};

START_TEST(space_follows_the_length)
    {
        ck_assert_uint_eq(sl_extent_space(spaces[_i].length), spaces[_i].space);
    }
END_TEST

START_TEST(lengths_out_of_range_are_invalid)
    {
        struct sl_alloc *alloc = alloc_of(8 * SL_MIB, SL_MIB, 8 * SL_MIB);
        uint64_t offset = 0;

        ck_assert_int_eq(sl_alloc_take(alloc, 0, &offset), SL_ERR_INVALID);
        ck_assert_int_eq(sl_alloc_take(alloc, SL_MIB + 1, &offset), SL_ERR_INVALID);
        ck_assert_int_eq(sl_alloc_take(alloc, SL_MIB, &offset), SL_OK);
        sl_alloc_destroy(&alloc);
        struct sl_alloc_options options = {.data_bytes = 100, .chunk_bytes = SL_MIB};
        ck_assert_int_eq(sl_alloc_create(&options, &alloc, NULL), SL_ERR_INVALID);
        options = (struct sl_alloc_options){.data_bytes = 4 * SL_GIB, .chunk_bytes = 2 * SL_GIB};
        ck_assert_int_eq(sl_alloc_create(&options, &alloc, NULL), SL_ERR_INVALID);
    }
END_TEST

START_TEST(space_comes_from_the_populated_prefix_only)
    {
        struct sl_alloc *alloc = alloc_of(64 * SL_MIB, 64 * SL_MIB, 0);
        uint64_t offset = 0;

        ck_assert_int_eq(sl_alloc_take(alloc, PAGE, &offset), SL_ERR_NO_SPACE);
        sl_alloc_grow(alloc, 8 * PAGE);
        ck_assert_int_eq(sl_alloc_take(alloc, 9 * PAGE, &offset), SL_ERR_NO_SPACE);
        ck_assert_int_eq(sl_alloc_take(alloc, 8 * PAGE, &offset), SL_OK);
        ck_assert_uint_eq(offset, 0);
        sl_alloc_grow(alloc, 16 * PAGE);
        sl_alloc_free(alloc, 0, 8 * PAGE);
        ck_assert_int_eq(sl_alloc_take(alloc, 16 * PAGE, &offset),
                         SL_OK); /* the new space joins the old */
        sl_alloc_destroy(&alloc);
    }
END_TEST

START_TEST(claims_are_kept_out_of_what_is_given)
    {
        struct sl_alloc *alloc = alloc_of(SL_MIB, SL_MIB, SL_MIB);
        struct sl_alloc_stats stats;
        uint64_t offset = 0;

        ck_assert_int_eq(sl_alloc_claim(alloc, 10 * PAGE, 3 * PAGE - 5), SL_OK);
        ck_assert_int_eq(sl_alloc_claim(alloc, 10 * PAGE, 3 * PAGE - 5), SL_OK); /* again */
        ck_assert_int_eq(sl_alloc_claim(alloc, 20 * PAGE + 128, 100), SL_OK);
        ck_assert_int_eq(sl_alloc_claim(alloc, 20 * PAGE + 128, 100), SL_OK);

        sl_alloc_stats(alloc, &stats);
        ck_assert_uint_eq(stats.extent_count, 2);
        ck_assert_uint_eq(stats.used_bytes, 3 * PAGE + 128);
        uint64_t pages = 0;
        while (sl_alloc_take(alloc, PAGE, &offset) == SL_OK) {
            pages++;
            ck_assert(offset < 10 * PAGE || offset >= 13 * PAGE);
            ck_assert(offset / PAGE != 20);
        }
        ck_assert_uint_eq(pages, SL_MIB / PAGE - 4);
        uint64_t small = 0;
        while (sl_alloc_take(alloc, 100, &offset) == SL_OK) {
            small++;
            ck_assert_uint_eq(offset / PAGE, 20);
            ck_assert_uint_ne(offset % PAGE, 128);
        }
        ck_assert_uint_eq(small, 31);
        ck_assert_int_eq(sl_alloc_claim(alloc, 0, PAGE), SL_ERR_INVALID); /* too late */
        sl_alloc_destroy(&alloc);
    }
END_TEST

START_TEST(what_is_in_use_behind_a_shrunk_end_is_not_taken_again)
    {
        struct sl_alloc *alloc = alloc_of(SL_MIB, SL_MIB, SL_MIB);
        struct sl_alloc_stats stats;
        uint64_t across = 0, behind = 0, small = 0, offset = 0;
        ck_assert_int_eq(sl_alloc_take(alloc, 10 * PAGE, &across), SL_OK);
        ck_assert_int_eq(sl_alloc_take(alloc, 10 * PAGE, &behind), SL_OK);
        ck_assert_int_eq(sl_alloc_take(alloc, 100, &small), SL_OK);
        ck_assert_uint_eq(across, 0);

        sl_alloc_shrink(alloc, 4 * PAGE);

        sl_alloc_stats(alloc, &stats);
        ck_assert_uint_eq(stats.usable_bytes, 10 * PAGE); /* the end of what lies across it */
        ck_assert_uint_eq(stats.free_bytes, 0);
        ck_assert_uint_eq(stats.used_bytes, 20 * PAGE + 128);
        ck_assert_uint_eq(sl_alloc_end_bytes(alloc), 21 * PAGE);
        sl_alloc_free(alloc, behind, 10 * PAGE);
        ck_assert_int_eq(sl_alloc_take(alloc, PAGE, &offset), SL_ERR_NO_SPACE);
        ck_assert_int_eq(sl_alloc_take(alloc, 100, &offset), SL_ERR_NO_SPACE);
        sl_alloc_free(alloc, small, 100);
        ck_assert_uint_eq(sl_alloc_end_bytes(alloc), 10 * PAGE);
        sl_alloc_free(alloc, across, 10 * PAGE);
        sl_alloc_shrink(alloc, 4 * PAGE);
        ck_assert_uint_eq(sl_alloc_end_bytes(alloc), 4 * PAGE);
        sl_alloc_grow(alloc, SL_MIB); /* and all of it is whole again */
        ck_assert_int_eq(sl_alloc_take(alloc, SL_MIB, &offset), SL_OK);
        sl_alloc_destroy(&alloc);
    }
END_TEST

static const struct {
    uint64_t offset, length;
} bad_claims[] = {
    {11 * PAGE, 3 * PAGE},         /* overlaps in part */
    {10 * PAGE, 2 * PAGE},         /* another length */
    {9 * PAGE, 4 * PAGE},          /* covers */
    {12 * PAGE, PAGE},             /* the end of it */
    {12 * PAGE, 3 * PAGE},         /* the end taken for a start */
    {10 * PAGE, 64},               /* a slab where pages are */
    {20 * PAGE, PAGE},             /* pages where a slab is */
    {20 * PAGE, 200},              /* another class */
    {20 * PAGE + 64, 100},         /* between two slots */
    {30 * PAGE + 1, PAGE},         /* misaligned */
    {15 * PAGE + 3264, 1088},      /* a fourth slot where three fit */
    {255 * PAGE, 2 * PAGE},        /* over the chunk's edge */
    {4 * SL_MIB - PAGE, 2 * PAGE}, /* over the end */
    {4 * SL_MIB, PAGE},
    {UINT64_MAX, PAGE},
    {0, UINT64_MAX},
    {0, 0},
};

START_TEST(claims_that_cannot_be_are_corrupt)
    {
        struct sl_alloc *alloc = alloc_of(4 * SL_MIB, SL_MIB, 4 * SL_MIB);
        ck_assert_int_eq(sl_alloc_claim(alloc, 10 * PAGE, 3 * PAGE), SL_OK);
        ck_assert_int_eq(sl_alloc_claim(alloc, 20 * PAGE, 100), SL_OK);

        sl_err got = sl_alloc_claim(alloc, bad_claims[_i].offset, bad_claims[_i].length);

        ck_assert_int_eq(got, SL_ERR_CORRUPT);
        sl_alloc_destroy(&alloc);
    }
END_TEST

START_TEST(giving_twice_is_caught)
    {
        struct sl_alloc *alloc = alloc_of(SL_MIB, SL_MIB, SL_MIB);
        uint64_t offset = 0;
        ck_assert_int_eq(sl_alloc_take(alloc, 3 * PAGE, &offset), SL_OK);
        sl_alloc_free(alloc, offset, 3 * PAGE);
        sl_alloc_free(alloc, offset, 3 * PAGE);
    }
END_TEST

/* ---- the model: a byte for each unit of 64 bytes ---- */

#define MODEL_BYTES   (4 * SL_MIB)
#define MODEL_CHUNK   SL_MIB
#define MODEL_EXTENTS 2000

struct model {
    unsigned char taken[MODEL_BYTES / 64];
    struct {
        uint64_t offset, length;
    } live[MODEL_EXTENTS];
    uint32_t live_count;
    uint64_t used_bytes;
};

static void model_take(struct model *model, uint64_t offset, uint64_t length, uint64_t populated)
{
    uint64_t space = sl_extent_space(length);
    ck_assert_uint_le(offset + space, populated);
    ck_assert_uint_eq(offset / MODEL_CHUNK, (offset + space - 1) / MODEL_CHUNK);
    ck_assert_uint_eq(offset % (length >= PAGE ? PAGE : 64), 0);
    ck_assert_ptr_null(memchr(&model->taken[offset / 64], 1, space / 64));
    memset(&model->taken[offset / 64], 1, space / 64);
    model->live[model->live_count].offset = offset;
    model->live[model->live_count++].length = length;
    model->used_bytes += space;
}

static void model_give(struct model *model, struct sl_alloc *alloc, uint32_t which)
{
    uint64_t offset = model->live[which].offset;
    uint64_t space = sl_extent_space(model->live[which].length);
    sl_alloc_free(alloc, offset, model->live[which].length);
    memset(&model->taken[offset / 64], 0, space / 64);
    model->live[which] = model->live[--model->live_count];
    model->used_bytes -= space;
}

static uint64_t random_length(uint64_t *random)
{
    switch (random_next(random) % 4) {
    case 0:
        return 1 + random_next(random) % 4096;
    case 1:
        return 1 + random_next(random) % 400;
    case 2:
        return 1 + random_next(random) % (64 * SL_KIB);
    default:
        return 1 + random_next(random) % MODEL_CHUNK;
    }
}

static void model_check_stats(const struct model *model, const struct sl_alloc *alloc)
{
    struct sl_alloc_stats stats;
    sl_alloc_stats(alloc, &stats);
    if (stats.used_bytes != model->used_bytes ||
        stats.extent_count != model->live_count) { /* asserts are slow */
        ck_abort_msg("%llu bytes in use, expected %llu", (unsigned long long)stats.used_bytes,
                     (unsigned long long)model->used_bytes);
    }
}

/* Builds a new allocator from claims in another order, as after a restart. */
static struct sl_alloc *model_rebuild(struct model *model, uint64_t populated, uint64_t *random)
{
    bool grow_first = random_next(random) % 2 == 0;
    struct sl_alloc *alloc = alloc_of(MODEL_BYTES, MODEL_CHUNK, grow_first ? populated : 0);
    for (uint32_t i = model->live_count; i > 0; i--) {
        ck_assert_int_eq(
            sl_alloc_claim(alloc, model->live[i - 1].offset, model->live[i - 1].length), SL_OK);
        if (random_next(random) % 8 == 0) {
            ck_assert_int_eq(
                sl_alloc_claim(alloc, model->live[i - 1].offset, model->live[i - 1].length), SL_OK);
        }
    }
    if (!grow_first && random_next(random) % 2 == 0) {
        model_check_stats(model, alloc);
        if (model->live_count > 0) {
            model_give(model, alloc, 0); /* before it grew */
        }
    }
    sl_alloc_grow(alloc, populated);
    return alloc;
}

/* Checks the end: no used byte is past it, and it is at most the last used byte or the usable size.
 */
static void model_check_end(const struct model *model, struct sl_alloc *alloc)
{
    struct sl_alloc_stats stats;
    uint64_t last = 0, opened_bytes = 0;
    sl_alloc_stats(alloc, &stats);
    for (uint32_t i = 0; i < model->live_count; i++) {
        uint64_t space = sl_extent_space(model->live[i].length);
        last = SL_MAX(last, sl_align_up(model->live[i].offset + space, PAGE));
        opened_bytes += model->live[i].offset < stats.usable_bytes ? space : 0;
    }
    ck_assert_uint_eq(sl_alloc_end_bytes(alloc), SL_MAX(last, stats.usable_bytes));
    ck_assert_uint_eq(stats.free_bytes, stats.usable_bytes - opened_bytes);
}

/* Both return the usable bytes afterwards: an extent may lie across the edge. */
static uint64_t model_grow(struct sl_alloc *alloc, uint64_t to)
{
    struct sl_alloc_stats stats;
    sl_alloc_grow(alloc, to);
    sl_alloc_stats(alloc, &stats);
    ck_assert_uint_lt(stats.usable_bytes, to + MODEL_CHUNK);
    return stats.usable_bytes;
}

static uint64_t model_shrink(const struct model *model, struct sl_alloc *alloc, uint64_t to)
{
    struct sl_alloc_stats stats;
    sl_alloc_shrink(alloc, to);
    model_check_end(model, alloc);
    sl_alloc_stats(alloc, &stats);
    return stats.usable_bytes;
}

START_TEST(extents_never_overlap_and_nothing_is_lost)
    {
        uint64_t random = random_seed("extents_never_overlap_and_nothing_is_lost") + (uint64_t)_i;
        struct model *model = calloc(1, sizeof(*model));
        uint64_t populated = 600 * SL_KIB; /* and not given up */
        uint64_t most = populated;
        struct sl_alloc *alloc = alloc_of(MODEL_BYTES, MODEL_CHUNK, populated);
        uint64_t offset = 0;
        for (int step = 0; step < 30000; step++) {
            uint64_t dice = random_next(&random) % 1000;
            if (dice < 500 && model->live_count < MODEL_EXTENTS) {
                uint64_t length = random_length(&random);
                if (sl_alloc_take(alloc, length, &offset) == SL_OK) {
                    model_take(model, offset, length, populated);
                }
            } else if (dice < 996 && model->live_count > 0) {
                model_give(model, alloc, (uint32_t)(random_next(&random) % model->live_count));
            } else if (dice < 998 && populated < MODEL_BYTES) {
                populated = SL_MIN(populated + random_next(&random) % (300 * SL_KIB), MODEL_BYTES);
                populated = model_grow(alloc, populated);
                most = SL_MAX(most, populated);
            } else if (dice == 998) {
                uint64_t to = random_next(&random) % (populated + 1);
                uint64_t usable = model_shrink(model, alloc, to);
                ck_assert_uint_ge(usable, to / PAGE * PAGE);
                ck_assert_uint_lt(usable, to + MODEL_CHUNK);
                populated = usable;
            } else if (dice == 999) {
                sl_alloc_destroy(&alloc);
                populated = most; /* all of it */
                alloc = model_rebuild(model, populated, &random);
            }
            model_check_stats(model, alloc);
        }
        while (model->live_count > 0) {
            model_give(model, alloc, model->live_count - 1);
        }
        model_check_end(model, alloc);
        sl_alloc_grow(alloc, MODEL_BYTES);
        for (uint64_t i = 0; i < MODEL_BYTES / MODEL_CHUNK; i++) { /* all chunks are whole again */
            ck_assert_int_eq(sl_alloc_take(alloc, MODEL_CHUNK, &offset), SL_OK);
        }
        sl_alloc_destroy(&alloc);
        free(model);
    }
END_TEST

/* ---- figures ---- */

static const struct {
    const char *name;
    uint64_t low, high; /* lengths */
    uint64_t data_bytes;
} loads[] = {
    {"uniform 4 KiB", 4096, 4096, 256 * SL_MIB},
    {"uniform 266,240 B", 266240, 266240, 4 * SL_GIB},
    {"uniform 300 B", 300, 300, 64 * SL_MIB},
    {"mixed 64 B..4 KiB", 64, 4096, 64 * SL_MIB},
    {"mixed 4 KiB..64 KiB", 4096, 65536, SL_GIB},
    {"mixed 4 KiB..4 MiB", 4096, 4 * SL_MIB, 8 * SL_GIB},
};

struct churn {
    struct sl_alloc *alloc;
    uint64_t *offsets, *lengths;
    uint64_t count, capacity;
};

static bool churn_add(struct churn *churn, uint64_t length)
{
    uint64_t offset = 0;
    if (churn->count == churn->capacity || sl_alloc_take(churn->alloc, length, &offset) != SL_OK) {
        return false;
    }
    churn->offsets[churn->count] = offset;
    churn->lengths[churn->count++] = length;
    return true;
}

static void churn_remove(struct churn *churn, uint64_t which)
{
    sl_alloc_free(churn->alloc, churn->offsets[which], churn->lengths[which]);
    churn->count--;
    churn->offsets[which] = churn->offsets[churn->count];
    churn->lengths[which] = churn->lengths[churn->count];
}

/* Fills it, then replaces extents at random like a full cache: frees until the next one fits. Space
 * that is neither used nor usable then is wasted. */
START_TEST(speed_and_fragmentation_are_printed)
    {
        uint64_t random = 12345;
        uint64_t data_bytes = loads[_i].data_bytes;
        struct churn churn = {.alloc = alloc_of(data_bytes, SL_MIN(data_bytes, SL_GIB), data_bytes),
                              .capacity = 1u << 20};
        struct sl_alloc_stats stats;
        uint64_t operations = 0;
        double used = 0;
        uint64_t samples = 0;
        churn.offsets = malloc(churn.capacity * sizeof(uint64_t));
        churn.lengths = malloc(churn.capacity * sizeof(uint64_t));
        uint64_t span = loads[_i].high - loads[_i].low + 1;
        while (churn_add(&churn, loads[_i].low + random_next(&random) % span)) {
        }
        uint64_t began_ns = stopwatch_ns();
        for (int i = 0; i < 300000 && churn.count > 0; i++) {
            uint64_t length = loads[_i].low + random_next(&random) % span;
            while (!churn_add(&churn, length)) {
                churn_remove(&churn, random_next(&random) % churn.count);
                operations += 2;
            }
            operations++;
            sl_alloc_stats(churn.alloc, &stats);
            used += (double)stats.used_bytes / (double)data_bytes;
            samples++;
        }
        double ns = (double)(stopwatch_ns() - began_ns) / (double)operations;
        printf("alloc %-20s %6.1f ns an operation, %4.1f %% in use in the steady state\n",
               loads[_i].name, ns, 100 * used / (double)samples);
        ck_assert(used / (double)samples > 0.6);
        sl_alloc_destroy(&churn.alloc);
        free(churn.offsets);
        free(churn.lengths);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("alloc");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, space_follows_the_length, 0, SL_COUNT(spaces));
    tcase_add_test(tcase, lengths_out_of_range_are_invalid);
    tcase_add_test(tcase, space_comes_from_the_populated_prefix_only);
    tcase_add_test(tcase, claims_are_kept_out_of_what_is_given);
    tcase_add_test(tcase, what_is_in_use_behind_a_shrunk_end_is_not_taken_again);
    tcase_add_loop_test(tcase, claims_that_cannot_be_are_corrupt, 0, SL_COUNT(bad_claims));
    tcase_add_test_raise_signal(tcase, giving_twice_is_caught, SIGABRT);
    tcase_add_loop_test(tcase, extents_never_overlap_and_nothing_is_lost, 0, 5);
    tcase_add_loop_test(tcase, speed_and_fragmentation_are_printed, 0, SL_COUNT(loads));
    return suite_run(tcase, "alloc");
}
