/* tests/unit/client/tools/top_test.c - the figures of sluicectl top for keys: groups, and uses. Its
 * views: top_views_test.py. */
#include "client/tools/top/uses.h"
#include "ipc/shm/sl_pins.h"
#include "runtime/base/sl_clock.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *key, *model, *prefix;
} keys[] = {
    {"0123456789abcdef0123456789abcdef/f00d/3/pool0", "0123456789abcdef0123456789abcdef",
     "0123456789ab/*/3/pool0"},
    {"Qwen/Qwen3-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@beef", "Qwen/Qwen3-8B",
     "Qwen/Qwen3-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1"},
    {"vllm@meta/Llama@2@1@f3de", "meta/Llama", "vllm@meta/Llama@2@1"},
    {"images/cats/1", "images", "images/cats"},
    {"lonely", "(keys without a prefix)", "(keys without a prefix)"},
    {"/lonely", "(keys without a prefix)", "(keys without a prefix)"},
    {"vllm@only", "vllm", "vllm"},
    {"0123456789abcdef0123456789abcdeX/f00d", "0123456789abcdef0123456789abcdeX",
     "0123456789abcdef0123456789abcdeX"},
    {"a\a[2Jb/c", "a?[2Jb", "a?[2Jb"},
};

START_TEST(keys_have_a_model_and_a_prefix)
    {
        char model[TOP_GROUP_BYTES];
        char prefix[TOP_GROUP_BYTES];

        top_group_of(keys[_i].key, (uint32_t)strlen(keys[_i].key), TOP_BY_MODEL, model);
        top_group_of(keys[_i].key, (uint32_t)strlen(keys[_i].key), TOP_BY_PREFIX, prefix);

        ck_assert_str_eq(model, keys[_i].model);
        ck_assert_str_eq(prefix, keys[_i].prefix);
    }
END_TEST

START_TEST(names_of_any_length_fit)
    {
        char key[1024];
        char out[TOP_GROUP_BYTES];
        memset(key, 'k', sizeof key);
        key[1000] = '/';

        top_group_of(key, sizeof key, TOP_BY_PREFIX, out);

        ck_assert_uint_eq(strlen(out), TOP_GROUP_BYTES - 1);
        for (uint32_t length = 0; length < 50; length++) { /* keys that end anywhere */
            for (size_t i = 0; i < SL_COUNT(keys); i++) {
                uint32_t bytes = SL_MIN(length, (uint32_t)strlen(keys[i].key));
                top_group_of(keys[i].key, bytes, TOP_BY_PREFIX, out);
                ck_assert_uint_gt(strlen(out), 0);
                top_group_of(keys[i].key, bytes, TOP_BY_MODEL, out);
                ck_assert_uint_gt(strlen(out), 0);
            }
        }
    }
END_TEST

/* ---- uses ---- */

static struct sl_pins *reader_made(const struct bed *bed, const char *name, uint32_t ring)
{
    struct sl_pins_options options = {.shm_dir = bed->dir,
                                      .name = name,
                                      .slot_count = 1,
                                      .access_count = ring,
                                      .self = own_id(),
                                      .pinned_bytes_max = 1};
    struct sl_pins *pins = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_create(&options, &pins, &why), why);
    return pins;
}

static void note(struct sl_pins *pins, sl_ref ref, uint64_t number, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        sl_pins_note_access(pins, ref, 1000 + number); /* as entry_of makes them */
    }
}

static struct top_uses *uses_made(const struct bed *bed)
{
    struct top_uses *uses = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(top_uses_create(bed->dir, &uses, &why), why);
    ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);
    return uses;
}

/* The uses a second of a group in the next reading; 0: it is not listed. */
struct hot {
    const struct top_group *groups;
    uint32_t count;
};

static struct hot hot_read(struct top_uses *uses)
{
    struct hot hot = {.count = 0};
    struct sl_error why = {0};
    ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);
    hot.groups = top_uses_join(uses, NULL, 0, &hot.count);
    return hot;
}

static double hot_of(const struct hot *hot, const char *name)
{
    for (uint32_t i = 0; i < hot->count; i++) {
        if (strcmp(hot->groups[i].name, name) == 0) {
            return hot->groups[i].uses;
        }
    }
    return 0;
}

START_TEST(uses_are_those_since_the_last_reading)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "early", 64);
        note(pins, b, 2, 40);
        struct top_uses *uses = uses_made(&bed);
        struct sl_pins *late = reader_made(&bed, "late", 64);
        note(pins, a, 1, 2);
        note(late, a, 1, 1);
        note(late, b, 2, 1);
        sl_pins_note_access(late, b, 1002 | SL_ACCESS_STORED); /* no use */

        struct hot hot = hot_read(uses);

        ck_assert_uint_eq(hot.count, 2);
        ck_assert_double_gt(hot_of(&hot, "b"), 0);
        ck_assert_double_eq_tol(hot_of(&hot, "a") / hot_of(&hot, "b"), 3, 1e-9);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        sl_pins_destroy(&late);
        bed_remove(&bed);
    }
END_TEST

