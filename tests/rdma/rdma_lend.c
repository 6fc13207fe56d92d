/* tests/rdma/rdma_lend.c - see rdma_lend.h. The actors run as shipped, but without processes: the
 * test plays both coordinators, registrars and engines, carries the frames between the nodes, and
 * schedules the turns, so it can stop one side. Bytes move from NIC to NIC. */
#include "tests/rdma/rdma_lend.h"

#include "actors/transporter/handover/internal.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/transporter.h"
#include "cuda/sl_device.h"
#include "tests/support/fake_env.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE    7u
#define PARTS     4u
#define BUDGET_NS (60 * SL_NS_PER_S) /* everything is slow under emulation */

struct letter {
    struct letter *next;
    bool answer;
    size_t length_bytes;
    unsigned char bytes[];
};
struct node {
    struct sl_control control; /* first */
    struct letter *first, **last, *read;
    const char *name;
    struct node *other;
    struct fake_env fake;
    struct transporter *self;
    int fd; /* its engine's memory */
    unsigned char *memory;
};

/* The pools of each engine: PARTS blocks, which are the parts of a hand-over. */
static const struct {
    const char *name;
    uint64_t part_bytes, offset_bytes;
} pools[] = {
    {"small", 20 * SL_KIB, 0}, {"odd", SL_MIB + 7, SL_MIB}, {"large", 4 * SL_MIB, 6 * SL_MIB}};
#define MEMORY (22 * SL_MIB)

static struct node decode, prefill;
static unsigned char ticket[SL_TICKET_BYTES_MAX];
static uint64_t ticket_bytes, handover;

/* ---- frames ---- */

static sl_err wire_peer_add(struct sl_control *base, const char *name, const char *address,
                            struct sl_error *why)
{
    (void)base, (void)name, (void)address, (void)why;
    return SL_OK;
}

static sl_err wire_send(struct sl_control *base, const char *peer, const void *frame,
                        size_t length_bytes, bool answer)
{
    struct node *to = ((struct node *)base)->other;
    struct letter *letter = malloc(sizeof(*letter) + length_bytes);
    ck_assert_ptr_nonnull(letter);
    ck_assert_str_eq(peer, to->name);
    *letter = (struct letter){.answer = answer, .length_bytes = length_bytes};
    memcpy(letter->bytes, frame, length_bytes);
    *to->last = letter;
    to->last = &letter->next;
    return SL_OK;
}

static bool wire_receive(struct sl_control *base, struct sl_control_frame *out)
{
    struct node *node = (struct node *)base;
    free(node->read);
    node->read = node->first;
    if (node->read == NULL) {
        return false;
    }
    node->first = node->read->next;
    node->last = node->first == NULL ? &node->first : node->last;
    *out = (struct sl_control_frame){.peer = node->other->name,
                                     .answer = node->read->answer,
                                     .from = "",
                                     .bytes = node->read->bytes,
                                     .length_bytes = node->read->length_bytes};
    return true;
}

static void wire_heard(struct sl_control *base, const char *peer)
{
    (void)base, (void)peer;
}
static sl_err wire_refuse(struct sl_control *base, const void *frame, size_t length_bytes)
{
    return wire_send(base, ((struct node *)base)->other->name, frame, length_bytes, true);
}
static int wire_fd(const struct sl_control *base)
{
    (void)base;
    return -1;
}
static void wire_close(struct sl_control *base)
{
    (void)base;
}
static const struct sl_control_ops wire_ops = {
    .peer_add = wire_peer_add,
    .send = wire_send,
    .receive = wire_receive,
    .heard = wire_heard,
    .refuse = wire_refuse,
    .fd = wire_fd,
    .close = wire_close,
};

/* ---- nodes ---- */

static void node_done(void *context, const struct sl_fabric_done *done)
{
    ck_assert(tr_take_read(context, done));
}
static void node_registered(void *context, uint32_t memory, uint32_t region_index,
                            const struct sl_error *why)
{
    (void)region_index;
    ck_assert(tr_pools_registered(context, memory, why));
}
static void node_link(void *context, uint32_t peer, enum sl_fabric_link link,
                      const struct sl_error *why)
{
    (void)why;
    if (link == SL_FABRIC_DOWN) {
        tr_lend_link_lost(context, peer);
    }
}

static void node_fabric(struct node *node, const char *nic, enum sl_fabric_windows windows)
{
    struct sl_error why = {0};
    struct sl_fabric_options options;
    sl_fabric_options_init(&options, "verbs");
    options.nic = nic;
    options.lanes = 2;
    options.depth = 16;
    options.connect_ns = 20 * SL_NS_PER_S;
    options.backoff_max_ns = SL_NS_PER_S / 2;
    options.windows = windows;
    options.events = (struct sl_fabric_events){.context = node->self,
                                               .done = node_done,
                                               .registered = node_registered,
                                               .address = tr_fabric_address,
                                               .link = node_link,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &node->self->fabric, &why) == SL_OK, "%s", why.text);
    node->self->fabric_name = "verbs";
    node->self->whole_arena = true;
}

