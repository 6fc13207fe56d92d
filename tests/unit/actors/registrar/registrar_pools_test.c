/* tests/unit/actors/registrar/registrar_pools_test.c - the table of pools: one owner each, waiters,
 * mappers, and the state after deaths at every step. */
#include "tests/unit/actors/registrar/registrar_support.h"

#define BYTES       UINT64_C(65536)
#define SWAPPER     "swapper.0"
#define SWAPPER_PID 700u
#define ENGINE      "client.1"
#define ENGINE_PID  51u
#define OTHER       "client.2"
#define OTHER_PID   52u
#define ENGINE_GPU  "an engine's UUID" /* 16 bytes */
#define SWAPPER_GPU "a swapper's UUID"

static struct node *node_ready(void)
{
    struct node *node = node_start(NULL);
    node_client(node, ENGINE, ENGINE_PID);
    node_client(node, OTHER, OTHER_PID);
    ck_assert_int_eq(node_hello(node, SWAPPER, "swapper", SWAPPER_PID), SL_OK);
    return node;
}

/* ---- what is asked ---- */

static uint64_t take(struct node *node, const char *who, uint64_t bytes, bool sluice)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_TAKE, .budget_ns = SL_NS_PER_S};
    msg.body.pool_take.name = sl_text_of("deployment");
    msg.body.pool_take.pool = sl_text_of("attention");
    msg.body.pool_take.length_bytes = bytes;
    msg.body.pool_take.sluice = sluice;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t await(struct node *node, const char *who, uint64_t epoch)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_AWAIT, .budget_ns = SL_NS_PER_S};
    msg.body.pool_await.name = sl_text_of("deployment");
    msg.body.pool_await.pool = sl_text_of("attention");
    msg.body.pool_await.epoch = epoch;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t publish(struct node *node, const char *who, uint32_t pid, uint64_t epoch)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_READY};
    msg.body.pool_ready.epoch = epoch;
    msg.body.pool_ready.handle_kind = 1;
    msg.body.pool_ready.pid = pid;
    msg.body.pool_ready.fd = 9;
    msg.body.pool_ready.gpu = (struct sl_bytes){.at = ENGINE_GPU, .length = 16};
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t mapped(struct node *node, const char *who, uint64_t epoch, uint64_t fd)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_MAPPED};
    msg.body.pool_mapped.epoch = epoch;
    msg.body.pool_mapped.has_fd = true;
    msg.body.pool_mapped.fd = fd;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t release(struct node *node, const char *who, uint64_t epoch)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_RELEASE};
    msg.body.pool_release.name = sl_text_of("deployment");
    msg.body.pool_release.pool = sl_text_of("attention");
    msg.body.pool_release.epoch = epoch;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t revoke(struct node *node, const char *who, uint64_t epoch)
{
    struct sl_msg msg = {.type = SL_MSG_POOL_REVOKE, .budget_ns = SL_NS_PER_S};
    msg.body.pool_revoke.epoch = epoch;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

/* ---- what is answered ---- */

static bool silent(struct node *node, const char *who, uint64_t seq)
{
    struct sl_msg reply;
    return !fake_take_reply(&node->fake, who, seq, &reply);
}

static sl_err code_of(struct node *node, const char *who, uint64_t seq)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&node->fake, who, seq, &reply), "no answer to %s", who);
    return reply.code;
}

/* Expects an error and a word of its text. */
static void expect(struct node *node, const char *who, uint64_t seq, sl_err code, const char *word)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&node->fake, who, seq, &reply), "no answer to %s", who);
    ck_assert_int_eq(reply.code, code);
    ck_assert_msg(reply.text.length > 0 && strstr(reply.text.at, word) != NULL, "'%s' lacks '%s'",
                  reply.text.length > 0 ? reply.text.at : "", word);
}

static struct sl_body_pool_await_reply state_of(struct node *node, const char *who, uint64_t seq)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&node->fake, who, seq, &reply), "no answer to %s", who);
    ck_assert_msg(reply.code == SL_OK, "%s: %s", who,
                  reply.text.length > 0 ? reply.text.at : sl_err_name(reply.code));
    return reply.body.pool_await_reply;
}

static void assert_gpu(const struct sl_body_pool_await_reply *state, const char *want)
{
    ck_assert_uint_eq(state->gpu.length, 16);
    ck_assert_mem_eq(state->gpu.at, want, 16);
}

/* The engine makes a pool; returns its epoch. */
static uint64_t engine_owns(struct node *node)
{
    struct sl_body_pool_await_reply state =
        state_of(node, ENGINE, take(node, ENGINE, BYTES, false));
    ck_assert_uint_eq(state.state, 1);
    ck_assert_uint_ne(state.epoch, 0);
    ck_assert_int_eq(code_of(node, ENGINE, publish(node, ENGINE, ENGINE_PID, state.epoch)), SL_OK);
    return state.epoch;
}

static struct sl_msg make_asked(struct node *node)
{
    struct sl_msg make;
    ck_assert(fake_take(&node->fake, SWAPPER, SL_MSG_POOL_MAKE, &make));
    return make;
}

static void make_answered(struct node *node, const struct sl_msg *make, uint32_t pid, sl_err code)
{
    struct sl_msg reply = {.code = code};
    reply.body.pool_make_reply.handle_kind = code == SL_OK ? 1 : 0;
    reply.body.pool_make_reply.pid = pid;
    reply.body.pool_make_reply.fd = 33;
    reply.body.pool_make_reply.inode = 4711;
    reply.body.pool_make_reply.gpu = (struct sl_bytes){.at = SWAPPER_GPU, .length = 16};
    fake_answer(&node->fake, SWAPPER, make, &reply);
}

