/* actors/registrar/base/core.c - key hashes, logging and replies that carry codes. */
#include "actors/registrar/base/core.h"
#include "runtime/base/sl_digest.h"

#include <stdarg.h>
#include <stdio.h>

#define LOG_TEXT_BYTES 240u

uint64_t reg_hash(const void *key, uint64_t length)
{
    return sl_key_hash(key, length);
}

void reg_log(struct registrar *self, enum sl_log_level level, uint64_t trace_id, const char *format,
             ...)
{
    char text[LOG_TEXT_BYTES];
    va_list arguments;
    if (self->env->log == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    sl_log_write(self->env->log, level, trace_id, "%s", text);
}

void reg_reply_codes(struct registrar *self, const struct sl_reply_route *to, uint64_t *codes,
                     uint64_t count)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_u64s list = {.at = codes, .count = count};
    switch (to->type) {
    case SL_MSG_COMMIT:
        reply.body.commit_reply.codes = list;
        break;
    case SL_MSG_ABORT:
        reply.body.abort_reply.codes = list;
        break;
    case SL_MSG_REMOVE:
        reply.body.remove_reply.codes = list;
        break;
    case SL_MSG_BRING:
        reply.body.bring_reply.codes = list;
        break;
    case SL_MSG_DAMAGED:
        reply.body.damaged_reply.codes = list;
        break;
    case SL_MSG_DISK_FOUND:
        reply.body.disk_found_reply.codes = list;
        break;
    default:
        SL_ASSERT(false);
    }
    sl_reply_route_send(self->env, to, &reply);
}

void reg_answer_codes(struct registrar *self, const struct sl_msg *msg, uint64_t count)
{
    struct sl_reply_route back;
    sl_reply_route_keep(msg, &back);
    reg_reply_codes(self, &back, self->codes, count);
}
