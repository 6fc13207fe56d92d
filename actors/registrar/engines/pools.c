/* actors/registrar/engines/pools.c - the table of pools: device memory, its owners and mappers.
 *
 *   absent -> allocating (one owner) -> ready (epoch) -> revoking -> absent
 *
 * An engine makes its pool itself, or the rank's swapper does. A pool made by an engine ends with
 * it. A pool made by a swapper belongs to the clients that map it: it ends with the last of them,
 * and survives the swapper if another process has a descriptor. While a pool is revoked every
 * mapper unmaps it and confirms, or dies. A swapper that does neither is killed; a client that does
 * neither keeps the pool revoking. A change is a note in the index before any process learns of
 * it. */
#include "actors/registrar/engines/pools.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/engines/engines.h"
#include "actors/registrar/presence/peers.h"
#include "actors/registrar/records/claims.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static sl_err pools_init(struct registrar *self, struct sl_error *why)
{
    self->pools->all = calloc(self->pools->max, sizeof(*self->pools->all));
    self->pools->waiters = calloc(self->set.clients_max, sizeof(*self->pools->waiters));
    return self->pools->all != NULL && self->pools->waiters != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "table of %u pools", self->pools->max);
}

static void pools_fini(struct registrar *self)
{
    free(self->pools->all);
    free(self->pools->waiters);
}

/* ---- rows ---- */

bool reg_pool_names_fit(const char *name, const char *pool)
{
    for (const char *at = name; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            return false;
        }
    }
    size_t good = strspn(pool, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return name[0] != '\0' && pool[0] != '\0' && pool[good] == '\0';
}