static void node_memory(struct node *node)
{
    node->fd = memfd_create("pool-of-the-test", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(node->fd, MEMORY), 0);
    node->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, node->fd, 0);
    ck_assert_ptr_ne(node->memory, MAP_FAILED);
    fake_process_add(&node->fake, (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77});
}

/* Answers as the registrar that knows the engine. */
static void engine_answer(struct node *node, const struct sl_msg *msg)
{
    struct sl_item_pool told[SL_COUNT(pools)] = {0};
    struct sl_item_region regions[SL_COUNT(pools)] = {0};
    struct sl_msg reply = {.code = SL_OK};
    for (uint32_t i = 0; i < SL_COUNT(pools); i++) {
        told[i].name = sl_text_of(pools[i].name);
        regions[i] = (struct sl_item_region){.pool = i,
                                             .handle_kind = SL_MEMORY_SHARED_FD,
                                             .pid = (uint64_t)getpid(),
                                             .fd = (uint64_t)node->fd,
                                             .offset_bytes = pools[i].offset_bytes,
                                             .length_bytes = PARTS * pools[i].part_bytes,
                                             .block_stride_bytes = pools[i].part_bytes,
                                             .piece_bytes = pools[i].part_bytes,
                                             .block_count = PARTS};
    }
    reply.body.engine_get_reply =
        (struct sl_body_engine_get_reply){.engine_id = ENGINE,
                                          .pid = (uint64_t)getpid(),
                                          .start_time = 77,
                                          .name = sl_text_of("engine"),
                                          .model = sl_text_of("0123456789abcdef0123456789abcdef"),
                                          .key_format = sl_text_of("sluice"),
                                          .block_tokens = 16,
                                          .world = 1};
    reply.body.engine_get_reply.pools.at = told;
    reply.body.engine_get_reply.pools.count = SL_COUNT(pools);
    reply.body.engine_get_reply.regions.at = regions;
    reply.body.engine_get_reply.regions.count = SL_COUNT(pools);
    fake_answer(&node->fake, "registrar", msg, &reply);
}