static bool drop_asked(struct node *node, struct sl_msg *drop)
{
    return fake_take(&node->fake, SWAPPER, SL_MSG_POOL_DROP, drop);
}

static void drop_answered(struct node *node, const struct sl_msg *drop)
{
    struct sl_msg reply = {.code = SL_OK};
    fake_answer(&node->fake, SWAPPER, drop, &reply);
}

/* The swapper makes a pool that the engine asked for and maps; returns its epoch. */
static uint64_t sluice_owns(struct node *node)
{
    uint64_t seq = take(node, ENGINE, BYTES, true);
    struct sl_msg make = make_asked(node);
    uint64_t epoch = make.body.pool_make.epoch;
    ck_assert_uint_eq(make.body.pool_make.length_bytes, BYTES);
    make_answered(node, &make, SWAPPER_PID, SL_OK);
    struct sl_body_pool_await_reply state = state_of(node, ENGINE, seq);
    ck_assert_uint_eq(state.epoch, epoch);
    ck_assert_uint_eq(state.pid, SWAPPER_PID);
    ck_assert_uint_eq(state.fd, 33);
    ck_assert(state.sluice);
    ck_assert_int_eq(code_of(node, ENGINE, mapped(node, ENGINE, epoch, 5)), SL_OK);
    return epoch;
}

/* The state of the only row; 0 if there is none. mappers may be NULL. */
static uint64_t row_state(struct node *node, char mappers[1024], struct sl_item_holding *out)
{
    struct sl_msg msg = {.type = SL_MSG_POOLS}, reply;
    fake_give(&node->fake, "client.9", &msg);
    ck_assert(fake_take_reply(&node->fake, "client.9", msg.seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    if (reply.body.pools_reply.pools.count == 0) {
        return 0;
    }
    ck_assert_uint_eq(reply.body.pools_reply.pools.count, 1);
    if (mappers != NULL) {
        snprintf(mappers, 1024, "%s", reply.body.pools_reply.pools.at[0].mappers.at);
    }
    if (out != NULL) {
        *out = reply.body.pools_reply.pools.at[0];
    }
    return reply.body.pools_reply.pools.at[0].state;
}

/* A registration of process `pid` with one region of the epoch. */
static uint64_t register_engine(struct node *node, uint64_t epoch, uint64_t offset, uint64_t length,
                                uint64_t rank, uint32_t pid, const char *who)
{
    struct sl_item_pool pool = {.name = sl_text_of("attention")};
    struct sl_item_region regions[2] = {{.rank = 0,
                                         .handle_kind = 1,
                                         .pid = pid,
                                         .fd = 3,
                                         .length_bytes = 4096,
                                         .block_stride_bytes = 4096,
                                         .piece_bytes = 4096,
                                         .block_count = 1},
                                        {.rank = 1,
                                         .handle_kind = 1,
                                         .pid = pid,
                                         .fd = 3,
                                         .length_bytes = 4096,
                                         .block_stride_bytes = 4096,
                                         .piece_bytes = 4096,
                                         .block_count = 1}};
    regions[rank].pool_epoch = epoch;
    regions[rank].offset_bytes = offset;
    regions[rank].length_bytes = length;
    struct sl_msg msg = {.type = SL_MSG_ENGINE_REGISTER};
    msg.body.engine_register = (struct sl_body_engine_register){
        .pid = pid,
        .start_time = proc_of(pid).start_time,
        .name = sl_text_of("engine"),
        .model = sl_text_of("0123456789abcdef0123456789abcdef"),
        .key_format = sl_text_of("sluice"),
        .block_tokens = 16,
        .world = 2,
    };
    msg.body.engine_register.pools.at = &pool;
    msg.body.engine_register.pools.count = 1;
    msg.body.engine_register.regions.at = regions;
    msg.body.engine_register.regions.count = 2;
    fake_give(&node->fake, who, &msg);
    return msg.seq;
}

static uint64_t engine_lent(struct node *node, uint64_t epoch)
{
    uint64_t seq = register_engine(node, epoch, 0, BYTES, 0, ENGINE_PID, ENGINE);
    struct sl_msg reply;
    ck_assert(fake_take_reply(&node->fake, ENGINE, seq, &reply));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.length > 0 ? reply.text.at : "");
    return reply.body.engine_register_reply.engine_id;
}

static sl_err engine_known(struct node *node, uint64_t id)
{
    struct sl_msg msg = {.type = SL_MSG_ENGINE_GET}, reply;
    msg.body.engine_get.engine_id = id;
    fake_give(&node->fake, SWAPPER, &msg);
    ck_assert(fake_take_reply(&node->fake, SWAPPER, msg.seq, &reply));
    return reply.code;
}

/* ---- one owner ---- */

START_TEST(a_second_allocation_is_refused_by_the_owners_name)
    {
        struct node *node = node_ready();
        uint64_t first = take(node, ENGINE, BYTES, false);
        ck_assert_int_eq(code_of(node, ENGINE, first), SL_OK);

        expect(node, OTHER, take(node, OTHER, BYTES, false), SL_ERR_BUSY, ENGINE);
        expect(node, OTHER, take(node, OTHER, BYTES, true), SL_ERR_BUSY, ENGINE);
        expect(node, ENGINE, take(node, ENGINE, BYTES + 1, false), SL_ERR_BUSY, ENGINE);

        uint64_t again = take(node, ENGINE, BYTES, false); /* its own, sent again */
        uint64_t epoch = state_of(node, ENGINE, again).epoch;
        ck_assert_int_eq(code_of(node, ENGINE, publish(node, ENGINE, ENGINE_PID, epoch)), SL_OK);
        expect(node, OTHER, take(node, OTHER, BYTES, false), SL_ERR_EXISTS, ENGINE);
        expect(node, OTHER, take(node, OTHER, BYTES, true), SL_ERR_EXISTS, ENGINE);
        node_end(node);
    }
END_TEST

START_TEST(who_waits_hears_ready_and_maps_it)
    {
        struct node *node = node_ready();
        char mappers[1024];
        uint64_t early = await(node, OTHER, 0); /* before it is made */
        ck_assert(silent(node, OTHER, early));

        uint64_t epoch = engine_owns(node);

        struct sl_body_pool_await_reply state = state_of(node, OTHER, early);
        ck_assert_uint_eq(state.state, 2);
        ck_assert_uint_eq(state.epoch, epoch);
        ck_assert_uint_eq(state.length_bytes, BYTES);
        ck_assert_uint_eq(state.pid, ENGINE_PID);
        ck_assert_uint_eq(state.start_time, proc_of(ENGINE_PID).start_time);
        ck_assert_uint_eq(state.fd, 9);
        ck_assert_uint_eq(row_state(node, mappers, NULL), 2);
        ck_assert_str_eq(mappers, OTHER);
        ck_assert_int_eq(code_of(node, OTHER, mapped(node, OTHER, epoch, 4)), SL_OK);
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert_uint_eq(row_state(node, mappers, NULL), 2);
        ck_assert_str_eq(mappers, "");
        node_end(node);
    }
END_TEST

START_TEST(a_wait_ends_by_its_deadline_and_says_for_whom)
    {
        struct node *node = node_ready();
        uint64_t nobody = await(node, OTHER, 0);
        fake_advance(&node->fake, SL_NS_PER_S + SL_NS_PER_MS);
        expect(node, OTHER, nobody, SL_ERR_TIMEOUT, "no process makes it");
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0); /* and no row remains */

        ck_assert_int_eq(code_of(node, ENGINE, take(node, ENGINE, BYTES, false)), SL_OK);
        uint64_t slow = await(node, OTHER, 0);
        fake_advance(&node->fake, SL_NS_PER_S + SL_NS_PER_MS);

        expect(node, OTHER, slow, SL_ERR_TIMEOUT, ENGINE);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 1);
        node_end(node);
    }
