/* tests/unit/push_support.c - see push_support.h. */
#include "tests/unit/push_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct push_bed bed;

static void net_done(void *context, const struct sl_fabric_done *done)
{
    ck_assert(tr_push_done(context, done));
}

static void net_registered(void *context, uint32_t memory, uint32_t region_index,
                           const struct sl_error *why)
{
    (void)region_index;
    ck_assert(tr_pools_registered(context, memory, why));
}

static void engine_answer(const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    reply.body.engine_get_reply =
        (struct sl_body_engine_get_reply){.engine_id = ENGINE,
                                          .pid = (uint64_t)getpid(),
                                          .start_time = 77,
                                          .name = sl_text_of("engine"),
                                          .model = sl_text_of("0123456789abcdef0123456789abcdef"),
                                          .key_format = sl_text_of("sluice"),
                                          .block_tokens = 16,
                                          .world = bed.ranks};
    reply.body.engine_get_reply.pools.at = bed.pools;
    reply.body.engine_get_reply.pools.count = SL_COUNT(bed.pools);
    reply.body.engine_get_reply.regions.at = bed.regions;
    reply.body.engine_get_reply.regions.count = bed.region_count;
    fake_answer(&bed.fake, "registrar", msg, &reply);
}

void tick(void)
{
    struct sl_msg msg;
    bed.self->env->ops->wake_at(bed.self->env, 0);
    fake_pass(&bed.fake, 0);
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINES, &msg)) {
        static const uint64_t id = ENGINE;
        struct sl_msg reply = {.code = SL_OK};
        reply.body.engines_reply.engine_ids =
            (struct sl_u64s){.at = &id, .count = bed.listed ? 1 : 0};
        fake_answer(&bed.fake, "registrar", &msg, &reply);
    }
    while (fake_take(&bed.fake, "registrar", SL_MSG_ENGINE_GET, &msg)) {
        engine_answer(&msg);
    }
}

void pass(uint64_t ns)
{
    fake_pass(&bed.fake, ns);
}

uint64_t metric(const char *name)
{
    struct sl_metrics *page = bed.self->env->metrics;
    return sl_metric_get(page, sl_metric_define(page, name));
}

void bed_begin(uint32_t ranks, uint64_t memory_bytes)
{
    memset(&bed, 0, sizeof(bed));
    bed.ranks = ranks;
    bed.memory_bytes = memory_bytes;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        bed.fds[rank] = memfd_create("pool-of-the-test", MFD_CLOEXEC);
        ck_assert_int_eq(ftruncate(bed.fds[rank], (off_t)memory_bytes), 0);
        bed.memory[rank] =
            mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bed.fds[rank], 0);
        ck_assert_ptr_ne(bed.memory[rank], MAP_FAILED);
    }
}

void bed_open(const char *peers, const char *const *more)
{
    const char *const settings[] = {
        "node_name", "a",      "peer_heartbeat", "1s",           "peer_timeout",
        "500ms",     "memory", "4MiB",           "fabric_pools", "true",
        NULL};
    struct sl_error why = {0};
    struct sl_fabric_options options;
    fake_open(&bed.fake, &sl_transporter_actor, settings);
    for (size_t i = 0; more != NULL && more[i] != NULL; i += 2) {
        fake_set(&bed.fake, more[i], more[i + 1]);
    }
    bed.fake.env.name = "transporter.0";
    ck_assert_int_eq(fake_start(&bed.fake, &why), SL_OK);
    bed.self = bed.fake.state;
    sl_fabric_options_init(&options, "tcp");
    options.address = "127.0.0.1:0";
    if (bed.region_bytes_max > 0) {
        options.region_bytes_max = bed.region_bytes_max;
    }
    options.events = (struct sl_fabric_events){.context = bed.self,
                                               .done = net_done,
                                               .registered = net_registered,
                                               .address = tr_fabric_address,
                                               .granted = tr_fabric_granted,
                                               .grant_ended = tr_fabric_grant_ended};
    ck_assert_msg(sl_fabric_open(&options, &bed.self->fabric, &why) == SL_OK, "%s", why.text);
    bed.self->fabric_name = "tcp";
    fake_net_open(&bed.net);
    bed.self->control = &bed.net.base;
    fake_set(&bed.fake, "peers", peers);
    ck_assert_msg(tr_cluster_init(bed.self, &why) == SL_OK, "%s", why.text);
    fake_live(&bed.fake, (struct sl_proc_id){.pid = (uint32_t)getpid(), .start_time = 77});
    bed.listed = true;
    for (uint32_t i = 0; i < 100 && metric("pool_engines") == 0; i++) {
        tick();
        pass(10 * SL_NS_PER_MS);
    }
    ck_assert_uint_eq(metric("pool_engines"), 1);
}

void bed_close(void)
{
    tr_cluster_fini(bed.self);
    bed.self->control = NULL;
    sl_fabric_close(&bed.self->fabric);
    bed.self->calls = NULL;
    fake_net_close(&bed.net);
    for (uint32_t rank = 0; rank < bed.ranks; rank++) {
        munmap(bed.memory[rank], bed.memory_bytes);
        close(bed.fds[rank]);
    }
    fake_close(&bed.fake);
}

const struct push *push_of(void)
{
    return bed.self->push;
}

/* ---- requests ---- */

struct sl_item_spot spot_of(uint32_t rank, uint32_t pool, uint32_t block, uint64_t item)
{
    return (struct sl_item_spot){
        .engine_id = ENGINE, .rank = rank, .pool = pool, .device_block = block, .item = item};
}

