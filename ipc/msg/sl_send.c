/* ipc/msg/sl_send.c - requests and replies of actors: fills the envelope, encodes, passes frames to
 * the environment. */
#include "ipc/msg/msg_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OP_TIMEOUT_STANDARD_NS (2 * SL_NS_PER_S)

/* Encoding storage belongs to the thread: a frame is passed on before the next encode, whichever of
 * the thread's environments sends (the simulator runs a whole node on one thread). */
static pthread_key_t thread_codec_key;
static pthread_once_t thread_codec_once = PTHREAD_ONCE_INIT;
static int thread_codec_key_error;

static void thread_codec_end(void *codec)
{
    struct sl_codec *self = codec;
    sl_codec_destroy(&self);
}

static void thread_codec_make_key(void)
{
    thread_codec_key_error = pthread_key_create(&thread_codec_key, thread_codec_end);
}

/* Destructors of keys do not run for a thread that returns from main. */
static void __attribute__((destructor)) thread_codec_end_of_main(void)
{
    (void)pthread_once(&thread_codec_once, thread_codec_make_key);
    if (thread_codec_key_error == 0) {
        thread_codec_end(pthread_getspecific(thread_codec_key));
        (void)pthread_setspecific(thread_codec_key, NULL);
    }
}

sl_err sl_thread_codec(const struct sl_env *env, struct sl_codec **out, struct sl_error *why)
{
    (void)pthread_once(&thread_codec_once, thread_codec_make_key);
    if (thread_codec_key_error != 0) {
        return sl_fail_os(why, thread_codec_key_error, "make a thread key for the encoder");
    }
    uint64_t frame_bytes_max = env->config != NULL
                                   ? sl_config_u64(env->config, SL_SET_message_bytes_max)
                                   : SL_FRAME_BYTES_STANDARD;
    struct sl_codec *codec = pthread_getspecific(thread_codec_key);
    if (codec == NULL) {
        sl_err err = sl_codec_create(frame_bytes_max, &codec, why);
        if (err != SL_OK) {
            return err;
        }
        int os_code = pthread_setspecific(thread_codec_key, codec);
        if (os_code != 0) {
            sl_codec_destroy(&codec);
            return sl_fail_os(why, os_code, "keep the thread's encoder");
        }
    }
    codec->frame_bytes_max = frame_bytes_max;
    *out = codec;
    return SL_OK;
}

uint64_t sl_env_next_seq(struct sl_env *env)
{
    uint64_t seq = env->next_seq++;
    return seq != 0 ? seq : env->next_seq++; /* 0 is "none" in reply_to */
}

static void count(struct sl_env *env, const char *name)
{
    if (env->metrics != NULL) {
        sl_metric_add(env->metrics, sl_metric_define(env->metrics, name), 1);
    }
}

sl_err sl_send(struct sl_env *env, const char *to, const struct sl_msg *msg, uint64_t *seq)
{
    struct sl_codec *codec = NULL;
    sl_err err = sl_thread_codec(env, &codec, NULL);
    if (err != SL_OK) {
        return err;
    }
    struct sl_msg filled = *msg;
    filled.sender = sl_text_of(env->name);
    filled.seq = sl_env_next_seq(env);
    if (filled.budget_ns == 0 && !SL_MSG_IS_REPLY(filled.type)) {
        filled.budget_ns = env->config != NULL ? sl_config_u64(env->config, SL_SET_op_timeout)
                                               : OP_TIMEOUT_STANDARD_NS;
    }
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    err = sl_codec_encode(codec, &filled, &frame, &length_bytes, &why);
    if (err != SL_OK) {
        sl_log_write(env->log, SL_LOG_ERROR, msg->trace_id, "message to %s not encoded: %s", to,
                     why.text);
        return err;
    }
    err = env->ops->send(env, to, frame, length_bytes, false);
    if (err != SL_OK) {
        return err;
    }
    sl_msg_trace(env, &filled, true, to);
    if (seq != NULL) {
        *seq = filled.seq;
    }
    return SL_OK;
}

/* A text that cannot be sent (a file name in another encoding, a character that was cut) is still
 * mostly readable after cleaning. */
static struct sl_text text_made_clean(struct sl_text text, char room[SL_MSG_TEXT_BYTES_MAX + 1])
{
    if (text.at == NULL ||
        (text.length <= SL_MSG_TEXT_BYTES_MAX && sl_text_is_clean(text.at, text.length))) {
        return text;
    }
    uint64_t length = SL_MIN(text.length, (uint64_t)SL_MSG_TEXT_BYTES_MAX);
    for (uint64_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text.at[i];
        room[i] = byte >= 0x20 && byte < 0x7f ? text.at[i] : '?';
    }
    room[length] = '\0';
    return (struct sl_text){.at = room, .length = length};
}