END_TEST

START_TEST(the_owners_death_is_heard_at_once)
    {
        struct node *node = node_ready();
        ck_assert_int_eq(code_of(node, ENGINE, take(node, ENGINE, BYTES, false)), SL_OK);
        uint64_t waiting = await(node, OTHER, 0);

        fake_process_end(&node->fake, proc_of(ENGINE_PID));

        expect(node, OTHER, waiting, SL_ERR_PEER_DIED, ENGINE);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        ck_assert_int_eq(code_of(node, OTHER, take(node, OTHER, BYTES, false)), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(an_owner_that_gives_up_is_heard)
    {
        struct node *node = node_ready();
        uint64_t epoch = state_of(node, ENGINE, take(node, ENGINE, BYTES, false)).epoch;
        uint64_t waiting = await(node, OTHER, 0);

        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)),
                         SL_OK); /* not its own */
        ck_assert(silent(node, OTHER, waiting));
        ck_assert_int_eq(code_of(node, ENGINE, release(node, ENGINE, epoch)), SL_OK);

        expect(node, OTHER, waiting, SL_ERR_CANCELLED, ENGINE);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_wait_that_is_given_up_leaves_nothing)
    {
        struct node *node = node_ready();
        (void)await(node, OTHER, 0);
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, 0)), SL_OK);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);

        (void)await(node, OTHER, 0);
        fake_process_end(&node->fake, proc_of(OTHER_PID));
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        (void)engine_owns(node);
        char mappers[1024];
        ck_assert_uint_eq(row_state(node, mappers, NULL), 2);
        ck_assert_str_eq(mappers, ""); /* the dead one no longer maps it */
        node_end(node);
    }
END_TEST

static const struct {
    bool owner; /* else a mapper */
    uint64_t state;
} lates[] = {{.owner = true, .state = 1}, {.owner = false, .state = 2}};

START_TEST(a_release_that_comes_late_is_not_for_what_was_asked_since)
    {
        struct node *node = node_ready();
        uint64_t seq, epoch = 0;
        struct sl_msg late = {.type = SL_MSG_POOL_RELEASE};
        late.body.pool_release.name = sl_text_of("deployment");
        late.body.pool_release.pool = sl_text_of("attention");
        if (lates[_i].owner) {
            seq = take(node, ENGINE, BYTES, false);
            ck_assert_int_eq(code_of(node, ENGINE, seq), SL_OK);
        } else {
            epoch = engine_owns(node);
            seq = await(node, OTHER, 0);
            ck_assert_int_eq(code_of(node, OTHER, seq), SL_OK);
        }
        late.seq = seq - 1;
        late.body.pool_release.epoch = epoch;

        fake_give(&node->fake, lates[_i].owner ? ENGINE : OTHER, &late);

        struct sl_item_holding row = {0};
        ck_assert_uint_eq(row_state(node, NULL, &row), lates[_i].state);
        ck_assert_uint_eq(row.mapper_count, lates[_i].owner ? 0 : 1);
        node_end(node);
    }
END_TEST

