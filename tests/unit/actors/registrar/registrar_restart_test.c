/* tests/unit/actors/registrar/registrar_restart_test.c - a registrar that is killed and restarted
 * on the same shared memory. */
#include "actors/registrar/records/gone.h"
#include "actors/registrar/records/units.h"
#include "runtime/policy/density/density.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include "runtime/base/sl_clock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct grants grants;
#define BIG SL_MIB

START_TEST(every_committed_object_is_still_there)
    {
        struct node *node = node_start(NULL);
        struct sl_entry before, after;
        char key[16];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 300; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 1 + i * 10);
        }
        node_put_block(node, "client.1", "m/b", 5, 3000, 0);
        ck_assert(node_entry(node, "k7", &before));
        uint64_t used = node_metric(node, "used_bytes");

        node_restart(node);

        for (uint32_t i = 0; i < 300; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert(node_is_visible(node, key));
        }
        ck_assert(node_is_visible(node, "m/b/4"));
        ck_assert(node_entry(node, "k7", &after));
        ck_assert_uint_eq(after.extent.generation, before.extent.generation);
        ck_assert_uint_eq(after.extent.offset_bytes, before.extent.offset_bytes);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), used);
        node_put(node, "client.1", "new", 100); /* the client is known without a new HELLO */
        ck_assert_int_eq(node_remove(node, "client.1", "m/b"), SL_OK);
        ck_assert(!node_is_visible(node, "m/b/0"));
        node_end(node);
    }
END_TEST

START_TEST(recency_survives)
    {
        struct node *node = node_start(NULL);
        char key[8];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, BIG);
        }

        node_restart(node);
        node_put(node, "client.1", "x", BIG);

        ck_assert(!node_is_visible(node, "k0"));
        ck_assert(node_is_visible(node, "k1") && node_is_visible(node, "k2") &&
                  node_is_visible(node, "k3"));
        node_end(node);
    }
END_TEST

START_TEST(reservations_of_the_living_go_on)
    {
        struct node *node = node_start(NULL);
        struct want want = {.key = "a", .length = 5000};
        struct reserve_ask ask = {.sender = "client.1", .op_id = 7, .wants = &want, .count = 1};
        struct sl_item_grant grant;
        node_client(node, "client.1", 11);
        ck_assert(node_reserve(node, &ask, &grants));
        grant = grants.at[0];

        node_restart(node);

        ask.seq = 0;
        ck_assert(node_reserve(node, &ask, &grants)); /* the same op gets the same grant */
        ck_assert_uint_eq(grants.at[0].code, SL_OK);
        ck_assert_uint_eq(grants.at[0].generation, grant.generation);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);
        ck_assert(node_is_visible(node, "a"));
        node_end(node);
    }
END_TEST

START_TEST(reservations_keep_their_deadline)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);
        fake_advance(&node->fake, SL_NS_PER_S);

        node_restart(node);
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 8192);
        node_restart(node); /* and so does a quarantine */
        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 8192);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_ERR_STALE);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_commit_that_was_not_answered_is_answered_by_the_successor)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        struct sl_item_grant grant = node_grant(node, "client.1", "a", 5000);
        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);

        node_restart(node);

        ck_assert_int_eq(node_commit(node, "client.1", "a", &grant), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(what_belongs_to_those_who_died_meanwhile_is_freed)
    {
        struct node *node = node_start(NULL);
        struct want wants[2] = {{.key = "p0", .length = 5000, .group = 1, .part = 0},
                                {.key = "p1", .length = 5000, .group = 1, .part = 1}};
        struct reserve_ask ask = {.sender = "client.1",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};
        node_client(node, "client.1", 11);
        (void)node_grant(node, "client.1", "a", 5000);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "client.1", "p0", &grants.at[0]), SL_OK);
        fake_stop(&node->fake);

        fake_process_end(&node->fake, proc_of(11));
        struct sl_error why;
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);

        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "peer_count"), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_block_half_written_is_completed_by_its_living_owner)
    {
        struct node *node = node_start(NULL);
        struct want wants[2] = {
            {.key = "p0", .length = 5000, .group = 1, .part = 0, .writer = "swapper.0"},
            {.key = "p1", .length = 5000, .group = 1, .part = 1, .writer = "swapper.0"}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};
        ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", 20), SL_OK);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 30), SL_OK);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "coordinator", "p0", &grants.at[0]), SL_OK);

        node_restart(node);
        ck_assert_int_eq(node_commit(node, "coordinator", "p1", &grants.at[1]), SL_OK);

        ck_assert(node_is_visible(node, "p0") && node_is_visible(node, "p1"));
        node_end(node);
    }
