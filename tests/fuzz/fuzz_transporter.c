/* tests/fuzz/fuzz_transporter.c - a transporter with hostile nodes, clients and registrars. Peers
 * send anything, in valid and broken frames, and answer requests rightly or not; reads end well,
 * with wrong bytes, with errors, or never. Every BRING is answered, every pin of a peer ends, and
 * all tables are empty in the end. */
#include "actors/transporter/control/network.h"
#include "actors/transporter/handover/internal.h"
#include "actors/transporter/internal.h"
#include "actors/transporter/transporter.h"
#include "ipc/msg/msg_internal.h"
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/tcp/tcp.h"
#include "tests/fuzz/hostile_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes);

#define INBOX_MAX    16u
#define ASKED_MAX    32u
#define CONTENT_BYTE 0x5A
#define CONTENT_MAX  8192u
#define PLACES_MAX   512u
#define ENGINE       7u

static const uint32_t requests[] = {
    SL_MSG_BRING,           SL_MSG_BRING, SL_MSG_BRING,        SL_MSG_BRING,
    SL_MSG_HANDOVER_NOTIFY, SL_MSG_FENCE, SL_MSG_NODES,        SL_MSG_NODES,
    SL_MSG_HELLO_REPLY,     SL_MSG_PING,  SL_MSG_ENGINE_ADDED, SL_MSG_ENGINE_OVER,
    SL_MSG_BRING,           SL_MSG_BRING,
};
/* b and c are asked, d only asks, e exceeds the fabric's limit. */
static const char *const peers[] = {"b", "c", "d", "e", "a"};
#define SETTING_PEERS "b@h:1,c@h:1"

struct frame {
    char peer[8];
    bool answer;
    unsigned char *bytes;
    size_t length_bytes;
};
struct asked { /* a request from the transporter to a peer */
    uint32_t type, peer;
    uint64_t seq, item_count;
};
static struct world {
    struct sl_control base;
    struct hostile *hostile;
    struct hostile_node node;
    struct sl_network network;
    struct sl_codec *in, *out;
    struct frame inbox[INBOX_MAX], open;
    uint32_t inbox_count;
    struct asked asked[ASKED_MAX];
    uint64_t asked_count, seq, asked_of_us, answers;
    uint64_t pin_id; /* the last one granted */
    struct fabric_rail *rail;
    uint32_t speaker;  /* the peer whose message is being made */
    bool mute;         /* sends fail */
    bool begun, truth; /* truth: no answer is damaged */
} world;

/* ---- frames ---- */

static sl_err net_peer_add(struct sl_control *base, const char *name, const char *address,
                           struct sl_error *why)
{
    (void)base, (void)name, (void)address, (void)why;
    return SL_OK;
}

static uint32_t peer_number(const char *name)
{
    uint32_t i = 0;
    while (i < SL_COUNT(peers) && strcmp(peers[i], name) != 0) {
        i++;
    }
    HOSTILE_MUST(i < SL_COUNT(peers));
    return i;
}

static sl_err net_send(struct sl_control *base, const char *peer, const void *frame,
                       size_t length_bytes, bool answer)
{
    struct sl_msg msg;
    (void)base;
    HOSTILE_MUST(sl_codec_decode(world.in, frame, length_bytes, &msg, NULL) == SL_OK);
    HOSTILE_MUST(SL_MSG_IS_REPLY(msg.type) == answer);
    if (world.mute) {
        return SL_ERR_UNREACHABLE;
    }
    if (answer && msg.seq == 0 &&
        (msg.type == SL_MSG_PEER_UNPIN_REPLY ||
         (msg.type == SL_MSG_PEER_HELLO_REPLY && msg.code == SL_ERR_EXISTS))) {
        return SL_OK; /* no request: the first of two nodes with one name is notified (twins.c) */
    }
    if (answer) {
        HOSTILE_MUST(++world.answers <= world.asked_of_us);
        if (msg.type == SL_MSG_PEER_PIN_REPLY && msg.body.peer_pin_reply.pin_id != 0) {
            world.pin_id = msg.body.peer_pin_reply.pin_id;
        }
        return SL_OK;
    }
    world.asked[world.asked_count++ % ASKED_MAX] = (struct asked){
        .type = msg.type,
        .peer = peer_number(peer),
        .seq = msg.seq,
        .item_count = msg.type == SL_MSG_PEER_PIN ? msg.body.peer_pin.items.count : 0};
    return SL_OK;
}

