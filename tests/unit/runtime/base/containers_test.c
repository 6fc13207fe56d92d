/* tests/unit/runtime/base/containers_test.c - growing arrays, the heap of deadlines and the hash
 * table, each against a simple model. */
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_heap.h"
#include "runtime/base/sl_table.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define STEPS 5000u

static uint64_t random_state;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

static void seed(void)
{
    random_state = sl_clock_monotonic_ns();
    printf("seed %ju\n", (uintmax_t)random_state);
}

/* Makes large allocations fail from now on; sanitizers reserve too much for such a limit. */
static bool memory_limit(void)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    const struct rlimit limit = {.rlim_cur = 512 * SL_MIB, .rlim_max = 512 * SL_MIB};
    return setrlimit(RLIMIT_AS, &limit) == 0;
#endif
}

/* ---- arrays ---- */

START_TEST(an_array_keeps_its_items_while_it_grows)
    {
        uint32_t *items = NULL, capacity = 0, moves = 0;

        for (uint32_t i = 0; i < 100000; i++) {
            uint32_t before = capacity;
            ck_assert(SL_ARRAY_ROOM(items, capacity, i + 1));
            items[i] = i * 7;
            moves += capacity != before;
        }

        ck_assert_uint_ge(capacity, 100000);
        ck_assert_uint_le(moves, 10);
        for (uint32_t i = 0; i < 100000; i++) {
            ck_assert_uint_eq(items[i], i * 7);
        }
        free(items);
    }
END_TEST

START_TEST(an_array_takes_as_many_as_are_wanted_at_once)
    {
        char *bytes = NULL;
        uint64_t capacity = 0;

        ck_assert(SL_ARRAY_ROOM(bytes, capacity, 1000003));

        ck_assert_uint_ge(capacity, 1000003);
        bytes[1000002] = 'x';
        free(bytes);
    }
END_TEST

START_TEST(an_array_that_cannot_grow_stays_as_it_was)
    {
        uint64_t *items = NULL, wide = 0, too_many = UINT64_C(1) << 32;
        uint32_t narrow = 0;
        ck_assert(SL_ARRAY_ROOM(items, narrow, 3));
        const uint64_t *before = items;
        uint32_t had = narrow;
        wide = had;
        items[0] = 11;

        ck_assert(!SL_ARRAY_ROOM(items, narrow, too_many));
        ck_assert(!SL_ARRAY_ROOM(items, wide, UINT64_MAX));
        ck_assert(!SL_ARRAY_ROOM(items, wide, (uint64_t)PTRDIFF_MAX / sizeof(*items) + 1));

        ck_assert_ptr_eq(items, before);
        ck_assert_uint_eq(narrow, had);
        ck_assert_uint_eq(wide, had);
        ck_assert_uint_eq(items[0], 11);
        free(items);
    }
END_TEST

/* ---- heaps ---- */

#define IDS 64u

/* The earliest of the model's deadlines, SL_NEVER_NS: none. */
static uint64_t model_next(const uint64_t *at_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; i < IDS; i++) {
        next_ns = SL_MIN(next_ns, at_ns[i]);
    }
    return next_ns;
}

START_TEST(a_heap_of_ids_agrees_with_a_list)
    {
        struct sl_heap heap;
        struct sl_heap_item item;
        uint64_t model[IDS];
        seed();
        for (uint32_t i = 0; i < IDS; i++) {
            model[i] = SL_NEVER_NS;
        }
        ck_assert_int_eq(sl_heap_init(&heap, IDS, NULL), SL_OK);

        for (uint32_t i = 0; i < STEPS; i++) {
            uint32_t id = random_below(IDS), what = random_below(4);
            uint64_t at_ns = random_below(100);
            if (what < 2) {
                sl_heap_set(&heap, id, at_ns);
                model[id] = at_ns;
            } else if (what == 2) {
                sl_heap_clear(&heap, id);
                model[id] = SL_NEVER_NS;
            } else if (sl_heap_pop(&heap, at_ns, &item)) {
                ck_assert_uint_eq(item.at_ns, model_next(model));
                ck_assert_uint_eq(item.at_ns, model[item.id]);
                ck_assert_uint_le(item.at_ns, at_ns);
                model[item.id] = SL_NEVER_NS;
            } else {
                ck_assert_uint_gt(model_next(model), at_ns);
            }
            ck_assert_uint_eq(sl_heap_next_ns(&heap), model_next(model));
            ck_assert_uint_eq(sl_heap_at_ns(&heap, id), model[id] == SL_NEVER_NS ? 0 : model[id]);
        }

        sl_heap_fini(&heap);
    }
