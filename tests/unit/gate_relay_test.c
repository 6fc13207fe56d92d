/* tests/unit/gate_relay_test.c - messages between a client of another user and its stand-in: what travels, and
 * what of it is said to actors. The rest of the lies is told at a node (tests/node/relay_liar.c). */
#include "client/gate/relay_check.h"
#include "client/gate/relay_memory.h"
#include "cuda/sl_device.h"
#include "ipc/gate_relay.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG_BYTES (SL_GATE_RELAY_FRAME_BYTES_MAX)

struct bed {
    struct sl_gate_relay *one, *other;
};

static struct bed bed_open(void)
{
    struct bed bed = {0};
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    ck_assert_int_eq(sl_gate_relay_open(fds[0], &bed.one, NULL), SL_OK);
    ck_assert_int_eq(sl_gate_relay_open(fds[1], &bed.other, NULL), SL_OK);
    return bed;
}

static void bed_close(struct bed *bed)
{
    sl_gate_relay_close(&bed->one);
    sl_gate_relay_close(&bed->other);
}

static struct sl_gate_relay_event frame_of(const unsigned char *at, size_t length_bytes)
{
    return (struct sl_gate_relay_event){
        .kind = SL_GATE_RELAY_COORDINATOR, .frame = at, .length_bytes = length_bytes, .fd = -1};
}

START_TEST(frames_arrive_whole_and_in_order_however_little_the_socket_takes)
    {
        struct bed bed = bed_open();
        unsigned char *frame = malloc(LONG_BYTES);
        ck_assert_ptr_nonnull(frame);
        for (size_t i = 0; i < LONG_BYTES; i++) {
            frame[i] = (unsigned char)(i * 7 + i / 4099);
        }
        const struct sl_gate_relay_event longest = frame_of(frame, LONG_BYTES),
                                         one = frame_of(frame, 1);
        struct sl_gate_relay_event got = {0};

        ck_assert_int_eq(sl_gate_relay_send(bed.one, &longest), SL_OK);
        ck_assert_int_eq(sl_gate_relay_send(bed.one, &one), SL_ERR_LIMIT); /* too much waits */
        uint32_t turns = 0;
        sl_err err = sl_gate_relay_receive(bed.other, &got);
        for (; err == SL_ERR_NOT_FOUND && turns < 10000; turns++) {
            (void)sl_gate_relay_flush(bed.one);
            err = sl_gate_relay_receive(bed.other, &got);
        }

        ck_assert_int_eq(err, SL_OK);
        ck_assert_uint_gt(turns, 0);
        ck_assert_uint_eq(got.length_bytes, LONG_BYTES);
        ck_assert_int_eq(got.kind, SL_GATE_RELAY_COORDINATOR);
        ck_assert_int_eq(memcmp(got.frame, frame, LONG_BYTES), 0);
        ck_assert(sl_gate_relay_flush(bed.one));
        ck_assert_int_eq(sl_gate_relay_send(bed.one, &one), SL_OK);
        ck_assert_int_eq(sl_gate_relay_receive(bed.other, &got), SL_OK);
        ck_assert_uint_eq(got.length_bytes, 1);
        ck_assert_int_eq(sl_gate_relay_receive(bed.other, &got), SL_ERR_NOT_FOUND);
        bed_close(&bed);
        free(frame);
    }
END_TEST

START_TEST(descriptors_arrive_with_their_numbers)
    {
        struct bed bed = bed_open();
        int fd = memfd_create("lent", MFD_CLOEXEC);
        const struct sl_gate_relay_event lent = {
            .kind = SL_GATE_RELAY_MEMORY, .number = 7, .fd = fd};
        struct sl_gate_relay_event got = {.fd = -1};

        sl_err sent = sl_gate_relay_send(bed.one, &lent);
        sl_err taken = sl_gate_relay_receive(bed.other, &got);

        ck_assert_int_eq(sent, SL_OK);
        ck_assert_int_eq(taken, SL_OK);
        ck_assert_uint_eq(got.number, 7);
        ck_assert_int_ge(got.fd, 0);
        ck_assert_int_ne(fcntl(got.fd, F_GETFD) & FD_CLOEXEC, 0);
        ck_assert(!got.cut);
        close(got.fd);
        close(fd);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_descriptor_that_has_no_room_is_told)
    {
        struct bed bed = bed_open();
        int fd = memfd_create("lent", MFD_CLOEXEC);
        const struct sl_gate_relay_event lent = {
            .kind = SL_GATE_RELAY_MEMORY, .number = 7, .fd = fd};
        struct sl_gate_relay_event got = {.fd = -1};
        const struct rlimit none_more = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = (rlim_t)fd + 1};
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none_more), 0);

        sl_err sent = sl_gate_relay_send(bed.one, &lent);
        sl_err taken = sl_gate_relay_receive(bed.other, &got);

        ck_assert_int_eq(sent, SL_OK);
        ck_assert_int_eq(taken, SL_OK);
        ck_assert_uint_eq(got.number, 7);
        ck_assert_int_eq(got.fd, -1);
        ck_assert(got.cut);
        close(fd);
        bed_close(&bed);
    }