static bool net_receive(struct sl_control *base, struct sl_control_frame *out)
{
    (void)base;
    free(world.open.bytes);
    world.open = (struct frame){0};
    if (world.inbox_count == 0) {
        return false;
    }
    world.open = world.inbox[0];
    world.inbox_count--;
    memmove(&world.inbox[0], &world.inbox[1], world.inbox_count * sizeof(world.inbox[0]));
    *out = (struct sl_control_frame){.peer = world.open.peer,
                                     .answer = world.open.answer,
                                     .from = "",
                                     .bytes = world.open.bytes,
                                     .length_bytes = world.open.length_bytes};
    return true;
}

static void net_heard(struct sl_control *base, const char *peer)
{
    (void)base, (void)peer;
}

static sl_err net_refuse(struct sl_control *base, const void *frame, size_t length_bytes)
{
    return net_send(base, world.open.peer, frame, length_bytes, true);
}

static int net_fd(const struct sl_control *base)
{
    (void)base;
    return -1;
}

static void inbox_clear(void)
{
    for (uint32_t i = 0; i < world.inbox_count; i++) {
        free(world.inbox[i].bytes);
    }
    free(world.open.bytes);
    world.open = (struct frame){0};
    world.inbox_count = 0;
}

static void net_close(struct sl_control *base)
{
    (void)base;
    inbox_clear();
}

static sl_err control_open(void *context, const struct sl_control_options *options,
                           struct sl_control **out, struct sl_error *why)
{
    static const struct sl_control_ops ops = {
        .peer_add = net_peer_add,
        .send = net_send,
        .receive = net_receive,
        .heard = net_heard,
        .refuse = net_refuse,
        .fd = net_fd,
        .close = net_close,
    };
    (void)context, (void)options, (void)why;
    world.base.ops = &ops;
    *out = &world.base;
    return SL_OK;
}

static void frame_put(const void *bytes, size_t length_bytes, bool answer)
{
    if (world.inbox_count == INBOX_MAX) {
        return;
    }
    struct frame *frame = &world.inbox[world.inbox_count++];
    *frame = (struct frame){.answer = answer, .length_bytes = length_bytes};
    (void)snprintf(frame->peer, sizeof(frame->peer), "%s", peers[world.speaker]);
    frame->bytes = malloc(length_bytes + 1);
    HOSTILE_MUST(frame->bytes != NULL);
    memcpy(frame->bytes, bytes, length_bytes);
    struct hostile_input *input = &world.hostile->input;
    uint64_t how = world.truth ? 0 : hostile_byte(input);
    if (how >= 240 && length_bytes > 0) { /* damaged */
        frame->bytes[hostile_byte(input) % length_bytes] ^= (unsigned char)(1u << (how & 7));
    } else if (how >= 232) { /* cut */
        frame->length_bytes = hostile_byte(input) % (length_bytes + 1);
    }
    world.asked_of_us += answer ? 0 : 1;
}

static void msg_put(struct sl_msg *msg, bool answer)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    uint64_t how = world.truth ? 0 : hostile_byte(&world.hostile->input);
    msg->sender = sl_text_of(how >= 240 ? peers[how % SL_COUNT(peers)] : peers[world.speaker]);
    if (sl_codec_encode(world.out, msg, &frame, &length_bytes, NULL) == SL_OK) {
        frame_put(frame, length_bytes, answer);
    }
}

/* ---- requests of peers ---- */

static const char *const keys[] = {
    NODE_MODEL "/b0/0/kv", NODE_MODEL "/b0/1/kv", NODE_MODEL "/b1/0/kv", NODE_MODEL "/b1/1/kv",
    NODE_MODEL "/b2/0/kv", NODE_MODEL "/b3/0/kv", NODE_MODEL "/b3/1/kv", "k0",
};

