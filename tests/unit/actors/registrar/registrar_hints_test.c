/* tests/unit/actors/registrar/registrar_hints_test.c - engines' hints about blocks: with a RESERVE,
 * and with a load. */
#include "actors/registrar/records/policy.h"
#include "actors/registrar/records/units.h"
#include "runtime/policy/density/density.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#define BLOCK_BYTES (64 * SL_KIB) /* 64 of them fill memory */

static struct sl_pins *pins_of(struct node *node, const char *name, uint32_t pid)
{
    struct sl_error why = {0};
    struct sl_pins *pins = NULL;
    char segment[64];
    (void)snprintf(segment, sizeof(segment), "pins.%s", name);
    struct sl_pins_options options = {
        .shm_dir = node->fake.paths.shm_dir,
        .name = name,
        .slot_count = 64,
        .access_count = 64,
        .self = proc_of(pid),
        .pinned_bytes_max = SL_GIB,
    };
    ck_assert_msg(sl_pins_create(&options, &pins, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(node_hello_pins(node, name, "client", pid, segment), SL_OK);
    return pins;
}

/* A block of one part under "m/NUMBER", after "m/PARENT". */
static void block_put(struct node *node, uint32_t number, const char *parent,
                      const struct sl_packed_hints *said)
{
    char key[32];
    (void)snprintf(key, sizeof(key), "m/%u", number);
    node_put_hinted(node, "client.1", key, parent != NULL ? reg_hash(parent, strlen(parent)) : 0,
                    BLOCK_BYTES, said);
}

static struct sl_density_note view_of(struct node *node, const char *key)
{
    struct registrar *self = node->fake.state;
    struct sl_density_note view = {0};
    uint32_t unit = sl_density_find(self->units->density, reg_hash(key, strlen(key)));
    ck_assert_msg(unit != 0, "'%s' is not in memory", key);
    view = sl_density_note(self->units->density, unit);
    return view;
}

static const struct sl_packed_hints nothing;
static const struct sl_packed_hints all = {
    .session = REG_HINT_ENDS, .priority = REG_PRIORITY_HIGH, .keep_ns = 60 * SL_NS_PER_S};

static void check_all_is_known(struct node *node, const char *key)
{
    struct sl_density_note view = view_of(node, key);
    ck_assert_uint_eq(view.class_index / SL_DENSITY_KINDS, REG_HINT_ENDS);
    ck_assert_int_eq(view.priority, REG_PRIORITY_HIGH);
    ck_assert(view.kept);
}

START_TEST(what_comes_with_a_reserve_is_known_of_the_block_and_after_a_restart)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        block_put(node, 1, NULL, &all);
        block_put(node, 2, NULL, &nothing);
        check_all_is_known(node, "m/1");
        ck_assert(!view_of(node, "m/2").kept);
        ck_assert_int_eq(view_of(node, "m/2").priority, REG_PRIORITY_NORMAL);

        node_restart(node);

        check_all_is_known(node, "m/1");
        ck_assert(!view_of(node, "m/2").kept);
        node_end(node);
    }
END_TEST

START_TEST(what_comes_with_a_load_is_known_of_the_block)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        block_put(node, 1, NULL, &nothing);
        block_put(node, 2, "m/1", &nothing);
        ck_assert(node_entry(node, "m/2/0", &entry));

        sl_pins_note_hints(pins, entry.ref, entry.extent.generation, sl_packed_hints_pack(&all));
        fake_advance(&node->fake, SL_NS_PER_S);

        check_all_is_known(node, "m/2");
        ck_assert(view_of(node, "m/1").kept); /* later blocks are useless without it */
        ck_assert_uint_eq(view_of(node, "m/1").class_index / SL_DENSITY_KINDS, REG_HINT_NONE);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* A multi-slice store notes its blocks as well, but only for their order: its hints came with
 * RESERVE. */
START_TEST(what_comes_with_a_stores_own_note_does_not_count)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        block_put(node, 1, NULL, &nothing);
        ck_assert(node_entry(node, "m/1/0", &entry));

        sl_pins_note_hints(pins, entry.ref, entry.extent.generation | SL_ACCESS_STORED,
                           sl_packed_hints_pack(&all));
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(!view_of(node, "m/1").kept);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* As for values that were just got or put. */
START_TEST(what_is_said_by_itself_is_known_and_is_no_use)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        block_put(node, 1, NULL, &nothing);
        ck_assert(node_entry(node, "m/1/0", &entry));
        uint32_t uses = view_of(node, "m/1").use_count;

        sl_pins_note_hints(pins, entry.ref, entry.extent.generation | SL_ACCESS_STORED,
                           sl_packed_hints_pack(&all) | SL_SAID_ALONE);
        fake_advance(&node->fake, SL_NS_PER_S);

