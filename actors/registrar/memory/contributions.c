/* actors/registrar/memory/contributions.c - the table of contributions: CONTRIBUTE, WITHDRAW,
 * CONTRIBUTIONS, notes in the index, and ends. charges.c has the charges. */
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/base/events.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/evict.h"
#include "actors/registrar/memory/populate.h"
#include "actors/registrar/presence/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTRIBUTION_NOTE_VERSION 1u

/* The contribution's state for a restart: a BLOB of the index, cut after the name. */
struct contribution_note {
    uint32_t version;
    uint32_t number;
    uint32_t ends; /* 1: its values are leaving memory */
    uint32_t reserved;
    uint64_t length_bytes;
    struct sl_proc_id proc;
    char process[32];
    char name[REG_CONTRIBUTION_NAME_BYTES];
};
_Static_assert(offsetof(struct contribution_note, name) == 72, "format of a contribution's note");

/* A CONTRIBUTE waits at most this long for the memory of its first puts. Without it they succeed
 * too, but later. */
#define FIRST_WAIT_NS (200 * SL_NS_PER_MS)
#define BIT(number)   (UINT64_C(1) << (number))

/* ---- the table ---- */

static sl_err contributions_init(struct registrar *self, struct sl_error *why)
{
    struct reg_contributions *all = self->contributions;
    all->on = sl_config_bool(self->env->config, SL_SET_contributions);
    self->space.contributed_bytes = all->on ? 0 : UINT64_MAX;
    all->again_ns = SL_NEVER_NS;
    if (!all->on) {
        return SL_OK;
    }
    sl_index_set_contributed(self->index, true);
    all->ended = calloc(REG_CONTRIBUTIONS_ENDED, sizeof(*all->ended));
    return all->ended != NULL ? SL_OK
                              : sl_fail(why, SL_ERR_NO_MEMORY, "names of %u contributions",
                                        REG_CONTRIBUTIONS_ENDED);
}

static void contributions_fini(struct registrar *self)
{
    free(self->contributions->ended);
    self->contributions->ended = NULL;
}