/* A ticket for the hand-over of this number; mostly of this node. */
static struct sl_bytes ticket_write(uint64_t which)
{
    static unsigned char bytes[SL_TICKET_BYTES_MAX];
    struct sl_ticket_fields ticket = {.number = 1 + which % 4};
    (void)snprintf(ticket.node, sizeof(ticket.node), "%s", which < 224 ? "a" : "b");
    return (struct sl_bytes){.at = bytes, .length = sl_ticket_write(&ticket, bytes)};
}

static void peer_asks(void *context, struct sl_msg *msg)
{
    struct hostile_input *input = &world.hostile->input;
    static struct sl_item_sought sought[PLACES_MAX];
    (void)context;
    uint64_t how = hostile_byte(input);
    msg->seq = ++world.seq;
    if (msg->type == SL_MSG_PEER_HELLO && how < 224) {
        struct sl_body_peer_hello *hello = &msg->body.peer_hello;
        hello->node = sl_text_of(peers[world.speaker]);
        hello->fabric = sl_text_of("tcp");
        hello->incarnation = 1 + how % 4;
    } else if (msg->type == SL_MSG_PEER_PIN && how < 224) {
        struct sl_body_peer_pin *pin = &msg->body.peer_pin;
        uint64_t count = SL_MIN(pin->items.count, PLACES_MAX);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t which = hostile_byte(input);
            sought[i] = (struct sl_item_sought){.key = sl_text_of(keys[which % SL_COUNT(keys)]),
                                                .part = which % 16 != 15};
        }
        pin->items.at = sought;
        pin->items.count = count;
        pin->bytes_max = how % 4 == 0 ? pin->bytes_max : SL_MIB;
        pin->ttl_ns = how % 4 == 1 ? pin->ttl_ns : SL_NS_PER_S;
    } else if (msg->type == SL_MSG_PEER_UNPIN && how < 224) {
        static uint64_t ids[1];
        ids[0] = world.pin_id ^ (how < 200 ? 0 : how & 3);
        msg->body.peer_unpin.pin_ids = (struct sl_u64s){.at = ids, .count = 1};
    } else if (msg->type == SL_MSG_PEER_LEND && how < 224) {
        struct sl_body_peer_lend *lend = &msg->body.peer_lend;
        lend->ticket = ticket_write(how % 4);
        msg->op_id = 1 + how % 32 / 31;
        lend->number = 1 + how % 16 / 12;
        lend->code = how % 8 == 7 ? lend->code : SL_OK;
    }
    msg_put(msg, how == 255);
}

/* ---- answers of peers ---- */

static void hello_true(struct sl_body_peer_hello_reply *reply, uint64_t how)
{
    static struct sl_item_window window;
    static unsigned char key[SL_WIRE_KEY_BYTES];
    const struct sl_wire_key wire = {.grant = 1, .generation = 1, .length_bytes = SL_MIB};
    sl_wire_key_write(&wire, key);
    window = (struct sl_item_window){.arena = how % 3 == 2 ? how % 70 : 0,
                                     .length_bytes = SL_MIB,
                                     .key = {.at = key, .length = sizeof(key)}};
    *reply = (struct sl_body_peer_hello_reply){.node = sl_text_of(peers[world.speaker]),
                                               .incarnation = 1 + how % 4,
                                               .fabric = sl_text_of("tcp")};
    reply->windows.at = &window;
    reply->windows.count = 1;
}

static void places_true(struct sl_body_peer_pin_reply *reply, uint64_t item_count)
{
    static struct sl_item_place places[PLACES_MAX];
    static unsigned char content[CONTENT_MAX];
    struct hostile_input *input = &world.hostile->input;
    memset(content, CONTENT_BYTE, sizeof(content));
    uint64_t count = SL_MIN(item_count, PLACES_MAX);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t how = hostile_byte(input);
        uint64_t length = how < 128 ? NODE_VALUE : 1 + how * 30;
        struct sl_digest digest = sl_digest_of(content, length);
        places[i] = (struct sl_item_place){.code = how % 8 == 7   ? how % SL_ERR_COUNT
                                                   : how % 8 == 6 ? SL_ERR_NOT_FOUND
                                                                  : SL_OK,
                                           .arena = how % 16 == 5 ? how : 0,
                                           .offset_bytes = how % 16 == 4 ? UINT64_MAX - how : 0,
                                           .length_bytes = length,
                                           .generation = 1,
                                           .digest_low = digest.low,
                                           .digest_high = digest.high ^ (how % 32 == 3)};
    }
    reply->pin_id = 7;
    reply->ttl_ns = SL_NS_PER_S;
    reply->items.at = places;
    reply->items.count = count;
}