        check_all_is_known(node, "m/1");
        ck_assert_uint_eq(view_of(node, "m/1").use_count, uses);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* A value that has also been written to disk has a new record. Hints noted for the old one
 * count. */
START_TEST(what_was_noted_before_a_value_came_to_disk_is_known)
    {
        static const char *const settings[] = {"disk", "8MiB", NULL};
        struct node *node = node_start(settings);
        struct sl_entry entry, durable;
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        block_put(node, 1, NULL, &nothing);
        ck_assert(node_entry(node, "m/1/0", &entry));

        sl_pins_note_hints(pins, entry.ref, entry.extent.generation, sl_packed_hints_pack(&all));
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(node_entry(node, "m/1/0", &durable));
        ck_assert_uint_ne(durable.ref, entry.ref);
        check_all_is_known(node, "m/1");
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(a_block_that_is_kept_outlives_others_until_its_time)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        block_put(node, 1, NULL, &all);
        for (uint32_t number = 2; number <= 200; number++) {
            block_put(node, number, NULL, &nothing);
        }
        ck_assert(node_is_visible(node, "m/1/0"));
        ck_assert(!node_is_visible(node, "m/2/0"));

        fake_advance(&node->fake, 61 * SL_NS_PER_S);
        for (uint32_t number = 201; number <= 400; number++) {
            block_put(node, number, NULL, &nothing);
        }

        ck_assert(!node_is_visible(node, "m/1/0"));
        node_end(node);
    }
END_TEST

START_TEST(all_that_is_to_be_kept_takes_an_eighth_of_memory)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct sl_density_stats stats;
        node_client(node, "client.1", 11);
        for (uint32_t number = 1; number <= 100; number++) {
            block_put(node, number, NULL, &all);
        }
        stats = sl_density_stats(self->units->density);
        ck_assert_uint_le(stats.kept_pages * SL_PAGE_BYTES, 4 * SL_MIB / SL_DENSITY_KEPT_SHARE);
        ck_assert_uint_gt(stats.kept_pages, 0);
        node_end(node);
    }
END_TEST

/* An eighth of memory holds 8 of a chain of 41 that is to be kept. On disk the others are to be
 * kept as well, even those without a hint of their own before one with a hint. */
START_TEST(what_was_to_be_kept_is_so_on_disk_though_memory_had_no_part_for_it)
    {
        static const char *const settings[] = {"disk", "64MiB", NULL};
        static const struct sl_packed_hints keep = {.keep_ns = 60 * SL_NS_PER_S};
        struct node *node = node_start(settings);
        struct registrar *self = node->fake.state;
        uint32_t on_disk_count = 0;
        struct sl_entry entry;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        for (uint32_t number = 1; number <= 200; number++) {
            char parent[32];
            (void)snprintf(parent, sizeof(parent), "m/%u", number - 1);
            bool chained = number > 1 && number <= 41;
            block_put(node, number, chained ? parent : NULL,
                      chained && number % 2 == 1 ? &keep : &nothing);
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        }

        for (uint32_t number = 1; number <= 42; number++) {
            char key[32];
            (void)snprintf(key, sizeof(key), "m/%u/0", number);
            ck_assert_msg(node_entry(node, key, &entry), "'%s' is lost", key);
            bool on_disk = entry.extent.generation == 0;
            bool kept = self->units->policy->kept(self, entry.group);
            ck_assert_msg(!on_disk || kept == (number <= 41), "'%s' on disk: kept %d", key, kept);
            on_disk_count += on_disk;
        }
        ck_assert_uint_ge(on_disk_count, 42 - 8);
        fake_advance(&node->fake, 61 * SL_NS_PER_S);
        ck_assert(node_entry(node, "m/20/0", &entry));
        ck_assert(!self->units->policy->kept(self, entry.group));
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_said");
    TCase *tcase = tcase_create("said");
    tcase_add_test(tcase, what_comes_with_a_reserve_is_known_of_the_block_and_after_a_restart);
    tcase_add_test(tcase, what_comes_with_a_load_is_known_of_the_block);
    tcase_add_test(tcase, what_is_said_by_itself_is_known_and_is_no_use);
    tcase_add_test(tcase, what_was_noted_before_a_value_came_to_disk_is_known);
    tcase_add_test(tcase, what_comes_with_a_stores_own_note_does_not_count);
    tcase_add_test(tcase, a_block_that_is_kept_outlives_others_until_its_time);
    tcase_add_test(tcase, all_that_is_to_be_kept_takes_an_eighth_of_memory);
    tcase_add_test(tcase, what_was_to_be_kept_is_so_on_disk_though_memory_had_no_part_for_it);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
