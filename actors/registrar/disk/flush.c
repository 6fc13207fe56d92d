/* actors/registrar/disk/flush.c - FLUSH: answered when all earlier commits are on disk. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/answers.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/write_behind.h"

struct flush {
    struct reg_answer answer;
    uint64_t until_ns; /* it does not wait for values committed later */
};

static void flush_asked(struct registrar *self, const struct sl_msg *msg)
{
    if (!self->tier->on) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED, "this node has no disk tier");
        return;
    }
    struct flush *flush = reg_answer_new(self, msg, REG_ANSWER_FLUSH, sizeof(*flush));
    if (flush == NULL) {
        return;
    }
    reg_admission_admit_all(self); /* a FLUSH covers all committed values, also refused ones */
    flush->until_ns = self->writes->next_ns;
}

static void flushes_check(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t oldest = 0;
    bool known = false;
    struct flush *flush;
    uint32_t at = 0;
    while ((flush = reg_answer_next(self, REG_ANSWER_FLUSH, &at)) != NULL) {
        oldest = known ? oldest : reg_writes_oldest(self);
        known = true;
        struct sl_msg reply = {.code = SL_OK};
        bool lost = oldest < flush->until_ns && !self->writes->more && reg_tier_lost(self);
        if (oldest < flush->until_ns && !lost && flush->answer.back.deadline_ns > now_ns) {
            continue;
        }
        if (lost) {
            reply.code = SL_ERR_DISK_AWAY;
            reply.text = sl_text_of(self->health_reason);
        } else if (oldest < flush->until_ns) {
            reply.code = SL_ERR_TIMEOUT;
            reply.text =
                sl_text_of(reg_disks_writable(self) ? "values still wait to be written"
                                                    : "no disk takes writes at the moment");
        }
        sl_reply_route_send(self->env, &flush->answer.back, &reply);
        reg_answer_drop(self, &flush->answer);
    }
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_FLUSH, flush_asked},
};

const struct reg_part reg_flushes_part = {
    .name = "flushes",
    REG_HANDLERS(handlers),
    .after = flushes_check,
};