START_TEST(a_take_that_comes_late_makes_no_pool)
    {
        struct node *node = node_ready();
        uint64_t seq = take(node, ENGINE, BYTES, false);
        uint64_t epoch = state_of(node, ENGINE, seq).epoch;
        ck_assert_int_eq(code_of(node, ENGINE, release(node, ENGINE, epoch)), SL_OK);
        struct sl_msg late = {.type = SL_MSG_POOL_TAKE, .seq = seq};
        late.body.pool_take.name = sl_text_of("deployment");
        late.body.pool_take.pool = sl_text_of("attention");
        late.body.pool_take.length_bytes = BYTES;

        fake_give(&node->fake, ENGINE, &late);

        ck_assert(silent(node, ENGINE, seq));
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        ck_assert_int_eq(code_of(node, ENGINE, take(node, ENGINE, BYTES, false)), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(a_request_sent_again_waits_once)
    {
        struct node *node = node_ready();
        struct sl_item_holding row = {0};
        struct sl_msg msg = {.type = SL_MSG_POOL_AWAIT, .budget_ns = SL_NS_PER_S};
        msg.body.pool_await.name = sl_text_of("deployment");
        msg.body.pool_await.pool = sl_text_of("attention");
        fake_give(&node->fake, OTHER, &msg);
        msg.budget_ns = SL_NS_PER_S / 2;
        fake_give(&node->fake, OTHER, &msg);

        (void)row_state(node, NULL, &row);
        ck_assert_uint_eq(row.waiter_count, 1);
        node_end(node);
    }
END_TEST

/* ---- epochs ---- */

START_TEST(a_stale_epoch_is_refused)
    {
        struct node *node = node_ready();
        uint64_t old = engine_owns(node);
        fake_process_end(&node->fake, proc_of(ENGINE_PID)); /* the owner restarts */
        node_client(node, "client.3", 53);
        uint64_t epoch = state_of(node, "client.3", take(node, "client.3", BYTES, false)).epoch;
        ck_assert_uint_gt(epoch, old);

        expect(node, OTHER, mapped(node, OTHER, old, 4), SL_ERR_STALE, "over");
        expect(node, OTHER, publish(node, OTHER, OTHER_PID, old), SL_ERR_STALE, "over");
        expect(node, OTHER, publish(node, OTHER, OTHER_PID, epoch), SL_ERR_PERMISSION, "client.3");
        expect(node, OTHER, mapped(node, OTHER, epoch, 4), SL_ERR_STALE, "allocating");
        expect(node, OTHER, revoke(node, OTHER, epoch), SL_ERR_PERMISSION, "client.3");
        ck_assert_int_eq(code_of(node, OTHER, revoke(node, OTHER, old)), SL_OK); /* it is gone */
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, old)), SL_OK);
        ck_assert_uint_eq(state_of(node, OTHER, await(node, OTHER, old)).state, 1);
        expect(node, "client.3", register_engine(node, old, 0, BYTES, 0, 53, "client.3"),
               SL_ERR_STALE, "over");
        node_end(node);
    }
END_TEST

static const struct {
    uint64_t kind, pid, offset, ipc_bytes, gpu_bytes;
} bad_handles[] = {
    {.kind = 4, .pid = ENGINE_PID},                       /* unknown */
    {.kind = 1, .pid = OTHER_PID},                        /* of another process */
    {.kind = 2, .pid = 0},                                /* no handle */
    {.kind = 1, .pid = ENGINE_PID, .offset = UINT64_MAX}, /* overflows */
    {.kind = 1, .pid = ENGINE_PID, .gpu_bytes = 15},      /* no UUID */
};

START_TEST(a_bad_handle_is_refused_and_the_pool_stays_allocating)
    {
        struct node *node = node_ready();
        uint64_t epoch = state_of(node, ENGINE, take(node, ENGINE, BYTES, false)).epoch;
        struct sl_msg msg = {.type = SL_MSG_POOL_READY};
        msg.body.pool_ready.epoch = epoch;
        msg.body.pool_ready.handle_kind = bad_handles[_i].kind;
        msg.body.pool_ready.pid = bad_handles[_i].pid;
        msg.body.pool_ready.offset_bytes = bad_handles[_i].offset;
        msg.body.pool_ready.gpu =
            (struct sl_bytes){.at = ENGINE_GPU, .length = bad_handles[_i].gpu_bytes};

        fake_give(&node->fake, ENGINE, &msg);

        expect(node, ENGINE, msg.seq, SL_ERR_INVALID, "POOL_READY");
        ck_assert_uint_eq(row_state(node, NULL, NULL), 1);
        node_end(node);
    }
END_TEST