static uint32_t contribution_find(const struct registrar *self, const char *name,
                                  enum reg_contribution_state state)
{
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        const struct reg_contribution *at = &self->contributions->all[i];
        if (at->state == state && strcmp(at->name, name) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

static bool contribution_lasts(const struct reg_contribution *at)
{
    return reg_proc_none(at->proc);
}

static void note_drop(struct registrar *self, struct reg_contribution *at)
{
    if (at->note != 0) {
        sl_index_set_kind(self->index, at->note, SL_RECORD_FREE);
    }
    at->note = 0;
}

/* Writes the contribution's current state to its note. Making room for the note may evict the last
 * value of an ending contribution, which then is over and has no note. Errors: SL_ERR_NO_SPACE (the
 * old note stays). */
static sl_err contribution_note(struct registrar *self, uint32_t number, struct sl_error *why)
{
    struct reg_contribution *at = &self->contributions->all[number];
    struct contribution_note note = {
        .version = CONTRIBUTION_NOTE_VERSION,
        .number = number,
        .ends = at->state == REG_CONTRIBUTION_ENDING,
        .length_bytes = at->length_bytes,
        .proc = at->proc,
    };
    uint32_t bytes = (uint32_t)(offsetof(struct contribution_note, name) + strlen(at->name));
    memcpy(note.process, at->process, sizeof(note.process));
    memcpy(note.name, at->name, sizeof(note.name));
    sl_err err = reg_note_put(self, &note, bytes, REG_BLOB_CONTRIBUTION, &at->note, why);
    if (at->state == REG_CONTRIBUTION_FREE) {
        note_drop(self, at);
        return SL_OK;
    }
    return err;
}

/* ---- ends ---- */

static void withdraw_answer(struct registrar *self, struct reg_contribution *at, sl_err code)
{
    struct sl_msg reply = {.code = code};
    if (!at->waited) {
        return;
    }
    at->waited = false;
    if (code == SL_ERR_TIMEOUT) {
        reply.text = sl_text_of("its values are still leaving memory");
    }
    sl_reply_route_send(self->env, &at->back, &reply);
}

void reg_contribution_free_if_empty(struct registrar *self, uint32_t number)
{
    struct reg_contribution *at = &self->contributions->all[number];
    if (at->state != REG_CONTRIBUTION_ENDING || at->value_count > 0) {
        return;
    }
    SL_ASSERT(at->used_bytes == 0);
    note_drop(self, at);
    withdraw_answer(self, at, SL_OK);
    self->contributions->ending &= ~BIT(number);
    *at = (struct reg_contribution){.state = REG_CONTRIBUTION_FREE};
}

static void contribution_tell_end(struct registrar *self, const struct reg_contribution *at)
{
    struct reg_ended *ended = &self->contributions->ended[at->serial % REG_CONTRIBUTIONS_ENDED];
    ended->serial = at->serial;
    (void)snprintf(ended->text, sizeof(ended->text), "its contribution %s ended", at->name);
}

static void asker_answer(struct registrar *self, uint32_t number, sl_err code)
{
    struct reg_contribution *at = &self->contributions->all[number];
    struct sl_msg reply = {.code = code};
    if (at->asked) {
        at->asked = false;
        self->contributions->asked &= ~BIT(number);
        sl_reply_route_send(self->env, &at->asker, &reply);
    }
}

/* Its bytes no longer count, and the values charged to it leave memory. */
static void contribution_end(struct registrar *self, uint32_t number, const char *reason)
{
    struct reg_contributions *all = self->contributions;
    struct reg_contribution *at = &all->all[number];
    SL_ASSERT(at->state == REG_CONTRIBUTION_ACTIVE);
    asker_answer(self, number, SL_ERR_CANCELLED);
    at->state = REG_CONTRIBUTION_ENDING;
    all->active &= ~BIT(number);
    all->ending |= BIT(number);
    self->space.contributed_bytes -= at->length_bytes;
    contribution_tell_end(self, at);
    reg_log(self, SL_LOG_INFO, 0,
            "contribution %.100s of %" PRIu64 " bytes %s: %" PRIu64 " values are charged to it",
            at->name, at->length_bytes, reason, at->value_count);
    if (at->value_count == 0) {
        reg_contribution_free_if_empty(self, number);
        return;
    }
    if (contribution_note(self, number, NULL) != SL_OK) {
        note_drop(self, at); /* the next registrar then finds values without a contribution, which
                                leave memory */
    }
    all->again_ns = 0;
}

const char *reg_contribution_ended_text(const struct registrar *self, uint32_t serial)
{
    const struct reg_ended *ended =
        self->contributions->ended == NULL
            ? NULL
            : &self->contributions->ended[serial % REG_CONTRIBUTIONS_ENDED];
    return ended != NULL && serial != 0 && ended->serial == serial
               ? ended->text
               : "the contribution it was charged to ended";
}

static void contributions_died(struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; self->contributions->active != 0 && i < REG_CONTRIBUTIONS_MAX; i++) {
        const struct reg_contribution *at = &self->contributions->all[i];
        if (at->state == REG_CONTRIBUTION_ACTIVE && !contribution_lasts(at) &&
            sl_proc_id_equal(at->proc, proc)) {
            contribution_end(self, i, "ends with its process");
        }
    }
}

static void contributions_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    for (uint32_t i = 0; self->contributions->ending != 0 && i < REG_CONTRIBUTIONS_MAX; i++) {
        struct reg_contribution *at = &self->contributions->all[i];
        if (at->waited && at->back.deadline_ns <= now_ns) {
            withdraw_answer(self, at, SL_ERR_TIMEOUT);
        }
    }
}

static uint64_t contributions_next(const struct registrar *self)
{
    const struct reg_contributions *all = self->contributions;
    uint64_t next_ns = all->walking ? 0 : all->again_ns;
    for (uint64_t left = all->asked; left != 0; left &= left - 1) {
        next_ns = SL_MIN(next_ns, all->all[__builtin_ctzll(left)].asked_until_ns);
    }
    for (uint32_t i = 0; all->ending != 0 && i < REG_CONTRIBUTIONS_MAX; i++) {
        if (all->all[i].waited) {
            next_ns = SL_MIN(next_ns, all->all[i].back.deadline_ns);
        }
    }
    return next_ns;
}

/* ---- CONTRIBUTE ---- */

static uint32_t number_free(const struct registrar *self)
{
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        if (self->contributions->all[i].state == REG_CONTRIBUTION_FREE) {
            return i;
        }
    }
    return REG_NONE;
}