END_TEST

/* Killed when the records of _i parts said COMMITTED, and before any other record did. */
START_TEST(a_block_whose_commit_was_cut_short_is_completed_by_its_owner)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct want wants[2] = {
            {.key = "p0", .length = 5000, .group = 1, .part = 0, .writer = "swapper.0"},
            {.key = "p1", .length = 5000, .group = 1, .part = 1, .writer = "swapper.0"}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};
        ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", 20), SL_OK);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 30), SL_OK);
        ck_assert(node_reserve(node, &ask, &grants));
        for (int part = 1; part >= 2 - _i; part--) { /* the last one first, as stores do */
            ck_assert_int_eq(sl_index_commit(self->index, (sl_ref)grants.at[part].ref,
                                             digest_of_key(wants[part].key)),
                             SL_OK);
        }

        node_restart(node);

        ck_assert_int_eq(node_commit(node, "coordinator", "p1", &grants.at[1]), SL_OK);
        ck_assert_int_eq(node_commit(node, "coordinator", "p0", &grants.at[0]), SL_OK);
        ck_assert(node_is_visible(node, "p0") && node_is_visible(node, "p1"));
        ck_assert_uint_eq(node_metric(node, "block_count"), 1);
        node_end(node);
    }
END_TEST

START_TEST(a_block_half_written_is_dropped_at_its_deadline_by_the_successor)
    {
        struct node *node = node_start(NULL);
        struct sl_msg fence, ok = {.code = SL_OK};
        struct want wants[2] = {
            {.key = "p0", .length = 5000, .group = 1, .part = 0, .writer = "swapper.0"},
            {.key = "p1", .length = 5000, .group = 1, .part = 1, .writer = "swapper.0"}};
        struct reserve_ask ask = {.sender = "coordinator",
                                  .op_id = 5,
                                  .wants = wants,
                                  .count = 2,
                                  .group_key = "m/b",
                                  .part_count = 2};
        ck_assert_int_eq(node_hello(node, "coordinator", "coordinator", 20), SL_OK);
        ck_assert_int_eq(node_hello(node, "swapper.0", "swapper", 30), SL_OK);
        ck_assert(node_reserve(node, &ask, &grants));
        ck_assert_int_eq(node_commit(node, "coordinator", "p0", &grants.at[0]), SL_OK);

        node_restart(node);
        fake_advance(&node->fake, 2 * SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "block_count"), 0);
        ck_assert(fake_take(&node->fake, "swapper.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "swapper.0", &fence, &ok);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

static struct sl_pins *client_with_pins(struct node *node)
{
    struct sl_pins *pins = NULL;
    struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                      .name = "client.1",
                                      .slot_count = 16,
                                      .access_count = 16,
                                      .self = proc_of(11),
                                      .pinned_bytes_max = SL_GIB};
    ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
    ck_assert_int_eq(node_hello_pins(node, "client.1", "client", 11, "pins.client.1"), SL_OK);
    return pins;
}

START_TEST(pins_hold_across_a_restart)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = client_with_pins(node);
        sl_pin pin;
        node_put(node, "client.1", "a", BIG);
        node_put(node, "client.1", "b", BIG);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_OK); /* retired */

        node_restart(node);

        ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 2 * BIG);
        struct sl_item_grant grant = node_grant(node, "client.1", "c", 2 * BIG);
        bool apart = grant.offset_bytes + 2 * BIG <= entry.extent.offset_bytes ||
                     grant.offset_bytes >= entry.extent.offset_bytes + BIG;
        ck_assert(apart);
        sl_pins_release(pins, pin);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* Without them, a started registrar would give pinned bytes to others. */