START_TEST(strangers_and_bad_names_are_refused)
    {
        struct node *node = node_ready();
        expect(node, "client.77", take(node, "client.77", BYTES, false), SL_ERR_UNREACHABLE,
               "HELLO");
        struct sl_msg msg = {.type = SL_MSG_POOL_AWAIT};
        msg.body.pool_await.name = sl_text_of("deployment");
        msg.body.pool_await.pool = sl_text_of("Attention");
        fake_give(&node->fake, OTHER, &msg);
        expect(node, OTHER, msg.seq, SL_ERR_INVALID, "Attention");
        msg = (struct sl_msg){.type = SL_MSG_POOL_TAKE};
        msg.body.pool_take.name = sl_text_of("deployment");
        msg.body.pool_take.pool = sl_text_of("attention");
        msg.body.pool_take.rank = 7;
        msg.body.pool_take.length_bytes = 1;
        msg.body.pool_take.sluice = true;
        fake_give(&node->fake, OTHER, &msg);
        expect(node, OTHER, msg.seq, SL_ERR_INVALID, "rank");
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(the_table_has_a_bound)
    {
        struct node *node = node_start((const char *const[]){"pools_max", "1", NULL});
        node_client(node, ENGINE, ENGINE_PID);
        ck_assert_int_eq(code_of(node, ENGINE, take(node, ENGINE, BYTES, false)), SL_OK);
        struct sl_msg msg = {.type = SL_MSG_POOL_TAKE};
        msg.body.pool_take.name = sl_text_of("deployment");
        msg.body.pool_take.pool = sl_text_of("mamba");
        msg.body.pool_take.length_bytes = 1;
        fake_give(&node->fake, ENGINE, &msg);
        expect(node, ENGINE, msg.seq, SL_ERR_LIMIT, "pools_max");
        node_end(node);
    }
END_TEST

START_TEST(waiters_have_a_bound_and_one_too_many_leaves_nothing)
    {
        struct node *node = node_start((const char *const[]){"clients_max", "3", NULL});
        struct sl_msg drop;
        node_client(node, ENGINE, ENGINE_PID);
        ck_assert_int_eq(node_hello(node, SWAPPER, "swapper", SWAPPER_PID), SL_OK);
        for (uint32_t i = 0; i < 3; i++) {
            struct sl_msg msg = {.type = SL_MSG_POOL_AWAIT};
            msg.body.pool_await.name = sl_text_of("deployment");
            msg.body.pool_await.pool = sl_text_of("mamba");
            fake_give(&node->fake, ENGINE, &msg);
            ck_assert(silent(node, ENGINE, msg.seq));
        }

        expect(node, ENGINE, take(node, ENGINE, BYTES, true), SL_ERR_LIMIT, "clients_max");

        (void)make_asked(node);
        ck_assert(drop_asked(node, &drop)); /* no engine waits for its pool */
        drop_answered(node, &drop);
        struct sl_item_holding row = {0};
        (void)row_state(node, NULL, &row);
        ck_assert_str_eq(row.pool.at, "mamba");
        node_end(node);
    }
END_TEST

/* ---- revoking ---- */

START_TEST(a_revoke_waits_for_every_mapper)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = engine_owns(node);
        uint64_t id = engine_lent(node, epoch);
        ck_assert_uint_eq(state_of(node, OTHER, await(node, OTHER, 0)).epoch, epoch);
        uint64_t watching = await(node, OTHER, epoch); /* notified when it is over */
        ck_assert(silent(node, OTHER, watching));
        ck_assert_int_eq(node_hello(node, "transporter.0", "transporter", 70), SL_OK);

        uint64_t asked = revoke(node, ENGINE, epoch);

        ck_assert_uint_eq(state_of(node, OTHER, watching).state, 3);
        ck_assert_int_eq(engine_known(node, id), SL_ERR_NOT_FOUND); /* no longer mappable */
        ck_assert(fake_take(&node->fake, "transporter.0", SL_MSG_ENGINE_OVER, &drop));
        ck_assert_uint_eq(drop.body.engine_over.engine_id, id);
        ck_assert(drop_asked(node, &drop));
        ck_assert_uint_eq(drop.body.pool_drop.epoch, epoch);
        drop_answered(node, &drop);
        ck_assert(silent(node, ENGINE, asked)); /* the other still maps it */
        ck_assert_uint_eq(row_state(node, NULL, NULL), 3);
        expect(node, OTHER, mapped(node, OTHER, epoch, 4), SL_ERR_STALE, "revoking");
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert_int_eq(code_of(node, ENGINE, asked), SL_OK);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_mapper_that_dies_has_acknowledged)
    {
        struct node *node = node_ready();
        uint64_t epoch = engine_owns(node);
        (void)engine_lent(node, epoch);
        (void)state_of(node, OTHER, await(node, OTHER, 0));
        uint64_t asked = revoke(node, ENGINE, epoch);

        fake_process_end(&node->fake, proc_of(SWAPPER_PID));
        ck_assert(silent(node, ENGINE, asked));
        fake_process_end(&node->fake, proc_of(OTHER_PID));

        ck_assert_int_eq(code_of(node, ENGINE, asked), SL_OK);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_swapper_that_does_not_answer_is_killed)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = engine_owns(node);
        (void)engine_lent(node, epoch);
        uint64_t asked = revoke(node, ENGINE, epoch);
        ck_assert(drop_asked(node, &drop));

        fake_advance(&node->fake, 1100 * SL_NS_PER_MS); /* fence_timeout */

        ck_assert_uint_eq(node->fake.killed_count, 1);
        ck_assert(sl_proc_id_equal(node->fake.killed[0], proc_of(SWAPPER_PID)));
        expect(node, ENGINE, asked, SL_ERR_TIMEOUT, SWAPPER); /* its second had already passed */
        ck_assert_uint_eq(row_state(node, NULL, NULL), 3);
        fake_process_end(&node->fake, proc_of(SWAPPER_PID));
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_registrar_that_was_stopped_itself_asks_again_before_it_kills)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = engine_owns(node);
        (void)engine_lent(node, epoch);
        (void)revoke(node, ENGINE, epoch);
        ck_assert(drop_asked(node, &drop));
        while (drop_asked(node, &drop)) { /* that was repeated */
        }

        node->fake.env.now_ns += 3 * SL_NS_PER_S; /* SIGSTOP, SIGCONT */
        fake_advance(&node->fake, SL_NS_PER_MS);

        ck_assert_uint_eq(node->fake.killed_count, 0);
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_client_that_does_not_answer_keeps_it_until_it_dies)
    {
        struct node *node = node_ready();
        uint64_t epoch = engine_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));

        uint64_t asked = revoke(node, ENGINE, epoch);
        fake_advance(&node->fake, SL_NS_PER_S + SL_NS_PER_MS);

        expect(node, ENGINE, asked, SL_ERR_TIMEOUT, OTHER);
        ck_assert_uint_eq(node->fake.killed_count, 0);
        fake_advance(&node->fake, 60 * SL_NS_PER_S);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 3);
        uint64_t next = take(node, ENGINE, BYTES, false); /* waits until it no longer exists */
        ck_assert(silent(node, ENGINE, next));
        fake_process_end(&node->fake, proc_of(OTHER_PID));
        ck_assert_uint_gt(state_of(node, ENGINE, next).epoch, epoch);
        node_end(node);
    }