END_TEST

START_TEST(who_is_gone_takes_and_gives_nothing)
    {
        struct bed bed = bed_open();
        const struct sl_gate_relay_event one = frame_of((const unsigned char *)"x", 1);
        struct sl_gate_relay_event got;
        sl_gate_relay_close(&bed.other);

        ck_assert_int_eq(sl_gate_relay_send(bed.one, &one), SL_ERR_UNREACHABLE);
        ck_assert_int_eq(sl_gate_relay_receive(bed.one, &got), SL_ERR_UNREACHABLE);
        bed_close(&bed);
    }
END_TEST

/* ---- what is said to actors ---- */

#define ALICE 61002u
#define BOB   61003u

START_TEST(numbers_of_users_are_their_own)
    {
        uint64_t op = relay_number(ALICE, RELAY_OP, 5);

        ck_assert_uint_eq(op, relay_number(ALICE, RELAY_OP, 5)); /* also by another stand-in */
        ck_assert_uint_ne(op, relay_number(BOB, RELAY_OP, 5));
        ck_assert_uint_ne(op, relay_number(ALICE, RELAY_SESSION, 5));
        ck_assert_uint_ne(op, relay_number(ALICE, RELAY_OP, 6));
        ck_assert_uint_ne(op, 5);
        ck_assert_uint_eq(relay_number(ALICE, RELAY_OP, 0), 0);
        ck_assert_uint_ge(relay_number(ALICE, RELAY_TEAM, SL_TEAM_FIRST + 1), SL_TEAM_FIRST);
    }
END_TEST

struct rules_bed {
    struct relay_memory memories[SL_GATE_RELAY_MEMORIES_MAX];
    struct relay_engine engines[RELAY_ENGINES_MAX];
    struct relay_rules rules;
};

/* Memory 3 has 64 KiB; engine 9 is the client's. */
static void rules_make(struct rules_bed *bed)
{
    *bed = (struct rules_bed){.rules = {.uid = ALICE, .self = {.pid = 44, .start_time = 55}}};
    bed->memories[3] = (struct relay_memory){.state = RELAY_MEMORY_LENT, .length_bytes = 65536};
    bed->engines[1].id = 9;
    bed->rules.memories = bed->memories;
    bed->rules.engines = bed->engines;
}

START_TEST(a_registration_names_the_stand_in_and_its_descriptors)
    {
        struct rules_bed bed;
        rules_make(&bed);
        const struct sl_item_region region = {.handle_kind = SL_MEMORY_SHARED_FD,
                                              .pid = 1,
                                              .fd = 3,
                                              .offset_bytes = 4096,
                                              .length_bytes = 61440,
                                              .handle = {.at = "x", .length = 1},
                                              .gpu = {.at = "x", .length = 1},
                                              .member = 7};
        struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER, .op_id = 5};
        msg.body.engine_register.pid = 1;
        msg.body.engine_register.team = SL_TEAM_FIRST + 2;
        msg.body.engine_register.regions.at = &region;
        msg.body.engine_register.regions.count = 1;
        struct relay_checked checked;

        sl_err got = relay_check(&bed.rules, "registrar", &msg, &checked, NULL);

        const struct sl_body_engine_register *body = &msg.body.engine_register;
        ck_assert_int_eq(got, SL_OK);
        ck_assert_uint_eq(body->pid, 44);
        ck_assert_uint_eq(body->start_time, 55);
        ck_assert_uint_eq(body->team, relay_number(ALICE, RELAY_TEAM, SL_TEAM_FIRST + 2));
        ck_assert_uint_eq(body->regions.at[0].pid, 44);
        ck_assert_uint_eq(body->regions.at[0].start_time, 55);
        ck_assert_int_eq((int)body->regions.at[0].fd, relay_memory_fd(3));
        ck_assert_uint_eq(body->regions.at[0].handle.length + body->regions.at[0].gpu.length, 0);
        ck_assert_uint_eq(body->regions.at[0].member, 0);
        ck_assert_uint_eq(checked.memories, 8);
        ck_assert_uint_eq(msg.op_id, relay_number(ALICE, RELAY_OP, 5));
        relay_checked_free(&checked);
    }