START_TEST(pins_that_cannot_be_opened_stop_the_start)
    {
        struct node *node = node_start(NULL);
        struct sl_error why = {0};
        struct sl_entry entry;
        struct sl_pins *pins = client_with_pins(node);
        sl_pin pin;
        char path[1100];
        char aside[1110];
        node_put(node, "client.1", "a", BIG);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_OK); /* retired */
        snprintf(path, sizeof(path), "%s/pins.client.1", node->fake.paths.shm_dir);
        snprintf(aside, sizeof(aside), "%s.aside", path);
        ck_assert_int_eq(rename(path, aside), 0);
        /* The error of opening a socket (ENXIO) shows nothing about the pins. */
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        ck_assert_uint_lt(strlen(path), sizeof(address.sun_path));
        memcpy(address.sun_path, path, strlen(path) + 1);
        ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        fake_stop(&node->fake);

        ck_assert_int_ne(fake_start(&node->fake, &why), SL_OK);

        fake_stop(&node->fake);
        close(fd);
        ck_assert_int_eq(rename(aside, path), 0);
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), BIG);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* The same for pins in another release's layout, whose contents are unknown. */
START_TEST(pins_of_another_layout_stop_the_start_while_their_process_lives)
    {
        struct node *node = node_start(NULL);
        struct sl_error why = {0};
        struct sl_pins *pins = client_with_pins(node);
        char path[1100];
        uint32_t layout = 4711, known = 0;
        snprintf(path, sizeof(path), "%s/pins.client.1", node->fake.paths.shm_dir);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_eq(pread(fd, &known, sizeof(known), 20), sizeof(known));
        ck_assert_int_eq(pwrite(fd, &layout, sizeof(layout), 20), sizeof(layout));
        fake_stop(&node->fake);

        ck_assert_int_eq(fake_start(&node->fake, &why), SL_ERR_VERSION);

        ck_assert_msg(strstr(why.text, "'pins.client.1' has layout 4711") != NULL, "%s", why.text);
        fake_stop(&node->fake);
        ck_assert_int_eq(pwrite(fd, &known, sizeof(known), 20), sizeof(known));
        close(fd);
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

START_TEST(a_table_too_small_for_the_living_stops_the_start)
    {
        struct node *node = node_start(NULL);
        struct sl_error why = {0};
        char name[16];
        for (uint32_t i = 0; i < 9; i++) {
            snprintf(name, sizeof(name), "client.%u", i);
            node_client(node, name, 11 + i);
        }
        fake_set(&node->fake, "clients_max", "8");
        fake_stop(&node->fake);

        ck_assert_int_eq(fake_start(&node->fake, &why), SL_ERR_CONFIG);

        fake_stop(&node->fake);
        fake_set(&node->fake, "clients_max", "9");
        ck_assert_int_eq(fake_start(&node->fake, &why), SL_OK);
        ck_assert_uint_eq(node_metric(node, "peer_count"), 9);
        node_end(node);
    }
END_TEST

START_TEST(what_is_not_on_disk_yet_is_queued_again)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        node_put(node, "client.1", "b", 5000);
        struct sl_entry a;
        ck_assert(node_entry(node, "a", &a));

        node_restart(node);

        ck_assert_uint_eq(node_metric(node, "write_behind_pending_count"), 1);
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 1);
        struct sl_msg request;
        ck_assert(!fake_take(&node->fake, "tierer.0", SL_MSG_DISK_WRITE,
                             &request)); /* not before it has reported its values */
        struct found found = {
            .key = "a", .length = 5000, .segment = a.disk.segment, .offset = a.disk.offset_bytes};
        sl_err code;
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_OK);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert_uint_eq(node_metric(node, "disk_object_count"), 2);
        node_end(node);
    }
END_TEST

static uint64_t remove_ask(struct node *node, const char *name)
{
    struct sl_text key = sl_text_of(name);
    struct sl_msg msg = {.type = SL_MSG_REMOVE, .budget_ns = 60 * SL_NS_PER_S};
    msg.body.remove.keys = (struct sl_texts){.at = &key, .count = 1};
    fake_give(&node->fake, "client.1", &msg);
    return msg.seq;
}