END_TEST

START_TEST(a_take_behind_a_revoke_says_who_is_in_its_way)
    {
        struct node *node = node_ready();
        uint64_t epoch = engine_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));
        (void)revoke(node, ENGINE, epoch);
        uint64_t next = take(node, ENGINE, BYTES, false);

        fake_advance(&node->fake, SL_NS_PER_S + SL_NS_PER_MS);

        expect(node, ENGINE, next, SL_ERR_BUSY, OTHER);
        node_end(node);
    }
END_TEST

START_TEST(what_an_engine_made_ends_with_it)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = engine_owns(node);
        uint64_t id = engine_lent(node, epoch);
        (void)state_of(node, OTHER, await(node, OTHER, 0));
        uint64_t watching = await(node, OTHER, epoch);

        fake_process_end(&node->fake, proc_of(ENGINE_PID));

        ck_assert_uint_eq(state_of(node, OTHER, watching).state, 3);
        ck_assert_int_eq(engine_known(node, id), SL_ERR_NOT_FOUND);
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

/* ---- pools that a swapper makes ---- */

START_TEST(a_swapper_makes_it_for_all_who_ask)
    {
        struct node *node = node_ready();
        uint64_t first = take(node, ENGINE, BYTES, true), second = take(node, OTHER, BYTES, true);
        struct sl_msg make = make_asked(node), more;
        ck_assert(!fake_take(&node->fake, SWAPPER, SL_MSG_POOL_MAKE, &more)); /* once */
        expect(node, OTHER, take(node, OTHER, BYTES + 1, true), SL_ERR_INVALID, "bytes");
        expect(node, OTHER, take(node, OTHER, BYTES, false), SL_ERR_BUSY, SWAPPER);

        make_answered(node, &make, SWAPPER_PID, SL_OK);

        struct sl_body_pool_await_reply state = state_of(node, ENGINE, first);
        ck_assert_uint_eq(state_of(node, OTHER, second).epoch, state.epoch);
        ck_assert_uint_eq(state_of(node, OTHER, take(node, OTHER, BYTES, true)).epoch, state.epoch);
        ck_assert_uint_eq(state_of(node, OTHER, await(node, OTHER, 0)).epoch, state.epoch);
        node_end(node);
    }
END_TEST

START_TEST(a_swapper_that_cannot_says_why)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t asked = take(node, ENGINE, BYTES, true);
        struct sl_msg make = make_asked(node);

        make_answered(node, &make, 0, SL_ERR_UNSUPPORTED);

        expect(node, ENGINE, asked, SL_ERR_UNSUPPORTED, SWAPPER);
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_swapper_that_dies_making_it_is_heard_at_once)
    {
        struct node *node = node_ready();
        uint64_t asked = take(node, ENGINE, BYTES, true);
        struct sl_msg make = make_asked(node);

        fake_process_end(&node->fake, proc_of(SWAPPER_PID));

        expect(node, ENGINE, asked, SL_ERR_PEER_DIED, SWAPPER);
        make_answered(node, &make, SWAPPER_PID, SL_OK); /* late: ignored */
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        ck_assert_int_eq(node_hello(node, SWAPPER, "swapper", SWAPPER_PID + 1), SL_OK);
        asked = take(node, ENGINE, BYTES, true);
        make = make_asked(node);
        make_answered(node, &make, SWAPPER_PID, SL_OK); /* of the dead one */
        expect(node, ENGINE, asked, SL_ERR_PEER_DIED, SWAPPER);
        struct sl_msg drop;
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        asked = take(node, ENGINE, BYTES, true);
        make = make_asked(node);
        make_answered(node, &make, SWAPPER_PID + 1, SL_OK);
        ck_assert_uint_eq(state_of(node, ENGINE, asked).pid, SWAPPER_PID + 1);
        node_end(node);
    }
END_TEST

START_TEST(what_a_swapper_made_outlives_it_where_another_has_it)
    {
        struct node *node = node_ready();
        uint64_t epoch = sluice_owns(node);

        fake_process_end(&node->fake, proc_of(SWAPPER_PID));

        struct sl_body_pool_await_reply state = state_of(node, OTHER, await(node, OTHER, 0));
        ck_assert_uint_eq(state.epoch, epoch); /* the same memory */
        ck_assert_uint_eq(state.pid, ENGINE_PID);
        ck_assert_uint_eq(state.fd, 5);
        ck_assert_int_eq(code_of(node, OTHER, mapped(node, OTHER, epoch, 6)), SL_OK);
        fake_process_end(&node->fake, proc_of(ENGINE_PID));
        node_client(node, "client.3", 53);
        state = state_of(node, "client.3", await(node, "client.3", 0));
        ck_assert_uint_eq(state.epoch, epoch);
        ck_assert_uint_eq(state.pid, OTHER_PID);
        node_end(node);
    }
END_TEST

START_TEST(who_lets_go_does_not_carry_it_any_more)
    {
        struct node *node = node_ready();
        uint64_t epoch = sluice_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));
        ck_assert_int_eq(code_of(node, OTHER, mapped(node, OTHER, epoch, 6)), SL_OK);
        fake_process_end(&node->fake, proc_of(SWAPPER_PID)); /* the engine's descriptor remains */

        ck_assert_int_eq(code_of(node, ENGINE, release(node, ENGINE, epoch)), SL_OK);

        struct sl_body_pool_await_reply state = state_of(node, ENGINE, await(node, ENGINE, 0));
        ck_assert_uint_eq(state.epoch, epoch);
        ck_assert_uint_eq(state.pid, OTHER_PID);
        ck_assert_uint_eq(state.fd, 6);
        ck_assert_uint_eq(state.inode, 4711);
        assert_gpu(&state, SWAPPER_GPU);
        node_end(node);
    }
