/* actors/registrar/engines/pool_requests.c - clients' requests to the table of pools. A request
 * that waits is answered by a change, by a death, or at its deadline; no client polls. */
#include "actors/registrar/base/part.h"
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/presence/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *state_text(enum reg_pool_state state)
{
    static const char *const texts[] = {"absent", "allocating", "ready", "revoking"};
    return texts[state];
}

/* ---- answers ---- */

static void state_reply(struct registrar *self, const struct sl_reply_route *to,
                        const struct reg_pool *pool)
{
    static const unsigned char no_gpu[REG_POOL_GPU_BYTES];
    struct sl_msg reply = {.code = SL_OK};
    struct sl_body_pool_await_reply *body = &reply.body.pool_await_reply;
    _Static_assert(sizeof(*body) == sizeof(reply.body.pool_take_reply), "one table makes both");
    body->state = pool->state;
    body->epoch = pool->epoch;
    body->length_bytes = pool->length_bytes;
    body->sluice = pool->sluice;
    if (pool->state == REG_POOL_READY) {
        body->handle_kind = pool->handle.kind;
        body->pid = pool->handle.proc.pid;
        body->start_time = pool->handle.proc.start_time;
        body->fd = pool->handle.fd;
        body->inode = pool->handle.inode;
        body->handle = (struct sl_bytes){.at = pool->handle.ipc, .length = pool->handle.ipc_bytes};
        body->offset_bytes = pool->handle.offset_bytes;
        if (memcmp(pool->handle.gpu, no_gpu, sizeof(no_gpu)) != 0) {
            body->gpu = (struct sl_bytes){.at = pool->handle.gpu, .length = sizeof(no_gpu)};
        }
    }
    sl_reply_route_send(self->env, to, &reply); /* a union of equal bodies: this sets both */
}

static void error_reply(struct registrar *self, const struct sl_reply_route *to, sl_err code,
                        const char *text)
{
    struct sl_msg reply = {.code = code, .text = sl_text_of(text)};
    sl_reply_route_send(self->env, to, &reply);
}

/* The pool's state in words, with the process that requests wait for. */
static void pool_state_words(const struct reg_pool *pool, char out[SL_ERROR_TEXT_BYTES])
{
    const char *label = pool->label;
    const size_t room = SL_ERROR_TEXT_BYTES;
    switch (pool->state) {
    case REG_POOL_ABSENT:
        (void)snprintf(out, room, "%s: no process makes it", label);
        break;
    case REG_POOL_ALLOCATING:
        (void)snprintf(out, room, "%s: %s (process %u) makes it", label, pool->owner_name,
                       pool->owner.pid);
        break;
    case REG_POOL_READY:
        (void)snprintf(out, room, "%s: %s (process %u) made it, %" PRIu64 " bytes", label,
                       pool->owner_name, pool->owner.pid, pool->length_bytes);
        break;
    case REG_POOL_REVOKING:
        if (pool->mapper_count > 0) {
            (void)snprintf(out, room, "%s: revoked, and %s (process %u) still maps it", label,
                           pool->mappers[0].name, pool->mappers[0].proc.pid);
        } else {
            (void)snprintf(out, room, "%s: revoked, and swapper.%" PRIu64 " still maps it", label,
                           pool->rank);
        }
        break;
    }
}

/* ---- waiting ---- */

uint32_t reg_pool_waiters(const struct registrar *self, uint32_t row)
{
    uint32_t count = 0;
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        count += self->pools->waiters[i].kind != REG_POOL_WAIT_NONE &&
                 self->pools->waiters[i].pool == row;
    }
    return count;
}

bool reg_pool_is_awaited(const struct registrar *self, uint32_t row)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        if (self->pools->waiters[i].kind == REG_POOL_WAIT_READY &&
            self->pools->waiters[i].pool == row) {
            return true;
        }
    }
    return false;
}

static void waiter_end(struct registrar *self, struct reg_pool_waiter *waiter)
{
    waiter->kind = REG_POOL_WAIT_NONE;
    self->pools->waiter_count--;
}