/* A removal that the disk has not confirmed when the registrar dies: of an object on disk, and of
 * one that is being written. */
START_TEST(a_removal_under_way_is_finished_by_the_successor)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        struct found found = {.key = "a", .length = 5000, .segment = 1, .offset = 1 << 20};
        struct sl_entry entry;
        struct sl_msg reply;
        sl_err code;
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", "a", 5000);
        if (_i == 0) {
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
            ck_assert(node_entry(node, "a", &entry));
            found.segment = entry.disk.segment;
            found.offset = entry.disk.offset_bytes;
        }
        uint64_t seq = remove_ask(node, "a");
        ck_assert(!fake_take_reply(&node->fake, "client.1", seq, &reply));

        node_restart(node);
        seq = remove_ask(node, "a"); /* sent again */

        ck_assert(!node_is_visible(node, "a"));
        tierer_found(node, &found, 1, true, true, &code);
        ck_assert_int_eq(code, SL_ERR_NOT_FOUND);
        ck_assert(!node_is_visible(node, "a"));
        ck_assert(!fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert(fake_take_reply(&node->fake, "client.1", seq, &reply));
        ck_assert_uint_eq(reply.body.remove_reply.codes.at[0], SL_OK);
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_ERR_NOT_FOUND);
        node_restart(node); /* and no work is left */
        ck_assert_uint_eq(node_metric(node, "forget_pending_count"), 0);
        node_end(node);
    }
END_TEST

/* A new value under the key is written to disk after the old tombstone, which would otherwise cover
 * it, even if the registrar dies between the two. */
START_TEST(what_is_put_again_after_a_removal_stays)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        struct sl_entry old, fresh;
        sl_err codes[1];
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_ready(node);
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);
        ck_assert(node_entry(node, "a", &old));
        (void)remove_ask(node, "a");
        node_put(node, "client.1", "a", 5000);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);

        if (_i != 0) {
            struct found found = {.key = "a",
                                  .length = 5000,
                                  .segment = old.disk.segment,
                                  .offset = old.disk.offset_bytes};
            node_restart(node);
            tierer_found(node, &found, 1, true, true, codes);
            ck_assert_int_eq(codes[0], SL_ERR_NOT_FOUND);
            ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 0);
        }
        ck_assert_uint_eq(tierer_forget(node, SL_OK), 1);
        ck_assert_uint_eq(tierer_write(node, 1, SL_OK), 1);

        ck_assert(node_entry(node, "a", &fresh));
        ck_assert_uint_ne(fresh.disk.valid, 0);
        node_end(node);
    }
END_TEST

START_TEST(a_promotion_under_way_is_fenced)
    {
        static const char *const settings[] = {"disk", "1GiB", NULL};
        struct node *node = node_start(settings);
        struct found found = {.key = "a", .length = 5000, .segment = 1};
        struct sl_text key = sl_text_of("a");
        struct sl_msg msg = {.type = SL_MSG_BRING}, fence, ok = {.code = SL_OK};
        node_client(node, "client.1", 11);
        tierer_arrive(node, TIERER_PID);
        tierer_found(node, &found, 1, true, true, NULL);
        msg.body.bring.keys = (struct sl_texts){.at = &key, .count = 1};
        fake_give(&node->fake, "client.1", &msg);

        node_restart(node);
        fake_advance(&node->fake, 1);
        node->fake.wake_ns = node->fake.env.now_ns;
        fake_advance(&node->fake, 1);

        ck_assert_uint_eq(node_metric(node, "quarantined_bytes"), 8192);
        tierer_fenced(node);
        ck_assert(fake_take(&node->fake, "tierer.0", SL_MSG_FENCE, &fence));
        fake_answer(&node->fake, "tierer.0", &fence, &ok);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        ck_assert(node_is_visible(node, "a")); /* still on disk */
        node_end(node);
    }
END_TEST

