/* tests/cluster/lend_probe.c - the two coordinators of a direct hand-over, as one actor of a node
 * that executes commands from its standard input (lend_test.py). Numbers are decimal. Every command
 * is answered by one line, now or later; H is the number of a set of blocks. */
/* clang-format off */
/* meet                             sends the first message to the transporter until the connection
 *                                  exists, so that later ones stay in order: "met CODE"
 * bring H COUNT BYTES TTL_MS FROM  BRING into COUNT zeroed blocks of our engine: "ticket H HEX"
 * fence H                          ends that: "fenced H CODE"
 * source H COUNT BYTES SPARE       blocks with the pattern of H, and more that are not lent: "source H CODE"
 * lend H LAYERS BUDGET_MS HEX      one after the other; the last is answered: "lent H CODE TEXT"
 * drop H                           ends that: "dropped H CODE"
 * fill H BYTE                      writes into the blocks of H: "filled H"
 * is H BYTE, check H               whether they hold this byte, or the pattern: "is H 0|1"
 * same H OTHER                     whether two sets hold the same bytes: "same H 0|1"
 * begun H                          whether the first byte is written, and the last: "begun H 0|1 0|1"
 *
 * Landed pieces are acknowledged and reported: "landed H STATE PIECES". A BRING that fails: "brought H CODE TEXT". */
/* clang-format on */
#include "client/lib/engine.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/msg/sl_process.h"
#include "ipc/msg/sl_ticket.h"
#include "runtime/base/sl_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETS_MAX  256u
#define PARTS_MAX 512u
#define WAIT_NS   (60 * SL_NS_PER_S)
#define AGAIN_NS  (20 * SL_NS_PER_MS)

#define LENDS (UINT64_C(1) << 40) /* ids of STOREs */

enum call { CALL_BRING, CALL_FENCE, CALL_TRIED, CALL_LEND, CALL_DROP, CALL_MEET };

struct set { /* blocks of an engine of its own: one rank, one pool of one layer */
    uint64_t number;
    uint32_t count, spare; /* spare: further blocks of its engine */
    uint64_t length_bytes, ttl_ns;
    uint64_t again_ns, give_up_ns; /* again: 0, or when to ask again */
    bool target, tried, offered;
    char from[32], hex[2 * SL_TICKET_BYTES_MAX + 1];
    struct sl_engine *engine;
    uint64_t engine_id;
    unsigned char *memory;
    uint64_t layers, layer, lend_end_ns; /* lend: number of layers, and the one under way */
};
struct probe {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_client *client;
    struct set sets[SETS_MAX];
    uint32_t set_count;
    char line[1024];
    size_t line_bytes;
};

static uint64_t cookie_of(enum call call, uint64_t set)
{
    return (uint64_t)call << 48 | set;
}

static void say(const char *format, ...) SL_PRINTF(1, 2);
static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static struct set *set_of(struct probe *self, uint64_t number)
{
    for (uint32_t i = 0; i < self->set_count; i++) {
        if (self->sets[i].number == number) {
            return &self->sets[i];
        }
    }
    return NULL;
}

static unsigned char *part_at(const struct set *set, uint32_t part)
{
    return set->memory + part * set->length_bytes;
}

static unsigned char pattern(uint64_t number, uint32_t part, uint64_t i)
{
    return (unsigned char)((i * 2654435761u >> 13) + part * 31 + number * 7 + 1);
}

static void call(struct probe *self, const char *to, struct sl_msg *msg, uint64_t budget_ns,
                 uint64_t cookie)
{
    struct sl_error why = {0};
    sl_err err = sl_calls_send(self->calls, to, msg, self->env->now_ns + budget_ns, cookie, NULL);
    if (err != SL_OK) {
        (void)sl_fail(&why, err, "not sent");
        say("error %s", sl_err_name(err));
    }
}

/* ---- blocks ---- */