END_TEST

static const struct {
    uint64_t engine_id;
    sl_err want;
} engines[] = {{9, SL_OK}, {8, SL_ERR_NOT_FOUND}, {10, SL_ERR_NOT_FOUND}, {SL_TEAM_FIRST, SL_OK}};
START_TEST(ops_are_of_own_engines)
    {
        struct rules_bed bed;
        rules_make(&bed);
        struct sl_msg store = {.type = SL_MSG_STORE}, load = {.type = SL_MSG_LOAD};
        store.body.store.engine_id = load.body.load.engine_id = engines[_i].engine_id;
        struct relay_checked checked;

        sl_err stored = relay_check(&bed.rules, "coordinator", &store, &checked, NULL);
        sl_err loaded = relay_check(&bed.rules, "coordinator", &load, &checked, NULL);

        ck_assert_int_eq(stored, engines[_i].want);
        ck_assert_int_eq(loaded, engines[_i].want);
        if (engines[_i].engine_id >= SL_TEAM_FIRST) {
            ck_assert_uint_ne(store.body.store.engine_id, engines[_i].engine_id);
        }
    }
END_TEST

START_TEST(nobody_is_waited_for_longer_than_a_minute)
    {
        struct rules_bed bed;
        rules_make(&bed);
        bed.rules.op_timeout_ns = 2 * SL_NS_PER_S;
        static const uint64_t asked_ns[] = {0, 1, 60 * SL_NS_PER_S, 60 * SL_NS_PER_S + 1,
                                            UINT64_MAX};
        static const uint64_t given_ns[] = {2 * SL_NS_PER_S, 1, 60 * SL_NS_PER_S, 60 * SL_NS_PER_S,
                                            60 * SL_NS_PER_S};
        for (uint32_t i = 0; i < SL_COUNT(asked_ns); i++) {
            struct sl_msg pause = {.type = SL_MSG_SESSION_PAUSE, .budget_ns = asked_ns[i]};
            struct relay_checked checked;

            sl_err got = relay_check(&bed.rules, "coordinator", &pause, &checked, NULL);

            ck_assert_int_eq(got, SL_OK);
            ck_assert_uint_eq(pause.budget_ns, given_ns[i]);
            relay_checked_free(&checked);
        }
    }
END_TEST

/* Engine 9 has one rank of two of the team, and blocks of 100 bytes; nothing is known of other teams. */
static const struct {
    uint64_t engine_id, layers, draft_bytes;
    bool stranger;
} layered[] = {{9, 0, 0, false},
               {9, 1, 300, false},
               {SL_TEAM_FIRST + 2, 1, 300, false},
               {SL_TEAM_FIRST + 3, 0, 0, true},
               {SL_TEAM_FIRST + 3, 1, UINT64_MAX, true}};
START_TEST(a_store_by_layers_counts_what_it_reserves)
    {
        static const uint64_t blocks[3] = {1, 2, 3};
        struct rules_bed bed;
        rules_make(&bed);
        bed.engines[1].team = relay_number(ALICE, RELAY_TEAM, SL_TEAM_FIRST + 2);
        bed.engines[1].block_bytes = 100;
        struct sl_msg store = {.type = SL_MSG_STORE, .op_id = 5};
        store.body.store.engine_id = layered[_i].engine_id;
        store.body.store.layer_ends = (struct sl_u64s){.at = blocks, .count = layered[_i].layers};
        store.body.store.layered_blocks = (struct sl_u64s){.at = blocks, .count = 3};
        struct relay_checked checked;

        sl_err got = relay_check(&bed.rules, "coordinator", &store, &checked, NULL);

        ck_assert_int_eq(got, SL_OK);
        ck_assert_uint_eq(checked.draft_bytes, layered[_i].draft_bytes);
        ck_assert_int_eq(checked.stranger, layered[_i].stranger);
        ck_assert_uint_eq(checked.target, store.body.store.engine_id);
    }
