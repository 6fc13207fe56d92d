/* tests/rdma/rdma_push.c - see rdma_push.h. The actors are whole but for their processes: the test
 * plays both coordinators, carries the frames between the nodes, and gives the turns, so that one
 * side can be left standing. Bytes go from NIC to NIC. */
#include "tests/rdma/rdma_push.h"

#include "actors/transporter/internal.h"
#include "actors/transporter/push/internal.h"
#include "actors/transporter/transporter.h"
#include "tests/support/fake_env.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ARENA     (40 * SL_MIB)
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
    struct sl_arena *arena;
    struct sl_index *index;
    uint64_t offset_bytes;
};

static struct node decode, prefill;
static struct sl_item_target parts[PARTS];
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
    ck_assert(tr_push_done(context, done));
}
static void node_registered(void *context, uint32_t memory, uint32_t region_index,
                            const struct sl_error *why)
{
    (void)region_index;
    tr_memory_registered(context, memory, why);
}
static void node_link(void *context, uint32_t peer, enum sl_fabric_link link,
                      const struct sl_error *why)
{
    (void)why;
    if (link == SL_FABRIC_DOWN) {
        tr_push_link_lost(context, peer);
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
    bool created = false;
    struct sl_error why = {0};
    const struct sl_arena_options arena = {
        .directory = node->fake.paths.shm_dir, .data_bytes = ARENA, .chunk_bytes = ARENA};
    ck_assert_msg(sl_arena_open_owner(&arena, &created, &node->arena, &why) == SL_OK, "%s",
                  why.text);
    while (sl_arena_populate_below(node->arena, UINT64_MAX, NULL) == SL_OK) {
    }
    const struct sl_index_options index = {
        .shm_dir = node->fake.paths.shm_dir, .index_bytes_max = 4 * SL_MIB, .arena = node->arena};
    ck_assert_msg(sl_index_open(&index, &created, &node->index, &why) == SL_OK, "%s", why.text);
}

static void node_open(struct node *node, struct node *other, const char *name, const char *nic,
                      enum sl_fabric_windows windows)
{
    static const char *const settings[] = {"peer_heartbeat", "1s", "peer_timeout", "10s", "memory",
                                           "40MiB",          NULL};
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
    tr_push_fini(node->self);
    tr_cluster_fini(node->self);
    node->self->control = NULL;
    node->self->calls = NULL;
    while (wire_receive(&node->control, &frame)) {
    }
    sl_index_close(&node->index);
    sl_arena_close(&node->arena);
    fake_close(&node->fake);
}

/* One turn; waits a little for the NIC. */
static void node_turn(struct node *node)
{
    struct pollfd ready = {.fd = sl_fabric_fd(node->self->fabric), .events = POLLIN};
    (void)poll(&ready, 1, 2);
    node->fake.env.now_ns = sl_clock_monotonic_ns();
    node->self->env->ops->wake_at(node->self->env, 0);
    fake_pass(&node->fake, 0);
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

static unsigned char *at(const struct node *node, uint64_t offset_bytes)
{
    return sl_arena_at(node->arena, offset_bytes, 1);
}

static uint64_t space_take(struct node *node, uint64_t length_bytes)
{
    uint64_t offset_bytes = node->offset_bytes;
    node->offset_bytes += sl_align_up(length_bytes, 4096);
    ck_assert_uint_le(node->offset_bytes, ARENA);
    return offset_bytes;
}

static struct sl_item_target part_reserve(uint64_t length_bytes)
{
    static uint32_t number;
    char key[32];
    sl_ref ref = 0;
    (void)snprintf(key, sizeof(key), "part%u", number++);
    struct sl_entry entry = {
        .kind = SL_RECORD_RESERVED, .key = key, .key_length = (uint16_t)strlen(key)};
    entry.extent = (struct sl_extent){.generation = sl_arena_next_generation(decode.arena),
                                      .offset_bytes = space_take(&decode, length_bytes),
                                      .length_bytes = length_bytes};
    ck_assert_int_eq(sl_index_claim(decode.index, &entry, &ref, NULL), SL_OK);
    memset(at(&decode, entry.extent.offset_bytes), 0, length_bytes);
    return (struct sl_item_target){.ref = ref,
                                   .generation = entry.extent.generation,
                                   .offset_bytes = entry.extent.offset_bytes,
                                   .length_bytes = length_bytes};
}

static void ticket_open(uint64_t part_bytes)
{
    struct sl_msg reply, msg = {.type = SL_MSG_PUSH_OPEN};
    for (uint32_t i = 0; i < PARTS; i++) {
        parts[i] = part_reserve(part_bytes);
    }
    handover++;
    msg.body.push_open = (struct sl_body_push_open){
        .handover = handover, .ttl_ns = 2 * BUDGET_NS, .from = sl_text_of("p")};
    msg.body.push_open.parts.at = parts;
    msg.body.push_open.parts.count = PARTS;
    fake_give(&decode.fake, "coordinator", &msg);
    ck_assert(fake_take_reply(&decode.fake, "coordinator", msg.seq, &reply));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
    ticket_bytes = reply.body.push_open_reply.ticket.length;
    memcpy(ticket, reply.body.push_open_reply.ticket.at, ticket_bytes);
}

/* Fresh bytes of prefill's for all parts, sent as one batch. Gives its number. */
static uint64_t batch_send(struct sl_item_pushed *pieces, uint64_t part_bytes)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_SEND, .budget_ns = BUDGET_NS};
    for (uint32_t i = 0; i < PARTS; i++) {
        uint64_t offset_bytes = space_take(&prefill, part_bytes);
        unsigned char *bytes = at(&prefill, offset_bytes);
        for (uint64_t k = 0; k < part_bytes; k++) {
            bytes[k] = (unsigned char)(1 + (k * 7 + i * 13 + (k >> 8)) % 255);
        }
        struct sl_digest digest = sl_digest_of(bytes, part_bytes);
        pieces[i] = (struct sl_item_pushed){.part = i,
                                            .offset_bytes = offset_bytes,
                                            .length_bytes = part_bytes,
                                            .digest_low = digest.low,
                                            .digest_high = digest.high};
    }
    msg.body.push_send = (struct sl_body_push_send){.ticket = {ticket, ticket_bytes}, .last = true};
    msg.body.push_send.pieces.at = pieces;
    msg.body.push_send.pieces.count = PARTS;
    fake_give(&prefill.fake, "coordinator", &msg);
    return msg.seq;
}

