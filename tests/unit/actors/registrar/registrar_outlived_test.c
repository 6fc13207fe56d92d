/* tests/unit/actors/registrar/registrar_outlived_test.c - a client that lost its lock while its
 * process lives, and a process that outlives its clients. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/parts.h"
#include "actors/registrar/presence/peers.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_shm_file.h"
#include "tests/unit/actors/registrar/registrar_support.h"

#include <stdlib.h>
#include <string.h>

#define BIG SL_MIB

static struct sl_pins *pins_of(struct node *node, const char *client, uint32_t pid,
                               const char *segment)
{
    struct sl_pins *pins = NULL;
    const struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                            .name = client,
                                            .slot_count = 16,
                                            .access_count = 16,
                                            .self = proc_of(pid),
                                            .pinned_bytes_max = SL_GIB};
    ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
    ck_assert_int_eq(node_hello_pins(node, client, "client", pid, segment), SL_OK);
    return pins;
}

START_TEST(a_client_that_lost_its_lock_keeps_what_it_reads_and_is_refused)
    {
        struct node *node = node_start(NULL);
        const struct sl_proc_id self = {.pid = 11, .start_time = SL_PROC_CLIENT_BIT | 7};
        static const uint32_t requests[] = {SL_MSG_HELLO, SL_MSG_ENGINE_REGISTER, SL_MSG_BRING,
                                            SL_MSG_REMOVE};
        const struct sl_text key = sl_text_of("a");
        struct sl_msg hello = {.type = SL_MSG_HELLO}, reply;
        struct sl_entry entry;
        sl_pin pin;
        struct sl_pins *pins = NULL;
        const struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                                .name = "client.1",
                                                .slot_count = 16,
                                                .access_count = 16,
                                                .self = self,
                                                .pinned_bytes_max = SL_GIB};
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
        hello.body.hello = (struct sl_body_hello){.role = sl_text_of("client"),
                                                  .name = sl_text_of("client.1"),
                                                  .pid = self.pid,
                                                  .start_time = self.start_time,
                                                  .segment = sl_text_of("pins.client.1")};
        fake_process_add(&node->fake, self);
        fake_give(&node->fake, "client.1", &hello);
        ck_assert(fake_take_reply(&node->fake, "client.1", hello.seq, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        node_client(node, "client.2", 12);
        node_put(node, "client.2", "a", BIG);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
        ck_assert_int_eq(node_remove(node, "client.2", "a"), SL_OK); /* retired */

        node->fake.unlocked[node->fake.unlocked_count++] = self;
        if (_i == 1) {
            node_restart(node);
        }
        fake_advance(&node->fake, SL_NS_PER_S);

        ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
        for (uint32_t i = 0; i < SL_COUNT(requests); i++) {
            struct sl_msg asks = hello;
            if (requests[i] == SL_MSG_ENGINE_REGISTER) {
                asks = (struct sl_msg){.type = requests[i]};
                asks.body.engine_register = (struct sl_body_engine_register){
                    .pid = self.pid,
                    .start_time = self.start_time,
                    .name = sl_text_of("engine"),
                    .model = sl_text_of("0123456789abcdef0123456789abcdef"),
                    .key_format = sl_text_of("sluice"),
                    .block_tokens = 16,
                    .world = 1};
            } else if (requests[i] != SL_MSG_HELLO) {
                asks = (struct sl_msg){.type = requests[i]};
                asks.body.bring.keys =
                    (struct sl_texts){.at = &key, .count = 1}; /* in both the first */
            }
            fake_give(&node->fake, "client.1", &asks);
            ck_assert(fake_take_reply(&node->fake, "client.1", asks.seq, &reply));
            ck_assert_msg(reply.code == SL_ERR_STALE, "%s: %s", sl_msg_name(requests[i]),
                          sl_err_text(reply.code));
        }

        fake_process_end(&node->fake, self);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* Each has what a client has before its HELLO: a file, and a block of counters. */
START_TEST(clients_killed_before_their_hello_leave_nothing)
    {
        struct node *node = node_start(NULL);
        const char *shm_dir = node->fake.paths.shm_dir;
        struct sl_counts_sum sum;
        struct sl_pins *pins[2];
        struct sl_counts *counts[2];
        for (uint32_t i = 0; i < 2; i++) {
            const struct sl_proc_id id = {.pid = 11, .start_time = SL_PROC_CLIENT_BIT | i};
            char name[SL_CLIENT_NAME_BYTES];
            sl_client_name(id, name);
            const struct sl_pins_options options = {.shm_dir = shm_dir,
                                                    .name = name,
                                                    .slot_count = 16,
                                                    .access_count = 16,
                                                    .self = id,
                                                    .pinned_bytes_max = SL_GIB};
            ck_assert_int_eq(sl_pins_create(&options, &pins[i], NULL), SL_OK);
            ck_assert_int_eq(sl_counts_open(shm_dir, id, &counts[i], NULL), SL_OK);
            if (i == 0) {
                fake_process_add(&node->fake, id);
            }
        }

        fake_advance(&node->fake, REG_CLIENTS_SWEEP_NS + SL_NS_PER_S);

        ck_assert_int_eq(sl_counts_read(shm_dir, &sum, NULL), SL_OK);
        ck_assert_uint_eq(sum.client_count, 1);
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_shm_file_found found;
            char name[SL_CLIENT_NAME_BYTES], file[SL_PINS_NAME_BYTES];
            sl_client_name((struct sl_proc_id){.pid = 11, .start_time = SL_PROC_CLIENT_BIT | i},
                           name);
            sl_pins_name(name, file);
            ck_assert_int_eq(sl_shm_file_look(shm_dir, file, &found, NULL),
                             i == 0 ? SL_OK : SL_ERR_NOT_FOUND);
            sl_counts_close(&counts[i]);
            sl_pins_destroy(&pins[i]);
        }
        node_end(node);
    }