static sl_err contribution_add(struct registrar *self, uint32_t peer,
                               const struct sl_body_contribute *want, struct sl_error *why)
{
    struct reg_contributions *all = self->contributions;
    uint64_t memory_bytes = sl_arena_data_bytes(self->arena);
    if (want->length_bytes > memory_bytes - self->space.contributed_bytes) {
        return sl_fail(why, SL_ERR_NO_SPACE,
                       "contribution of %" PRIu64 " bytes: %" PRIu64 " of at most %" PRIu64
                       " are contributed already "
                       "(setting memory, mooncake_master --memory)",
                       want->length_bytes, self->space.contributed_bytes, memory_bytes);
    }
    uint64_t reachable_bytes = sl_arena_reachable_bytes(self->arena);
    if (self->space.contributed_bytes + want->length_bytes > reachable_bytes) {
        return sl_fail(why, SL_ERR_NO_SPACE,
                       "contribution of %" PRIu64 " bytes: %" PRIu64
                       " are contributed already, and shared memory "
                       "has room for %" PRIu64 " in all (df -h /dev/shm)",
                       want->length_bytes, self->space.contributed_bytes, reachable_bytes);
    }
    uint32_t number = number_free(self);
    if (number == REG_NONE) {
        return sl_fail(why, SL_ERR_LIMIT, "%u contributions exist already", REG_CONTRIBUTIONS_MAX);
    }
    struct reg_contribution *at = &all->all[number];
    *at = (struct reg_contribution){.state = REG_CONTRIBUTION_ACTIVE,
                                    .length_bytes = want->length_bytes,
                                    .serial = ++all->last_serial};
    (void)snprintf(at->name, sizeof(at->name), "%s", want->name.at);
    if (!want->lasting) {
        at->proc = self->peers->all[peer].proc;
        (void)snprintf(at->process, sizeof(at->process), "%s", self->peers->all[peer].name);
    }
    sl_err err = contribution_note(self, number, why);
    if (err != SL_OK) {
        *at = (struct reg_contribution){.state = REG_CONTRIBUTION_FREE};
        return err;
    }
    all->active |= BIT(number);
    self->space.contributed_bytes += want->length_bytes;
    self->space.freed = true;
    reg_log(self, SL_LOG_INFO, 0, "contribution %.100s: %" PRIu64 " bytes%s%s", at->name,
            at->length_bytes, want->lasting ? ", lasting" : " of ", at->process);
    return SL_OK;
}

static sl_err contribute(struct registrar *self, uint32_t peer,
                         const struct sl_body_contribute *want, struct sl_error *why)
{
    struct sl_proc_id proc = {0}; /* none for a lasting contribution */
    if (!want->lasting) {
        proc = self->peers->all[peer].proc;
    }
    uint32_t there = contribution_find(self, want->name.at, REG_CONTRIBUTION_ACTIVE);
    if (there == REG_NONE) {
        return contribution_add(self, peer, want, why);
    }
    const struct reg_contribution *at = &self->contributions->all[there];
    if (sl_proc_id_equal(at->proc, proc) && at->length_bytes == want->length_bytes) {
        return SL_OK; /* a repeated request */
    }
    if (!contribution_lasts(at) && !self->env->ops->alive(self->env, at->proc)) {
        contribution_end(self, there, "ends with its process"); /* its death is not reported yet */
        return contribution_add(self, peer, want, why);
    }
    if (contribution_lasts(at)) {
        return sl_fail(why, SL_ERR_EXISTS, "contribution %s lasts and has %" PRIu64 " bytes",
                       at->name, at->length_bytes);
    }
    return sl_fail(why, SL_ERR_EXISTS,
                   "contribution %s exists: %" PRIu64 " bytes of %s (process %u)", at->name,
                   at->length_bytes, at->process, at->proc.pid);
}

/* Answers CONTRIBUTEs that waited for memory. */
static void contributions_answer(struct registrar *self)
{
    bool first = reg_populate_lead_ready(self);
    for (uint64_t left = self->contributions->asked; left != 0; left &= left - 1) {
        uint32_t number = (uint32_t)__builtin_ctzll(left);
        if (first || self->env->now_ns >= self->contributions->all[number].asked_until_ns) {
            asker_answer(self, number, SL_OK);
        }
    }
}

/* Lets contributions_answer reply when memory is populated. */
static void contributor_waits(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t number =
        contribution_find(self, msg->body.contribute.name.at, REG_CONTRIBUTION_ACTIVE);
    struct reg_contribution *at = &self->contributions->all[number];
    at->asked = true;
    self->contributions->asked |= BIT(number);
    sl_reply_route_keep(msg, &at->asker);
    at->asked_until_ns =
        SL_MIN(at->asker.deadline_ns, sl_deadline_ns(self->env->now_ns, FIRST_WAIT_NS));
    reg_populate_retry(self);
}