static void peer_answers(void *context, const struct sl_msg *made)
{
    const struct asked *asked = context;
    struct sl_msg reply = *made;
    uint64_t how = hostile_byte(&world.hostile->input);
    reply.reply_to = asked->seq + (how >= 250 ? 1 : 0);
    if (how < 208 && reply.code == SL_OK && asked->type == SL_MSG_PEER_HELLO) {
        hello_true(&reply.body.peer_hello_reply, how);
    } else if (how < 208 && reply.code == SL_OK && asked->type == SL_MSG_PEER_PIN) {
        places_true(&reply.body.peer_pin_reply, asked->item_count);
    }
    msg_put(&reply, how != 249);
}

static void answer_one(void)
{
    struct hostile_input *input = &world.hostile->input;
    uint64_t there = SL_MIN(world.asked_count, (uint64_t)ASKED_MAX);
    if (there == 0) {
        return;
    }
    uint64_t back = hostile_byte(input);
    if (back < 160) { /* the latest request for keys, if there is one */
        for (back = 0; back + 1 < there; back++) {
            if (world.asked[(world.asked_count - 1 - back) % ASKED_MAX].type == SL_MSG_PEER_PIN) {
                break;
            }
        }
    } else {
        back %= there;
    }
    struct asked asked = world.asked[(world.asked_count - 1 - back) % ASKED_MAX];
    struct sl_msg request = {.type = asked.type, .seq = asked.seq};
    world.speaker = asked.peer;
    hostile_reply(world.hostile, &request, peer_answers, &asked);
}

/* ---- a fabric whose units end as the input decides ---- */

static sl_err fab_open(struct fabric_rail *rail, struct sl_error *why)
{
    (void)why;
    world.rail = rail;
    rail->backend = &world;
    return SL_OK;
}

static void fab_nothing(struct fabric_rail *rail)
{
    (void)rail;
}

static void fab_close(struct fabric_rail *rail)
{
    rail->backend = NULL;
    world.rail = NULL;
}

static sl_err fab_peer_start(struct fabric_peer *peer, struct sl_error *why)
{
    (void)why;
    fabric_address_report(peer, "here", 4);
    fabric_peer_up(peer);
    return SL_OK;
}

static sl_err fab_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                               struct sl_error *why)
{
    struct sl_wire_address address;
    (void)peer;
    return sl_wire_address_read(blob, length_bytes, &address, why);
}

static void fab_peer_stop(struct fabric_peer *peer, bool last)
{
    (void)last;
    fabric_peer_stopped(peer);
}

static sl_err fab_grant_add(struct fabric_rail *rail, struct fabric_grant *grant,
                            struct sl_error *why)
{
    return sl_fabric_tcp.grant_add(rail, grant, why);
}

static sl_err fab_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                            struct fabric_right *key, struct sl_error *why)
{
    return sl_fabric_tcp.key_parse(rail, blob, length_bytes, key, why);
}

static void fab_lane_push(struct fabric_lane *lane)
{
    lane->sent = lane->tail;
}

static void fab_lane_cancel(struct fabric_lane *lane)
{
    for (uint64_t i = lane->head; i < lane->tail; i++) {
        struct fabric_unit *unit = fabric_lane_unit(lane, i);
        if (fabric_unit_given_up(lane, unit)) {
            fabric_unit_release(lane, unit, SL_ERR_CANCELLED);
        }
    }
}

static const struct fabric_backend fuzz_fabric = {
    .name = "fuzz",
    .open = fab_open,
    .quiesce = fab_nothing,
    .close = fab_close,
    .peer_start = fab_peer_start,
    .peer_address = fab_peer_address,
    .peer_stop = fab_peer_stop,
    .grant_add = fab_grant_add,
    .grant_end = fabric_grant_gone,
    .key_parse = fab_key_parse,
    .lane_push = fab_lane_push,
    .lane_cancel = fab_lane_cancel,
    .step = fab_nothing,
};

