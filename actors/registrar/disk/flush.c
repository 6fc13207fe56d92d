/* actors/registrar/disk/flush.c - FLUSH: answered when all that was committed before is on disk. */
#include "actors/registrar/disk/flush.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/disk/admission.h"
#include "actors/registrar/disk/disks.h"
#include "actors/registrar/disk/write_behind.h"
#include "actors/registrar/presence/peers.h"

#include <stdlib.h>
#include <string.h>

static void flush(struct registrar *self, const struct sl_msg *msg)
{
    if (!self->tier->on) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED, "this node has no disk tier");
        return;
    }
    uint32_t slot = REG_NONE;
    for (uint32_t i = 0; i < self->set.queue_messages; i++) {
        if (!self->flushes->all[i].used) {
            slot = slot == REG_NONE ? i : slot;
        } else if (sl_return_is_of(&self->flushes->all[i].back, msg)) {
            return; /* sent again */
        }
    }
    if (slot == REG_NONE) {
        sl_reply_fail(self->env, msg, SL_ERR_LIMIT, "%u flushes wait already",
                      self->set.queue_messages);
        return;
    }
    reg_admission_take_all(self); /* it promises all that was committed, whoever refused what */
    self->flushes->all[slot].used = true;
    self->flushes->count++;
    self->flushes->all[slot].order = self->writes->next_order;
    sl_return_keep(msg, &self->flushes->all[slot].back);
}

static void flushes_check(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    uint64_t oldest = 0;
    bool known = false;
    for (uint32_t i = 0; self->flushes->count > 0 && i < self->set.queue_messages; i++) {
        struct reg_flush *flush = &self->flushes->all[i];
        if (!flush->used) {
            continue;
        }
        oldest = known ? oldest : reg_writes_oldest(self);
        known = true;
        struct sl_msg reply = {.code = SL_OK};
        bool lost = oldest < flush->order && reg_tier_lost(self);
        if (oldest < flush->order && !lost && flush->back.deadline_ns > now_ns) {
            continue;
        }
        if (lost) {
            reply.code = SL_ERR_DISK_AWAY;
            reply.text = sl_text_of(self->health_reason);
        } else if (oldest < flush->order) {
            reply.code = SL_ERR_TIMEOUT;
            reply.text =
                sl_text_of(reg_disks_writable(self) ? "write-behind is not done"
                                                    : "no disk takes writes at the moment");
        }
        sl_return_reply(self->env, &flush->back, &reply);
        flush->used = false;
        self->flushes->count--;
    }
}

static void flushes_forget(struct registrar *self, uint32_t peer)
{
    const char *name = self->peers->all[peer].name;
    for (uint32_t i = 0; self->flushes->count > 0 && i < self->set.queue_messages; i++) {
        if (self->flushes->all[i].used && strcmp(self->flushes->all[i].back.to, name) == 0) {
            self->flushes->all[i].used = false;
            self->flushes->count--;
        }
    }
}

static uint64_t flushes_next(const struct registrar *self)
{
    uint64_t next_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->flushes->count > 0 && i < self->set.queue_messages; i++) {
        next_ns = self->flushes->all[i].used
                      ? SL_MIN(next_ns, self->flushes->all[i].back.deadline_ns)
                      : next_ns;
    }
    return next_ns;
}

/* ---- the part ---- */

static sl_err flushes_init(struct registrar *self, struct sl_error *why)
{
    self->flushes->all = calloc(self->set.queue_messages, sizeof(*self->flushes->all));
    return self->flushes->all != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "table of %u flushes", self->set.queue_messages);
}

static void flushes_fini(struct registrar *self)
{
    free(self->flushes->all);
}

static const struct reg_handler handlers[] = {
    {SL_MSG_FLUSH, flush},
};

const struct reg_part reg_flushes_part = {
    .name = "flushes",
    REG_STATE(flushes, reg_flushes),
    REG_HANDLERS(handlers),
    .init = flushes_init,
    .fini = flushes_fini,
    .after = flushes_check,
    .next_ns = flushes_next,
    .left = flushes_forget,
};
