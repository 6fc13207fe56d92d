/* tests/cluster/push_probe.c - the two coordinators of a direct hand-over, as one actor of a node
 * that does what its standard input says (push_test.py). Numbers are decimal; every command is
 * answered by one line, now or later.
 *
 *   meet                             its first word to the transporter, which is sent again until the
 *                                    connection is there: what comes after it stays in order: "met CODE"
 *   open H COUNT BYTES TTL_MS FROM   reserves COUNT extents for the transporter: "ticket H HEX"
 *   close H                          "closed H CODE"
 *   source H COUNT BYTES             extents of our own with the pattern of H: "source H CODE"
 *   push H LAYERS BUDGET_MS HEX      in so many batches, the last says so: "pushed H LAYER CODE TEXT"
 *   abort H HEX                      "aborted H CODE"
 *   fill H BYTE                      writes into the extents of H: "filled H"
 *   is H BYTE, check H               whether they hold this byte, or the pattern: "is H 0|1"
 *   same H OTHER                     whether two sets hold the same: "same H 0|1"
 *   begun H                          whether the first byte is written, and the last: "begun H 0|1 0|1"
 *
 * What arrives is acknowledged, and told: "arrived H STATE LAYER PIECES CODE TEXT". */
#include "ipc/sl_arena.h"
#include "ipc/sl_index.h"
#include "ipc/sl_msg.h"
#include "ipc/sl_process.h"
#include "runtime/sl_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETS_MAX   64u
#define PARTS_MAX  512u
#define LAYERS_MAX 64u
#define WAIT_NS    (60 * SL_NS_PER_S)

enum call { CALL_RESERVE, CALL_OPEN, CALL_CLOSE, CALL_PUSH, CALL_ABORT, CALL_MEET };

struct set {
    uint64_t number;
    uint32_t count;
    uint64_t length_bytes, ttl_ns;
    uint64_t again_ns, give_up_ns; /* again: 0 or when to reserve again */
    bool target;
    char from[32];
    struct sl_item_grant grants[PARTS_MAX];
};
struct probe {
    struct sl_env *env;
    struct sl_calls *calls;
    struct sl_arena *arena;
    struct set sets[SETS_MAX];
    uint32_t set_count;
    uint64_t next_key;
    char line[1024];
    size_t line_bytes;
};