/* Ends the oldest unit of a lane. */
static void unit_ends(struct fabric_lane *lane, uint64_t how)
{
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    static unsigned char content[CONTENT_MAX];
    sl_err code = how < 192 ? SL_OK : (sl_err)(how % SL_ERR_COUNT);
    memset(content, how % 8 == 7 ? 0 : CONTENT_BYTE, sizeof(content));
    if (code == SL_OK) {
        struct sl_runs to = unit->local;
        for (uint32_t at = 0; at < unit->length_bytes;) {
            uint32_t bytes = SL_MIN(unit->length_bytes - at, CONTENT_MAX);
            if (unit->piece != FABRIC_NONE) {
                sl_runs_write(to, content, bytes);
                sl_runs_skip(&to, bytes);
            }
            struct sl_digest_stream *digest = fabric_unit_digest(lane);
            if (digest != NULL) {
                sl_digest_feed(digest, content, bytes);
            }
            fabric_unit_arrived(lane, bytes);
            at += bytes;
        }
    }
    fabric_unit_end(lane, code);
}

static void fabric_goes_on(void)
{
    struct hostile_input *input = &world.hostile->input;
    uint64_t how = hostile_byte(input);
    struct sl_error why = {.code = SL_ERR_PEER_DIED};
    for (uint32_t i = 0; i < world.rail->options.peers_max; i++) {
        struct fabric_peer *peer = &world.rail->peers[i];
        for (uint32_t k = 0; peer->state == PEER_UP && k < world.rail->options.lanes; k++) {
            struct fabric_lane *lane = &peer->lanes[k];
            while (lane->head < lane->sent && how != 250) {
                unit_ends(lane, hostile_byte(input));
            }
        }
        if (how == 251 && peer->state == PEER_UP) {
            fabric_peer_fail(peer, &why);
        }
    }
}

/* ---- the world ---- */

static sl_err watch_fd(struct sl_env *env, int fd, struct sl_error *why)
{
    (void)env, (void)fd, (void)why;
    return SL_OK;
}

static void unwatch_fd(struct sl_env *env, int fd)
{
    (void)env, (void)fd;
}

static void prepare(struct hostile *hostile)
{
    memset(&world, 0, sizeof(world));
    world.hostile = hostile;
    world.network = (struct sl_network){.control_open = control_open, .backend = &fuzz_fabric};
    hostile->fake.env.network = &world.network;
    hostile->ops.watch_fd = watch_fd;
    hostile->ops.unwatch_fd = unwatch_fd;
    HOSTILE_MUST(sl_codec_create(SL_MIB, &world.in, NULL) == SL_OK);
    HOSTILE_MUST(sl_codec_create(SL_MIB, &world.out, NULL) == SL_OK);
    hostile_node_make(&world.node, hostile->fake.paths.shm_dir);
}

static void finish(struct hostile *hostile)
{
    (void)hostile;
    inbox_clear();
    hostile_node_end(&world.node);
    sl_codec_destroy(&world.in);
    sl_codec_destroy(&world.out);
}

static void turn(struct hostile *hostile)
{
    HOSTILE_MUST(hostile->target->actor->tick(hostile->fake.state, hostile->fake.env.now_ns) ==
                 SL_OK);
}

static void registrar_greets(struct hostile *hostile)
{
    struct sl_msg reply = {.type = SL_MSG_HELLO_REPLY, .reply_to = 1};
    hostile_give(hostile, "registrar", &reply);
}

/* The usual node: known to its registrar, its memory registered, HELLO sent and answered. */
static void begin(struct hostile *hostile)
{
    world.truth = true;
    registrar_greets(hostile);
    for (uint32_t i = 0; i < 4; i++) { /* one region a step */
        turn(hostile);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_msg hello = {.type = SL_MSG_PEER_HELLO, .seq = ++world.seq};
        hello.body.peer_hello = (struct sl_body_peer_hello){
            .node = sl_text_of(peers[i]), .incarnation = 1, .fabric = sl_text_of("tcp")};
        world.speaker = i;
        msg_put(&hello, false);
    }
    uint64_t count = SL_MIN(world.asked_count, (uint64_t)ASKED_MAX);
    for (uint64_t i = 0; i < count; i++) {
        struct sl_msg reply = {.type = SL_MSG_PEER_HELLO_REPLY, .reply_to = world.asked[i].seq};
        world.speaker = world.asked[i].peer;
        hello_true(&reply.body.peer_hello_reply, 0);
        msg_put(&reply, true);
    }
    turn(hostile);
    (void)hostile_answer_all(hostile); /* its engine, mapped and registered step by step */
    (void)hostile_answer_all(hostile);
    for (uint32_t i = 0; i < 8; i++) {
        turn(hostile);
    }
    world.truth = false;
}

