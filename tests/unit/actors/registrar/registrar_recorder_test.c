/* tests/unit/actors/registrar/registrar_recorder_test.c - a registrar's recording, and what happens
 * to its file. */
#include "actors/registrar/recorder.h"
#include "ipc/shm/sl_pins.h"
#include "tests/support/recording_reader.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (64 * SL_KIB)

static char path[128];
static struct recording_seen seen;

static void recording_read_from(const char *name)
{
    static unsigned char bytes[1 << 20];
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "no file '%s'", name);
    ssize_t got = read(fd, bytes, sizeof(bytes));
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_gt(got, 0);
    recording_bytes_read(bytes, (uint64_t)got, &seen);
}

static void recording_read(void)
{
    recording_read_from(path);
}

static struct node *recording_node(const char *more, const char *value)
{
    (void)snprintf(path, sizeof(path), "/dev/shm/sl-recorder-%d", (int)getpid());
    (void)unlink(path);
    return node_start((const char *[]){"record", path, more, value, NULL});
}

static void recording_end(struct node *node)
{
    char old[140];
    node_end(node);
    (void)snprintf(old, sizeof(old), "%s.1", path);
    (void)unlink(path);
    (void)unlink(old);
}

/* Buffered events are written to the file within a second. */
static void settle(struct node *node)
{
    fake_advance(&node->fake, 3 * SL_NS_PER_S);
}

static struct sl_pins *pins_of(struct node *node, const char *name, uint32_t pid)
{
    struct sl_error why = {0};
    struct sl_pins *pins = NULL;
    char segment[64];
    snprintf(segment, sizeof(segment), "pins.%s", name);
    struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                      .name = name,
                                      .slot_count = 64,
                                      .access_count = 64,
                                      .self = proc_of(pid),
                                      .pinned_bytes_max = SL_GIB};
    ck_assert_msg(sl_pins_create(&options, &pins, &why) == SL_OK, "%s", why.text);
    ck_assert_int_eq(node_hello_pins(node, name, "client", pid, segment), SL_OK);
    return pins;
}

static uint64_t hash_of(const char *key)
{
    return key == NULL ? 0 : sl_key_hash(key, strlen(key));
}

/* Puts a block of two parts after another one. */
static void put_behind(struct node *node, const char *key, const char *before, uint64_t op_id)
{
    static struct grants grants;
    char names[2][64];
    const char *keys[2];
    struct want wants[2];
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(names[i], sizeof(names[i]), "%s/%u/kv", key, i);
        keys[i] = names[i];
        wants[i] = (struct want){.key = names[i], .length = BLOCK, .group = 1, .part = i};
    }
    struct reserve_ask ask = {.sender = "client.1",
                              .op_id = op_id,
                              .wants = wants,
                              .count = 2,
                              .group_key = key,
                              .part_count = 2,
                              .parent_hash = hash_of(before),
                              .hint = 1};
    ck_assert(node_reserve(node, &ask, &grants));
    node_commit_all(node, "client.1", keys, grants.at, 2, false, NULL);
}