static void set_fill(const struct set *set, int byte)
{
    for (uint32_t p = 0; p < set->count; p++) {
        unsigned char *at = part_at(set, p);
        for (uint64_t i = 0; i < set->length_bytes; i++) {
            at[i] = byte >= 0 ? (unsigned char)byte : pattern(set->number, p, i);
        }
    }
}

static bool set_is(const struct set *set, int byte)
{
    for (uint32_t p = 0; p < set->count; p++) {
        const unsigned char *at = part_at(set, p);
        for (uint64_t i = 0; i < set->length_bytes; i++) {
            if (at[i] != (byte >= 0 ? (unsigned char)byte : pattern(set->number, p, i))) {
                return false;
            }
        }
    }
    return true;
}

static bool sets_equal(const struct set *one, const struct set *other)
{
    return one->count == other->count && one->length_bytes == other->length_bytes &&
           memcmp(one->memory, other->memory, one->count * one->length_bytes) == 0;
}

/* Asks for its blocks. A source ends this immediately: the transporter only registers its
 * memory. */
static void set_bring(struct probe *self, struct set *set)
{
    static struct sl_item_slot slots[PARTS_MAX];
    struct sl_ticket_fields fields = {.number = set->number};
    unsigned char ticket[SL_TICKET_BYTES_MAX];
    for (uint32_t i = 0; i < set->count; i++) {
        slots[i] = (struct sl_item_slot){.engine_id = set->engine_id, .device_block = i, .item = i};
    }
    (void)snprintf(fields.node, sizeof(fields.node), "%s",
                   sl_config_text(self->env->config, SL_SET_node_name));
    for (uint32_t i = 0; i < sizeof(fields.secret); i++) {
        fields.secret[i] = (uint8_t)self->env->ops->random_u64(self->env);
    }
    struct sl_msg msg = {.type = SL_MSG_BRING, .op_id = set->number};
    msg.body.bring.ticket.at = ticket;
    msg.body.bring.ticket.length = sl_ticket_write(&fields, ticket);
    msg.body.bring.from = sl_text_of(set->from);
    msg.body.bring.slots.at = slots;
    msg.body.bring.slots.count = set->count;
    for (uint64_t i = 0; i < msg.body.bring.ticket.length; i++) {
        (void)snprintf(set->hex + 2 * i, 3, "%02x", ticket[i]);
    }
    call(self, "transporter.0", &msg, set->target ? set->ttl_ns : WAIT_NS,
         cookie_of(CALL_BRING, set->number));
}

static void fence(struct probe *self, uint64_t op_id, uint64_t cookie)
{
    struct sl_msg msg = {.type = SL_MSG_FENCE, .op_id = op_id};
    call(self, "transporter.0", &msg, WAIT_NS, cookie);
}

static sl_err set_register(struct probe *self, struct set *set, struct sl_error *why)
{
    char name[48];
    (void)snprintf(name, sizeof(name), "set-%u-%" PRIu64, (unsigned)getpid(), set->number);
    const struct sl_engine_layer layer = {.length_bytes =
                                              (set->count + set->spare) * set->length_bytes,
                                          .block_stride_bytes = set->length_bytes,
                                          .piece_bytes = set->length_bytes};
    const struct sl_engine_pool pool = {
        .name = "kv", .layer_count = 1, .layers = &layer, .memory_bytes = layer.length_bytes};
    const struct sl_engine_options options = {.name = name,
                                              .model = {.name = "probe"},
                                              .key_format = "sluice",
                                              .block_tokens = 16,
                                              .world = 1,
                                              .block_count = set->count + set->spare,
                                              .pool_count = 1,
                                              .pools = &pool};
    sl_err err = sl_engine_register(self->client, &options, WAIT_NS, &set->engine, why);
    if (err == SL_OK) {
        set->memory = sl_engine_memory(set->engine, 0, 0);
        set->engine_id = atomic_load(&set->engine->registration);
        set_fill(set, set->target ? 0 : -1);
    }
    return err;
}