struct sl_bytes ticket_bytes(void)
{
    return (struct sl_bytes){.at = bed.ticket, .length = bed.ticket_bytes};
}

void ticket_take(uint64_t seq)
{
    struct sl_msg reply;
    ck_assert(fake_take_reply(&bed.fake, DECODE, seq, &reply));
    ck_assert_msg(reply.code == SL_OK, "%s", reply.text.at);
    bed.ticket_bytes = reply.body.push_open_reply.ticket.length;
    memcpy(bed.ticket, reply.body.push_open_reply.ticket.at, bed.ticket_bytes);
}

uint64_t close_send(void)
{
    struct sl_msg msg = {.type = SL_MSG_PUSH_CLOSE};
    msg.body.push_close.handover = 1;
    fake_give(&bed.fake, DECODE, &msg);
    tick();
    return msg.seq;
}

void replied(const char *to, uint64_t seq, sl_err code, const char *text)
{
    struct sl_msg reply;
    ck_assert_msg(fake_take_reply(&bed.fake, to, seq, &reply), "no answer to %s", to);
    ck_assert_msg(reply.code == code, "%s: %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_msg(text == NULL || strstr(reply.text.at, text) != NULL, "'%s'", reply.text.at);
}

bool unanswered(const char *to, uint64_t seq)
{
    struct sl_msg reply;
    return !fake_take_reply(&bed.fake, to, seq, &reply);
}

struct sl_msg arrived(uint64_t state)
{
    struct sl_msg msg;
    tick();
    ck_assert(fake_take(&bed.fake, DECODE, SL_MSG_PUSH_ARRIVED, &msg));
    ck_assert_uint_eq(msg.body.push_arrived.handover, 1);
    ck_assert_msg(msg.body.push_arrived.state == state, "state %u: %s",
                  (unsigned)msg.body.push_arrived.state, msg.body.push_arrived.text.at);
    return msg;
}

void arrived_answer(const struct sl_msg *msg, sl_err code)
{
    struct sl_msg reply = {.code = code};
    struct sl_msg request = {.type = SL_MSG_PUSH_ARRIVED, .seq = msg->seq};
    fake_answer(&bed.fake, DECODE, &request, &reply);
    tick();
}

void over(sl_err code, const char *text)
{
    struct sl_msg msg = arrived(2);
    ck_assert_uint_eq(msg.body.push_arrived.code, code);
    ck_assert_msg(strstr(msg.body.push_arrived.text.at, text) != NULL, "'%s'",
                  msg.body.push_arrived.text.at);
    arrived_answer(&msg, SL_OK);
}

void nothing_is_left(void)
{
    tick();
    ck_assert_uint_eq(push_of()->tickets_open, 0);
    ck_assert_uint_eq(push_of()->parts_open, 0);
    ck_assert_uint_eq(push_of()->places_open, 0);
    ck_assert_uint_eq(push_of()->sends_open, 0);
    ck_assert_uint_eq(push_of()->doors_open, 0);
    ck_assert_uint_eq(sl_calls_count(push_of()->calls), 0);
    for (uint32_t i = 0; i < push_of()->push_max; i++) {
        ck_assert_int_eq(push_of()->arrivals[i].phase, ARRIVAL_FREE);
    }
    for (uint32_t i = 0; i < push_of()->grant_max; i++) {
        ck_assert(!push_of()->grants[i].used);
    }
}

/* ---- peers ---- */

void peer_greets(const char *name, uint64_t incarnation)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_HELLO};
    msg.body.peer_hello = (struct sl_body_peer_hello){
        .node = sl_text_of(name), .incarnation = incarnation, .fabric = sl_text_of("tcp")};
    (void)fake_net_say(&bed.net, name, msg, false);
    tick();
}

sl_err peer_shows(const char *name, uint64_t first_part, struct sl_msg *reply)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_TICKET};
    msg.body.peer_ticket =
        (struct sl_body_peer_ticket){.ticket = ticket_bytes(), .first_part = first_part};
    uint64_t seq = fake_net_say(&bed.net, name, msg, false);
    tick();
    pass(SL_NS_PER_MS); /* the fabric says that the grants hold */
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_TICKET_REPLY, reply));
    ck_assert_uint_eq(reply->reply_to, seq);
    return reply->code;
}

uint64_t peer_names(const char *name, uint64_t push, const struct sl_item_arrived *piece, bool last)
{
    struct sl_msg msg = {.type = SL_MSG_PEER_PUSH};
    msg.body.peer_push =
        (struct sl_body_peer_push){.ticket = ticket_bytes(), .push = push, .last = last};
    msg.body.peer_push.pieces.at = piece;
    msg.body.peer_push.pieces.count = piece != NULL ? 1 : 0;
    uint64_t seq = fake_net_say(&bed.net, name, msg, false);
    tick();
    return seq;
}

void acknowledged(const char *name, uint64_t seq, sl_err code, const char *text)
{
    struct sl_msg reply;
    tick();
    ck_assert(fake_net_last(&bed.net, name, SL_MSG_PEER_PUSH_REPLY, &reply));
    ck_assert_uint_eq(reply.reply_to, seq);
    ck_assert_msg(reply.code == code, "%s %s", sl_err_name(reply.code),
                  reply.text.length > 0 ? reply.text.at : "");
    ck_assert_msg(text == NULL || strstr(reply.text.at, text) != NULL, "'%s'", reply.text.at);
}