static void registrar_says(struct node *node)
{
    static const uint64_t id = ENGINE;
    struct sl_msg msg, reply = {.code = SL_OK};
    reply.body.engines_reply.engine_ids = (struct sl_u64s){.at = &id, .count = 1};
    while (fake_take(&node->fake, "registrar", SL_MSG_ENGINES, &msg)) {
        struct sl_msg list = reply;
        fake_answer(&node->fake, "registrar", &msg, &list);
    }
    while (fake_take(&node->fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        engine_answer(node, &msg);
    }
}

static void node_open(struct node *node, struct node *other, const char *name, const char *nic,
                      enum sl_fabric_windows windows)
{
    static const char *const settings[] = {
        "peer_heartbeat", "1s",   "peer_timeout",       "10s", "memory", "40MiB",
        "fabric_pools",   "true", "handover_read_wait", "60s", NULL};
    char peers[32];
    struct sl_error why = {0};
    memset(node, 0, sizeof(*node));
    node->control.ops = &wire_ops;
    node->last = &node->first;
    node->name = name;
    node->other = other;
    fake_open(&node->fake, &sl_transporter_actor, settings);
    fake_set(&node->fake, "node_name", name);
    node->fake.env.name = "transporter.0";
    node->fake.env.now_ns = sl_clock_monotonic_ns();
    node_memory(node);
    ck_assert_msg(fake_start(&node->fake, &why) == SL_OK, "%s", why.text);
    node->self = node->fake.state;
    node_fabric(node, nic, windows);
    node->self->control = &node->control;
    (void)snprintf(peers, sizeof(peers), "%s@here:1", name[0] == 'd' ? "p" : "d");
    fake_set(&node->fake, "peers", peers);
    ck_assert_msg(tr_cluster_init(node->self, &why) == SL_OK, "%s", why.text);
}

static void node_close(struct node *node)
{
    struct sl_control_frame frame;
    sl_fabric_close(&node->self->fabric);
    tr_cluster_fini(node->self);
    node->self->control = NULL;
    node->self->calls = NULL;
    while (wire_receive(&node->control, &frame)) {
    }
    fake_close(&node->fake);
    munmap(node->memory, MEMORY);
    close(node->fd);
}

/* Runs one turn and waits a little for the NIC. */
static void node_turn(struct node *node)
{
    struct pollfd ready = {.fd = sl_fabric_fd(node->self->fabric), .events = POLLIN};
    (void)poll(&ready, 1, 2);
    node->fake.env.now_ns = sl_clock_monotonic_ns();
    node->self->env->ops->wake_at(node->self->env, 0);
    fake_advance(&node->fake, 0);
    registrar_says(node);
}

static void both_turn(void)
{
    node_turn(&decode);
    node_turn(&prefill);
}

#define TURN_UNTIL(turn, condition)                                                            \
    do {                                                                                       \
        uint64_t turn_end_ns = sl_clock_monotonic_ns() + 2 * BUDGET_NS;                        \
        while (!(condition)) {                                                                 \
            ck_assert_msg(sl_clock_monotonic_ns() < turn_end_ns, "waited for %s", #condition); \
            turn;                                                                              \
        }                                                                                      \
    } while (0)

/* ---- bytes and messages ---- */

static unsigned char *part_at(const struct node *node, uint32_t pool, uint32_t part)
{
    return node->memory + pools[pool].offset_bytes + part * pools[pool].part_bytes;
}

static void slots_make(struct sl_item_slot slots[PARTS], uint32_t pool)
{
    for (uint32_t i = 0; i < PARTS; i++) {
        slots[i] =
            (struct sl_item_slot){.engine_id = ENGINE, .pool = pool, .device_block = i, .item = i};
    }
}

static void landed_take(const struct sl_msg *msg)
{
    struct sl_msg ok = {.code = SL_OK};
    const struct sl_msg request = {.type = SL_MSG_LANDED, .seq = msg->seq};
    fake_answer(&decode.fake, "coordinator", &request, &ok);
}

static bool landed(struct sl_msg *msg)
{
    return fake_take(&decode.fake, "coordinator", SL_MSG_LANDED, msg);
}

/* Returns the request's number. */
static uint64_t bring(uint32_t pool)
{
    struct sl_item_slot slots[PARTS];
    struct sl_msg open, msg = {.type = SL_MSG_BRING, .op_id = 5, .budget_ns = 2 * BUDGET_NS};
    const struct sl_ticket_fields fields = {.node = "d", .number = ++handover, .secret = {9}};
    ticket_bytes = sl_ticket_write(&fields, ticket);
    slots_make(slots, pool);
    for (uint32_t i = 0; i < PARTS; i++) {
        memset(part_at(&decode, pool, i), 0, pools[pool].part_bytes);
    }
    msg.body.bring.ticket = (struct sl_bytes){.at = ticket, .length = ticket_bytes};
    msg.body.bring.from = sl_text_of("p");
    msg.body.bring.slots.at = slots;
    msg.body.bring.slots.count = PARTS;
    fake_give(&decode.fake, "coordinator", &msg);
    TURN_UNTIL(node_turn(&decode), landed(&open));
    landed_take(&open);
    return msg.seq;
}

/* Fills all parts of prefill with new bytes and lends them in one message. Returns its number. */
static uint64_t lend(uint32_t pool)
{
    struct sl_item_arrived pieces[PARTS];
    struct sl_item_slot slots[PARTS];
    struct sl_msg msg = {.type = SL_MSG_LEND, .op_id = 6, .budget_ns = BUDGET_NS};
    uint64_t part_bytes = pools[pool].part_bytes;
    slots_make(slots, pool);
    for (uint32_t i = 0; i < PARTS; i++) {
        unsigned char *bytes = part_at(&prefill, pool, i);
        for (uint64_t k = 0; k < part_bytes; k++) {
            bytes[k] = (unsigned char)(1 + (k * 7 + i * 13 + handover * 5 + (k >> 8)) % 255);
        }
        struct sl_digest digest = sl_digest_of(bytes, part_bytes);
        pieces[i] = (struct sl_item_arrived){.part = i,
                                             .length_bytes = part_bytes,
                                             .digest_low = digest.low,
                                             .digest_high = digest.high};
    }
    msg.body.lend = (struct sl_body_lend){
        .ticket = {.at = ticket, .length = ticket_bytes}, .number = 1, .last = true};
    msg.body.lend.pieces.at = pieces;
    msg.body.lend.pieces.count = PARTS;
    msg.body.lend.slots.at = slots;
    msg.body.lend.slots.count = PARTS;
    fake_give(&prefill.fake, "coordinator", &msg);
    return msg.seq;
}

static bool is_same(uint32_t pool, uint32_t part)
{
    return memcmp(part_at(&decode, pool, part), part_at(&prefill, pool, part),
                  pools[pool].part_bytes) == 0;
}

static uint64_t fence(struct node *node, uint64_t op_id)
{
    struct sl_msg msg = {.type = SL_MSG_FENCE, .op_id = op_id, .budget_ns = BUDGET_NS};
    fake_give(&node->fake, "coordinator", &msg);
    return msg.seq;
}

static sl_err answer_of(struct node *node, uint64_t seq)
{
    struct sl_msg reply;
    TURN_UNTIL(both_turn(), fake_take_reply(&node->fake, "coordinator", seq, &reply));
    return reply.code;
}

static void hand_over(uint32_t pool)
{
    struct sl_msg msg, reply = {0};
    bool over = false;
    uint64_t asked = bring(pool), lent = lend(pool);
    TURN_UNTIL(both_turn(), landed(&msg) || (over = fake_take_reply(&decode.fake, "coordinator",
                                                                    asked, &reply)));
    ck_assert_msg(!over, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_uint_eq(msg.body.landed.state, 2);
    for (uint32_t i = 0; i < PARTS; i++) {
        ck_assert(is_same(pool, i));
    }
    landed_take(&msg);
    ck_assert_int_eq(answer_of(&prefill, lent), SL_OK);
    ck_assert_int_eq(answer_of(&decode, asked), SL_OK);
    ck_assert_uint_eq(decode.self->handover->takes_open, 0);
    ck_assert_uint_eq(prefill.self->handover->loans_open, 0);
}

static bool has_engine(const struct node *node)
{
    struct sl_metrics *page = node->self->env->metrics;
    return sl_metric_get(page, sl_metric_define(page, "pool_engines")) == 1;
}

static void setup(enum sl_fabric_windows windows)
{
    (void)mkdir("/tmp", 0777); /* the virtual machine has few directories */
    (void)mkdir("/dev/shm", 0777);
    node_open(&decode, &prefill, "d", "rxe0", windows);
    node_open(&prefill, &decode, "p", "rxe1", windows);
    TURN_UNTIL(both_turn(), has_engine(&decode) && has_engine(&prefill));
}

static void teardown(void)
{
    node_close(&prefill);
    node_close(&decode);
}

/* With memory windows, and on a device without them. */
static const enum sl_fabric_windows ways[] = {SL_FABRIC_WINDOWS_ANY, SL_FABRIC_WINDOWS_NEVER};

START_TEST(what_is_lent_is_read)
    {
        setup(ways[_i]);
        hand_over(0);
        hand_over(1);
        teardown();
    }
END_TEST

static bool decode_has_begun(uint32_t pool)
{
    const volatile unsigned char *first = part_at(&decode, pool, 0);
    return *first != 0;
}

/* Either side ends the hand-over while decode's NIC reads. Once its fence is answered, that side
 * reuses its memory: decode's no longer changes, and prefill's new bytes are never delivered. */
START_TEST(nothing_is_read_after_an_end)
    {
        const uint32_t pool = 2;
        const uint64_t part_bytes = pools[pool].part_bytes;
        bool at_decode = _i % 2 == 0;
        struct node *ends = at_decode ? &decode : &prefill;
        struct sl_msg msg, reply;
        setup(ways[_i / 2]);
        uint64_t asked = bring(pool), lent = lend(pool);
        bool failed = false;
        TURN_UNTIL(both_turn(),
                   decode_has_begun(pool) ||
                       (failed = fake_take_reply(&decode.fake, "coordinator", asked, &reply)));
        ck_assert_msg(!failed, "%s", reply.text.length > 0 ? reply.text.at : "it was read");

        uint64_t fenced = fence(ends, at_decode ? 5 : 6);
        TURN_UNTIL(node_turn(ends), fake_take_reply(&ends->fake, "coordinator", fenced, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        for (uint32_t i = 0; i < PARTS; i++) {
            memset(part_at(ends, pool, i), 0x5a, part_bytes);
        }
        ck_assert_int_ne(answer_of(&prefill, lent), SL_OK);
        ck_assert_int_ne(answer_of(&decode, asked), SL_OK);
        for (uint32_t i = 0; i < 50; i++) {
            both_turn();
        }

        ck_assert(!landed(&msg));
        for (uint32_t i = 0; at_decode && i < PARTS; i++) {
            const unsigned char *bytes = part_at(&decode, pool, i);
            ck_assert(bytes[0] == 0x5a && memcmp(bytes, bytes + 1, part_bytes - 1) == 0);
        }
        hand_over(0); /* the error broke the queue pairs, but the nodes recover */
        teardown();
    }
END_TEST

TCase *rdma_lend_tests(void)
{
    TCase *tests = tcase_create("lend");
    tcase_set_timeout(tests, 400);
    tcase_add_loop_test(tests, what_is_lent_is_read, 0, SL_COUNT(ways));
    tcase_add_loop_test(tests, nothing_is_read_after_an_end, 0, 2 * SL_COUNT(ways));
    return tests;
}