/* A coordinator's pull of blocks of a peer, into the existing engine; or almost valid. */
static void pull_give(struct hostile *hostile)
{
    static struct sl_text texts[4];
    static struct sl_item_group groups[2];
    static struct sl_item_slot slots[6];
    struct hostile_input *input = &hostile->input;
    struct sl_msg pull = {.type = SL_MSG_BRING, .budget_ns = SL_NS_PER_S};
    uint64_t how = hostile_byte(input);
    for (uint32_t i = 0; i < SL_COUNT(texts); i++) { /* blocks b8 and b9 do not exist here */
        static const char *const names[] = {NODE_MODEL "/b8/0/kv", NODE_MODEL "/b8/1/kv",
                                            NODE_MODEL "/b9/0/kv", NODE_MODEL "/b9/1/kv"};
        texts[i] = sl_text_of(names[i]);
    }
    groups[0] = (struct sl_item_group){.key = sl_text_of(NODE_MODEL "/b8"), .part_count = 2};
    groups[1] = (struct sl_item_group){.key = sl_text_of(NODE_MODEL "/b9"),
                                       .part_count = how % 32 == 31 ? 3 : 2};
    uint32_t count = how % 16 < 12 ? SL_COUNT(texts) : SL_COUNT(slots);
    for (uint32_t i = 0; i < SL_COUNT(slots); i++) {
        uint64_t what = how < 192 ? 0 : hostile_byte(input);
        slots[i] = (struct sl_item_slot){.engine_id = ENGINE + (what >= 240 ? 1 : 0),
                                         .rank = i % 2,
                                         .part = what % 8 == 7 ? what % 64 : 0,
                                         .device_block = what >= 224 ? what * 100 : i,
                                         .item = i * SL_COUNT(texts) / count};
    }
    pull.op_id = 1 + how % 4;
    pull.body.bring.chain = how % 2 == 0;
    pull.body.bring.keys.at = texts;
    pull.body.bring.keys.count = SL_COUNT(texts);
    pull.body.bring.groups.at = groups;
    pull.body.bring.groups.count = SL_COUNT(groups);
    pull.body.bring.slots.at = slots;
    pull.body.bring.slots.count = count;
    hostile_give(hostile, "coordinator", &pull);
    if (how % 8 == 5) {
        struct sl_msg fence = {.type = SL_MSG_FENCE, .op_id = how % 16 < 8 ? pull.op_id : 0};
        hostile_give(hostile, "coordinator", &fence);
    }
}

static void slots_make(struct hostile *hostile, struct sl_item_slot *slots, uint32_t count,
                       bool true_ones)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t what = true_ones ? 0 : hostile_byte(&hostile->input);
        slots[i] = (struct sl_item_slot){.engine_id = ENGINE + (what >= 240 ? 1 : 0),
                                         .rank = i % 2,
                                         .part = what % 8 == 7 ? what % 64 : 0,
                                         .device_block = what >= 224 ? what * 100 : i,
                                         .item = what >= 208 ? what : i};
    }
}