static sl_err reply_send(struct sl_env *env, const char *to, const struct sl_msg *reply,
                         struct sl_error *why)
{
    struct sl_codec *codec = NULL;
    const void *frame = NULL;
    size_t length_bytes = 0;
    sl_err err = sl_thread_codec(env, &codec, why);
    if (err == SL_OK) {
        err = sl_codec_encode(codec, reply, &frame, &length_bytes, why);
    }
    if (err != SL_OK) {
        return err;
    }
    err = env->ops->send(env, to, frame, length_bytes, true);
    if (err != SL_OK) {
        count(env, "replies_lost");
        return SL_OK;
    }
    sl_msg_trace(env, reply, true, to);
    return SL_OK;
}

void sl_reply_route_send(struct sl_env *env, const struct sl_reply_route *to,
                         const struct sl_msg *reply)
{
    if (SL_MSG_IS_REPLY(to->type) || to->type >= SL_MSG_LOCAL_MIN) {
        return; /* replies and completions have no requester */
    }
    char room[SL_MSG_TEXT_BYTES_MAX + 1];
    struct sl_msg filled = *reply;
    filled.type = to->type + 1;
    filled.op_id = to->op_id;
    filled.trace_id = to->trace_id;
    filled.sender = sl_text_of(env->name);
    filled.seq = 0;
    filled.reply_to = to->seq;
    filled.budget_ns = 0;
    filled.code = reply->code;
    filled.text = text_made_clean(reply->text, room);
    if (env->now_ns >= to->deadline_ns) { /* the requester has given up, or is about to */
        sl_log_write(env->log, SL_LOG_WARN, to->trace_id,
                     "%s %" PRIu64 " of %s is answered at its deadline: %s", sl_msg_name(to->type),
                     to->seq, to->to, sl_err_text(reply->code));
    }
    struct sl_error why = {0};
    sl_err err = reply_send(env, to->to, &filled, &why);
    if (err == SL_OK) {
        return;
    }
    /* Our own bug or lack of memory: send the requester an error instead of letting it wait for its
     * deadline. */
    sl_log_write(env->log, SL_LOG_ERROR, to->trace_id, "reply %s to %s not encoded: %s",
                 sl_msg_name(filled.type), to->to, why.text);
    memset(&filled.body, 0, sizeof(filled.body));
    filled.code = err == SL_ERR_LIMIT ? SL_ERR_LIMIT : SL_ERR_INTERNAL;
    struct sl_error cause = why;
    filled.text = text_made_clean(sl_text_of(cause.text), room);
    if (reply_send(env, to->to, &filled, &why) != SL_OK) {
        count(env, "replies_lost");
    }
}

void sl_reply_route_keep(const struct sl_msg *request, struct sl_reply_route *out)
{
    *out = (struct sl_reply_route){
        .op_id = request->op_id,
        .trace_id = request->trace_id,
        .seq = request->seq,
        .deadline_ns = sl_deadline_ns(request->received_ns, request->budget_ns),
        .type = request->type,
    };
    uint64_t length = SL_MIN(request->sender.length, (uint64_t)SL_NAME_BYTES_MAX);
    if (length > 0) {
        memcpy(out->to, request->sender.at, length);
    }
}

bool sl_reply_route_matches(const struct sl_reply_route *kept, const struct sl_msg *request)
{
    return kept->seq == request->seq && strcmp(kept->to, request->sender.at) == 0;
}

void sl_reply(struct sl_env *env, const struct sl_msg *request, const struct sl_msg *reply)
{
    struct sl_reply_route to;
    sl_reply_route_keep(request, &to);
    sl_reply_route_send(env, &to, reply);
}

void sl_reply_code(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const struct sl_error *why)
{
    struct sl_msg reply = {.code = code};
    if (why != NULL && code != SL_OK) {
        reply.text = sl_text_of(why->text);
    }
    sl_reply(env, request, &reply);
}

void sl_reply_fail(struct sl_env *env, const struct sl_msg *request, sl_err code,
                   const char *format, ...)
{
    struct sl_error why = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why.text, sizeof(why.text), format, arguments);
    va_end(arguments);
    sl_reply_code(env, request, code, &why);
}