END_TEST

START_TEST(a_registration_has_a_bound_and_tells_the_bytes_of_a_block)
    {
        struct rules_bed bed;
        rules_make(&bed);
        struct sl_item_region *regions = calloc(RELAY_REGIONS_MAX + 1, sizeof *regions);
        ck_assert_ptr_nonnull(regions);
        for (uint32_t i = 0; i <= RELAY_REGIONS_MAX; i++) {
            regions[i] = (struct sl_item_region){.handle_kind = SL_MEMORY_SHARED_FD,
                                                 .fd = 3,
                                                 .length_bytes = 1,
                                                 .piece_bytes = 10,
                                                 .rank = i % 2};
        }
        struct sl_msg most = {.type = SL_MSG_ENGINE_REGISTER};
        most.body.engine_register.world = 8;
        most.body.engine_register.regions.at = regions;
        most.body.engine_register.regions.count = RELAY_REGIONS_MAX;
        struct sl_msg more = most;
        more.body.engine_register.regions.count = RELAY_REGIONS_MAX + 1;
        struct relay_checked one, other;

        sl_err got = relay_check(&bed.rules, "registrar", &most, &one, NULL);
        sl_err refused = relay_check(&bed.rules, "registrar", &more, &other, NULL);

        ck_assert_int_eq(got, SL_OK);
        ck_assert_uint_eq(one.block_bytes, UINT64_C(10) * RELAY_REGIONS_MAX / 2 * 8);
        ck_assert_int_eq(refused, SL_ERR_LIMIT);
        relay_checked_free(&one);
        relay_checked_free(&other);
        free(regions);
    }
END_TEST

START_TEST(what_is_not_named_is_refused)
    {
        static const enum sl_msg_type few[] = {
            SL_MSG_ENGINE_REGISTER, SL_MSG_ENGINE_END, SL_MSG_STORE,       SL_MSG_LOAD,
            SL_MSG_CANCEL,          SL_MSG_OP_FENCED,  SL_MSG_LAYER_READY, SL_MSG_LAYER_WAIT,
            SL_MSG_SESSION_PAUSE};
        struct rules_bed bed;
        rules_make(&bed);
        for (uint32_t type = 0; type < 256; type++) {
            struct sl_msg to_registrar = {.type = type}, to_coordinator = {.type = type};
            struct relay_checked checked;
            bool named = false;
            for (uint32_t i = 0; i < SL_COUNT(few); i++) {
                named = named || few[i] == type;
            }

            sl_err one = relay_check(&bed.rules, "registrar", &to_registrar, &checked, NULL);
            relay_checked_free(&checked);
            sl_err other = relay_check(&bed.rules, "coordinator", &to_coordinator, &checked, NULL);
            relay_checked_free(&checked);

            ck_assert_int_eq(one == SL_ERR_PERMISSION && other == SL_ERR_PERMISSION, !named);
            ck_assert(one == SL_ERR_PERMISSION || other == SL_ERR_PERMISSION);
        }
    }
END_TEST

START_TEST(numbers_of_memory_are_taken_from_nobody)
    {
        static struct relay_memories memories;
        struct sl_error why = {0};
        int taken = relay_memory_fd(SL_GATE_RELAY_MEMORIES_MAX - 1);
        ck_assert_int_eq(dup2(STDERR_FILENO, taken), taken);

        sl_err err = relay_memories_open(&memories, &why);

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(why.text, "319"));
        struct stat here, there;
        ck_assert_int_eq(fstat(STDERR_FILENO, &here) | fstat(taken, &there), 0);
        ck_assert(here.st_ino == there.st_ino && here.st_dev == there.st_dev);
    }
END_TEST