/* Both sides of a hand-over within this node, or with a lending peer; or almost valid. */
static void handover_give(struct hostile *hostile)
{
    static struct sl_item_slot slots[4];
    static struct sl_item_arrived pieces[4];
    struct hostile_input *input = &hostile->input;
    uint64_t how = hostile_byte(input), which = hostile_byte(input);
    struct sl_msg msg = {.op_id = 1 + which % 4, .budget_ns = SL_NS_PER_S};
    slots_make(hostile, slots, SL_COUNT(slots), how % 8 < 6);
    if (how < 96) {
        msg.type = SL_MSG_BRING;
        msg.body.bring.ticket = ticket_write(which);
        msg.body.bring.slots.at = slots;
        msg.body.bring.slots.count = how % 16 == 13 ? 3 : SL_COUNT(slots);
    } else if (how < 208) {
        msg.type = SL_MSG_LEND;
        for (uint32_t i = 0; i < SL_COUNT(pieces); i++) { /* device memory is mostly zeros */
            static const unsigned char zeros[NODE_VALUE];
            struct sl_digest digest = sl_digest_of(zeros, NODE_VALUE);
            pieces[i] = (struct sl_item_arrived){.part = i,
                                                 .part_offset_bytes = how % 16 == 11 ? i : 0,
                                                 .length_bytes = NODE_VALUE,
                                                 .digest_low = digest.low ^ (how % 16 == 9),
                                                 .digest_high = digest.high};
        }
        msg.body.lend = (struct sl_body_lend){
            .ticket = ticket_write(which), .number = 1 + how % 32 / 24, .last = how % 2 == 0};
        msg.body.lend.pieces.at = pieces;
        msg.body.lend.pieces.count = SL_COUNT(pieces);
        msg.body.lend.slots.at = slots;
        msg.body.lend.slots.count = SL_COUNT(slots);
    } else {
        msg.type = SL_MSG_FENCE;
        msg.op_id = how < 232 ? msg.op_id : 0;
    }
    hostile_give(hostile, "coordinator", &msg);
}

static void change(struct hostile *hostile)
{
    static const uint32_t said[] = {SL_MSG_PEER_HELLO, SL_MSG_PEER_PIN, SL_MSG_PEER_PIN,
                                    SL_MSG_PEER_UNPIN, SL_MSG_PEER_LEND};
    struct hostile_input *input = &hostile->input;
    if (!world.begun) {
        world.begun = true;
        if (hostile_byte(input) < 224) {
            begin(hostile);
            return;
        }
    }
    uint64_t what = hostile_byte(input);
    if (what < 96) {
        answer_one();
    } else if (what < 160) {
        uint64_t which = hostile_byte(input);
        const struct sl_msg_info *any = sl_msg_info_at((uint32_t)which % 64);
        uint32_t type = said[which % SL_COUNT(said)];
        type = which >= 240 && any != NULL && any->type < SL_MSG_LOCAL_MIN ? any->type : type;
        world.speaker = (uint32_t)(what % SL_COUNT(peers));
        hostile_make(hostile, type, peer_asks, NULL);
    } else if (what < 208) {
        fabric_goes_on();
    } else if (what < 232) {
        hostile_node_change(&world.node, hostile);
    } else if (what < 236) {
        pull_give(hostile);
    } else if (what < 242) {
        handover_give(hostile);
    } else if (what < 248) {
        registrar_greets(hostile);
    } else {
        world.mute = !world.mute;
    }
    turn(hostile);
}

static void answered(struct hostile *hostile, const struct sl_msg *request, struct sl_msg *reply)
{
    static struct sl_item_grant grants[PLACES_MAX];
    static uint64_t codes[PLACES_MAX];
    if (request->type == SL_MSG_RESERVE) {
        uint64_t count = SL_MIN(request->body.reserve.items.count, SL_COUNT(grants));
        for (uint64_t i = 0; i < count; i++) {
            const struct sl_item_want *want = &request->body.reserve.items.at[i];
            char key[SL_KEY_BYTES_MAX + 1] = "";
            struct sl_extent extent = {0};
            memcpy(key, want->key.at, want->key.length);
            uint64_t how = hostile_byte(&hostile->input);
            sl_ref ref = hostile_node_claim(&world.node, SL_RECORD_RESERVED, key,
                                            want->length_bytes, &extent);
            grants[i] = (struct sl_item_grant){.code = ref == 0    ? SL_ERR_NO_SPACE
                                                       : how > 232 ? how % SL_ERR_COUNT
                                                                   : SL_OK,
                                               .ref = ref,
                                               .generation = extent.generation,
                                               .offset_bytes = extent.offset_bytes};
        }
        reply->body.reserve_reply.items.at = grants;
        reply->body.reserve_reply.items.count = count;
    } else if (request->type == SL_MSG_ENGINES) {
        static const uint64_t ids[] = {ENGINE};
        reply->body.engines_reply.engine_ids = (struct sl_u64s){ids, 1};
    } else if (request->type == SL_MSG_ENGINE_GET) {
        hostile_node_engine(&world.node, &reply->body.engine_get_reply);
        reply->body.engine_get_reply.engine_id = request->body.engine_get.engine_id;
    } else if (request->type == SL_MSG_COMMIT) {
        uint64_t count = SL_MIN(request->body.commit.items.count, SL_COUNT(codes));
        memset(codes, 0, sizeof(codes));
        reply->body.commit_reply.codes = (struct sl_u64s){codes, count};
    }
}