/* Whether this is a repetition of a request that waits. */
static bool waits_already(const struct registrar *self, const struct sl_reply_route *back)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        const struct reg_pool_waiter *waiter = &self->pools->waiters[i];
        if (waiter->kind != REG_POOL_WAIT_NONE && waiter->back.seq == back->seq &&
            strcmp(waiter->back.to, back->to) == 0) {
            return true;
        }
    }
    return false;
}

/* False: too many requests wait; answered with an error. */
static bool waiter_add(struct registrar *self, const struct reg_pool_waiter *want)
{
    char text[SL_ERROR_TEXT_BYTES];
    for (uint32_t i = 0; i < self->set.clients_max; i++) {
        if (self->pools->waiters[i].kind == REG_POOL_WAIT_NONE) {
            self->pools->waiters[i] = *want;
            self->pools->waiter_count++;
            self->env->ops->wake_at(self->env, want->back.deadline_ns);
            return true;
        }
    }
    (void)snprintf(text, sizeof(text), "%u requests wait for pools already: setting clients_max",
                   self->set.clients_max);
    error_reply(self, &want->back, SL_ERR_LIMIT, text);
    reg_pool_row_tidy(self, want->pool);
    return false;
}

/* The pool is ready: makes the client a mapper and answers it. */
static void ready_give(struct registrar *self, uint32_t row, struct sl_proc_id proc,
                       const struct sl_reply_route *to)
{
    struct sl_error why = {0};
    struct reg_pool_taker mapper = {.proc = proc, .name = to->to, .seq = to->seq};
    sl_err err = reg_pool_mapper_add(self, row, &mapper, &why);
    if (err != SL_OK) {
        error_reply(self, to, err, why.text);
        return;
    }
    state_reply(self, to, &self->pools->all[row]);
}

static void take_run(struct registrar *self, uint32_t row, struct reg_pool_waiter *want);

static void waiter_look(struct registrar *self, struct reg_pool_waiter *waiter)
{
    uint32_t row = waiter->pool;
    const struct reg_pool *pool = &self->pools->all[row];
    struct reg_pool_waiter copy = *waiter;
    switch (waiter->kind) {
    case REG_POOL_WAIT_READY:
        if (pool->state == REG_POOL_READY) {
            waiter_end(self, waiter);
            ready_give(self, row, copy.proc, &copy.back);
        }
        break;
    case REG_POOL_WAIT_END:
        if (pool->state != REG_POOL_READY || pool->epoch != waiter->epoch) {
            waiter_end(self, waiter);
            state_reply(self, &copy.back, pool);
        }
        break;
    case REG_POOL_WAIT_TAKE:
        if (pool->state != REG_POOL_REVOKING) {
            waiter_end(self, waiter);
            take_run(self, row, &copy);
        }
        break;
    case REG_POOL_WAIT_REVOKE:
        if (pool->epoch != waiter->epoch) {
            waiter_end(self, waiter);
            struct sl_msg reply = {.code = SL_OK};
            sl_reply_route_send(self->env, &copy.back, &reply);
        }
        break;
    case REG_POOL_WAIT_NONE:
        break;
    }
}

void reg_pool_wake(struct registrar *self, uint32_t row)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        if (self->pools->waiters[i].kind != REG_POOL_WAIT_NONE &&
            self->pools->waiters[i].pool == row) {
            waiter_look(self, &self->pools->waiters[i]);
        }
    }
}

void reg_pool_fail_waiters(struct registrar *self, uint32_t row, sl_err code, const char *text)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        struct reg_pool_waiter *waiter = &self->pools->waiters[i];
        if (waiter->kind == REG_POOL_WAIT_READY && waiter->pool == row) {
            struct sl_reply_route back = waiter->back;
            waiter_end(self, waiter);
            error_reply(self, &back, code, text);
        }
    }
}

static void pool_waiters_expire(struct registrar *self)
{
    uint64_t now_ns = self->env->now_ns;
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        struct reg_pool_waiter *waiter = &self->pools->waiters[i];
        if (waiter->kind == REG_POOL_WAIT_NONE || waiter->back.deadline_ns > now_ns) {
            continue;
        }
        char text[SL_ERROR_TEXT_BYTES];
        struct reg_pool_waiter copy = *waiter;
        pool_state_words(&self->pools->all[copy.pool], text);
        waiter_end(self, waiter);
        error_reply(self, &copy.back,
                    copy.kind == REG_POOL_WAIT_TAKE ? SL_ERR_BUSY : SL_ERR_TIMEOUT, text);
        reg_pool_row_tidy(self, copy.pool);
    }
}