START_TEST(transient_blocks_keep_their_end)
    {
        struct node *node = node_start(NULL);
        node_client(node, "client.1", 11);
        node_put_block(node, "client.1", "m/b", 2, 5000, 3 * SL_NS_PER_S);
        fake_advance(&node->fake, SL_NS_PER_S);

        node_restart(node);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert(node_is_visible(node, "m/b/0"));
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert(!node_is_visible(node, "m/b/0"));
        node_end(node);
    }
END_TEST

static uint32_t notes_of(const struct registrar *self, uint32_t wanted)
{
    struct sl_entry entry;
    uint64_t cursor = 0;
    uint32_t count = 0;
    while (sl_index_walk(self->index, &cursor, &entry)) {
        uint32_t length = 0, tag = 0;
        bool blob = entry.kind == SL_RECORD_BLOB &&
                    sl_index_blob_at(self->index, entry.ref, &length, &tag) != NULL;
        count += blob && tag == wanted;
    }
    return count;
}

/* Killed between the new record and the end of the old one. */
START_TEST(of_two_notes_of_what_was_learnt_one_is_left)
    {
        static unsigned char bytes[SL_DENSITY_SAVED_BYTES];
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct sl_density_stats stats;
        sl_ref note = 0;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "k", 100);
        uint32_t length_bytes = sl_density_save(self->units->density, bytes);
        for (uint32_t i = 0; i < 2; i++) {
            ck_assert_int_eq(
                sl_index_blob_put(self->index, bytes, length_bytes, REG_BLOB_LEARNT, &note, NULL),
                SL_OK);
        }
        ck_assert_uint_eq(notes_of(self, REG_BLOB_LEARNT), 2);

        node_restart(node);

        self = node->fake.state;
        ck_assert_uint_eq(notes_of(self, REG_BLOB_LEARNT), 1);
        stats = sl_density_stats(self->units->density);
        ck_assert(stats.learnt);
        node_end(node);
    }
END_TEST

START_TEST(a_restart_is_no_reference_and_no_time_that_units_spent)
    {
        enum { OBJECTS = 1500 };
        static float learnt[SL_DENSITY_SAVED_BYTES / sizeof(float)];
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        char key[16];
        node_client(node, "client.1", 11);
        for (uint32_t i = 0; i < OBJECTS; i++) {
            snprintf(key, sizeof(key), "k%u", i);
            node_put(node, "client.1", key, 64);
        }
        node_put_block(node, "client.1", "m/b", 1, 64, 0); /* its record says when it was used */
        uint64_t references = sl_density_stats(self->units->density).reference_count;

        node_restart(node);

        self = node->fake.state;
        ck_assert_uint_eq(sl_density_stats(self->units->density).reference_count, references);
        for (uint32_t i = 0; i < OBJECTS; i++) { /* each is in the cell that counts it */
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
        }
        node_put(node, "client.1", "k", 64);
        double spent = 0;
        (void)sl_density_save(self->units->density, learnt);
        for (uint32_t i = 4; i < 4 + SL_DENSITY_CELLS; i++) {
            spent += (double)learnt[i];
        }
        ck_assert_msg(spent <= (double)(references + 1) * (OBJECTS + 2), "%g", spent);
        node_end(node);
    }
END_TEST

static const struct {
    uint64_t units, lots;
} kept_lots[] = {{0, 0},      {1, 1},      {333, 1},    {334, 2},    {2000, 12},   {10000, 60},
                 {11000, 65}, {22000, 65}, {65000, 65}, {67000, 67}, {100000, 100}};

START_TEST(lots_that_are_worth_keeping_follow_the_units)
    {
        ck_assert_uint_eq(reg_gone_lots(kept_lots[_i].units), kept_lots[_i].lots);
    }
END_TEST