END_TEST

START_TEST(a_growing_heap_gives_all_back_in_order)
    {
        struct sl_heap heap = {0};
        struct sl_heap_item item = {0};
        uint64_t cookies = 0, last_ns = 0;
        seed();
        for (uint32_t i = 0; i < STEPS; i++) {
            item = (struct sl_heap_item){.at_ns = random_below(1000), .cookie = i, .id = i % 3};
            ck_assert_int_eq(sl_heap_add(&heap, item), SL_OK);
        }

        for (uint32_t i = 0; i < STEPS; i++) {
            ck_assert(sl_heap_pop(&heap, SL_NEVER_NS, &item));
            ck_assert_uint_ge(item.at_ns, last_ns);
            ck_assert_uint_eq(item.id, item.cookie % 3);
            last_ns = item.at_ns;
            cookies += item.cookie;
        }

        ck_assert(!sl_heap_pop(&heap, SL_NEVER_NS, &item));
        ck_assert_uint_eq(sl_heap_next_ns(&heap), SL_NEVER_NS);
        ck_assert_uint_eq(cookies, (uint64_t)STEPS * (STEPS - 1) / 2);
        sl_heap_fini(&heap);
    }
END_TEST

START_TEST(a_growing_heap_loses_an_item_at_any_place)
    {
        struct sl_heap heap = {0};
        struct sl_heap_item item = {0};
        uint64_t cookies = 0, last_ns = 0;
        seed();
        for (uint32_t i = 0; i < STEPS; i++) {
            item = (struct sl_heap_item){.at_ns = random_below(1000), .cookie = i};
            ck_assert_int_eq(sl_heap_add(&heap, item), SL_OK);
            if (i % 2 == 1) {
                uint32_t at = random_below(heap.count);
                cookies += heap.items[at].cookie;
                sl_heap_remove(&heap, at);
            }
        }

        while (sl_heap_pop(&heap, SL_NEVER_NS, &item)) {
            ck_assert_uint_ge(item.at_ns, last_ns);
            last_ns = item.at_ns;
            cookies += item.cookie;
        }

        ck_assert_uint_eq(cookies, (uint64_t)STEPS * (STEPS - 1) / 2);
        sl_heap_fini(&heap);
    }
END_TEST

START_TEST(a_heap_without_memory_says_so)
    {
        struct sl_heap full = {.count = 1u << 31, .capacity = 1u << 31}, ids;

        ck_assert_int_eq(sl_heap_add(&full, (struct sl_heap_item){0}), SL_ERR_NO_MEMORY);
        ck_assert_uint_eq(full.count, 1u << 31);
        if (memory_limit()) {
            ck_assert_int_eq(sl_heap_init(&ids, 1u << 28, NULL), SL_ERR_NO_MEMORY);
            ck_assert_ptr_null(ids.items);
        }
    }
END_TEST

/* ---- tables ---- */

#define ITEMS 512u

struct item {
    uint32_t number;
    struct sl_table_node node;
};

/* How often the table finds the item under its hash: 0 or 1. */
static uint32_t times_found(const struct sl_table *table, const struct item *wanted, uint64_t hash)
{
    uint32_t times = 0;
    for (struct item *at = SL_TABLE_FIRST(table, hash, struct item, node); at != NULL;
         at = SL_TABLE_NEXT(at, struct item, node)) {
        ck_assert_uint_eq(at->node.hash, hash);
        times += at == wanted;
    }
    return times;
}