static void waiter_forget(struct registrar *self, struct reg_pool_waiter *waiter)
{
    uint32_t row = waiter->pool;
    waiter_end(self, waiter);
    reg_pool_row_tidy(self, row);
}

void reg_pool_waiters_forget(struct registrar *self, struct sl_proc_id proc)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        if (self->pools->waiters[i].kind != REG_POOL_WAIT_NONE &&
            sl_proc_id_equal(self->pools->waiters[i].proc, proc)) {
            waiter_forget(self, &self->pools->waiters[i]);
        }
    }
}

static uint64_t pool_waiters_next(const struct registrar *self)
{
    uint64_t at_ns = SL_NEVER_NS;
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        if (self->pools->waiters[i].kind != REG_POOL_WAIT_NONE) {
            at_ns = SL_MIN(at_ns, self->pools->waiters[i].back.deadline_ns);
        }
    }
    return at_ns;
}

/* ---- senders ---- */

/* The sender's peer slot; REG_NONE: answered with an error. */
static uint32_t sender_of(struct registrar *self, const struct sl_msg *msg)
{
    uint32_t peer = reg_peer_of_sender(self, msg);
    if (peer != REG_NONE && self->draining) {
        sl_reply_code(self->env, msg, SL_ERR_DRAINING, NULL);
        return REG_NONE;
    }
    return peer;
}

/* Checks a pool's names; the message table limits their lengths. False: answered with an error. */
static bool key_check(struct registrar *self, const struct sl_msg *msg, const struct sl_text *name,
                      const struct sl_text *pool)
{
    if (!reg_pool_names_fit(name->at, pool->at) || name->length >= REG_POOL_NAME_BYTES ||
        pool->length >= REG_NAME_BYTES) {
        sl_reply_fail(self->env, msg, SL_ERR_INVALID,
                      "%s: '%.63s' is not printable ASCII, or '%s' not of "
                      "[a-z0-9_-]",
                      sl_msg_name(msg->type), name->at, pool->at);
        return false;
    }
    return true;
}

static uint32_t row_for(struct registrar *self, const struct sl_msg *msg, const char *name,
                        uint64_t rank, const char *pool)
{
    uint32_t row = reg_pool_row_make(self, name, rank, pool);
    if (row == REG_NONE) {
        sl_reply_fail(self->env, msg, SL_ERR_LIMIT, "%u pools are known: setting pools_max",
                      self->pools->max);
    }
    return row;
}

/* Finds the pool of an epoch, and the sender. REG_NONE: answered with an error, since the memory is
 * over or the sender unknown. */
static uint32_t row_of_epoch(struct registrar *self, const struct sl_msg *msg, uint64_t epoch,
                             uint32_t *peer)
{
    *peer = sender_of(self, msg);
    uint32_t row = *peer != REG_NONE ? reg_pool_by_epoch(self, epoch) : REG_NONE;
    if (row == REG_NONE && *peer != REG_NONE) {
        sl_reply_fail(self->env, msg, SL_ERR_STALE, "%s.epoch: %" PRIu64 " is over",
                      sl_msg_name(msg->type), epoch);
    }
    return row;
}

/* ---- late requests ---- */

static uint64_t client_hash(const char *client, const char *name, uint64_t rank, const char *pool)
{
    char text[REG_NAME_BYTES * 2 + REG_POOL_NAME_BYTES + 32];
    int length = snprintf(text, sizeof(text), "%s\n%s\n%" PRIu64 "\n%s", client, name, rank, pool);
    return reg_hash(text, SL_MIN((uint64_t)length, (uint64_t)sizeof(text) - 1));
}

static void release_seen(struct registrar *self, uint64_t hash, uint64_t seq)
{
    self->pools->release_seen[self->pools->release_seen_next++ % REG_POOLS_RELEASED] =
        (struct reg_pool_released){.client_hash = hash, .seq = seq};
}