START_TEST(what_left_is_known_to_the_next_registrar)
    {
        struct node *node = node_start(NULL);
        struct registrar *self = node->fake.state;
        struct sl_density_stats stats;
        struct reg_judgement judged;
        struct sl_entry entry;
        char key[32];
        node_client(node, "client.1", 11);
        uint32_t put = 0;
        for (; notes_of(self, REG_BLOB_GONE) < 2; put++) {
            ck_assert_uint_lt(put, 8 * REG_GONE_LOT);
            (void)snprintf(key, sizeof(key), "k%u", put);
            node_put(node, "client.1", key, 4096);
        }

        node_restart(node);

        self = node->fake.state;
        ck_assert_uint_eq(sl_density_stats(self->units->density).ghost_count, 0);
        fake_advance(&node->fake, SL_NS_PER_MS); /* after the first answers */
        stats = sl_density_stats(self->units->density);
        ck_assert_uint_eq(stats.ghost_count, 2 * REG_GONE_LOT);
        ck_assert_uint_eq(notes_of(self, REG_BLOB_GONE), 2);
        ck_assert(!node_is_visible(node, "k0"));
        node_put(node, "client.1", "k0", 4096);
        ck_assert_int_eq(sl_index_find_any(self->index, "k0", 2, &entry), SL_OK);
        reg_unit_judge(self, entry.ref, &judged);
        ck_assert_uint_eq(judged.use_count, 2);
        for (; self->gone->next < 4; put++) { /* the ring continues */
            ck_assert_uint_lt(put, 16 * REG_GONE_LOT);
            (void)snprintf(key, sizeof(key), "k%u", put);
            node_put(node, "client.1", key, 4096);
        }
        ck_assert_uint_ge(notes_of(self, REG_BLOB_GONE), 2);
        ck_assert_uint_le(notes_of(self, REG_BLOB_GONE),
                          reg_gone_lots(sl_density_stats(self->units->density).unit_count));
        node_end(node);
    }
END_TEST

START_TEST(the_boot_generation_tells_a_new_registrar)
    {
        struct node *node = node_start(NULL);
        struct sl_msg msg = {.type = SL_MSG_HELLO}, reply;
        struct sl_proc_id proc = proc_of(11);
        fake_process_add(&node->fake, proc);
        msg.body.hello = (struct sl_body_hello){.role = sl_text_of("client"),
                                                .name = sl_text_of("client.1"),
                                                .pid = 11,
                                                .start_time = proc.start_time};
        fake_give(&node->fake, "client.1", &msg);
        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        uint64_t first = reply.body.hello_reply.boot_generation;

        node_restart(node);
        msg.seq = 0;
        fake_give(&node->fake, "client.1", &msg);

        ck_assert(fake_take_reply(&node->fake, "client.1", msg.seq, &reply));
        ck_assert_uint_gt(reply.body.hello_reply.boot_generation, first);
        ck_assert_uint_eq(reply.body.hello_reply.arena_count, 1);
        node_end(node);
    }
END_TEST

START_TEST(a_second_registrar_is_kept_out)
    {
        struct node *node = node_start(NULL);
        struct sl_error why = {0};
        void *state = calloc(1, sl_registrar_actor.state_bytes);

        sl_err err = sl_registrar_actor.init(state, &node->fake.env, &why);

        ck_assert_int_eq(err, SL_ERR_BUSY);
        ck_assert_ptr_nonnull(strstr(why.text, "registrar.lock"));
        sl_registrar_actor.fini(state);
        free(state);
        node_client(node, "client.1", 11); /* the first one continues */
        node_end(node);
    }
END_TEST

/* Writes one more record while no registrar lives, as any process with the same uid could. */
static void index_insert_behind(struct node *node, const char *key, const struct sl_extent *extent)
{
    struct sl_arena *arena = NULL;
    struct sl_index *index = NULL;
    bool created = false;
    struct sl_error why = {0};
    sl_ref ref = 0;
    struct sl_arena_options arena_options = {
        .directory = node->fake.paths.shm_dir, .data_bytes = 4 * SL_MIB, .chunk_bytes = 4 * SL_MIB};
    ck_assert_msg(sl_arena_open_owner(&arena_options, &created, &arena, &why) == SL_OK, "%s",
                  why.text);
    struct sl_index_options options = {
        .shm_dir = node->fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = arena};
    ck_assert_msg(sl_index_open(&options, &created, &index, &why) == SL_OK, "%s", why.text);
    ck_assert(!created);
    sl_index_recover(index, NULL, NULL);
    struct sl_entry want = {.extent = *extent, .key = key, .key_length = (uint16_t)strlen(key)};
    ck_assert_int_eq(sl_index_insert(index, &want, &ref, &why), SL_OK);
    sl_index_close(&index);
    sl_arena_close(&arena);
}