static void set_make(struct probe *self, const struct set *want)
{
    struct sl_error why = {0};
    if (want->count > PARTS_MAX || self->set_count == SETS_MAX) {
        say("error too many");
        return;
    }
    struct set *set = &self->sets[self->set_count];
    *set = *want;
    set->give_up_ns = self->env->now_ns + WAIT_NS;
    if (set_register(self, set, &why) != SL_OK) {
        say("error not registered: %s", why.text);
        return;
    }
    self->set_count++;
    set_bring(self, set);
}

static void brought(struct probe *self, struct set *set, const struct sl_msg *reply)
{
    sl_err code = reply == NULL ? SL_ERR_TIMEOUT : reply->code;
    if (set->tried || code == SL_OK) {
        return;
    }
    if (!set->offered && code == SL_ERR_NOT_FOUND && self->env->now_ns < set->give_up_ns) {
        set->again_ns = self->env->now_ns + AGAIN_NS; /* the transporter will soon know the
                                                       * engine */
        self->env->ops->wake_at(self->env, set->again_ns);
        return;
    }
    say("%s %" PRIu64 " %s %s", set->target ? "brought" : "source", set->number, sl_err_name(code),
        reply != NULL && reply->text.length > 0 ? reply->text.at : "");
}

static void landed(struct probe *self, const struct sl_msg *msg)
{
    const struct sl_body_landed *body = &msg->body.landed;
    struct set *set = set_of(self, body->handover);
    sl_reply_code(self->env, msg, set != NULL ? SL_OK : SL_ERR_NOT_FOUND, NULL);
    if (set == NULL || set->tried) {
        return;
    }
    if (body->state != 0) {
        say("landed %" PRIu64 " %" PRIu64 " %" PRIu64, set->number, body->state,
            body->pieces.count);
    } else if (!set->target) {
        set->tried = true;
        fence(self, set->number, cookie_of(CALL_TRIED, set->number));
    } else if (!set->offered) {
        set->offered = true;
        say("ticket %" PRIu64 " %s", set->number, set->hex);
    }
}

/* ---- lending ---- */

static uint32_t unhex(const char *text, unsigned char *out, uint32_t max)
{
    uint32_t length = 0;
    unsigned byte = 0;
    while (length < max && sscanf(text + 2 * (size_t)length, "%2x", &byte) == 1) {
        out[length++] = (unsigned char)byte;
    }
    return length;
}

static void layer_lend(struct probe *self, const struct set *set)
{
    static struct sl_item_arrived pieces[PARTS_MAX];
    static struct sl_item_slot slots[PARTS_MAX];
    unsigned char ticket[SL_TICKET_BYTES_MAX];
    uint64_t from = set->length_bytes * set->layer / set->layers;
    uint64_t end = set->length_bytes * (set->layer + 1) / set->layers;
    for (uint32_t i = 0; i < set->count; i++) {
        struct sl_digest digest = sl_digest_of(part_at(set, i) + from, end - from);
        pieces[i] = (struct sl_item_arrived){.part = i,
                                             .part_offset_bytes = from,
                                             .length_bytes = end - from,
                                             .digest_low = digest.low,
                                             .digest_high = digest.high};
        slots[i] = (struct sl_item_slot){.engine_id = set->engine_id, .device_block = i, .item = i};
    }
    struct sl_msg msg = {
        .type = SL_MSG_LEND, .trace_id = set->number, .op_id = LENDS | set->number};
    msg.body.lend.ticket.length = unhex(set->hex, ticket, sizeof(ticket));
    msg.body.lend.ticket.at = ticket;
    msg.body.lend.number = set->layer + 1;
    msg.body.lend.last = set->layer + 1 == set->layers;
    msg.body.lend.pieces.at = pieces;
    msg.body.lend.pieces.count = set->count;
    msg.body.lend.slots.at = slots;
    msg.body.lend.slots.count = set->count;
    uint64_t left_ns = set->lend_end_ns - SL_MIN(self->env->now_ns, set->lend_end_ns);
    call(self, "transporter.0", &msg, left_ns, cookie_of(CALL_LEND, set->number));
}