static uint64_t cookie_of(enum call call, uint64_t set, uint64_t layer)
{
    return (uint64_t)call << 48 | layer << 32 | set;
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

static unsigned char *part_at(struct probe *self, const struct set *set, uint32_t part)
{
    if (self->arena == NULL) {
        (void)sl_arena_attach(self->env->paths->shm_dir, 0, true, &self->arena, NULL);
    }
    return sl_arena_at(self->arena, set->grants[part].offset_bytes, set->length_bytes);
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

/* ---- extents ---- */

static void reserve_send(struct probe *self, struct set *set)
{
    static struct sl_item_want wants[PARTS_MAX];
    static char keys[PARTS_MAX][32];
    for (uint32_t i = 0; i < set->count; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "probe.%" PRIu64, self->next_key++);
        wants[i] = (struct sl_item_want){.key = sl_text_of(keys[i]),
                                         .length_bytes = set->length_bytes,
                                         .writer = sl_text_of(set->target ? "transporter.0" : "")};
    }
    struct sl_msg msg = {.type = SL_MSG_RESERVE};
    msg.body.reserve.wait = true;
    msg.body.reserve.ttl_ns = 600 * SL_NS_PER_S;
    msg.body.reserve.items.at = wants;
    msg.body.reserve.items.count = set->count;
    call(self, "registrar", &msg, WAIT_NS, cookie_of(CALL_RESERVE, set->number, 0));
}

/* Gives the set; NULL: it cannot be (said). */
static struct set *set_reserve(struct probe *self, uint64_t number, uint64_t count,
                               uint64_t length_bytes, bool target)
{
    if (count > PARTS_MAX || self->set_count == SETS_MAX) {
        say("error too many");
        return NULL;
    }
    struct set *set = &self->sets[self->set_count++];
    set->number = number;
    set->count = (uint32_t)count;
    set->length_bytes = length_bytes;
    set->target = target;
    set->give_up_ns = self->env->now_ns + WAIT_NS;
    reserve_send(self, set);
    return set;
}

static void set_open(struct probe *self, const struct set *set)
{
    static struct sl_item_target parts[PARTS_MAX];
    for (uint32_t i = 0; i < set->count; i++) {
        parts[i] = (struct sl_item_target){.ref = set->grants[i].ref,
                                           .generation = set->grants[i].generation,
                                           .arena = set->grants[i].arena,
                                           .offset_bytes = set->grants[i].offset_bytes,
                                           .length_bytes = set->length_bytes};
    }
    struct sl_msg msg = {.type = SL_MSG_PUSH_OPEN};
    msg.body.push_open = (struct sl_body_push_open){
        .handover = set->number, .ttl_ns = set->ttl_ns, .from = sl_text_of(set->from)};
    msg.body.push_open.parts.at = parts;
    msg.body.push_open.parts.count = set->count;
    call(self, "transporter.0", &msg, WAIT_NS, cookie_of(CALL_OPEN, set->number, 0));
}

static void set_fill(struct probe *self, const struct set *set, int byte)
{
    for (uint32_t p = 0; p < set->count; p++) {
        unsigned char *at = part_at(self, set, p);
        for (uint64_t i = 0; i < set->length_bytes; i++) {
            at[i] = byte >= 0 ? (unsigned char)byte : pattern(set->number, p, i);
        }
    }
}

static bool set_is(struct probe *self, const struct set *set, int byte)
{
    for (uint32_t p = 0; p < set->count; p++) {
        const unsigned char *at = part_at(self, set, p);
        for (uint64_t i = 0; i < set->length_bytes; i++) {
            if (at[i] != (byte >= 0 ? (unsigned char)byte : pattern(set->number, p, i))) {
                return false;
            }
        }
    }
    return true;
}

static bool sets_equal(struct probe *self, const struct set *one, const struct set *other)
{
    bool same = one->count == other->count && one->length_bytes == other->length_bytes;
    for (uint32_t p = 0; same && p < one->count; p++) {
        same = memcmp(part_at(self, one, p), part_at(self, other, p), one->length_bytes) == 0;
    }
    return same;
}

static void reserved(struct probe *self, struct set *set, const struct sl_msg *reply)
{
    bool whole = reply != NULL && reply->code == SL_OK &&
                 reply->body.reserve_reply.items.count == set->count;
    for (uint32_t i = 0; whole && i < set->count; i++) {
        set->grants[i] = reply->body.reserve_reply.items.at[i];
        whole = set->grants[i].code == SL_OK;
    }
    bool known = reply == NULL || reply->code != SL_ERR_UNREACHABLE;
    if (!known && self->env->now_ns < set->give_up_ns) { /* the registrar knows us in a moment */
        set->again_ns = self->env->now_ns + 20 * SL_NS_PER_MS;
        self->env->ops->wake_at(self->env, set->again_ns);
    } else if (!whole) {
        say("error not reserved: %s", reply == NULL ? "no answer" : sl_err_name(reply->code));
    } else if (set->target) {
        set_fill(self, set, 0);
        set_open(self, set);
    } else {
        set_fill(self, set, -1);
        say("source %" PRIu64 " SL_OK", set->number);
    }
}

/* ---- pushing ---- */

static uint32_t unhex(const char *text, unsigned char *out, uint32_t max)
{
    uint32_t length = 0;
    unsigned byte = 0;
    while (length < max && sscanf(text + 2 * (size_t)length, "%2x", &byte) == 1) {
        out[length++] = (unsigned char)byte;
    }
    return length;
}

static void push_layer(struct probe *self, const struct set *set, uint64_t layer, uint64_t layers,
                       uint64_t budget_ns, const char *hex)
{
    static struct sl_item_pushed pieces[PARTS_MAX];
    unsigned char ticket[128];
    uint64_t from = set->length_bytes * layer / layers;
    uint64_t end = set->length_bytes * (layer + 1) / layers;
    for (uint32_t i = 0; i < set->count; i++) {
        struct sl_digest digest = sl_digest_of(part_at(self, set, i) + from, end - from);
        pieces[i] = (struct sl_item_pushed){.part = i,
                                            .part_offset_bytes = from,
                                            .arena = set->grants[i].arena,
                                            .offset_bytes = set->grants[i].offset_bytes + from,
                                            .length_bytes = end - from,
                                            .digest_low = digest.low,
                                            .digest_high = digest.high};
    }
    struct sl_msg msg = {.type = SL_MSG_PUSH_SEND, .trace_id = set->number};
    msg.body.push_send.ticket.length = unhex(hex, ticket, sizeof(ticket));
    msg.body.push_send.ticket.at = ticket;
    msg.body.push_send.layer = layer + 1;
    msg.body.push_send.last = layer + 1 == layers;
    msg.body.push_send.pieces.at = pieces;
    msg.body.push_send.pieces.count = set->count;
    call(self, "transporter.0", &msg, budget_ns, cookie_of(CALL_PUSH, set->number, layer));
}

static void push_abort(struct probe *self, uint64_t number, const char *hex)
{
    unsigned char ticket[128];
    struct sl_msg msg = {.type = SL_MSG_PUSH_ABORT};
    msg.body.push_abort.ticket.length = unhex(hex, ticket, sizeof(ticket));
    msg.body.push_abort.ticket.at = ticket;
    msg.body.push_abort.code = SL_ERR_CANCELLED;
    msg.body.push_abort.text = sl_text_of("the test gave up");
    call(self, "transporter.0", &msg, WAIT_NS, cookie_of(CALL_ABORT, number, 0));
}

/* ---- what comes in ---- */

static void command(struct probe *self, const char *line)
{
    uint64_t h = 0, count = 0, bytes = 0, ms = 0;
    char text[512] = "";
    int byte = 0;
    if (strcmp(line, "meet") == 0) {
        struct sl_msg msg = {.type = SL_MSG_PING};
        call(self, "transporter.0", &msg, WAIT_NS, cookie_of(CALL_MEET, 0, 0));
        return;
    }
    if (sscanf(line, "open %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %500s", &h, &count,
               &bytes, &ms, text) >= 4) {
        struct set *fresh = set_reserve(self, h, count, bytes, true);
        if (fresh != NULL) {
            fresh->ttl_ns = ms * SL_NS_PER_MS;
            (void)snprintf(fresh->from, sizeof(fresh->from), "%.31s", text);
        }
        return;
    }
    if (sscanf(line, "source %" SCNu64 " %" SCNu64 " %" SCNu64, &h, &count, &bytes) == 3) {
        (void)set_reserve(self, h, count, bytes, false);
        return;
    }
    if (sscanf(line, "abort %" SCNu64 " %500s", &h, text) == 2) {
        push_abort(self, h, text);
        return;
    }
    if (sscanf(line, "close %" SCNu64, &h) == 1) {
        struct sl_msg msg = {.type = SL_MSG_PUSH_CLOSE};
        msg.body.push_close.handover = h;
        call(self, "transporter.0", &msg, WAIT_NS, cookie_of(CALL_CLOSE, h, 0));
        return;
    }
    (void)sscanf(line, "%*s %" SCNu64, &h);
    struct set *set = set_of(self, h);
    if (set == NULL) {
        say("error no set %" PRIu64, h);
    } else if (sscanf(line, "push %*u %" SCNu64 " %" SCNu64 " %500s", &count, &ms, text) == 3) {
        for (uint64_t layer = 0; layer < count && count <= LAYERS_MAX; layer++) {
            push_layer(self, set, layer, count, ms * SL_NS_PER_MS, text);
        }
    } else if (sscanf(line, "fill %*u %d", &byte) == 1) {
        set_fill(self, set, byte);
        say("filled %" PRIu64, h);
    } else if (sscanf(line, "is %*u %d", &byte) == 1) {
        say("is %" PRIu64 " %d", h, set_is(self, set, byte));
    } else if (strncmp(line, "check ", 6) == 0) {
        say("is %" PRIu64 " %d", h, set_is(self, set, -1));
    } else if (sscanf(line, "same %*u %" SCNu64, &count) == 1 && set_of(self, count) != NULL) {
        say("same %" PRIu64 " %d", h, sets_equal(self, set, set_of(self, count)));
    } else if (strncmp(line, "begun ", 6) == 0) {
        say("begun %" PRIu64 " %d %d", h, part_at(self, set, 0)[0] != 0,
            part_at(self, set, set->count - 1)[set->length_bytes - 1] != 0);
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
            self->env->ops->finish(self->env); /* the test is gone */
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
    uint64_t number = done->cookie & UINT32_MAX, layer = done->cookie >> 32 & 0xffff;
    const char *code = sl_err_name(reply == NULL ? SL_ERR_TIMEOUT : reply->code);
    const char *text = reply == NULL ? "no answer" : reply->text.length > 0 ? reply->text.at : "";
    switch ((enum call)(done->cookie >> 48)) {
    case CALL_RESERVE:
        reserved(self, set_of(self, number), reply);
        break;
    case CALL_OPEN:
        if (reply != NULL && reply->code == SL_OK) {
            char hex[257] = "";
            const struct sl_bytes *ticket = &reply->body.push_open_reply.ticket;
            for (uint64_t i = 0; i < ticket->length; i++) {
                (void)snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)ticket->at)[i]);
            }
            say("ticket %" PRIu64 " %s", number, hex);
        } else {
            say("error %" PRIu64 " %s %s", number, code, text);
        }
        break;
    case CALL_CLOSE:
        say("closed %" PRIu64 " %s", number, code);
        break;
    case CALL_PUSH:
        say("pushed %" PRIu64 " %" PRIu64 " %s %s", number, layer, code, text);
        break;
    case CALL_MEET:
        say("met %s", code);
        break;
    case CALL_ABORT:
        say("aborted %" PRIu64 " %s", number, code);
        break;
    }
}

static sl_err probe_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct probe *self = state;
    self->env = env;
    self->next_key = env->now_ns;
    if (fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK) != 0) {
        return sl_fail_os(why, errno, "standard input");
    }
    sl_err err = sl_calls_create(env, 256, &self->calls, why);
    return err == SL_OK ? env->ops->watch_fd(env, STDIN_FILENO, why) : err;
}

static sl_err probe_handle(void *state, const struct sl_msg *msg)
{
    struct probe *self = state;
    struct sl_call done;
    if (msg->type == SL_MSG_PUSH_ARRIVED) {
        const struct sl_body_push_arrived *body = &msg->body.push_arrived;
        say("arrived %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %s", body->handover,
            body->state, body->layer, body->pieces.count, sl_err_name((sl_err)body->code),
            body->text.length > 0 ? body->text.at : "");
        sl_reply_code(self->env, msg, SL_OK, NULL);
    } else if (msg->type == SL_MSG_FENCE) { /* what is filled is filled at once */
        sl_reply_code(self->env, msg, SL_OK, NULL);
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
            reserve_send(self, set);
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
    sl_arena_close(&self->arena);
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