/* Records that no registrar can have written are dropped; the rest is counted once. */
static const struct {
    const char *what;
    bool own_space;
    uint64_t generation; /* 0: any is valid */
    uint64_t length;
} unauth[] = {
    {"the extent of another record", false, 0, 100},
    {"a generation that was never given out", true, UINT64_MAX, 100},
    {"no bytes", true, 0, 0},
    {"neither in memory nor on disk", true, 0, 200},
};
START_TEST(a_record_that_no_registrar_wrote_is_dropped)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        node_client(node, "client.1", 11);
        node_put(node, "client.1", "a", 100);
        ck_assert(node_entry(node, "a", &entry));
        uint64_t used = node_metric(node, "used_bytes");
        struct sl_extent extent = entry.extent;
        extent.offset_bytes += unauth[_i].own_space ? 64 * 4096 : 0;
        extent.generation = unauth[_i].generation != 0 ? unauth[_i].generation
                            : unauth[_i].length == 200 ? 0
                                                       : extent.generation - 1;
        extent.length_bytes = unauth[_i].length;
        fake_stop(&node->fake);
        index_insert_behind(node, "b", &extent);
        struct sl_error why = {0};
        ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);

        ck_assert_msg(node_is_visible(node, "a") != node_is_visible(node, "b"), "%s",
                      unauth[_i].what);
        ck_assert(unauth[_i].own_space ? node_is_visible(node, "a") : true);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), used);
        ck_assert_int_eq(node_remove(node, "client.1", node_is_visible(node, "a") ? "a" : "b"),
                         SL_OK);
        ck_assert_uint_eq(node_metric(node, "used_bytes"), 0);
        node_end(node);
    }
END_TEST

START_TEST(churn_and_restarts_lose_nothing)
    {
        static const char *const settings[] = {"memory", "16MiB", "memory_chunk", "16MiB", NULL};
        struct node *node = node_start(settings);
        uint64_t seed = 99;
        char key[24];
        node_client(node, "client.1", 11);
        for (uint32_t round = 0; round < 10; round++) {
            for (uint32_t i = 0; i < 100; i++) {
                seed = seed * UINT64_C(6364136223846793005) + 1;
                snprintf(key, sizeof(key), "r%u.%u", round, i);
                if (i % 5 == 0) {
                    node_put_block(node, "client.1", key, 1 + (uint32_t)(seed >> 40) % 4,
                                   1 + (seed >> 33) % 3000, 0);
                } else {
                    node_put(node, "client.1", key, 1 + (seed >> 33) % 9000);
                }
                if (i % 9 == 0) {
                    ck_assert_int_eq(node_remove(node, "client.1", key), SL_OK);
                }
            }
            uint64_t used = node_metric(node, "used_bytes");
            node_restart(node);
            ck_assert_uint_eq(node_metric(node, "used_bytes"), used);
        }
        for (uint32_t round = 0; round < 10; round++) {
            for (uint32_t i = 0; i < 100; i++) {
                snprintf(key, sizeof(key), i % 5 == 0 ? "r%u.%u/0" : "r%u.%u", round, i);
                ck_assert(node_is_visible(node, key) == (i % 9 != 0));
            }
        }
        node_end(node);
    }
END_TEST