static uint64_t ticket_close(bool taken)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_CLOSE, .budget_ns = BUDGET_NS};
    msg.body.push_close = (struct sl_body_push_close){.handover = handover, .taken = taken};
    fake_give(&decode.fake, "coordinator", &msg);
    return msg.seq;
}

static bool arrived(struct sl_msg *msg)
{
    return fake_take(&decode.fake, "coordinator", SL_MSG_PUSH_ARRIVED, msg);
}

static void push_whole(uint64_t part_bytes)
{
    struct sl_item_pushed pieces[PARTS];
    struct sl_msg msg, reply, ok = {.code = SL_OK};
    ticket_open(part_bytes);
    uint64_t seq = batch_send(pieces, part_bytes);
    TURN_UNTIL(both_turn(), arrived(&msg));
    ck_assert_msg(msg.body.push_arrived.state == 1, "state %u: %s",
                  (unsigned)msg.body.push_arrived.state,
                  msg.body.push_arrived.text.length > 0 ? msg.body.push_arrived.text.at : "");
    for (uint32_t i = 0; i < PARTS; i++) {
        ck_assert(memcmp(at(&decode, parts[i].offset_bytes), at(&prefill, pieces[i].offset_bytes),
                         part_bytes) == 0);
    }
    const struct sl_msg request = {.type = SL_MSG_PUSH_ARRIVED, .seq = msg.seq};
    fake_answer(&decode.fake, "coordinator", &request, &ok);
    TURN_UNTIL(both_turn(), fake_take_reply(&prefill.fake, "coordinator", seq, &reply));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.length > 0 ? reply.text.at : "");
    seq = ticket_close(true);
    TURN_UNTIL(both_turn(), fake_take_reply(&decode.fake, "coordinator", seq, &reply));
    ck_assert_int_eq(reply.code, SL_OK);
    ck_assert_uint_eq(decode.self->push->tickets_open, 0);
}