/* False: replied that contributions are off. */
static bool is_on(struct registrar *self, const struct sl_msg *msg)
{
    if (!self->contributions->on) {
        sl_reply_fail(self->env, msg, SL_ERR_UNSUPPORTED,
                      "this node takes no contributions (setting contributions)");
    }
    return self->contributions->on;
}

static void contribute_handle(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_error why = {0};
    uint32_t peer = is_on(self, msg) ? reg_peer_of_sender(self, msg) : REG_NONE;
    if (peer == REG_NONE) {
        return;
    }
    sl_err err = self->draining ? sl_fail(&why, SL_ERR_DRAINING, "%s", sl_err_text(SL_ERR_DRAINING))
                                : contribute(self, peer, &msg->body.contribute, &why);
    if (err == SL_OK) {
        contributor_waits(self, msg);
    } else {
        sl_reply_code(self->env, msg, err, &why);
    }
}

/* ---- WITHDRAW ---- */

static void withdraw(struct registrar *self, const struct sl_msg *msg)
{
    const char *name = msg->body.withdraw.name.at;
    uint32_t peer = is_on(self, msg) ? reg_peer_of_sender(self, msg) : REG_NONE;
    if (peer == REG_NONE) {
        return;
    }
    uint32_t number = contribution_find(self, name, REG_CONTRIBUTION_ACTIVE);
    if (number != REG_NONE) {
        struct reg_contribution *at = &self->contributions->all[number];
        if (!contribution_lasts(at) && !sl_proc_id_equal(at->proc, self->peers->all[peer].proc)) {
            sl_reply_fail(self->env, msg, SL_ERR_PERMISSION,
                          "contribution %s is of %s (process %u)", at->name, at->process,
                          at->proc.pid);
            return;
        }
        at->waited = true;
        sl_reply_route_keep(msg, &at->back);
        contribution_end(self, number, "is withdrawn");
        return;
    }
    number = contribution_find(self, name, REG_CONTRIBUTION_ENDING);
    if (number == REG_NONE) {
        sl_reply_fail(self->env, msg, SL_ERR_NOT_FOUND, "there is no contribution %s", name);
        return;
    }
    /* Sent again, perhaps first to the previous registrar: the end of the walk answers it. */
    self->contributions->all[number].waited = true;
    sl_reply_route_keep(msg, &self->contributions->all[number].back);
}

/* ---- CONTRIBUTIONS ---- */

static void contributions_list(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_item_contribution items[REG_CONTRIBUTIONS_MAX];
    struct sl_msg reply = {.code = SL_OK};
    uint64_t count = 0;
    if (!is_on(self, msg)) {
        return;
    }
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        const struct reg_contribution *at = &self->contributions->all[i];
        if (at->state == REG_CONTRIBUTION_ACTIVE) {
            items[count++] = (struct sl_item_contribution){.name = sl_text_of(at->name),
                                                           .number = i,
                                                           .length_bytes = at->length_bytes,
                                                           .used_bytes = at->used_bytes,
                                                           .value_count = at->value_count,
                                                           .process = sl_text_of(at->process),
                                                           .pid = at->proc.pid};
        }
    }
    reply.body.contributions_reply.items.at = items;
    reply.body.contributions_reply.items.count = count;
    sl_reply(self->env, msg, &reply);
}

static void contributions_gauges(struct registrar *self)
{
    const struct reg_contributions *all = self->contributions;
    uint64_t count = 0;
    if (!all->on) {
        return;
    }
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        count += all->all[i].state == REG_CONTRIBUTION_ACTIVE;
    }
    sl_metric_set(self->env->metrics, self->contributions->metric.contribution_count, count);
    sl_metric_set(self->env->metrics, self->contributions->metric.contributed_bytes,
                  self->space.contributed_bytes);
    sl_metric_set(self->env->metrics, self->contributions->metric.contributed_used_bytes,
                  reg_used_bytes(self));
}

/* ---- preferred contributions ---- */

void reg_preferences_make(const struct registrar *self, const struct sl_texts *names,
                          struct reg_preferences *out)
{
    out->count = 0;
    for (uint64_t i = 0;
         self->contributions->on && i < names->count && out->count < REG_CONTRIBUTION_PREFERRED_MAX;
         i++) {
        uint32_t number = contribution_find(self, names->at[i].at, REG_CONTRIBUTION_ACTIVE);
        if (number != REG_NONE) {
            out->preferred[out->count++] = (struct reg_preferred){
                .number = (uint8_t)number, .serial = self->contributions->all[number].serial};
        }
    }
}