static void lent(struct probe *self, struct set *set, const struct sl_msg *reply)
{
    if (reply != NULL && reply->code == SL_OK && ++set->layer < set->layers) {
        layer_lend(self, set);
        return;
    }
    say("lent %" PRIu64 " %s %s", set->number,
        sl_err_name(reply == NULL ? SL_ERR_TIMEOUT : reply->code),
        reply == NULL            ? "no answer"
        : reply->text.length > 0 ? reply->text.at
                                 : "");
}

/* ---- commands and messages ---- */

static void command(struct probe *self, const char *line)
{
    uint64_t h = 0, count = 0, bytes = 0, ms = 0;
    char text[512] = "";
    int byte = 0;
    if (strcmp(line, "meet") == 0) {
        struct sl_msg msg = {.type = SL_MSG_PING};
        call(self, "transporter.0", &msg, WAIT_NS, cookie_of(CALL_MEET, 0));
        return;
    }
    if (sscanf(line, "bring %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %500s", &h, &count,
               &bytes, &ms, text) >= 4) {
        struct set want = {.number = h,
                           .count = (uint32_t)count,
                           .length_bytes = bytes,
                           .ttl_ns = ms * SL_NS_PER_MS,
                           .target = true};
        (void)snprintf(want.from, sizeof(want.from), "%.31s", text);
        set_make(self, &want);
        return;
    }
    if (sscanf(line, "source %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &h, &count, &bytes,
               &ms) == 4) {
        const struct set want = {
            .number = h, .count = (uint32_t)count, .spare = (uint32_t)ms, .length_bytes = bytes};
        set_make(self, &want);
        return;
    }
    (void)sscanf(line, "%*s %" SCNu64, &h);
    struct set *set = set_of(self, h);
    if (set == NULL) {
        say("error no set %" PRIu64, h);
    } else if (sscanf(line, "lend %*u %" SCNu64 " %" SCNu64 " %128s", &count, &ms, text) == 3) {
        set->layers = count;
        set->layer = 0;
        set->lend_end_ns = self->env->now_ns + ms * SL_NS_PER_MS;
        (void)snprintf(set->hex, sizeof(set->hex), "%.128s", text);
        layer_lend(self, set);
    } else if (strncmp(line, "fence ", 6) == 0) {
        fence(self, h, cookie_of(CALL_FENCE, h));
    } else if (strncmp(line, "drop ", 5) == 0) {
        fence(self, LENDS | h, cookie_of(CALL_DROP, h));
    } else if (sscanf(line, "fill %*u %d", &byte) == 1) {
        set_fill(set, byte);
        say("filled %" PRIu64, h);
    } else if (sscanf(line, "is %*u %d", &byte) == 1) {
        say("is %" PRIu64 " %d", h, set_is(set, byte));
    } else if (strncmp(line, "check ", 6) == 0) {
        say("is %" PRIu64 " %d", h, set_is(set, -1));
    } else if (sscanf(line, "same %*u %" SCNu64, &count) == 1 && set_of(self, count) != NULL) {
        say("same %" PRIu64 " %d", h, sets_equal(set, set_of(self, count)));
    } else if (strncmp(line, "begun ", 6) == 0) {
        say("begun %" PRIu64 " %d %d", h, part_at(set, 0)[0] != 0,
            part_at(set, set->count - 1)[set->length_bytes - 1] != 0);
    } else {
        say("error what is '%s'", line);
    }
}

static void input_take(struct probe *self)
{
    for (;;) {
        ssize_t got = read(STDIN_FILENO, self->line + self->line_bytes,
                           sizeof(self->line) - 1 - self->line_bytes);
        if (got == 0) {
            self->env->ops->finish(self->env); /* the test has ended */
            return;
        }
        if (got < 0) {
            return;
        }
        self->line_bytes += (size_t)got;
        self->line[self->line_bytes] = '\0';
        char *end = NULL;
        while ((end = strchr(self->line, '\n')) != NULL) {
            *end = '\0';
            command(self, self->line);
            self->line_bytes -= (size_t)(end + 1 - self->line);
            memmove(self->line, end + 1, self->line_bytes + 1);
        }
    }
}