static void setup(enum sl_fabric_windows windows)
{
    (void)mkdir("/tmp", 0777); /* the guest has little */
    (void)mkdir("/dev/shm", 0777);
    node_open(&decode, &prefill, "d", "rxe0", windows);
    node_open(&prefill, &decode, "p", "rxe1", windows);
    TURN_UNTIL(both_turn(),
               decode.self->arenas[0].registered && prefill.self->arenas[0].registered);
}

static void teardown(void)
{
    node_close(&prefill);
    node_close(&decode);
}

/* With windows, and on a device that has none. */
static const enum sl_fabric_windows ways[] = {SL_FABRIC_WINDOWS_ANY, SL_FABRIC_WINDOWS_NEVER};

START_TEST(what_is_pushed_under_a_ticket_arrives)
    {
        setup(ways[_i]);
        push_whole(20 * SL_KIB);
        push_whole(SL_MIB + 7);
        teardown();
    }
END_TEST

/* Prefill stands while its NIC still has writes to do. When decode has heard that the ticket is
 * over it uses the memory anew; whatever prefill does then, not a byte of it changes. */
START_TEST(nothing_lands_after_the_end_of_a_ticket)
    {
        const uint64_t part_bytes = 4 * SL_MIB;
        struct sl_item_pushed pieces[PARTS];
        struct sl_msg reply;
        setup(ways[_i]);
        ticket_open(part_bytes);
        uint64_t sent = batch_send(pieces, part_bytes);
        const volatile unsigned char *first = at(&decode, parts[0].offset_bytes);
        TURN_UNTIL(both_turn(), *first != 0);

        uint64_t closed = ticket_close(false);
        TURN_UNTIL(node_turn(&decode),
                   fake_take_reply(&decode.fake, "coordinator", closed, &reply));
        ck_assert_int_eq(reply.code, SL_OK);
        bool whole = true;
        for (uint32_t i = 0; i < PARTS; i++) {
            unsigned char *bytes = at(&decode, parts[i].offset_bytes);
            whole = whole && memcmp(bytes, at(&prefill, pieces[i].offset_bytes), part_bytes) == 0;
            memset(bytes, 0x5a, part_bytes);
        }
        ck_assert_msg(!whole, "all of it had been written before the ticket ended");
        TURN_UNTIL(both_turn(), fake_take_reply(&prefill.fake, "coordinator", sent, &reply));
        ck_assert_int_ne(reply.code, SL_OK);
        for (uint32_t i = 0; i < 50; i++) {
            both_turn();
        }

        for (uint32_t i = 0; i < PARTS; i++) {
            const unsigned char *bytes = at(&decode, parts[i].offset_bytes);
            ck_assert(bytes[0] == 0x5a && memcmp(bytes, bytes + 1, part_bytes - 1) == 0);
        }
        push_whole(20 * SL_KIB); /* the error cost the queue pairs, not the nodes */
        teardown();
    }
END_TEST

TCase *rdma_push_tests(void)
{
    TCase *tests = tcase_create("push");
    tcase_set_timeout(tests, 400);
    tcase_add_loop_test(tests, what_is_pushed_under_a_ticket_arrives, 0, SL_COUNT(ways));
    tcase_add_loop_test(tests, nothing_lands_after_the_end_of_a_ticket, 0, SL_COUNT(ways));
    return tests;
}