END_TEST

START_TEST(a_client_whose_lock_is_not_seen_is_refused_by_name)
    {
        struct node *node = node_start(NULL);
        const struct sl_proc_id self = {.pid = 11, .start_time = SL_PROC_CLIENT_BIT | 7};
        struct sl_msg hello = {.type = SL_MSG_HELLO}, reply;
        hello.body.hello = (struct sl_body_hello){.role = sl_text_of("client"),
                                                  .name = sl_text_of("client.1"),
                                                  .pid = self.pid,
                                                  .start_time = self.start_time,
                                                  .segment = sl_text_of("pins.client.1")};
        fake_process_add(&node->fake, self);
        node->fake.unlocked[node->fake.unlocked_count++] = self;

        fake_give(&node->fake, "client.1", &hello);

        ck_assert(fake_take_reply(&node->fake, "client.1", hello.seq, &reply));
        ck_assert_int_eq(reply.code, SL_ERR_UNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(reply.text.at, "the lock of 'pins.client.1'"));
        ck_assert(!fake_is_watched(&node->fake, self));
        ck_assert_uint_eq(node_metric(node, "peer_count"), 0);
        node_end(node);
    }
END_TEST

/* A client with a pin, a claim and a contribution. */
static struct sl_pins *client_with_all(struct node *node, const char *name, uint32_t pid,
                                       const char *segment, const char *writes)
{
    struct sl_pins *pins = pins_of(node, name, pid, segment);
    struct sl_msg lends = {.type = SL_MSG_CONTRIBUTE}, reply;
    struct sl_entry entry;
    sl_pin pin;
    lends.body.contribute.name = sl_text_of(name);
    lends.body.contribute.length_bytes = SL_MIB;
    fake_give(&node->fake, name, &lends);
    ck_assert(fake_take_reply(&node->fake, name, lends.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    node_put(node, name, name, SL_MIB / 4);
    ck_assert(node_entry(node, name, &entry));
    ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
    (void)node_grant(node, name, writes, SL_MIB / 4);
    return pins;
}

static const struct {
    bool restarts; /* the registrar, before it has seen that the client was closed */
} closes[] = {{false}, {true}};
START_TEST(a_closed_client_frees_all_it_had_while_its_process_lives)
    {
        static const char *const settings[] = {"clients_max", "3", "contributions", "true", NULL};
        static const char *const writes[] = {"w0", "w1", "w2", "w3"};
        struct node *node = node_start(settings);
        struct sl_pins *stays = client_with_all(node, "client.1", 11, "pins.client.1", "w");
        for (uint32_t i = 0; i < SL_COUNT(writes); i++) { /* more than clients_max */
            struct sl_pins *pins =
                client_with_all(node, "client.2", 21, "pins.client.2", writes[i]);
            ck_assert_int_eq(node_remove(node, "client.1", "client.2"), SL_OK);
            ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
            ck_assert_uint_eq(node_metric(node, "claim_count"), 2);
            ck_assert_uint_eq(node_metric(node, "contribution_count"), 2);

            sl_pins_end(&pins);
            if (closes[_i].restarts) {
                node_restart(node);
            }
            ck_assert_int_eq(node_hello(node, "keyer.0", "keyer", 12), SL_OK); /* a heartbeat */
            fake_advance(&node->fake, SL_NS_PER_S);

            ck_assert_uint_eq(node_metric(node, "peer_count"), 2);
            ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
            ck_assert_uint_eq(node_metric(node, "claim_count"), 1);
            ck_assert_uint_eq(node_metric(node, "contribution_count"), 1);
        }
        ck_assert(fake_is_watched(&node->fake, proc_of(11)));
        ck_assert_int_eq(node_remove(node, "client.1", "client.1"), SL_OK);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 1); /* the other client reads it */

        sl_pins_end(&stays);
        ck_assert_int_eq(node_hello(node, "keyer.0", "keyer", 12), SL_OK);

        ck_assert_uint_eq(node_metric(node, "peer_count"), 1);
        ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
        ck_assert_uint_eq(node_metric(node, "claim_count"), 0);
        ck_assert_uint_eq(node_metric(node, "contribution_count"), 0);
        ck_assert(!fake_is_watched(&node->fake, proc_of(11)));
        node_end(node);
    }
END_TEST

START_TEST(a_full_table_admits_a_client_when_another_was_closed)
    {
        static const char *const settings[] = {"clients_max", "1", NULL};
        struct node *node = node_start(settings);
        struct sl_pins *pins = pins_of(node, "client.1", 11, "pins.client.1");
        ck_assert_int_eq(node_hello(node, "client.2", "client", 12), SL_ERR_LIMIT);
        sl_pins_end(&pins);
        ck_assert_int_eq(node_hello(node, "client.2", "client", 12), SL_OK);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar: outlived");
    TCase *tcase = tcase_create("outlived");
    tcase_add_loop_test(tcase, a_client_that_lost_its_lock_keeps_what_it_reads_and_is_refused, 0,
                        2);
    tcase_add_test(tcase, clients_killed_before_their_hello_leave_nothing);
    tcase_add_test(tcase, a_client_whose_lock_is_not_seen_is_refused_by_name);
    tcase_add_loop_test(tcase, a_closed_client_frees_all_it_had_while_its_process_lives, 0,
                        SL_COUNT(closes));
    tcase_add_test(tcase, a_full_table_admits_a_client_when_another_was_closed);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