/* ---- invariants ---- */

static void check_tables(const struct transporter *self)
{
    uint32_t sets = 0, fetches = 0, trips = 0;
    uint64_t pins = 0, pinned = 0;
    for (uint32_t i = 0; i < TR_PIN_SETS_MAX; i++) {
        sets += self->pin_sets[i].used ? 1 : 0;
        pins += self->pin_sets[i].pin_count;
    }
    for (uint32_t i = 0; i < TR_FETCHES_MAX; i++) {
        fetches += self->fetches[i].used ? 1 : 0;
    }
    for (uint32_t i = 0; i < self->fetch_batch_max; i++) {
        trips += self->fetch_batches[i].phase != TR_FREE ? 1 : 0;
        HOSTILE_MUST(self->fetch_batches[i].unit_count <= TR_KEYS_MAX);
    }
    for (uint32_t i = 0; i < self->peer_count; i++) {
        pinned += self->peers[i].pinned;
    }
    HOSTILE_MUST(sets == self->pin_sets_open && fetches == self->fetch_open &&
                 trips == self->fetch_batches_open && pins == pinned);
    HOSTILE_MUST(self->peer_count <= TR_PEERS_MAX && self->parts_open <= TR_PARTS_MAX);
}

static void check_empty(struct hostile *hostile, const struct transporter *self)
{
    HOSTILE_MUST(self->pin_sets_open == 0 && sl_pins_pinned_bytes(self->pins) == 0);
    HOSTILE_MUST(self->fetch_open == 0 && self->fetch_batches_open == 0 && self->parts_open == 0);
    HOSTILE_MUST(self->queue_first == NULL);
    const struct handover *ho = self->handover;
    HOSTILE_MUST(ho == NULL || ho->loans_open + ho->takes_open + ho->reads_open == 0);
    HOSTILE_MUST(ho == NULL || ho->shares_open + ho->parts_open == 0);
    for (uint32_t i = 0; i < TR_FENCES_MAX; i++) {
        HOSTILE_MUST(!self->fences[i].used);
    }
    for (uint32_t i = 0; i < hostile->given_count; i++) {
        HOSTILE_MUST(hostile->given[i].answered > 0 || hostile->lossy);
    }
}

static void check(struct hostile *hostile, bool end)
{
    const struct transporter *self = hostile->fake.state;
    if (self == NULL) {
        return;
    }
    check_tables(self);
    if (end) {
        check_empty(hostile, self);
    }
}

static const char *const settings[] = {"memory",
                                       "1MiB",
                                       "node_name",
                                       "a",
                                       "peers",
                                       SETTING_PEERS,
                                       "cluster_listen",
                                       "h:1",
                                       "fabric",
                                       "tcp",
                                       "fabric_address",
                                       "127.0.0.1",
                                       "fabric_lanes",
                                       "1",
                                       "fabric_depth",
                                       "2",
                                       "fabric_unit",
                                       "16KiB",
                                       "client_pins_max",
                                       "16",
                                       "fetch_bytes",
                                       "64KiB",
                                       "fetch_batches_max",
                                       "3",
                                       "remote_pin_ttl",
                                       "10s",
                                       "fabric_pools",
                                       "true",
                                       NULL};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length_bytes)
{
    static const struct hostile_target target = {
        .actor = &sl_transporter_actor,
        .settings = settings,
        .requests = requests,
        .request_count = SL_COUNT(requests),
        .restarts = false,
        .prepare = prepare,
        .world = change,
        .answered = answered,
        .check = check,
        .finish = finish,
    };
    hostile_run(&target, bytes, length_bytes);
    return 0;
}