START_TEST(nothing_is_recorded_unless_it_was_asked_for)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);

        settle(node);

        ck_assert_uint_eq(node_metric(node, "recorded_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(stores_are_recorded_with_their_chain_and_size)
    {
        struct node *node = recording_node(NULL, NULL);
        node_client(node, "client.1", 11);
        put_behind(node, "m/a", NULL, 5);
        put_behind(node, "m/b", "m/a", 5);
        put_behind(node, "m/c", "m/b", 6);
        node_put(node, "client.1", "object", 100);

        settle(node);

        recording_read();
        ck_assert_uint_eq(seen.count, 4);
        for (uint32_t i = 0; i < 4; i++) {
            ck_assert_int_eq(seen.events[i].kind, SL_RECORDING_STORE);
            ck_assert_uint_ne(seen.events[i].name, 0);
        }
        ck_assert_uint_eq(seen.events[0].parent, 0);
        ck_assert_uint_eq(seen.events[1].parent, seen.events[0].name);
        ck_assert_uint_eq(seen.events[2].parent, seen.events[1].name);
        ck_assert_uint_eq(seen.events[3].parent, 0);
        ck_assert(!seen.events[1].new_op && seen.events[2].new_op);
        ck_assert_uint_eq(seen.events[0].bytes, 2 * BLOCK);
        ck_assert_uint_eq(seen.events[3].bytes, sl_extent_space(100));
        ck_assert_uint_eq(seen.events[0].hint, 1);
        const uint64_t memory_bytes = 4 * SL_MIB;
        ck_assert_uint_eq(seen.head.memory_bytes, memory_bytes);
        ck_assert_str_eq(seen.head.policy, "density");
        ck_assert_uint_eq(node_metric(node, "recorded_count"), 4);
        recording_end(node);
    }
END_TEST

START_TEST(keys_are_not_in_the_file)
    {
        struct node *node = recording_node(NULL, NULL);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a-name-of-a-customer", 100);
        settle(node);
        recording_read();
        uint64_t hash = hash_of("a-name-of-a-customer");

        static char bytes[65536];
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = read(fd, bytes, sizeof(bytes));
        struct stat about;
        ck_assert_int_eq(fstat(fd, &about), 0);
        ck_assert_int_eq(close(fd), 0);

        ck_assert_int_gt(length, 0);
        ck_assert_ptr_null(memmem(bytes, (size_t)length, "customer", 8));
        ck_assert_ptr_null(memmem(bytes, (size_t)length, &hash, sizeof(hash)));
        ck_assert_uint_eq(about.st_mode & 0777, 0600);
        recording_end(node);
    }
END_TEST

START_TEST(uses_are_recorded_and_come_before_the_store_that_follows_them)
    {
        struct node *node = recording_node(NULL, NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        put_behind(node, "m/a", NULL, 5);
        ck_assert(node_entry(node, "m/a/0/kv", &entry));
        sl_pins_note_access(pins, entry.ref, entry.extent.generation);

        put_behind(node, "m/b", "m/a", 6);

        settle(node);
        recording_read();
        ck_assert_uint_eq(seen.count, 3);
        ck_assert_int_eq(seen.events[1].kind, SL_RECORDING_LOAD);
        ck_assert_uint_eq(seen.events[1].name, seen.events[0].name);
        ck_assert_uint_eq(seen.events[1].bytes, 0); /* as requested */
        ck_assert_int_eq(seen.events[2].kind, SL_RECORDING_STORE);
        sl_pins_destroy(&pins);
        recording_end(node);
    }
END_TEST

START_TEST(accesses_that_were_overwritten_are_told_as_lost)
    {
        struct node *node = recording_node(NULL, NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);
        ck_assert(node_entry(node, "k", &entry));
        for (uint32_t i = 0; i < 100; i++) { /* a ring of 64 */
            sl_pins_note_access(pins, entry.ref, entry.extent.generation);
        }

        settle(node);
        node_put(node, "client.1", "l", BLOCK);
        settle(node);

        recording_read();
        uint32_t loads = 0;
        uint64_t lost = 0;
        for (uint32_t i = 0; i < seen.count; i++) {
            loads += seen.events[i].kind == SL_RECORDING_LOAD;
            lost += seen.events[i].count;
        }
        ck_assert_uint_eq(loads, 64);
        ck_assert_uint_eq(lost, 36);
        ck_assert_uint_eq(node_metric(node, "access_lost_count"), 36);
        ck_assert_uint_eq(node_metric(node, "record_lost_count"), 36);
        sl_pins_destroy(&pins);
        recording_end(node);
    }
END_TEST

START_TEST(a_removal_is_recorded_and_an_eviction_is_not)
    {
        struct node *node = recording_node(NULL, NULL);
        char key[16];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 5; i++) { /* the first is evicted */
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, SL_MIB);
        }
        ck_assert_int_eq(node_remove(node, "client.1", "k4"), SL_OK);

        settle(node);

        recording_read();
        ck_assert_uint_eq(seen.count, 6);
        ck_assert_int_eq(seen.events[5].kind, SL_RECORDING_GONE);
        ck_assert_uint_eq(seen.events[5].name, seen.events[4].name);
        recording_end(node);
    }
END_TEST

START_TEST(a_new_registrar_goes_on_behind_the_last_whole_frame)
    {
        struct node *node = recording_node(NULL, NULL);
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);
        settle(node);
        recording_read();
        uint64_t name = seen.events[0].name;
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        ck_assert_int_eq(write(fd, "SLRM torn", 9), 9); /* as a kill leaves it */
        ck_assert_int_eq(close(fd), 0);

        node_restart(node);
        settle(node);
        ck_assert_int_eq(node_remove(node, "client.1", "k"), SL_OK);
        node_put(node, "client.1", "k", BLOCK);
        settle(node);

        recording_read();
        ck_assert_uint_eq(seen.count, 4);
        ck_assert_int_eq(seen.events[1].kind, SL_RECORDING_AGAIN);
        ck_assert_int_eq(seen.events[2].kind, SL_RECORDING_GONE);
        ck_assert_uint_eq(seen.events[3].name, name); /* the salt is the same */
        ck_assert_uint_ge(seen.events[3].at_us, seen.events[0].at_us);
        ck_assert_uint_eq(seen.torn_bytes, 9); /* readers skip it */
        recording_end(node);
    }
END_TEST

START_TEST(an_old_recording_keeps_its_bytes_under_another_name)
    {
        struct node *node = recording_node(NULL, NULL);
        char old[140];
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);
        settle(node);
        recording_read();
        uint64_t name = seen.events[0].name;
        node_end(node);

        node = node_start((const char *[]){"record", path, NULL}); /* another life */
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "other", BLOCK);
        settle(node);

        recording_read();
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_uint_ne(seen.events[0].name, name);
        (void)snprintf(old, sizeof(old), "%s.1", path);
        recording_read_from(old);
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_uint_eq(seen.events[0].name, name);
        recording_end(node);
    }