/* ---- restart ---- */

static bool note_read(const void *bytes, uint32_t length_bytes, struct contribution_note *note)
{
    const uint32_t fixed = offsetof(struct contribution_note, name);
    if (length_bytes <= fixed || length_bytes >= sizeof(*note)) {
        return false;
    }
    memset(note, 0, sizeof(*note));
    memcpy(note, bytes, length_bytes);
    note->process[sizeof(note->process) - 1] = '\0';
    return note->version == CONTRIBUTION_NOTE_VERSION && note->number < REG_CONTRIBUTIONS_MAX &&
           strlen(note->name) == length_bytes - fixed;
}

static sl_err contribution_restore(struct registrar *self, sl_ref ref, const void *bytes,
                                   uint32_t length_bytes, struct sl_error *why)
{
    (void)why;
    struct reg_contributions *all = self->contributions;
    struct contribution_note note;
    if (!all->on || !note_read(bytes, length_bytes, &note)) {
        return SL_ERR_FOREIGN;
    }
    struct reg_contribution *at = &all->all[note.number];
    bool again = at->state != REG_CONTRIBUTION_FREE; /* killed between two notes of it */
    /* An ending one no longer counts. */
    uint64_t others_bytes = note.ends != 0 ? 0 : self->space.contributed_bytes;
    if (!again && note.length_bytes > sl_arena_data_bytes(self->arena) - others_bytes) {
        return SL_ERR_FOREIGN; /* no registrar wrote this */
    }
    if (again) { /* the note of the end is the later one */
        sl_index_set_kind(self->index, note.ends != 0 ? at->note : ref, SL_RECORD_FREE);
        at->note = note.ends != 0 ? ref : at->note;
    } else {
        *at = (struct reg_contribution){.state = REG_CONTRIBUTION_ACTIVE,
                                        .note = ref,
                                        .proc = note.proc,
                                        .length_bytes = note.length_bytes,
                                        .serial = ++all->last_serial};
        memcpy(at->name, note.name, sizeof(at->name));
        memcpy(at->process, note.process, sizeof(at->process));
        all->active |= BIT(note.number);
        self->space.contributed_bytes += note.length_bytes;
    }
    if (note.ends != 0 && at->state == REG_CONTRIBUTION_ACTIVE) {
        at->state = REG_CONTRIBUTION_ENDING;
        all->active &= ~BIT(note.number);
        all->ending |= BIT(note.number);
        self->space.contributed_bytes -= at->length_bytes;
        all->again_ns = 0;
        contribution_tell_end(self, at);
    }
    return SL_OK;
}

static void contributions_check(struct registrar *self)
{
    for (uint32_t i = 0; i < REG_CONTRIBUTIONS_MAX; i++) {
        struct reg_contribution *at = &self->contributions->all[i];
        if (at->state == REG_CONTRIBUTION_ACTIVE && !contribution_lasts(at) &&
            !self->env->ops->alive(self->env, at->proc)) {
            contribution_end(self, i, "ends with its process");
        } else if (at->state == REG_CONTRIBUTION_ENDING) {
            reg_contribution_free_if_empty(self, i);
        }
    }
}

/* ---- the part ---- */

static void contributions_settings(struct registrar *self)
{
    const struct sl_config *config = self->env->config;
    self->contributions->watermark_ppm = sl_config_u64(config, SL_SET_evict_watermark);
    self->contributions->ratio_ppm = sl_config_u64(config, SL_SET_evict_ratio);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_contributions, contribution_count),
    REG_METRIC(reg_contributions, contributed_bytes),
    REG_METRIC(reg_contributions, contributed_used_bytes),
};

static const struct reg_handler handlers[] = {
    {SL_MSG_CONTRIBUTE, contribute_handle},
    {SL_MSG_WITHDRAW, withdraw},
    {SL_MSG_CONTRIBUTIONS, contributions_list},
};

static const struct reg_blob blobs[] = {
    {REG_BLOB_CONTRIBUTION, contribution_restore},
};

const struct reg_part reg_contributions_part = {
    .name = "contributions",
    REG_STATE(contributions, reg_contributions),
    REG_METRICS(metrics),
    REG_HANDLERS(handlers),
    REG_BLOBS(blobs),
    .settings = contributions_settings,
    .init = contributions_init,
    .fini = contributions_fini,
    .tick = contributions_expire,
    .after = contributions_answer,
    .recovered = contributions_check,
    .next_ns = contributions_next,
    .died = contributions_died,
    .gauges = contributions_gauges,
};