static bool was_released(const struct registrar *self, uint64_t hash, uint64_t seq)
{
    for (uint32_t i = 0; i < REG_POOLS_RELEASED; i++) {
        if (self->pools->release_seen[i].client_hash == hash &&
            self->pools->release_seen[i].seq > seq) {
            return true;
        }
    }
    return false;
}

/* ---- POOL_TAKE ---- */

/* Answers from a pool that exists or is being made. */
static void take_of_known(struct registrar *self, uint32_t row, struct reg_pool_waiter *want)
{
    struct reg_pool *pool = &self->pools->all[row];
    char text[SL_ERROR_TEXT_BYTES];
    bool ready = pool->state == REG_POOL_READY;
    pool_state_words(pool, text);
    if (want->sluice && pool->sluice && pool->length_bytes != want->length_bytes) {
        (void)snprintf(text, sizeof(text), "%s has %" PRIu64 " bytes, not %" PRIu64, pool->label,
                       pool->length_bytes, want->length_bytes);
        error_reply(self, &want->back, SL_ERR_INVALID, text);
    } else if (want->sluice && pool->sluice && ready) {
        ready_give(self, row, want->proc, &want->back);
    } else if (want->sluice && pool->sluice) {
        want->kind = REG_POOL_WAIT_READY;
        (void)waiter_add(self, want);
    } else if (!ready && !pool->sluice && !want->sluice &&
               sl_proc_id_equal(pool->owner, want->proc) &&
               strcmp(pool->owner_name, want->back.to) == 0 &&
               pool->length_bytes == want->length_bytes) {
        state_reply(self, &want->back, pool); /* a repeated request */
    } else {
        error_reply(self, &want->back, ready ? SL_ERR_EXISTS : SL_ERR_BUSY, text);
    }
}

static void take_run(struct registrar *self, uint32_t row, struct reg_pool_waiter *want)
{
    struct reg_pool *pool = &self->pools->all[row];
    struct sl_error why = {0};
    if (pool->state == REG_POOL_REVOKING) {
        want->kind = REG_POOL_WAIT_TAKE;
        (void)waiter_add(self, want);
        return;
    }
    if (pool->state != REG_POOL_ABSENT) {
        take_of_known(self, row, want);
        return;
    }
    struct reg_pool_taker taker = {.proc = want->proc,
                                   .name = want->back.to,
                                   .seq = want->back.seq,
                                   .length_bytes = want->length_bytes,
                                   .sluice = want->sluice};
    sl_err err = reg_pool_begin(self, row, &taker, &why);
    if (err != SL_OK) {
        error_reply(self, &want->back, err, why.text);
        reg_pool_row_tidy(self, row);
    } else if (want->sluice) {
        want->kind = REG_POOL_WAIT_READY;
        if (!waiter_add(self, want)) { /* the client does not wait, so it does not map it */
            reg_pool_mapper_remove(self, row, want->back.to, UINT64_MAX);
        }
    } else {
        state_reply(self, &want->back, pool);
    }
}

/* Prepares a request for a pool. False: it is answered, or will be. */
static bool want_begin(struct registrar *self, const struct sl_msg *msg, const struct sl_text *name,
                       uint64_t rank, const struct sl_text *pool, struct reg_pool_waiter *want)
{
    uint32_t peer = sender_of(self, msg);
    if (peer == REG_NONE || !key_check(self, msg, name, pool)) {
        return false;
    }
    want->proc = self->peers->all[peer].proc;
    sl_reply_route_keep(msg, &want->back);
    if (waits_already(self, &want->back) ||
        was_released(self, client_hash(msg->sender.at, name->at, rank, pool->at), msg->seq)) {
        return false;
    }
    want->pool = row_for(self, msg, name->at, rank, pool->at);
    return want->pool != REG_NONE;
}

static void pool_take(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_take *body = &msg->body.pool_take;
    struct reg_pool_waiter want = {.sluice = body->sluice, .length_bytes = body->length_bytes};
    if (want_begin(self, msg, &body->name, body->rank, &body->pool, &want)) {
        take_run(self, want.pool, &want);
    }
}

/* ---- POOL_AWAIT ---- */

