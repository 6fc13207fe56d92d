/* tests/unit/registrar_outlived_test.c - a client that outlives the process that it is to the node, and
 * a process that outlives its clients. */
#include "actors/registrar/base/events.h"
#include "actors/registrar/parts.h"
#include "actors/registrar/presence/peers.h"
#include "tests/unit/registrar_support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG SL_MIB

static struct sl_pins *pins_of(struct node *node, const char *client, const char *segment)
{
    struct sl_pins *pins = NULL;
    const struct sl_pins_options options = {.shm_dir = node->fake.paths.shm_dir,
                                            .name = segment,
                                            .slot_count = 16,
                                            .access_count = 16,
                                            .self = proc_of(11),
                                            .pinned_bytes_max = SL_GIB};
    ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_OK);
    ck_assert_int_eq(node_hello_pins(node, client, "client", 11, segment), SL_OK);
    return pins;
}

static struct sl_pins *pins_of_standin(struct node *node)
{
    return pins_of(node, "client.1", "pins.client.1.11");
}

/* As the client: a process that has the lock, until it is killed. */
static pid_t pins_hold(const struct node *node)
{
    char path[1100];
    int heard[2];
    char byte = 0;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof(path), "%s/pins.client.1.11", node->fake.paths.shm_dir);
    ck_assert_int_eq(pipe(heard), 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* Not the registrar's lock; and a close of the same file would end ours. */
        int said = dup2(heard[1], STDIN_FILENO);
        (void)close_range(3, ~0U, 0);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && fcntl(fd, F_SETLK, &whole) == 0 && write(said, "x", 1) == 1) {
            (void)pause();
        }
        _exit(1);
    }
    ck_assert_int_gt(pid, 0);
    (void)close(heard[1]);
    ck_assert_int_eq(read(heard[0], &byte, 1), 1);
    (void)close(heard[0]);
    return pid;
}

/* As if there had been no room for the note that has the other name. */
static void note_put_back(struct node *node)
{
    struct registrar *self = node->fake.state;
    struct reg_peer *peer = &self->peers->all[reg_peer_by_proc(self, proc_of(11))];
    const struct { /* format of a peer's note */
        uint32_t version, reserved;
        struct sl_proc_id proc;
        char name[REG_NAME_BYTES], role[REG_NAME_BYTES], segment[64];
    } note = {.version = 1,
              .proc = peer->proc,
              .name = "client.1",
              .role = "client",
              .segment = "pins.client.1.11"};
    sl_ref fresh = 0;
    ck_assert_int_eq(reg_note_put(self, &note, sizeof(note), REG_BLOB_PEER, &fresh, NULL), SL_OK);
    sl_index_set_kind(self->index, peer->blob, SL_RECORD_FREE);
    peer->blob = fresh;
}

START_TEST(a_name_that_is_taken_again_costs_no_pins)
    {
        struct node *node = node_start(NULL);
        struct sl_entry entry;
        struct sl_pins *pins = pins_of_standin(node);
        sl_pin pin;
        node_put(node, "client.1", "a", BIG);
        ck_assert(node_entry(node, "a", &entry));
        ck_assert_int_eq(sl_pins_take(pins, node->view, &entry, &pin), SL_OK);
        pid_t client = pins_hold(node);
        fake_die(&node->fake, proc_of(11));
        node_client(node, "client.1", 12);
        note_put_back(node);
        ck_assert_int_eq(node_remove(node, "client.1", "a"), SL_OK); /* retired */

        node_restart(node);
        fake_die(&node->fake, proc_of(11)); /* a watch of the dead is told at once elsewhere */

        ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
        node_put(node, "client.1", "b", BIG); /* known without another hello */
        ck_assert(reg_peer_present(node->fake.state, proc_of(11), REG_NONE));
        ck_assert(reg_peer_present(node->fake.state, proc_of(12), REG_NONE));
        ck_assert_int_eq(kill(client, SIGKILL), 0);
        ck_assert_int_eq(waitpid(client, NULL, 0), client);
        fake_pass(&node->fake, SL_NS_PER_S);
        ck_assert(!reg_peer_present(node->fake.state, proc_of(11), REG_NONE));
        ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
        sl_pins_destroy(&pins);
        node_end(node);
    }
END_TEST

/* A client of process 11 with a pin, a claim and a contribution. */
static struct sl_pins *client_with_all(struct node *node, const char *name, const char *segment,
                                       const char *writes)
{
    struct sl_pins *pins = pins_of(node, name, segment);
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
        struct sl_pins *stays = client_with_all(node, "client.1", "pins.client.1", "w");
        for (uint32_t i = 0; i < SL_COUNT(writes); i++) { /* more than clients_max */
            /* A restart does not find which client of a process a claim is of: it stays. */
            uint32_t unclear = closes[_i].restarts ? i : 0;
            struct sl_pins *pins = client_with_all(node, "client.2", "pins.client.2", writes[i]);
            ck_assert_int_eq(node_remove(node, "client.1", "client.2"), SL_OK);
            ck_assert_uint_eq(node_metric(node, "retired_count"), 1);
            ck_assert_uint_eq(node_metric(node, "claim_count"), 2 + unclear);
            ck_assert_uint_eq(node_metric(node, "contribution_count"), 2);

            sl_pins_end(&pins);
            if (closes[_i].restarts) {
                node_restart(node);
            }
            ck_assert_int_eq(node_hello(node, "keyer.0", "keyer", 12), SL_OK); /* a heartbeat */
            fake_pass(&node->fake, SL_NS_PER_S);

            ck_assert_uint_eq(node_metric(node, "peer_count"), 2);
            ck_assert_uint_eq(node_metric(node, "retired_count"), 0);
            ck_assert_uint_eq(node_metric(node, "claim_count"), closes[_i].restarts ? 2 + i : 1);
            ck_assert_uint_eq(node_metric(node, "contribution_count"), 1);
        }
        ck_assert(fake_is_watched(&node->fake, proc_of(11)));
        ck_assert_int_eq(node_remove(node, "client.1", "client.1"), SL_OK);
        fake_pass(&node->fake, SL_NS_PER_S);
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
        struct sl_pins *pins = pins_of(node, "client.1", "pins.client.1");
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
    tcase_add_test(tcase, a_name_that_is_taken_again_costs_no_pins);
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
