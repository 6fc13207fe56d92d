/* actors/transporter/rails/stream.c - see stream.h. */
#include "actors/transporter/rails/stream.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tr_kept {
    struct tr_kept *next;
    size_t length_bytes;
    unsigned char bytes[];
};

/* Every body of a stream begins so. */
struct stream_head {
    uint64_t life, number;
};
#define HEAD_OF(body)                                                              \
    static_assert(offsetof(struct sl_body_##body, life) == 0 &&                    \
                      offsetof(struct sl_body_##body, number) == sizeof(uint64_t), \
                  "life and number come first")
HEAD_OF(rail_order);
HEAD_OF(rail_post);
HEAD_OF(rail_news);
HEAD_OF(rail_done);

sl_err tr_stream_init(struct tr_stream *stream, struct sl_env *env, const char *to,
                      struct sl_error *why)
{
    *stream = (struct tr_stream){.env = env};
    (void)snprintf(stream->to, sizeof(stream->to), "%s", to);
    return sl_codec_create(sl_config_u64(env->config, SL_SET_message_bytes_max), &stream->codec,
                           why);
}

static void kept_drop(struct tr_stream *stream)
{
    while (stream->first != NULL) {
        struct tr_kept *next = stream->first->next;
        free(stream->first);
        stream->first = next;
    }
    stream->last = NULL;
    stream->kept_bytes = 0;
}

void tr_stream_fini(struct tr_stream *stream)
{
    kept_drop(stream);
    sl_codec_destroy(&stream->codec);
}

void tr_stream_begin(struct tr_stream *stream, uint64_t life)
{
    kept_drop(stream);
    stream->life = life;
    stream->sent = stream->heard = 0;
}

static sl_err keep(struct tr_stream *stream, const void *frame, size_t length_bytes)
{
    if (length_bytes > TR_STREAM_BYTES_MAX - stream->kept_bytes) {
        return SL_ERR_LIMIT;
    }
    struct tr_kept *kept = malloc(sizeof(*kept) + length_bytes);
    if (kept == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    kept->next = NULL;
    kept->length_bytes = length_bytes;
    memcpy(kept->bytes, frame, length_bytes);
    if (stream->last != NULL) {
        stream->last->next = kept;
    } else {
        stream->first = kept;
    }
    stream->last = kept;
    stream->kept_bytes += length_bytes;
    stream->env->ops->wake_at(stream->env, stream->env->now_ns + TR_STREAM_RETRY_NS);
    return SL_OK;
}

sl_err tr_stream_send(struct tr_stream *stream, struct sl_msg *msg)
{
    struct sl_env *env = stream->env;
    struct stream_head head = {.life = stream->life, .number = stream->sent + 1};
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    memcpy(&msg->body, &head, sizeof(head));
    msg->sender = sl_text_of(env->name);
    uint64_t seq = env->next_seq++;
    msg->seq = SL_MAX(seq, UINT64_C(1));
    msg->budget_ns = SL_MAX(msg->budget_ns, UINT64_C(1));
    sl_err err = sl_codec_encode(stream->codec, msg, &frame, &length_bytes, &why);
    if (err != SL_OK) {
        sl_log_write(env->log, SL_LOG_ERROR, msg->trace_id, "message to %s: %s", stream->to,
                     why.text);
        return SL_ERR_INVALID;
    }
    stream->sent++;
    if (stream->first == NULL &&
        env->ops->send(env, stream->to, frame, length_bytes, false) == SL_OK) {
        return SL_OK;
    }
    return keep(stream, frame, length_bytes);
}

void tr_stream_flush(struct tr_stream *stream)
{
    struct sl_env *env = stream->env;
    while (stream->first != NULL) {
        struct tr_kept *kept = stream->first;
        if (env->ops->send(env, stream->to, kept->bytes, kept->length_bytes, false) != SL_OK) {
            env->ops->wake_at(env, env->now_ns + TR_STREAM_RETRY_NS);
            return;
        }
        stream->first = kept->next;
        stream->last = stream->first != NULL ? stream->last : NULL;
        stream->kept_bytes -= kept->length_bytes;
        free(kept);
    }
}

enum tr_heard tr_stream_hear(struct tr_stream *stream, const struct sl_msg *msg)
{
    struct stream_head head;
    memcpy(&head, &msg->body, sizeof(head));
    if (head.life != stream->life || head.number <= stream->heard) {
        return TR_HEARD_OLD;
    }
    if (head.number != stream->heard + 1) {
        return TR_HEARD_GAP;
    }
    stream->heard = head.number;
    return TR_HEARD_NEXT;
}