/* In another namespace a process may have the same number. */
START_TEST(uses_of_a_namesake_are_among_them)
    {
        char name[64];
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        (void)snprintf(name, sizeof name, "client.%d.0123456789abcdef", (int)getpid());
        struct sl_pins *pins = reader_made(&bed, name, 64);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 2);

        struct hot hot = hot_read(uses);

        ck_assert_uint_eq(hot.count, 1);
        ck_assert_str_eq(hot.groups[0].name, "a");
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_stand_for_those_that_were_lost)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *quick = reader_made(&bed, "quick", 8);
        struct sl_pins *slow = reader_made(&bed, "slow", 8);
        struct top_uses *uses = uses_made(&bed);
        note(quick, a, 1, 80); /* eight are left */
        note(slow, b, 2, 4);

        struct hot hot = hot_read(uses);

        ck_assert_double_eq_tol(hot_of(&hot, "a") / hot_of(&hot, "b"), 20, 1e-9);
        top_uses_destroy(&uses);
        sl_pins_destroy(&quick);
        sl_pins_destroy(&slow);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_reader_that_is_gone_counts_once_more)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "reader", 8);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 1);
        sl_pins_destroy(&pins);
        pins = reader_made(&bed, "reader", 8); /* the next process of that name */
        note(pins, b, 2, 2);

        struct hot hot = hot_read(uses);

        ck_assert_double_gt(hot_of(&hot, "a"), 0);
        ck_assert_double_eq_tol(hot_of(&hot, "b") / hot_of(&hot, "a"), 2, 1e-9);
        sl_pins_destroy(&pins);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_of_what_is_gone_or_made_up_have_no_prefix)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        struct sl_pins *pins = reader_made(&bed, "reader", 64);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 1);
        sl_index_unlink(bed.index, a, SL_RECORD_FREE);
        for (uint32_t i = 0; i < 32; i++) {
            sl_pins_note_access(pins, UINT32_C(1) << i, UINT64_MAX >> (1 + i));
        }

        struct hot hot = hot_read(uses);

        ck_assert_uint_eq(hot.count, 1);
        ck_assert_double_gt(hot_of(&hot, "(keys gone since)"), 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_segment_that_is_cut_short_harms_nothing)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        char path[128];
        sl_ref a = bed_insert(&bed, "a/1", 1);
        struct sl_pins *pins = reader_made(&bed, "reader", 4096);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 3);
        (void)snprintf(path, sizeof path, "%s/pins.reader", bed.dir);
        ck_assert_int_eq(truncate(path, SL_PAGE_BYTES), 0); /* after the header, which claims 3 */

        struct hot hot = hot_read(uses); /* zeros are no accesses */

        ck_assert_double_eq(hot_of(&hot, "a"), 0);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(readers_and_prefixes_are_bounded)
    {
        struct bed bed = bed_make(4 * SL_MIB, 2000);
        struct sl_pins *pins[TOP_READERS_MAX + 1];
        sl_ref refs[TOP_GROUPS_MAX + 100];
        char name[32];
        for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
            (void)snprintf(name, sizeof name, "prefix%u/1", i);
            refs[i] = bed_insert(&bed, name, i);
        }
        for (uint32_t i = 0; i < SL_COUNT(pins); i++) {
            (void)snprintf(name, sizeof name, "reader%u", i);
            pins[i] = reader_made(&bed, name, 64);
        }
        struct top_uses *uses = uses_made(&bed);
        for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
            note(pins[i % SL_COUNT(pins)], refs[i], i, 1);
        }

        struct hot hot = hot_read(uses);

        double all = 0;
        double one = 0; /* each was used once */
        for (uint32_t i = 0; i < hot.count; i++) {
            all += hot.groups[i].uses;
            one = strcmp(hot.groups[i].name, "(others)") != 0 ? hot.groups[i].uses : one;
        }
        ck_assert_uint_eq(hot.count, TOP_GROUPS_MAX + 1);
        ck_assert_double_gt(hot_of(&hot, "(others)"), 50 * one);
        ck_assert_double_gt(all, (TOP_GROUPS_MAX + 90) * one); /* a reader found no place */
        ck_assert_double_lt(all, (TOP_GROUPS_MAX + 99.5) * one);
        sl_pins_destroy(&pins[0]);
        hot = hot_read(
            uses); /* the one that found a place now is not counted for what it noted before */
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        for (uint32_t i = 0; i < SL_COUNT(pins); i++) {
            sl_pins_destroy(&pins[i]);
        }
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_stand_beside_what_is_held)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        const struct top_group held[] = {{"cold", 3, 300, 0, 0}, {"a", 1, 200, 0, 0}};
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "reader", 64);
        struct top_uses *uses = uses_made(&bed);
        uint32_t count = 0;
        struct sl_error why = {0};
        note(pins, a, 1, 1);
        note(pins, b, 2, 2);
        ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);

        const struct top_group *joined = top_uses_join(uses, held, 2, &count);

        ck_assert_uint_eq(count, 3);
        ck_assert_double_eq(joined[0].uses, 0);
        ck_assert_uint_eq(joined[1].memory_bytes, 200);
        ck_assert_str_eq(joined[2].name, "b");
        ck_assert_uint_eq(joined[2].objects, 0);
        ck_assert_double_eq_tol(joined[2].uses / joined[1].uses, 2, 1e-9);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("top");
    TCase *names = tcase_create("names");
    tcase_add_loop_test(names, keys_have_a_model_and_a_prefix, 0, SL_COUNT(keys));
    tcase_add_test(names, names_of_any_length_fit);
    suite_add_tcase(suite, names);
    TCase *uses = tcase_create("uses");
    tcase_add_test(uses, uses_are_those_since_the_last_reading);
    tcase_add_test(uses, uses_of_a_namesake_are_among_them);
    tcase_add_test(uses, uses_stand_for_those_that_were_lost);
    tcase_add_test(uses, a_reader_that_is_gone_counts_once_more);
    tcase_add_test(uses, uses_of_what_is_gone_or_made_up_have_no_prefix);
    tcase_add_test(uses, a_segment_that_is_cut_short_harms_nothing);
    tcase_add_test(uses, readers_and_prefixes_are_bounded);
    tcase_add_test(uses, uses_stand_beside_what_is_held);
    suite_add_tcase(suite, uses);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