START_TEST(a_hundred_thousand_objects_are_back_quickly)
    {
        static const char *const settings[] = {"memory",           "256MiB",       "memory_chunk",
                                               "256MiB",           "index_memory", "512MiB",
                                               "reservations_max", "65536",        NULL};
        static char names[NODE_ITEMS_MAX][24];
        static const char *keys[NODE_ITEMS_MAX];
        static struct want wants[NODE_ITEMS_MAX];
        struct node *node = node_start(settings);
        const char *more = getenv("SLUICE_TEST_BATCHES"); /* 250: a million objects */
        uint32_t batches = more != NULL ? (uint32_t)strtoul(more, NULL, 10) : 25;
        node_client(node, "client.1", 11);
        uint64_t began_ns = sl_clock_monotonic_ns();
        for (uint32_t batch = 0; batch < batches; batch++) {
            for (uint32_t i = 0; i < NODE_ITEMS_MAX; i++) {
                snprintf(names[i], sizeof(names[i]), "k%u.%u", batch, i);
                keys[i] = names[i];
                wants[i] = (struct want){.key = names[i], .length = 64};
            }
            struct reserve_ask ask = {
                .sender = "client.1", .op_id = batch + 1, .wants = wants, .count = NODE_ITEMS_MAX};
            ck_assert(node_reserve(node, &ask, &grants));
            node_commit_all(node, "client.1", keys, grants.at, NODE_ITEMS_MAX, false, NULL);
        }
        uint64_t put_ns = sl_clock_monotonic_ns();

        node_restart(node);

        uint64_t back_ns = sl_clock_monotonic_ns();
        printf("%u objects: %.0f ns each to reserve and commit, %.1f ms to restart\n",
               batches * NODE_ITEMS_MAX, (double)(put_ns - began_ns) / (batches * NODE_ITEMS_MAX),
               (double)(back_ns - put_ns) / 1e6);
        ck_assert_uint_eq(node_metric(node, "object_count"), batches * NODE_ITEMS_MAX);
        node_end(node);
    }
END_TEST

static Suite *restart_suite(void)
{
    Suite *suite = suite_create("registrar_restart");
    TCase *restart = tcase_create("restart");
    tcase_set_timeout(restart, 240);
    tcase_add_test(restart, every_committed_object_is_still_there);
    tcase_add_test(restart, recency_survives);
    tcase_add_test(restart, reservations_of_the_living_go_on);
    tcase_add_test(restart, reservations_keep_their_deadline);
    tcase_add_test(restart, a_commit_that_was_not_answered_is_answered_by_the_successor);
    tcase_add_test(restart, what_belongs_to_those_who_died_meanwhile_is_freed);
    tcase_add_test(restart, a_block_half_written_is_completed_by_its_living_owner);
    tcase_add_loop_test(restart, a_block_whose_commit_was_cut_short_is_completed_by_its_owner, 0,
                        3);
    tcase_add_test(restart, a_block_half_written_is_dropped_at_its_deadline_by_the_successor);
    tcase_add_test(restart, pins_hold_across_a_restart);
    tcase_add_test(restart, pins_that_cannot_be_opened_stop_the_start);
    tcase_add_test(restart, pins_of_another_layout_stop_the_start_while_their_process_lives);
    tcase_add_test(restart, a_table_too_small_for_the_living_stops_the_start);
    tcase_add_test(restart, what_is_not_on_disk_yet_is_queued_again);
    tcase_add_loop_test(restart, a_removal_under_way_is_finished_by_the_successor, 0, 2);
    tcase_add_loop_test(restart, what_is_put_again_after_a_removal_stays, 0, 2);
    tcase_add_test(restart, a_promotion_under_way_is_fenced);
    tcase_add_test(restart, transient_blocks_keep_their_end);
    tcase_add_test(restart, of_two_notes_of_what_was_learnt_one_is_left);
    tcase_add_test(restart, a_restart_is_no_reference_and_no_time_that_units_spent);
    tcase_add_test(restart, what_left_is_known_to_the_next_registrar);
    tcase_add_loop_test(restart, lots_that_are_worth_keeping_follow_the_units, 0,
                        SL_COUNT(kept_lots));
    tcase_add_test(restart, the_boot_generation_tells_a_new_registrar);
    tcase_add_test(restart, a_second_registrar_is_kept_out);
    tcase_add_loop_test(restart, a_record_that_no_registrar_wrote_is_dropped, 0, SL_COUNT(unauth));
    tcase_add_test(restart, churn_and_restarts_lose_nothing);
    tcase_add_test(restart, a_hundred_thousand_objects_are_back_quickly);
    suite_add_tcase(suite, restart);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(restart_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
