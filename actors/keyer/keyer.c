/* actors/keyer/keyer.c - answers KEYS: the messages only; runtime/keys has the key formats. */
#include "actors/keyer/keyer.h"

#include "ipc/msg/sl_msg.h"
#include "runtime/keys/sl_keys.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Strings of a message are zero-terminated in memory. */
#define KEYER_SLOT_BYTES (SL_KEYS_KEY_BYTES_MAX + 1)

static_assert(SL_TOKENS_BYTES_MAX % sizeof(uint32_t) == 0, "whole tokens");

struct keyer {
    struct sl_env *env;
    struct sl_keys *keys;
    /* Buffers of the largest request so far, bounded by the message table, and reused. */
    uint32_t *tokens;
    uint64_t token_capacity;
    struct sl_text *texts; /* each is in `room` */
    char *room;
    uint64_t key_capacity;
    uint64_t key_count;
    sl_metric requests, refused, keys_derived, tokens_hashed;
};

static const struct sl_metric_row metric_rows[] = {
    SL_METRIC_ROW(keyer, requests, "key_requests"),
    SL_METRIC_ROW(keyer, refused, "key_requests_refused"),
    SL_METRIC_ROW(keyer, keys_derived, "keys_derived"),
    SL_METRIC_ROW(keyer, tokens_hashed, "tokens_hashed"),
};

static sl_err keyer_init(void *state, struct sl_env *env, struct sl_error *why)
{
    struct keyer *self = state;
    self->env = env;
    sl_metrics_define(env->metrics, metric_rows, SL_COUNT(metric_rows), self);
    return sl_keys_create(&self->keys, why);
}

static sl_err keyer_reserve_keys(struct keyer *self, uint64_t count, struct sl_error *why)
{
    if (count <= self->key_capacity) {
        return SL_OK;
    }
    free(self->texts);
    free(self->room);
    self->key_capacity = 0;
    self->texts = calloc(count, sizeof(*self->texts));
    self->room = malloc(count * KEYER_SLOT_BYTES);
    if (self->texts == NULL || self->room == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " keys", count);
    }
    self->key_capacity = count;
    return SL_OK;
}

/* Gives the tokens aligned: in a frame they may be at any address. */
static sl_err keyer_tokens(struct keyer *self, const struct sl_bytes *bytes, const uint32_t **out,
                           struct sl_error *why)
{
    uint64_t count = bytes->length / sizeof(uint32_t);
    if (bytes->length % sizeof(uint32_t) != 0) {
        return sl_fail(why, SL_ERR_INVALID,
                       "tokens: %" PRIu64 " bytes are not whole tokens of 4 bytes", bytes->length);
    }
    if ((uintptr_t)bytes->at % _Alignof(uint32_t) == 0) {
        *out = bytes->at;
        return SL_OK;
    }
    if (count > self->token_capacity) {
        free(self->tokens);
        self->token_capacity = 0;
        self->tokens = malloc(bytes->length);
        if (self->tokens == NULL) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " tokens", count);
        }
        self->token_capacity = count;
    }
    memcpy(self->tokens, bytes->at, bytes->length);
    *out = self->tokens;
    return SL_OK;
}

static sl_err keyer_keep(void *context, uint64_t block, const char *text, uint32_t length)
{
    struct keyer *self = context;
    SL_ASSERT(block < self->key_capacity && length < KEYER_SLOT_BYTES);
    char *room = self->room + block * KEYER_SLOT_BYTES;
    memcpy(room, text, length + 1u);
    self->texts[block] = (struct sl_text){.at = room, .length = length};
    self->key_count = block + 1;
    return SL_OK;
}

static sl_err keyer_derive(struct keyer *self, const struct sl_body_keys *body,
                           struct sl_error *why)
{
    struct sl_keys_request request = {
        .format = body->format.at,
        .token_count = body->tokens.length / sizeof(uint32_t),
        .extras = body->extras.at,
        .seed = body->seed.at,
        .parent = body->parent.at,
        .block_tokens = (uint32_t)body->block_tokens,
        .partial = body->partial,
    };
    uint64_t count = 0;
    self->key_count = 0;
    sl_err err = sl_keys_count(&request, &count, why);
    if (err == SL_OK && count > SL_BATCH_MAX) {
        err = sl_fail(why, SL_ERR_INVALID,
                      "tokens: %" PRIu64 " blocks of %u tokens, at most %d at once", count,
                      request.block_tokens, SL_BATCH_MAX);
    }
    if (err == SL_OK) {
        err = keyer_tokens(self, &body->tokens, &request.tokens, why);
    }
    if (err == SL_OK) {
        err = keyer_reserve_keys(self, count, why);
    }
    if (err == SL_OK) {
        err = sl_keys_derive(self->keys, &request, keyer_keep, self, why);
    }
    return err;
}

static sl_err keyer_handle(void *state, const struct sl_msg *msg)
{
    struct keyer *self = state;
    struct sl_env *env = self->env;
    if (msg->type != SL_MSG_KEYS) {
        if (!SL_MSG_IS_REPLY(msg->type) && msg->type < SL_MSG_LOCAL_IO) {
            sl_reply_code(env, msg, SL_ERR_UNSUPPORTED, NULL);
        }
        return SL_OK;
    }
    struct sl_error why = {0};
    sl_metric_add(env->metrics, self->requests, 1);
    sl_err err = keyer_derive(self, &msg->body.keys, &why);
    sl_trace_event(env->metrics, env->now_ns, msg->trace_id, err == SL_OK ? "keys" : "keys refused",
                   "", err == SL_OK ? (uint32_t)self->key_count : (uint32_t)err);
    if (err != SL_OK) {
        sl_metric_add(env->metrics, self->refused, 1);
        sl_log_write(env->log, SL_LOG_WARN, msg->trace_id, "keys refused: %s", why.text);
        sl_reply_code(env, msg, err, &why);
        return SL_OK;
    }
    sl_metric_add(env->metrics, self->keys_derived, self->key_count);
    sl_metric_add(env->metrics, self->tokens_hashed,
                  msg->body.keys.tokens.length / sizeof(uint32_t));
    struct sl_msg reply = {.code = SL_OK};
    reply.body.keys_reply.keys.at = self->texts;
    reply.body.keys_reply.keys.count = self->key_count;
    sl_reply(env, msg, &reply);
    return SL_OK;
}

static sl_err keyer_tick(void *state, uint64_t now_ns)
{
    (void)state;
    (void)now_ns; /* nothing is ever due: requests are answered at once */
    return SL_OK;
}

static void keyer_drain(void *state)
{
    struct keyer *self = state;
    self->env->ops->finish(self->env);
}

static void keyer_fini(void *state)
{
    struct keyer *self = state;
    sl_keys_destroy(&self->keys);
    free(self->tokens);
    free(self->texts);
    free(self->room);
}

const struct sl_actor sl_keyer_actor = {
    .role = "keyer",
    .state_bytes = sizeof(struct keyer),
    .init = keyer_init,
    .handle = keyer_handle,
    .tick = keyer_tick,
    .drain = keyer_drain,
    .fini = keyer_fini,
};