static void answered(struct probe *self, const struct sl_call *done, const struct sl_msg *reply)
{
    uint64_t number = done->cookie & UINT32_MAX;
    const char *code = sl_err_name(reply == NULL ? SL_ERR_TIMEOUT : reply->code);
    switch ((enum call)(done->cookie >> 48)) {
    case CALL_BRING:
        brought(self, set_of(self, number), reply);
        break;
    case CALL_TRIED:
        say("source %" PRIu64 " %s", number, code);
        break;
    case CALL_FENCE:
        say("fenced %" PRIu64 " %s", number, code);
        break;
    case CALL_LEND:
        lent(self, set_of(self, number), reply);
        break;
    case CALL_MEET:
        say("met %s", code);
        break;
    case CALL_DROP:
        say("dropped %" PRIu64 " %s", number, code);
        break;
    }
}

static sl_err probe_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct probe *self = state;
    char texts[3][512];
    const char *settings[SL_COUNT(texts) + 1] = {NULL};
    const uint32_t whose[] = {SL_SET_instance, SL_SET_runtime_dir, SL_SET_shm_dir};
    const char *const names[] = {"instance", "runtime_dir", "shm_dir"};
    for (uint32_t i = 0; i < SL_COUNT(texts); i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "%s=%s", names[i],
                       sl_config_text(env->config, whose[i]));
        settings[i] = texts[i];
    }
    const struct sl_client_options options = {
        .api_version = SLUICE_API_VERSION, .timeout_ns = WAIT_NS, .settings = settings};
    self->env = env;
    if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) != 0) {
        return sl_fail_os(why, errno, "standard input");
    }
    sl_err err = sl_client_open(&options, &self->client, why);
    err = err == SL_OK ? sl_calls_create(env, 256, &self->calls, why) : err;
    return err == SL_OK ? env->ops->watch_fd(env, STDIN_FILENO, why) : err;
}

static sl_err probe_handle(void *state, const struct sl_msg *msg)
{
    struct probe *self = state;
    struct sl_call done;
    if (msg->type == SL_MSG_LANDED) {
        landed(self, msg);
    } else if (SL_MSG_IS_REPLY(msg->type) && sl_calls_match(self->calls, msg, &done)) {
        answered(self, &done, msg);
    }
    return SL_OK;
}

static sl_err probe_tick(void *state, uint64_t now_ns)
{
    struct probe *self = state;
    struct sl_call done;
    input_take(self);
    for (uint32_t i = 0; i < self->set_count; i++) {
        struct set *set = &self->sets[i];
        if (set->again_ns != 0 && set->again_ns <= now_ns) {
            set->again_ns = 0;
            set_bring(self, set);
        } else if (set->again_ns != 0) {
            self->env->ops->wake_at(self->env, set->again_ns);
        }
    }
    while (sl_calls_expired(self->calls, now_ns, &done)) {
        answered(self, &done, NULL);
    }
    return SL_OK;
}

static void probe_drain(void *state)
{
    struct probe *self = state;
    self->env->ops->finish(self->env);
}

static void probe_fini(void *state)
{
    struct probe *self = state;
    self->env->ops->unwatch_fd(self->env, STDIN_FILENO);
    sl_calls_destroy(&self->calls);
    for (uint32_t i = 0; i < self->set_count; i++) {
        sl_engine_end(&self->sets[i].engine);
    }
    sl_client_close(&self->client);
}

static const struct sl_actor probe_actor = {
    .role = "prober",
    .state_bytes = sizeof(struct probe),
    .init = probe_init,
    .handle = probe_handle,
    .tick = probe_tick,
    .drain = probe_drain,
    .fini = probe_fini,
};

int main(int argc, char **argv)
{
    return sl_process_main(&probe_actor, argc, argv);
}