END_TEST

START_TEST(what_a_swapper_made_is_lost_with_it_where_nobody_has_it)
    {
        struct node *node = node_ready();
        uint64_t asked = take(node, ENGINE, BYTES, true);
        struct sl_msg make = make_asked(node);
        make_answered(node, &make, SWAPPER_PID, SL_OK);
        uint64_t epoch = state_of(node, ENGINE, asked).epoch; /* and has not mapped it yet */

        fake_process_end(&node->fake, proc_of(SWAPPER_PID));

        expect(node, ENGINE, mapped(node, ENGINE, epoch, 5), SL_ERR_STALE, "revoking");
        ck_assert_int_eq(code_of(node, ENGINE, release(node, ENGINE, epoch)), SL_OK);
        struct sl_msg drop; /* of a successor, which may have been asked meanwhile */
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(what_a_swapper_made_goes_with_its_last_client)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = sluice_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));

        fake_process_end(&node->fake, proc_of(ENGINE_PID));
        ck_assert(!drop_asked(node, &drop));
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);

        ck_assert(drop_asked(node, &drop));
        ck_assert_uint_eq(drop.body.pool_drop.epoch, epoch);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 3);
        drop_answered(node, &drop);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_client_that_dies_while_it_is_made_leaves_nothing)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        (void)take(node, ENGINE, BYTES, true);
        struct sl_msg make = make_asked(node);

        fake_process_end(&node->fake, proc_of(ENGINE_PID));

        ck_assert(drop_asked(node, &drop)); /* frees what the swapper may have made */
        ck_assert_uint_eq(drop.body.pool_drop.epoch, make.body.pool_make.epoch);
        make_answered(node, &make, SWAPPER_PID, SL_OK);
        drop_answered(node, &drop);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(memory_that_others_map_is_freed_last)
    {
        struct node *node = node_ready();
        struct sl_msg drop;
        uint64_t epoch = sluice_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));

        uint64_t asked = revoke(node, ENGINE, epoch); /* and has unmapped it itself */

        ck_assert(!drop_asked(node, &drop));
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert(drop_asked(node, &drop));
        ck_assert(silent(node, ENGINE, asked));
        drop_answered(node, &drop);
        ck_assert_int_eq(code_of(node, ENGINE, asked), SL_OK);
        node_end(node);
    }
END_TEST

/* ---- registrations that use them ---- */

START_TEST(a_registration_beyond_the_memory_is_refused)
    {
        struct node *node = node_ready();
        uint64_t epoch = engine_owns(node);

        expect(node, ENGINE, register_engine(node, epoch, 0, BYTES + 1, 0, ENGINE_PID, ENGINE),
               SL_ERR_INVALID, "beyond");
        expect(node, ENGINE, register_engine(node, epoch, 4096, BYTES, 0, ENGINE_PID, ENGINE),
               SL_ERR_INVALID, "beyond");
        expect(node, ENGINE,
               register_engine(node, epoch, UINT64_MAX - 4096, 4096, 0, ENGINE_PID, ENGINE),
               SL_ERR_INVALID, "beyond");
        expect(node, ENGINE, register_engine(node, epoch, 0, BYTES, 1, ENGINE_PID, ENGINE),
               SL_ERR_INVALID, "rank");
        expect(node, OTHER, register_engine(node, epoch, 0, BYTES, 0, OTHER_PID, OTHER),
               SL_ERR_PERMISSION, "neither owns nor maps it");
        (void)engine_lent(node, epoch);
        node_end(node);
    }
END_TEST

/* ---- restarts of the registrar ---- */

START_TEST(a_new_registrar_knows_the_pools)
    {
        struct node *node = node_ready();
        char mappers[1024];
        struct sl_msg drop;
        uint64_t epoch = engine_owns(node);
        (void)engine_lent(node, epoch);
        (void)state_of(node, OTHER, await(node, OTHER, 0));

        node_restart(node);

        struct sl_body_pool_await_reply state = state_of(node, OTHER, await(node, OTHER, 0));
        assert_gpu(&state, ENGINE_GPU);
        ck_assert_uint_eq(row_state(node, mappers, NULL), 2);
        ck_assert_str_eq(mappers, OTHER ", " SWAPPER);
        ck_assert_int_eq(code_of(node, OTHER, mapped(node, OTHER, epoch, 4)), SL_OK);
        (void)revoke(node, ENGINE, epoch);
        node_restart(node); /* in the middle of it */
        ck_assert_uint_eq(row_state(node, NULL, NULL), 3);
        uint64_t asked = revoke(node, ENGINE, epoch);
        ck_assert(drop_asked(node, &drop));
        drop_answered(node, &drop);
        ck_assert_int_eq(code_of(node, OTHER, release(node, OTHER, epoch)), SL_OK);
        ck_assert_int_eq(code_of(node, ENGINE, asked), SL_OK);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_restart(node);
        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        node_end(node);
    }
END_TEST

START_TEST(a_new_registrar_asks_the_swapper_again)
    {
        struct node *node = node_ready();
        (void)take(node, ENGINE, BYTES, true);
        struct sl_msg make = make_asked(node), again;
        uint64_t epoch = make.body.pool_make.epoch;

        node_restart(node);

        again = make_asked(node);
        ck_assert_uint_eq(again.body.pool_make.epoch, epoch); /* the same memory */
        uint64_t asked = take(node, ENGINE, BYTES, true);     /* sent again by its client */
        make_answered(node, &again, SWAPPER_PID, SL_OK);
        ck_assert_uint_eq(state_of(node, ENGINE, asked).epoch, epoch);
        node_end(node);
    }
END_TEST