START_TEST(a_process_that_may_have_too_few_descriptors_is_told)
    {
        static struct relay_memories memories;
        struct sl_error why = {0};
        struct rlimit few = {.rlim_cur = 300, .rlim_max = 300};
        ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);

        sl_err err = relay_memories_open(&memories, &why);

        ck_assert_int_eq(err, SL_ERR_LIMIT);
        ck_assert_ptr_nonnull(strstr(why.text, "ulimit -n"));
    }
END_TEST

/* Types that one may say, and what is one of them by its envelope alone. */
static const struct {
    uint32_t type;
    sl_err want, whole;
} bodies[] = {{SL_MSG_STORE, SL_OK, SL_OK},
              {SL_MSG_LOAD, SL_ERR_PROTOCOL, SL_ERR_PROTOCOL},
              {SL_MSG_HELLO, SL_ERR_PERMISSION, SL_ERR_PROTOCOL},
              {SL_MSG_ENGINE_REGISTER, SL_ERR_PERMISSION, SL_ERR_PROTOCOL},
              {127, SL_ERR_PERMISSION, SL_ERR_UNSUPPORTED}};
START_TEST(of_a_type_that_is_not_taken_no_body_is_read)
    {
        static const unsigned char hash[32] = {1};
        const enum sl_msg_type *types = NULL;
        uint32_t type_count = relay_types("coordinator", &types);
        struct sl_msg store = {.type = SL_MSG_STORE, .seq = 7, .sender = sl_text_of("x")},
                      got = {0};
        store.body.store.engine_id = 1;
        store.body.store.hashes = (struct sl_bytes){.at = hash, .length = sizeof hash};
        store.body.store.hash_bytes = sizeof hash;
        struct sl_codec *codec = NULL, *other = NULL;
        ck_assert_int_eq(sl_codec_create(SL_MIB, &codec, NULL), SL_OK);
        ck_assert_int_eq(sl_codec_create(SL_MIB, &other, NULL), SL_OK);
        const void *frame = NULL;
        size_t length_bytes = 0;
        ck_assert_int_eq(sl_codec_encode(codec, &store, &frame, &length_bytes, NULL), SL_OK);
        unsigned char *bytes = malloc(length_bytes);
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, frame, length_bytes);
        ck_assert_uint_eq(bytes[3],
                          SL_MSG_STORE); /* behind the heads of both arrays, and the version */
        bytes[3] = (unsigned char)bodies[_i].type;

        sl_err err = sl_codec_decode_of(other, types, type_count, bytes, length_bytes, &got, NULL);
        sl_err whole = sl_codec_decode(codec, bytes, length_bytes, &store, NULL);

        ck_assert_int_eq(err, bodies[_i].want);
        ck_assert_int_eq(whole, bodies[_i].whole);
        if (err == SL_ERR_PERMISSION) {
            ck_assert_uint_eq(got.type, bodies[_i].type);
            ck_assert_uint_eq(got.seq, 7);
        }
        free(bytes);
        sl_codec_destroy(&codec);
        sl_codec_destroy(&other);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("gate_relay");
    TCase *cases = tcase_create("gate_relay");
    tcase_set_timeout(cases, 120);
    tcase_add_test(cases, frames_arrive_whole_and_in_order_however_little_the_socket_takes);
    tcase_add_test(cases, descriptors_arrive_with_their_numbers);
    tcase_add_test(cases, a_descriptor_that_has_no_room_is_told);
    tcase_add_test(cases, who_is_gone_takes_and_gives_nothing);
    tcase_add_test(cases, numbers_of_users_are_their_own);
    tcase_add_test(cases, a_registration_names_the_stand_in_and_its_descriptors);
    tcase_add_loop_test(cases, ops_are_of_own_engines, 0, SL_COUNT(engines));
    tcase_add_test(cases, nobody_is_waited_for_longer_than_a_minute);
    tcase_add_loop_test(cases, a_store_by_layers_counts_what_it_reserves, 0, SL_COUNT(layered));
    tcase_add_test(cases, a_registration_has_a_bound_and_tells_the_bytes_of_a_block);
    tcase_add_test(cases, what_is_not_named_is_refused);
    tcase_add_test(cases, numbers_of_memory_are_taken_from_nobody);
    tcase_add_test(cases, a_process_that_may_have_too_few_descriptors_is_told);
    tcase_add_loop_test(cases, of_a_type_that_is_not_taken_no_body_is_read, 0, SL_COUNT(bodies));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