START_TEST(a_table_agrees_with_a_list)
    {
        static struct item items[ITEMS];
        static bool in[ITEMS];
        struct sl_table table = {0};
        uint32_t count = 0;
        seed();
        ck_assert(sl_table_reserve(&table, 16)); /* long chains */

        for (uint32_t i = 0; i < STEPS; i++) {
            uint32_t number = random_below(ITEMS);
            uint64_t hash = number % 100; /* several items of one hash */
            if (in[number]) {
                sl_table_remove(&table, &items[number].node);
                sl_table_remove(&table, &items[number].node); /* nothing happens */
            } else {
                sl_table_add(&table, &items[number].node, hash);
            }
            in[number] = !in[number];
            count += in[number] ? 1 : UINT32_MAX;
            uint32_t other = random_below(ITEMS);
            ck_assert_uint_eq(times_found(&table, &items[number], hash), in[number]);
            ck_assert_uint_eq(times_found(&table, &items[other], other % 100), in[other]);
            ck_assert_uint_eq(table.count, count);
            if (i == STEPS / 2) {
                ck_assert(sl_table_reserve(&table, 400));
            }
        }

        ck_assert_uint_eq(table.head_count, 512);
        sl_table_fini(&table);
    }
END_TEST

START_TEST(an_empty_table_finds_nothing)
    {
        struct sl_table table = {0};

        ck_assert_ptr_null(sl_table_first(&table, 7));
        sl_table_fini(&table);
    }
END_TEST

START_TEST(the_newest_of_a_hash_comes_first)
    {
        struct item items[3] = {{.number = 0}, {.number = 1}, {.number = 2}};
        struct sl_table table = {0};
        ck_assert(sl_table_reserve(&table, 3));
        for (uint32_t i = 0; i < 3; i++) {
            sl_table_add(&table, &items[i].node, 9);
        }

        uint32_t want = 3;
        for (struct item *at = SL_TABLE_FIRST(&table, 9, struct item, node); at != NULL;
             at = SL_TABLE_NEXT(at, struct item, node)) {
            ck_assert_uint_eq(at->number, --want);
        }

        ck_assert_uint_eq(want, 0);
        sl_table_fini(&table);
    }
END_TEST

START_TEST(a_table_without_memory_stays_as_it_was)
    {
        struct item one = {.number = 1};
        struct sl_table table = {0};
        ck_assert(sl_table_reserve(&table, 2));
        sl_table_add(&table, &one.node, 5);

        bool grown = memory_limit() && sl_table_reserve(&table, 1u << 30);

        ck_assert(!grown);
        ck_assert_uint_eq(table.head_count, 2);
        ck_assert_ptr_eq(sl_table_first(&table, 5), &one.node);
        sl_table_fini(&table);
    }
END_TEST

START_TEST(hashes_of_consecutive_ids_use_all_heads)
    {
        static uint32_t used[1024];
        uint32_t most = 0;

        for (uint64_t id = 0; id < 4096; id++) {
            uint32_t *head = &used[sl_table_hash(id << _i) & 1023];
            *head += 1;
            most = SL_MAX(most, *head);
        }

        ck_assert_uint_le(most, 16);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("containers");
    TCase *tcase = tcase_create("containers");
    tcase_add_test(tcase, an_array_keeps_its_items_while_it_grows);
    tcase_add_test(tcase, an_array_takes_as_many_as_are_wanted_at_once);
    tcase_add_test(tcase, an_array_that_cannot_grow_stays_as_it_was);
    tcase_add_test(tcase, a_heap_of_ids_agrees_with_a_list);
    tcase_add_test(tcase, a_growing_heap_gives_all_back_in_order);
    tcase_add_test(tcase, a_growing_heap_loses_an_item_at_any_place);
    tcase_add_test(tcase, a_heap_without_memory_says_so);
    tcase_add_test(tcase, a_table_agrees_with_a_list);
    tcase_add_test(tcase, an_empty_table_finds_nothing);
    tcase_add_test(tcase, the_newest_of_a_hash_comes_first);
    tcase_add_test(tcase, a_table_without_memory_stays_as_it_was);
    tcase_add_loop_test(tcase, hashes_of_consecutive_ids_use_all_heads, 0, 17);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