static const struct {
    uint32_t pid;
    bool sluice;
    uint64_t state; /* that is left */
} missed[] = {
    {.pid = ENGINE_PID, .sluice = false, .state = 3}, /* its owner: the other still maps it */
    {.pid = OTHER_PID, .sluice = false, .state = 2},  /* a mapper */
    {.pid = SWAPPER_PID, .sluice = true, .state = 2}, /* others have it */
    {.pid = ENGINE_PID, .sluice = true, .state = 2},  /* one of two clients */
};

START_TEST(deaths_that_a_registrar_missed_are_dealt_with)
    {
        struct node *node = node_ready();
        uint64_t epoch = missed[_i].sluice ? sluice_owns(node) : engine_owns(node);
        (void)state_of(node, OTHER, await(node, OTHER, 0));
        ck_assert_int_eq(code_of(node, OTHER, mapped(node, OTHER, epoch, 4)), SL_OK);
        node->fake.watch_count = 0; /* so that the death is not reported */
        fake_process_end(&node->fake, proc_of(missed[_i].pid));

        node_restart(node);

        ck_assert_uint_eq(row_state(node, NULL, NULL), missed[_i].state);
        uint64_t watching = await(node, OTHER, epoch);
        if (missed[_i].pid == SWAPPER_PID) {
            ck_assert(silent(node, OTHER, watching));
            (void)release(node, OTHER, 0);
            ck_assert_uint_eq(state_of(node, ENGINE, await(node, ENGINE, 0)).pid, ENGINE_PID);
        }
        node_end(node);
    }
END_TEST

START_TEST(an_owner_that_died_while_no_registrar_was_there_leaves_nothing)
    {
        struct node *node = node_ready();
        ck_assert_int_eq(code_of(node, ENGINE, take(node, ENGINE, BYTES, false)), SL_OK);
        node->fake.watch_count = 0;
        fake_process_end(&node->fake, proc_of(ENGINE_PID));

        node_restart(node);

        ck_assert_uint_eq(row_state(node, NULL, NULL), 0);
        ck_assert_int_eq(code_of(node, OTHER, take(node, OTHER, BYTES, false)), SL_OK);
        node_end(node);
    }
END_TEST

START_TEST(gauges_count_pools)
    {
        struct node *node = node_ready();
        (void)engine_owns(node);
        fake_advance(&node->fake, SL_NS_PER_S);
        ck_assert_uint_eq(node_metric(node, "pool_count"), 1);
        ck_assert_uint_eq(node_metric(node, "pool_bytes"), BYTES);
        node_end(node);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar_pools");
    TCase *cases = tcase_create("pools");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, a_second_allocation_is_refused_by_the_owners_name);
    tcase_add_test(cases, who_waits_hears_ready_and_maps_it);
    tcase_add_test(cases, a_wait_ends_by_its_deadline_and_says_for_whom);
    tcase_add_test(cases, the_owners_death_is_heard_at_once);
    tcase_add_test(cases, an_owner_that_gives_up_is_heard);
    tcase_add_test(cases, a_wait_that_is_given_up_leaves_nothing);
    tcase_add_loop_test(cases, a_release_that_comes_late_is_not_for_what_was_asked_since, 0,
                        SL_COUNT(lates));
    tcase_add_test(cases, a_take_that_comes_late_makes_no_pool);
    tcase_add_test(cases, a_request_sent_again_waits_once);
    tcase_add_test(cases, a_stale_epoch_is_refused);
    tcase_add_loop_test(cases, a_bad_handle_is_refused_and_the_pool_stays_allocating, 0,
                        SL_COUNT(bad_handles));
    tcase_add_test(cases, strangers_and_bad_names_are_refused);
    tcase_add_test(cases, the_table_has_a_bound);
    tcase_add_test(cases, waiters_have_a_bound_and_one_too_many_leaves_nothing);
    tcase_add_test(cases, a_revoke_waits_for_every_mapper);
    tcase_add_test(cases, a_mapper_that_dies_has_acknowledged);
    tcase_add_test(cases, a_swapper_that_does_not_answer_is_killed);
    tcase_add_test(cases, a_registrar_that_was_stopped_itself_asks_again_before_it_kills);
    tcase_add_test(cases, a_client_that_does_not_answer_keeps_it_until_it_dies);
    tcase_add_test(cases, a_take_behind_a_revoke_says_who_is_in_its_way);
    tcase_add_test(cases, what_an_engine_made_ends_with_it);
    tcase_add_test(cases, a_swapper_makes_it_for_all_who_ask);
    tcase_add_test(cases, a_swapper_that_cannot_says_why);
    tcase_add_test(cases, a_swapper_that_dies_making_it_is_heard_at_once);
    tcase_add_test(cases, what_a_swapper_made_outlives_it_where_another_has_it);
    tcase_add_test(cases, who_lets_go_does_not_carry_it_any_more);
    tcase_add_test(cases, what_a_swapper_made_is_lost_with_it_where_nobody_has_it);
    tcase_add_test(cases, what_a_swapper_made_goes_with_its_last_client);
    tcase_add_test(cases, a_client_that_dies_while_it_is_made_leaves_nothing);
    tcase_add_test(cases, memory_that_others_map_is_freed_last);
    tcase_add_test(cases, a_registration_beyond_the_memory_is_refused);
    tcase_add_test(cases, a_new_registrar_knows_the_pools);
    tcase_add_test(cases, a_new_registrar_asks_the_swapper_again);
    tcase_add_loop_test(cases, deaths_that_a_registrar_missed_are_dealt_with, 0, SL_COUNT(missed));
    tcase_add_test(cases, an_owner_that_died_while_no_registrar_was_there_leaves_nothing);
    tcase_add_test(cases, gauges_count_pools);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