static void pool_await(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_await *body = &msg->body.pool_await;
    struct reg_pool_waiter want = {
        .kind = body->epoch == 0 ? REG_POOL_WAIT_READY : REG_POOL_WAIT_END, .epoch = body->epoch};
    if (!want_begin(self, msg, &body->name, body->rank, &body->pool, &want)) {
        return;
    }
    const struct reg_pool *pool = &self->pools->all[want.pool];
    bool ready = pool->state == REG_POOL_READY;
    if (want.kind == REG_POOL_WAIT_READY && ready) {
        ready_give(self, want.pool, want.proc, &want.back);
    } else if (want.kind == REG_POOL_WAIT_END && !(ready && pool->epoch == body->epoch)) {
        state_reply(self, &want.back, pool);
        reg_pool_row_tidy(self, want.pool);
    } else {
        (void)waiter_add(self, &want);
    }
}

/* ---- POOL_READY ---- */

static sl_err ready_check(const struct sl_body_pool_ready *body, struct sl_proc_id owner,
                          uint64_t length_bytes, struct sl_error *why)
{
    uint64_t end;
    if (body->handle_kind > REG_MEMORY_CUDA_FD) {
        return sl_fail(why, SL_ERR_INVALID, "POOL_READY.handle_kind: %" PRIu64 " is unknown",
                       body->handle_kind);
    }
    if (body->handle_kind == REG_MEMORY_IPC ? body->handle.length == 0 : body->pid != owner.pid) {
        return sl_fail(why, SL_ERR_INVALID, "POOL_READY.%s",
                       body->handle_kind == REG_MEMORY_IPC ? "handle: empty"
                                                           : "pid: not the sender's");
    }
    if (body->gpu.length != 0 && body->gpu.length != REG_POOL_GPU_BYTES) {
        return sl_fail(why, SL_ERR_INVALID, "POOL_READY.gpu: %" PRIu64 " bytes are no UUID",
                       body->gpu.length);
    }
    if (__builtin_add_overflow(body->offset_bytes, length_bytes, &end)) {
        return sl_fail(why, SL_ERR_INVALID, "POOL_READY.offset_bytes: plus %" PRIu64 " overflows",
                       length_bytes);
    }
    return SL_OK;
}

static void pool_ready(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_ready *body = &msg->body.pool_ready;
    struct sl_error why = {0};
    uint32_t peer, row = row_of_epoch(self, msg, body->epoch, &peer);
    if (row == REG_NONE) {
        return;
    }
    struct reg_pool *pool = &self->pools->all[row];
    struct sl_proc_id proc = self->peers->all[peer].proc;
    sl_err err = SL_OK;
    if (pool->sluice || !sl_proc_id_equal(pool->owner, proc)) {
        err =
            sl_fail(&why, SL_ERR_PERMISSION, "POOL_READY.epoch: %s is its owner", pool->owner_name);
    } else if (pool->state == REG_POOL_REVOKING) {
        err = sl_fail(&why, SL_ERR_STALE, "POOL_READY.epoch: %" PRIu64 " is being revoked",
                      body->epoch);
    } else {
        err = ready_check(body, proc, pool->length_bytes, &why);
    }
    if (err == SL_OK && pool->state == REG_POOL_ALLOCATING) { /* else a repeated request */
        struct reg_pool_handle handle = {.proc = proc,
                                         .kind = body->handle_kind,
                                         .fd = body->fd,
                                         .inode = body->inode,
                                         .offset_bytes = body->offset_bytes,
                                         .ipc_bytes = body->handle.length};
        if (body->handle.length > 0) { /* at most 64: the message table */
            memcpy(handle.ipc, body->handle.at, body->handle.length);
        }
        if (body->gpu.length > 0) { /* 16, by ready_check */
            memcpy(handle.gpu, body->gpu.at, sizeof(handle.gpu));
        }
        err = reg_pool_publish(self, row, &handle, &why);
    }
    sl_reply_code(self->env, msg, err, &why);
}

/* ---- POOL_MAPPED, POOL_RELEASE, POOL_REVOKE ---- */