END_TEST

START_TEST(a_file_of_somebody_else_is_left_alone)
    {
        (void)snprintf(path, sizeof(path), "/dev/shm/sl-recorder-%d", (int)getpid());
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        ck_assert_int_eq(write(fd, "a letter", 8), 8);

        struct node *node = node_start((const char *[]){"record", path, NULL});
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);
        settle(node);

        struct stat about;
        ck_assert_int_eq(fstat(fd, &about), 0);
        ck_assert_int_eq(about.st_size, 8);
        ck_assert_int_eq(close(fd), 0);
        ck_assert(node_is_visible(node, "k")); /* the node still serves */
        ck_assert(!((struct registrar *)node->fake.state)->recorder->on);
        recording_end(node);
    }
END_TEST

START_TEST(two_nodes_do_not_record_into_one_file)
    {
        struct node *node = recording_node(NULL, NULL);
        settle(node);

        struct node *other = node_start((const char *[]){"record", path, NULL});
        settle(other);

        ck_assert(((struct registrar *)node->fake.state)->recorder->on);
        ck_assert(!((struct registrar *)other->fake.state)->recorder->on);
        node_end(other);
        recording_end(node);
    }
END_TEST

START_TEST(a_recording_ends_at_its_largest_size_and_says_so)
    {
        struct node *node = recording_node("record_max", "64KiB");
        char key[24];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 9000; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 4096);
        }
        settle(node);

        recording_read();
        struct stat about;
        ck_assert_int_eq(stat(path, &about), 0);
        ck_assert_uint_le((uint64_t)about.st_size, 64 * SL_KIB);
        ck_assert_uint_ge((uint64_t)about.st_size, 60 * SL_KIB);
        ck_assert_int_eq(seen.events[seen.count - 1].kind, SL_RECORDING_FULL);
        ck_assert(!((struct registrar *)node->fake.state)->recorder->on);
        node_restart(node); /* and that persists */
        settle(node);
        ck_assert(!((struct registrar *)node->fake.state)->recorder->on);
        recording_read();
        ck_assert_int_eq(seen.events[seen.count - 1].kind, SL_RECORDING_FULL);
        recording_end(node);
    }
END_TEST

START_TEST(a_disk_that_hangs_costs_events_and_nobody_waits)
    {
        struct node *node = recording_node(NULL, NULL);
        char key[24];
        node_client(node, "client.1", 11);
        settle(node);
        node->fake.job_held = true;
        for (uint32_t i = 0; i < 60000; i++) { /* two buffers and more */
            snprintf(key, sizeof(key), "k%u", i % 700);
            if (i >= 700) {
                ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
            }
            node_put(node, "client.1", key, 4096);
        }
        node->fake.job_held = false;
        if (node->fake.held_job != NULL) {
            fake_job_run(&node->fake, SL_NS_PER_MS);
        }
        settle(node);
        node_put(node, "client.1", "last", 4096);
        settle(node);

        uint64_t lost = node_metric(node, "record_lost_count");
        uint64_t recorded = node_metric(node, "recorded_count");
        ck_assert_uint_gt(lost, 1000);
        ck_assert_uint_eq(recorded + lost, 60000 + 60000 - 700 + 1 + 1); /* and LOST itself */
        recording_end(node);
    }
END_TEST

START_TEST(a_drain_writes_what_is_in_buffers_and_rings)
    {
        struct node *node = recording_node(NULL, NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of(node, "client.1", 11);
        node_put(node, "client.1", "k", BLOCK);
        settle(node);
        ck_assert(node_entry(node, "k", &entry));
        sl_pins_note_access(pins, entry.ref, entry.extent.generation);

        node->fake.actor->drain(node->fake.state);

        recording_read();
        ck_assert_uint_eq(seen.count, 2);
        ck_assert_int_eq(seen.events[1].kind, SL_RECORDING_LOAD);
        sl_pins_destroy(&pins);
        recording_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_recorder");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, nothing_is_recorded_unless_it_was_asked_for);
    tcase_add_test(all, stores_are_recorded_with_their_chain_and_size);
    tcase_add_test(all, keys_are_not_in_the_file);
    tcase_add_test(all, uses_are_recorded_and_come_before_the_store_that_follows_them);
    tcase_add_test(all, accesses_that_were_overwritten_are_told_as_lost);
    tcase_add_test(all, a_removal_is_recorded_and_an_eviction_is_not);
    tcase_add_test(all, a_new_registrar_goes_on_behind_the_last_whole_frame);
    tcase_add_test(all, an_old_recording_keeps_its_bytes_under_another_name);
    tcase_add_test(all, a_file_of_somebody_else_is_left_alone);
    tcase_add_test(all, two_nodes_do_not_record_into_one_file);
    tcase_add_test(all, a_recording_ends_at_its_largest_size_and_says_so);
    tcase_add_test(all, a_disk_that_hangs_costs_events_and_nobody_waits);
    tcase_add_test(all, a_drain_writes_what_is_in_buffers_and_rings);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