uint32_t reg_pool_find(const struct registrar *self, const char *name, uint64_t rank,
                       const char *pool)
{
    for (uint32_t i = 0; i < self->pools->high; i++) {
        const struct reg_pool *at = &self->pools->all[i];
        if (at->used && at->rank == rank && strcmp(at->name, name) == 0 &&
            strcmp(at->pool, pool) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_pool_by_epoch(const struct registrar *self, uint64_t epoch)
{
    for (uint32_t i = 0; i < self->pools->high; i++) {
        if (self->pools->all[i].used && self->pools->all[i].epoch == epoch && epoch != 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_pool_row_make(struct registrar *self, const char *name, uint64_t rank,
                           const char *pool)
{
    uint32_t row = reg_pool_find(self, name, rank, pool);
    for (uint32_t i = 0; row == REG_NONE && i < self->pools->max; i++) {
        row = self->pools->all[i].used ? REG_NONE : i;
    }
    if (row != REG_NONE && !self->pools->all[row].used) {
        struct reg_pool *at = &self->pools->all[row];
        *at = (struct reg_pool){.used = true, .state = REG_POOL_ABSENT, .rank = rank};
        (void)snprintf(at->name, sizeof(at->name), "%s", name);
        (void)snprintf(at->pool, sizeof(at->pool), "%s", pool);
        (void)snprintf(at->label, sizeof(at->label), "pool %s/%" PRIu64 "/%s", name, rank, pool);
        self->pools->high = SL_MAX(self->pools->high, row + 1);
    }
    return row;
}

void reg_pool_row_tidy(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    if (!pool->used || pool->state != REG_POOL_ABSENT || reg_pool_waiters(self, row) != 0) {
        return;
    }
    pool->used = false;
    while (self->pools->high > 0 && !self->pools->all[self->pools->high - 1].used) {
        self->pools->high--;
    }
}

/* ---- the swapper ---- */

static void swapper_name(const struct reg_pool *pool, char out[REG_NAME_BYTES])
{
    (void)snprintf(out, REG_NAME_BYTES, "swapper.%" PRIu64, pool->rank);
}

/* The swapper's peer slot, REG_NONE: it never arrived. */
static uint32_t swapper_of(const struct registrar *self, const struct reg_pool *pool)
{
    char name[REG_NAME_BYTES];
    swapper_name(pool, name);
    return reg_peer_find(self, name, strlen(name));
}

static void call_forget(struct registrar *self, struct reg_pool *pool)
{
    if (pool->call_seq != 0) {
        sl_calls_drop(self->calls, pool->call_seq);
        pool->call_seq = 0;
    }
}

static sl_err make_send(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    char to[REG_NAME_BYTES];
    struct sl_msg msg = {.type = SL_MSG_POOL_MAKE};
    swapper_name(pool, to);
    msg.body.pool_make.epoch = pool->epoch;
    msg.body.pool_make.length_bytes = pool->length_bytes;
    msg.body.pool_make.name = sl_text_of(pool->name);
    msg.body.pool_make.pool = sl_text_of(pool->pool);
    return sl_calls_send(self->calls, to, &msg, sl_deadline_ns(self->env->now_ns, REG_POOL_MAKE_NS),
                         reg_cookie(REG_CALL_POOL, row), &pool->call_seq);
}

/* If the table of calls is full, the next tick tries again. */
static void drop_send(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    char to[REG_NAME_BYTES];
    struct sl_msg msg = {.type = SL_MSG_POOL_DROP};
    swapper_name(pool, to);
    msg.body.pool_drop.epoch = pool->epoch;
    pool->call_due_ns = sl_deadline_ns(self->env->now_ns, self->set.fence_timeout_ns);
    if (sl_calls_send(self->calls, to, &msg, pool->call_due_ns, reg_cookie(REG_CALL_POOL, row),
                      &pool->call_seq) != SL_OK) {
        pool->call_seq = 0;
        self->pools->due = true;
    }
}

/* ---- states ---- */

static void pool_absent(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    call_forget(self, pool);
    reg_pool_note_drop(self, pool);
    pool->state = REG_POOL_ABSENT;
    pool->sluice = false;
    pool->swapper_may_map = false;
    pool->dropping = false;
    pool->epoch = 0;
    pool->length_bytes = 0;
    pool->mapper_count = 0;
    pool->owner = (struct sl_proc_id){0};
    pool->owner_name[0] = '\0';
    pool->handle = (struct reg_pool_handle){0};
    reg_pool_wake(self, row);
    reg_pool_row_tidy(self, row);
}

/* Continues a revocation. A swapper frees the memory that it made last: while others have a device
 * handle open, the memory must exist. */
static void pool_settle(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    if (!pool->used || pool->state != REG_POOL_REVOKING) {
        return;
    }
    if (pool->dropping && pool->call_seq == 0 && (!pool->sluice || pool->mapper_count == 0)) {
        drop_send(self, row);
    }
    if (!pool->dropping && pool->mapper_count == 0) {
        pool_absent(self, row);
    }
}

static void pools_tick(struct registrar *self)
{
    bool due = self->pools->due;
    self->pools->due = false;
    for (uint32_t i = 0; due && i < self->pools->high; i++) {
        if (self->pools->all[i].used && self->pools->all[i].unnoted) {
            reg_pool_note(self, i);
        }
        pool_settle(self, i);
    }
}

sl_err reg_pool_begin(struct registrar *self, uint32_t row, const struct reg_pool_taker *taker,
                      struct sl_error *why)
{
    struct reg_pool *pool = &self->pools->all[row];
    SL_ASSERT(pool->state == REG_POOL_ABSENT);
    if (taker->sluice && pool->rank >= self->set.ranks) {
        return sl_fail(why, SL_ERR_INVALID, "POOL_TAKE.rank: %" PRIu64 ", the node has %u ranks",
                       pool->rank, self->set.ranks);
    }
    pool->epoch = sl_arena_next_generation(self->arena);
    pool->length_bytes = taker->length_bytes;
    pool->sluice = taker->sluice;
    pool->owner_seq = taker->seq;
    pool->state = REG_POOL_ALLOCATING;
    if (taker->sluice) {
        uint32_t swapper = swapper_of(self, pool);
        swapper_name(pool, pool->owner_name);
        pool->owner = swapper != REG_NONE && self->peers->all[swapper].present
                          ? self->peers->all[swapper].proc
                          : (struct sl_proc_id){0};
        pool->mapper_count = 1; /* the client that asked maps it */
        pool->mappers[0] = (struct reg_pool_mapper){.proc = taker->proc, .seq = taker->seq};
        (void)snprintf(pool->mappers[0].name, sizeof(pool->mappers[0].name), "%s", taker->name);
    } else {
        pool->owner = taker->proc;
        (void)snprintf(pool->owner_name, sizeof(pool->owner_name), "%s", taker->name);
    }
    sl_err err = reg_pool_note_write(self, pool, why);
    if (err == SL_OK && taker->sluice) {
        err = make_send(self, row);
        if (err != SL_OK) {
            (void)sl_fail(why, err, "%s cannot be asked", pool->owner_name);
        }
    }
    if (err != SL_OK) { /* not pool_absent, which would answer waiting requests */
        reg_pool_note_drop(self, pool);
        pool->state = REG_POOL_ABSENT;
        pool->epoch = 0;
        pool->mapper_count = 0;
    }
    return err;
}

/* A swapper's pool is given up when no client maps it or waits for it. */
static bool pool_is_unwanted(const struct registrar *self, uint32_t row)
{
    const struct reg_pool *pool = &self->pools->all[row];
    return pool->used && pool->sluice && pool->mapper_count == 0 &&
           (pool->state == REG_POOL_ALLOCATING || pool->state == REG_POOL_READY) &&
           !reg_pool_is_awaited(self, row);
}

sl_err reg_pool_publish(struct registrar *self, uint32_t row, const struct reg_pool_handle *handle,
                        struct sl_error *why)
{
    struct reg_pool *pool = &self->pools->all[row];
    SL_ASSERT(pool->state == REG_POOL_ALLOCATING);
    pool->state = REG_POOL_READY;
    pool->handle = *handle;
    sl_err err = reg_pool_note_write(self, pool, why);
    if (err != SL_OK) {
        pool->state = REG_POOL_ALLOCATING;
        return err;
    }
    reg_log(self, SL_LOG_INFO, 0, "%s is ready: %" PRIu64 " bytes of %s", pool->label,
            pool->length_bytes, pool->owner_name);
    reg_pool_wake(self, row);
    if (pool_is_unwanted(self, row)) {
        reg_pool_revoke(self, row, "no client needs it");
    }
    return SL_OK;
}

void reg_pool_revoke(struct registrar *self, uint32_t row, const char *reason)
{
    struct reg_pool *pool = &self->pools->all[row];
    SL_ASSERT(pool->state == REG_POOL_READY || pool->state == REG_POOL_ALLOCATING);
    reg_log(self, SL_LOG_INFO, 0, "%s is revoked: %s", pool->label, reason);
    call_forget(self, pool);
    pool->state = REG_POOL_REVOKING;
    pool->dropping = pool->swapper_may_map || pool->sluice;
    pool->call_lates = 0;
    reg_pool_note(self, row);
    /* The engines end, so swappers no longer get its regions, and later requests learn that. */
    reg_engines_end_of_pool(self, pool->epoch);
    reg_pool_wake(self, row);
    pool_settle(self, row);
}

void reg_pool_fail(struct registrar *self, uint32_t row, sl_err code, const char *text)
{
    SL_ASSERT(self->pools->all[row].state == REG_POOL_ALLOCATING);
    reg_pool_fail_waiters(self, row, code, text);
    pool_absent(self, row);
}

/* ---- mappers ---- */

uint32_t reg_pool_mapper(const struct reg_pool *pool, const char *name)
{
    for (uint32_t i = 0; i < pool->mapper_count; i++) {
        if (strcmp(pool->mappers[i].name, name) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

sl_err reg_pool_mapper_add(struct registrar *self, uint32_t row,
                           const struct reg_pool_taker *mapper, struct sl_error *why)
{
    struct reg_pool *pool = &self->pools->all[row];
    uint32_t known = reg_pool_mapper(pool, mapper->name);
    if (known == REG_NONE && pool->mapper_count == REG_POOL_MAPPERS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%s: %u processes map it", pool->label,
                       REG_POOL_MAPPERS_MAX);
    }
    if (known != REG_NONE) {
        bool newer = pool->mappers[known].seq < mapper->seq;
        pool->mappers[known].seq = SL_MAX(pool->mappers[known].seq, mapper->seq);
        return newer ? reg_pool_note_write(self, pool, why) : SL_OK;
    }
    struct reg_pool_mapper *fresh = &pool->mappers[pool->mapper_count++];
    *fresh = (struct reg_pool_mapper){.proc = mapper->proc, .seq = mapper->seq};
    (void)snprintf(fresh->name, sizeof(fresh->name), "%s", mapper->name);
    sl_err err = reg_pool_note_write(self, pool, why);
    if (err != SL_OK) {
        pool->mapper_count--;
    }
    return err;
}

static void mapper_out(struct reg_pool *pool, uint32_t mapper)
{
    pool->mappers[mapper] = pool->mappers[--pool->mapper_count];
}

/* The handle's process no longer has the descriptor: another mapper's replaces it. False: there is
 * none, so processes that do not map the memory yet cannot. */
static bool handle_carry(struct reg_pool *pool)
{
    bool carried = pool->handle.kind == REG_MEMORY_FD || pool->handle.kind == REG_MEMORY_CUDA_FD;
    for (uint32_t i = 0; carried && i < pool->mapper_count; i++) {
        if (pool->mappers[i].has_fd != 0) {
            pool->handle.proc = pool->mappers[i].proc;
            pool->handle.fd = pool->mappers[i].fd;
            return true;
        }
    }
    return false;
}

/* After a mapper, the owner or the swapper left; carrier: the handle named its descriptor. */
static void pool_left(struct registrar *self, uint32_t row, bool carrier)
{
    struct reg_pool *pool = &self->pools->all[row];
    if (carrier && pool->state == REG_POOL_READY && pool->mapper_count > 0 && !handle_carry(pool)) {
        reg_pool_revoke(self, row, "the process that held its memory has left");
        return;
    }
    if (pool_is_unwanted(self, row)) {
        reg_pool_revoke(self, row, "its last client has left");
        return;
    }
    reg_pool_note(self, row);
    pool_settle(self, row);
}

void reg_pool_mapper_remove(struct registrar *self, uint32_t row, const char *name, uint64_t seq)
{
    struct reg_pool *pool = &self->pools->all[row];
    uint32_t mapper = reg_pool_mapper(pool, name);
    if (mapper != REG_NONE && pool->mappers[mapper].seq <= seq) {
        const struct reg_pool_mapper *gone = &pool->mappers[mapper];
        bool carrier = pool->sluice && gone->has_fd != 0 && gone->fd == pool->handle.fd &&
                       sl_proc_id_equal(gone->proc, pool->handle.proc);
        mapper_out(pool, mapper);
        pool_left(self, row, carrier);
    }
}

/* ---- deaths ---- */

static void owner_died(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    char text[SL_ERROR_TEXT_BYTES];
    switch (pool->state) {
    case REG_POOL_ALLOCATING:
        (void)snprintf(text, sizeof(text), "%s: its owner %s (process %u) died before it was ready",
                       pool->label, pool->owner_name, pool->owner.pid);
        reg_log(self, SL_LOG_WARN, 0, "%s", text);
        reg_pool_fail(self, row, SL_ERR_PEER_DIED, text);
        break;
    case REG_POOL_READY:
        pool->owner = (struct sl_proc_id){0};
        if (!pool->sluice) {
            reg_pool_revoke(self, row, "its owner died");
        }
        break;
    case REG_POOL_REVOKING:
        pool->owner = (struct sl_proc_id){0};
        break;
    case REG_POOL_ABSENT:
        break;
    }
}

static void pool_process_died(struct registrar *self, uint32_t row, struct sl_proc_id proc)
{
    struct reg_pool *pool = &self->pools->all[row];
    bool concerned = false;
    for (uint32_t i = pool->mapper_count; i-- > 0;) {
        if (sl_proc_id_equal(pool->mappers[i].proc, proc)) {
            mapper_out(pool, i);
            concerned = true;
        }
    }
    uint32_t swapper = swapper_of(self, pool);
    if (pool->dropping && swapper != REG_NONE &&
        sl_proc_id_equal(self->peers->all[swapper].proc, proc)) {
        call_forget(self, pool); /* its mapping or memory ended with it */
        pool->dropping = false;
        concerned = true;
    }
    bool carrier = pool->state == REG_POOL_READY && sl_proc_id_equal(pool->handle.proc, proc);
    if (sl_proc_id_equal(pool->owner, proc)) {
        owner_died(self, row);
        concerned = true;
    }
    if (!pool->used || !(concerned || carrier)) {
        return;
    }
    pool_left(self, row, carrier);
}

static void pools_died(struct registrar *self, struct sl_proc_id proc)
{
    reg_pool_waiters_forget(self, proc);
    for (uint32_t i = 0; i < self->pools->high; i++) {
        if (self->pools->all[i].used) {
            pool_process_died(self, i, proc);
        }
    }
}

/* ---- answers of swappers ---- */

static void made(struct registrar *self, uint32_t row, const struct sl_msg *msg)
{
    struct reg_pool *pool = &self->pools->all[row];
    const struct sl_body_pool_make_reply *body = &msg->body.pool_make_reply;
    uint32_t swapper = swapper_of(self, pool);
    struct sl_error why = {0};
    char text[SL_ERROR_TEXT_BYTES];
    sl_err err = msg->code;
    if (err == SL_OK && (swapper == REG_NONE || !self->peers->all[swapper].present ||
                         self->peers->all[swapper].proc.pid != body->pid)) {
        err = sl_fail(&why, SL_ERR_PEER_DIED, "process %" PRIu64 " was replaced", body->pid);
    } else if (err == SL_OK) {
        struct reg_pool_handle handle = {.proc = self->peers->all[swapper].proc,
                                         .kind = body->handle_kind,
                                         .fd = body->fd,
                                         .inode = body->inode,
                                         .ipc_bytes = body->handle.length};
        if (body->handle.length > 0) { /* at most 64: the message table */
            memcpy(handle.ipc, body->handle.at, body->handle.length);
        }
        if (body->gpu.length == sizeof(handle.gpu)) {
            memcpy(handle.gpu, body->gpu.at, sizeof(handle.gpu));
        }
        pool->owner = handle.proc;
        err = reg_pool_publish(self, row, &handle, &why);
    }
    if (err != SL_OK) {
        (void)snprintf(text, sizeof(text), "%s: %s cannot make it: %.64s", pool->label,
                       pool->owner_name,
                       why.text[0] != '\0'    ? why.text
                       : msg->text.length > 0 ? msg->text.at
                                              : sl_err_text(err));
        reg_log(self, SL_LOG_WARN, 0, "%s", text);
        reg_pool_fail_waiters(self, row, err, text);
        pool->mapper_count = 0;
        reg_pool_revoke(self, row, "it could not be made");
    }
}

static void pool_reply(struct registrar *self, uint32_t row, const struct sl_msg *msg)
{
    struct reg_pool *pool = &self->pools->all[row];
    pool->call_seq = 0;
    if (pool->state == REG_POOL_ALLOCATING) {
        made(self, row, msg);
        return;
    }
    uint32_t swapper = swapper_of(self, pool);
    if (msg->code == SL_OK) {
        pool->dropping = false;
    } else if (swapper != REG_NONE && reg_peer_alive(self, swapper)) {
        reg_log(self, SL_LOG_ERROR, 0, "%s (process %u) did not drop a pool: killed",
                self->peers->all[swapper].name, self->peers->all[swapper].proc.pid);
        sl_metric_add(self->env->metrics, self->claims->metric.killed_count, 1);
        self->env->ops->kill(self->env, self->peers->all[swapper].proc);
        return; /* its death settles the pool */
    } else {    /* dead, or it never arrived */
        pool->dropping = false;
    }
    pool_settle(self, row);
}

static void pool_call_expired(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools->all[row];
    if (pool->state == REG_POOL_REVOKING && pool->call_lates < REG_LATES_MAX &&
        self->env->now_ns > sl_deadline_ns(pool->call_due_ns, REG_LATE_NS)) {
        pool->call_seq = 0; /* the answer may be unread */
        pool->call_lates++;
        pool_settle(self, row);
        return;
    }
    struct sl_msg none = {.code = SL_ERR_TIMEOUT};
    pool_reply(self, row, &none);
}

/* ---- engines ---- */

static bool pool_is_of(const struct reg_pool *pool, struct sl_proc_id proc)
{
    bool has = sl_proc_id_equal(pool->owner, proc);
    for (uint32_t i = 0; i < pool->mapper_count; i++) {
        has = has || sl_proc_id_equal(pool->mappers[i].proc, proc);
    }
    return has;
}

static sl_err region_check(const struct registrar *self, const struct sl_item_region *region,
                           uint64_t index, struct sl_proc_id proc, struct sl_error *why)
{
    uint32_t row = reg_pool_by_epoch(self, region->pool_epoch);
    const struct reg_pool *pool = row == REG_NONE ? NULL : &self->pools->all[row];
    if (pool == NULL || pool->state != REG_POOL_READY) {
        return sl_fail(why, SL_ERR_STALE,
                       "ENGINE_REGISTER.regions[%" PRIu64 "].pool_epoch: %" PRIu64 " is over",
                       index, region->pool_epoch);
    }
    if (pool->rank != region->rank) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.regions[%" PRIu64 "].pool_epoch: it is of rank %" PRIu64,
                       index, pool->rank);
    }
    if (!pool_is_of(pool, proc)) {
        return sl_fail(why, SL_ERR_PERMISSION,
                       "ENGINE_REGISTER.regions[%" PRIu64
                       "].pool_epoch: process %u neither owns nor maps it",
                       index, proc.pid);
    }
    uint64_t first = pool->handle.offset_bytes;
    if (region->offset_bytes < first || region->offset_bytes - first > pool->length_bytes ||
        region->length_bytes > pool->length_bytes - (region->offset_bytes - first)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.regions[%" PRIu64 "]: beyond the %" PRIu64 " bytes of %s",
                       index, pool->length_bytes, pool->label);
    }
    return SL_OK;
}

sl_err reg_pools_register(struct registrar *self, const struct sl_body_engine_register *engine,
                          struct sl_proc_id proc, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < engine->regions.count && err == SL_OK; i++) {
        if (engine->regions.at[i].pool_epoch != 0) {
            err = region_check(self, &engine->regions.at[i], i, proc, why);
        }
    }
    for (uint64_t i = 0; i < engine->regions.count && err == SL_OK; i++) {
        uint32_t row = reg_pool_by_epoch(self, engine->regions.at[i].pool_epoch);
        if (row != REG_NONE && !self->pools->all[row].swapper_may_map) {
            self->pools->all[row].swapper_may_map = true;
            err = reg_pool_note_write(self, &self->pools->all[row], why);
            self->pools->all[row].swapper_may_map = err == SL_OK;
        }
    }
    return err;
}

/* ---- restart ---- */

/* Handles processes that died meanwhile, and repeats requests to swappers. */
static void pools_check(struct registrar *self)
{
    for (uint32_t i = 0; i < self->pools->high; i++) {
        struct reg_pool *pool = &self->pools->all[i];
        if (!pool->used) {
            continue;
        }
        struct sl_proc_id procs[REG_POOL_MAPPERS_MAX + 2];
        uint32_t count = 0;
        procs[count++] = pool->owner;
        procs[count++] = pool->handle.proc;
        for (uint32_t k = 0; k < pool->mapper_count; k++) {
            procs[count++] = pool->mappers[k].proc;
        }
        pool->dropping =
            pool->state == REG_POOL_REVOKING && (pool->swapper_may_map || pool->sluice);
        for (uint32_t k = 0; k < count && pool->used; k++) {
            if (!reg_proc_none(procs[k]) && !reg_peer_present(self, procs[k])) {
                pool_process_died(self, i, procs[k]);
            }
        }
        if (pool->used && pool->state == REG_POOL_ALLOCATING && pool->sluice &&
            make_send(self, i) != SL_OK) {
            reg_pool_revoke(self, i, "its swapper cannot be asked");
        } else if (pool->used) {
            pool_settle(self, i);
        }
    }
}

static void pools_gauges(struct registrar *self)
{
    uint64_t count = 0, bytes = 0;
    for (uint32_t i = 0; i < self->pools->high; i++) {
        bool there = self->pools->all[i].used && self->pools->all[i].state != REG_POOL_ABSENT;
        count += there ? 1 : 0;
        bytes += there ? self->pools->all[i].length_bytes : 0;
    }
    sl_metric_set(self->env->metrics, self->pools->metric.pool_count, count);
    sl_metric_set(self->env->metrics, self->pools->metric.pool_bytes, bytes);
}

/* ---- the part ---- */

static void pools_settings(struct registrar *self)
{
    self->pools->max = (uint32_t)sl_config_u64(self->env->config, SL_SET_pools_max);
}

static const struct sl_metric_row metrics[] = {
    REG_METRIC(reg_pools, pool_count),
    REG_METRIC(reg_pools, pool_bytes),
};

static const struct reg_call calls[] = {
    {.kind = REG_CALL_POOL, .reply = pool_reply, .expired = pool_call_expired},
};

const struct reg_part reg_pools_part = {
    .name = "pools",
    REG_STATE(pools, reg_pools),
    REG_METRICS(metrics),
    REG_CALLS(calls),
    .settings = pools_settings,
    .init = pools_init,
    .fini = pools_fini,
    .tick = pools_tick,
    .recovered = pools_check,
    .died = pools_died,
    .gauges = pools_gauges,
};