static void pool_mapped(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_mapped *body = &msg->body.pool_mapped;
    struct sl_error why = {0};
    uint32_t peer, row = row_of_epoch(self, msg, body->epoch, &peer);
    if (row == REG_NONE) {
        return;
    }
    struct reg_pool *pool = &self->pools->all[row];
    uint32_t mapper = reg_pool_mapper(pool, self->peers->all[peer].name);
    sl_err err = SL_OK;
    if (pool->state != REG_POOL_READY) {
        err = sl_fail(&why, SL_ERR_STALE, "POOL_MAPPED.epoch: %" PRIu64 " is %s", body->epoch,
                      state_text(pool->state));
    } else if (mapper == REG_NONE) {
        err = sl_fail(&why, SL_ERR_PERMISSION, "POOL_MAPPED.epoch: %s did not ask for it",
                      self->peers->all[peer].name);
    } else if (pool->mappers[mapper].has_fd != body->has_fd ||
               pool->mappers[mapper].fd != body->fd) {
        pool->mappers[mapper].has_fd = body->has_fd;
        pool->mappers[mapper].fd = body->fd;
        reg_pool_note(self, row);
    }
    sl_reply_code(self->env, msg, err, &why);
}

/* The owner gives up a pool that is not made yet, or revokes it. */
static void owner_releases(struct registrar *self, uint32_t row, const char *name, uint64_t seq)
{
    struct reg_pool *pool = &self->pools->all[row];
    char text[SL_ERROR_TEXT_BYTES];
    if (pool->sluice || strcmp(pool->owner_name, name) != 0 || seq < pool->owner_seq) {
        return;
    }
    if (pool->state == REG_POOL_ALLOCATING) {
        (void)snprintf(text, sizeof(text), "%s: its owner %s gave it up", pool->label, name);
        reg_log(self, SL_LOG_INFO, 0, "%s", text);
        reg_pool_fail(self, row, SL_ERR_CANCELLED, text);
    } else if (pool->state == REG_POOL_READY) {
        reg_pool_revoke(self, row, "its owner takes it back");
    }
}

static void waiters_release(struct registrar *self, uint32_t row, const char *name, uint64_t seq)
{
    for (uint32_t i = 0; self->pools->waiter_count > 0 && i < self->set.clients_max; i++) {
        struct reg_pool_waiter *waiter = &self->pools->waiters[i];
        if (waiter->kind != REG_POOL_WAIT_NONE && waiter->pool == row && waiter->back.seq < seq &&
            strcmp(waiter->back.to, name) == 0) {
            waiter_forget(self, waiter);
        }
    }
}

/* Later requests of the sender stay: a RELEASE that arrives late or twice does not affect them. */
static void pool_release(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_release *body = &msg->body.pool_release;
    uint32_t peer = sender_of(self, msg);
    if (peer == REG_NONE || !key_check(self, msg, &body->name, &body->pool)) {
        return;
    }
    release_seen(self, client_hash(msg->sender.at, body->name.at, body->rank, body->pool.at),
                 msg->seq);
    uint32_t row = reg_pool_find(self, body->name.at, body->rank, body->pool.at);
    if (row != REG_NONE && (body->epoch == 0 || body->epoch == self->pools->all[row].epoch)) {
        char name[REG_NAME_BYTES];
        memcpy(name, self->peers->all[peer].name, sizeof(name));
        if (body->epoch == 0) {
            waiters_release(self, row, name, msg->seq);
        }
        if (body->epoch != 0 || self->pools->all[row].state == REG_POOL_ALLOCATING) {
            owner_releases(self, row, name, msg->seq);
        }
        if (self->pools->all[row].used) {
            reg_pool_mapper_remove(self, row, name, msg->seq);
        }
    }
    struct sl_msg reply = {.code = SL_OK}; /* also if the pool was over */
    sl_reply(self->env, msg, &reply);
}

static void pool_revoke_handle(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_body_pool_revoke *body = &msg->body.pool_revoke;
    uint32_t peer = sender_of(self, msg);
    struct reg_pool_waiter want = {.kind = REG_POOL_WAIT_REVOKE, .epoch = body->epoch};
    if (peer == REG_NONE) {
        return;
    }
    sl_reply_route_keep(msg, &want.back);
    want.pool = reg_pool_by_epoch(self, body->epoch);
    if (want.pool == REG_NONE) { /* over, so revoked */
        sl_reply_code(self->env, msg, SL_OK, NULL);
        return;
    }
    struct reg_pool *pool = &self->pools->all[want.pool];
    const char *name = self->peers->all[peer].name;
    bool may = pool->sluice ? reg_pool_mapper(pool, name) != REG_NONE
                            : sl_proc_id_equal(pool->owner, self->peers->all[peer].proc);
    if (!may && pool->state != REG_POOL_REVOKING) {
        sl_reply_fail(self->env, msg, SL_ERR_PERMISSION, "POOL_REVOKE.epoch: %s is its owner",
                      pool->owner_name);
        return;
    }
    want.proc = self->peers->all[peer].proc;
    if (!waits_already(self, &want.back) && !waiter_add(self, &want)) {
        return;
    }
    if (pool->state == REG_POOL_READY || pool->state == REG_POOL_ALLOCATING) {
        reg_pool_revoke(self, want.pool, "its owner wants it back");
    }
    if (self->pools->all[want.pool].epoch == body->epoch) { /* the sender no longer maps it */
        reg_pool_mapper_remove(self, want.pool, name, msg->seq);
    }
}

/* ---- POOLS ---- */

static void mappers_words(const struct reg_pool *pool, char *out, size_t room)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < pool->mapper_count; i++) {
        int wrote = snprintf(out + at, room - at, "%s%s", i > 0 ? ", " : "", pool->mappers[i].name);
        if (wrote < 0 || (size_t)wrote >= room - at) {
            out[at] = '\0'; /* only whole names */
            return;
        }
        at += (size_t)wrote;
    }
    if (pool->swapper_may_map || pool->dropping) {
        int wrote =
            snprintf(out + at, room - at, "%sswapper.%" PRIu64, at > 0 ? ", " : "", pool->rank);
        out[wrote < 0 || (size_t)wrote >= room - at ? at : at + (size_t)wrote] = '\0';
    }
}

static void pools_list(struct registrar *self, const struct sl_msg *msg)
{
    struct sl_msg reply = {.code = SL_OK};
    struct sl_item_holding *items = calloc(self->pools->high + 1u, sizeof(*items));
    char(*mappers)[REG_POOL_MAPPERS_TEXT] = calloc(self->pools->high + 1u, sizeof(*mappers));
    uint32_t count = 0;
    if (items == NULL || mappers == NULL) {
        sl_reply_fail(self->env, msg, SL_ERR_NO_MEMORY, "list of %u pools", self->pools->high);
        free(items);
        free(mappers);
        return;
    }
    for (uint32_t i = 0; i < self->pools->high; i++) {
        const struct reg_pool *pool = &self->pools->all[i];
        if (!pool->used) {
            continue;
        }
        mappers_words(pool, mappers[count], sizeof(mappers[count]));
        items[count] = (struct sl_item_holding){
            .name = sl_text_of(pool->name),
            .rank = pool->rank,
            .pool = sl_text_of(pool->pool),
            .state = pool->state,
            .epoch = pool->epoch,
            .length_bytes = pool->length_bytes,
            .sluice = pool->sluice,
            .owner = sl_text_of(pool->owner_name),
            .owner_pid = pool->owner.pid,
            .mapper_count =
                pool->mapper_count + (pool->swapper_may_map || pool->dropping ? 1u : 0u),
            .mappers = sl_text_of(mappers[count]),
            .waiter_count = reg_pool_waiters(self, i),
        };
        count++;
    }
    reply.body.pools_reply.pools.at = items;
    reply.body.pools_reply.pools.count = count;
    sl_reply(self->env, msg, &reply);
    free(items);
    free(mappers);
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_POOL_TAKE, pool_take},       {SL_MSG_POOL_AWAIT, pool_await},
    {SL_MSG_POOL_READY, pool_ready},     {SL_MSG_POOL_MAPPED, pool_mapped},
    {SL_MSG_POOL_RELEASE, pool_release}, {SL_MSG_POOL_REVOKE, pool_revoke_handle},
    {SL_MSG_POOLS, pools_list},
};

const struct reg_part reg_pool_requests_part = {
    .name = "pool_requests",
    REG_HANDLERS(handlers),
    .tick = pool_waiters_expire,
    .next_ns = pool_waiters_next,
};
