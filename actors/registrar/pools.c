/* actors/registrar/pools.c - the table of pools: which device memory there is, who made it, who
 * maps it.
 *
 *   absent -> allocating (one owner) -> ready (epoch) -> revoking -> absent
 *
 * An engine makes its pool itself, or the rank's swapper does. What an engine made ends with it.
 * What a swapper made belongs to those that map it: it ends when the last client that does is gone,
 * and outlives the swapper where another process has a descriptor of it. While it is revoked every
 * mapper unmaps it and says so, or dies; a swapper that does neither is killed, a client that does
 * neither keeps the pool revoking. A change is a note in the index before anybody hears of it. */
#include "actors/registrar/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_NOTE_VERSION 1u
/* enum sl_memory_kind of cuda/sl_device.h, which the registrar does not use */
#define MEMORY_KIND_FD      1u
#define MEMORY_KIND_CUDA_FD 3u
#define MEMORY_KIND_MAX     3u

struct pool_note { /* a BLOB, followed by the mappers */
    uint32_t version, state, sluice, lent;
    uint64_t rank, epoch, length_bytes;
    char name[REG_POOL_NAME_BYTES];
    char pool[REG_NAME_BYTES];
    char owner_name[REG_NAME_BYTES];
    uint64_t owner_seq;
    struct sl_proc_id owner;
    struct reg_pool_handle handle;
    uint32_t mapper_count, reserved;
};
_Static_assert(sizeof(struct reg_pool_handle) == 120, "part of a pool's note");
_Static_assert(sizeof(struct reg_pool_mapper) == 72, "part of a pool's note");
_Static_assert(sizeof(struct pool_note) == 320, "format of a pool's note");

sl_err reg_pools_init(struct registrar *self, struct sl_error *why)
{
    self->pools = calloc(self->set.pools_max, sizeof(*self->pools));
    self->pool_waiters = calloc(self->set.clients_max, sizeof(*self->pool_waiters));
    return self->pools != NULL && self->pool_waiters != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_NO_MEMORY, "table of %u pools", self->set.pools_max);
}

void reg_pools_fini(struct registrar *self)
{
    free(self->pools);
    free(self->pool_waiters);
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
    for (uint32_t i = 0; i < self->pool_high; i++) {
        const struct reg_pool *at = &self->pools[i];
        if (at->used && at->rank == rank && strcmp(at->name, name) == 0 &&
            strcmp(at->pool, pool) == 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_pool_by_epoch(const struct registrar *self, uint64_t epoch)
{
    for (uint32_t i = 0; i < self->pool_high; i++) {
        if (self->pools[i].used && self->pools[i].epoch == epoch && epoch != 0) {
            return i;
        }
    }
    return REG_NONE;
}

uint32_t reg_pool_row_make(struct registrar *self, const char *name, uint64_t rank,
                           const char *pool)
{
    uint32_t row = reg_pool_find(self, name, rank, pool);
    for (uint32_t i = 0; row == REG_NONE && i < self->set.pools_max; i++) {
        row = self->pools[i].used ? REG_NONE : i;
    }
    if (row != REG_NONE && !self->pools[row].used) {
        struct reg_pool *at = &self->pools[row];
        *at = (struct reg_pool){.used = true, .state = REG_POOL_ABSENT, .rank = rank};
        (void)snprintf(at->name, sizeof(at->name), "%s", name);
        (void)snprintf(at->pool, sizeof(at->pool), "%s", pool);
        self->pool_high = SL_MAX(self->pool_high, row + 1);
    }
    return row;
}

void reg_pool_row_tidy(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
    if (!pool->used || pool->state != REG_POOL_ABSENT || reg_pool_waiters(self, row) != 0) {
        return;
    }
    pool->used = false;
    while (self->pool_high > 0 && !self->pools[self->pool_high - 1].used) {
        self->pool_high--;
    }
}

/* ---- notes ---- */

static void note_drop(struct registrar *self, struct reg_pool *pool)
{
    if (pool->blob != 0) {
        sl_index_set_kind(self->index, pool->blob, SL_RECORD_FREE);
        pool->blob = 0;
    }
    pool->unnoted = false;
}

static sl_err note_write(struct registrar *self, struct reg_pool *pool, struct sl_error *why)
{
    unsigned char
        bytes[sizeof(struct pool_note) + REG_POOL_MAPPERS_MAX * sizeof(struct reg_pool_mapper)];
    struct pool_note note = {
        .version = POOL_NOTE_VERSION,
        .state = pool->state,
        .sluice = pool->sluice,
        .lent = pool->lent,
        .rank = pool->rank,
        .epoch = pool->epoch,
        .length_bytes = pool->length_bytes,
        .owner_seq = pool->owner_seq,
        .owner = pool->owner,
        .handle = pool->handle,
        .mapper_count = pool->mapper_count,
    };
    memcpy(note.name, pool->name, sizeof(note.name));
    memcpy(note.pool, pool->pool, sizeof(note.pool));
    memcpy(note.owner_name, pool->owner_name, sizeof(note.owner_name));
    uint32_t mapper_bytes = pool->mapper_count * (uint32_t)sizeof(pool->mappers[0]);
    memcpy(bytes, &note, sizeof(note));
    memcpy(bytes + sizeof(note), pool->mappers, mapper_bytes);
    uint32_t length = (uint32_t)sizeof(note) + mapper_bytes;
    sl_ref blob = 0;
    sl_err err = sl_index_blob_put(self->index, bytes, length, REG_BLOB_POOL, &blob, why);
    if (err == SL_ERR_NO_SPACE && reg_make_index_room(self)) {
        err = sl_index_blob_put(self->index, bytes, length, REG_BLOB_POOL, &blob, why);
    }
    if (err != SL_OK) {
        return err;
    }
    note_drop(self, pool); /* killed here: two notes, of which the younger one counts */
    pool->blob = blob;
    return SL_OK;
}

bool reg_pool_note(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
    pool->unnoted = note_write(self, pool, NULL) != SL_OK;
    self->pools_due = self->pools_due || pool->unnoted;
    return !pool->unnoted;
}

/* ---- the swapper ---- */

static void swapper_name(const struct reg_pool *pool, char out[REG_NAME_BYTES])
{
    (void)snprintf(out, REG_NAME_BYTES, "swapper.%" PRIu64, pool->rank);
}

/* Its slot among the processes, REG_NONE when it was never here. */
static uint32_t swapper_of(const struct registrar *self, const struct reg_pool *pool)
{
    char name[REG_NAME_BYTES];
    swapper_name(pool, name);
    return reg_peer_find(self, name, strlen(name));
}

static void call_forget(struct registrar *self, struct reg_pool *pool)
{
    if (pool->call_seq != 0) {
        sl_calls_forget(self->calls, pool->call_seq);
        pool->call_seq = 0;
    }
}

static sl_err make_send(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
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

/* A full table of calls: at the next tick. */
static void drop_send(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
    char to[REG_NAME_BYTES];
    struct sl_msg msg = {.type = SL_MSG_POOL_DROP};
    swapper_name(pool, to);
    msg.body.pool_drop.epoch = pool->epoch;
    pool->call_due_ns = sl_deadline_ns(self->env->now_ns, self->set.fence_timeout_ns);
    if (sl_calls_send(self->calls, to, &msg, pool->call_due_ns, reg_cookie(REG_CALL_POOL, row),
                      &pool->call_seq) != SL_OK) {
        pool->call_seq = 0;
        self->pools_due = true;
    }
}

/* ---- states ---- */

static void pool_absent(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
    call_forget(self, pool);
    note_drop(self, pool);
    pool->state = REG_POOL_ABSENT;
    pool->sluice = false;
    pool->lent = false;
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

/* Goes on with what is being revoked. What a swapper made it frees last: a device handle that
 * others have open must not lose its memory. */
static void pool_settle(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
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

void reg_pools_tick(struct registrar *self)
{
    bool due = self->pools_due;
    self->pools_due = false;
    for (uint32_t i = 0; due && i < self->pool_high; i++) {
        if (self->pools[i].used && self->pools[i].unnoted) {
            (void)reg_pool_note(self, i);
        }
        pool_settle(self, i);
    }
}

sl_err reg_pool_begin(struct registrar *self, uint32_t row, const struct reg_pool_taker *taker,
                      struct sl_error *why)
{
    struct reg_pool *pool = &self->pools[row];
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
        pool->owner = swapper != REG_NONE && self->peers[swapper].present
                          ? self->peers[swapper].proc
                          : (struct sl_proc_id){0};
        pool->mapper_count = 1; /* whoever asked for it keeps it */
        pool->mappers[0] = (struct reg_pool_mapper){.proc = taker->proc, .seq = taker->seq};
        (void)snprintf(pool->mappers[0].name, sizeof(pool->mappers[0].name), "%s", taker->name);
    } else {
        pool->owner = taker->proc;
        (void)snprintf(pool->owner_name, sizeof(pool->owner_name), "%s", taker->name);
    }
    sl_err err = note_write(self, pool, why);
    if (err == SL_OK && taker->sluice) {
        err = make_send(self, row);
        if (err != SL_OK) {
            (void)sl_fail(why, err, "%s cannot be asked", pool->owner_name);
        }
    }
    if (err != SL_OK) { /* not by pool_absent: those that wait for it wait on */
        note_drop(self, pool);
        pool->state = REG_POOL_ABSENT;
        pool->epoch = 0;
        pool->mapper_count = 0;
    }
    return err;
}

/* What a swapper makes or made is given up when no client has it and none waits for it. */
static bool pool_is_unwanted(const struct registrar *self, uint32_t row)
{
    const struct reg_pool *pool = &self->pools[row];
    return pool->used && pool->sluice && pool->mapper_count == 0 &&
           (pool->state == REG_POOL_ALLOCATING || pool->state == REG_POOL_READY) &&
           !reg_pool_is_awaited(self, row);
}

sl_err reg_pool_publish(struct registrar *self, uint32_t row, const struct reg_pool_handle *handle,
                        struct sl_error *why)
{
    struct reg_pool *pool = &self->pools[row];
    SL_ASSERT(pool->state == REG_POOL_ALLOCATING);
    pool->state = REG_POOL_READY;
    pool->handle = *handle;
    sl_err err = note_write(self, pool, why);
    if (err != SL_OK) {
        pool->state = REG_POOL_ALLOCATING;
        return err;
    }
    reg_log(self, SL_LOG_INFO, 0, "pool %s/%" PRIu64 "/%s is ready: %" PRIu64 " bytes of %s",
            pool->name, pool->rank, pool->pool, pool->length_bytes, pool->owner_name);
    reg_pool_wake(self, row);
    if (pool_is_unwanted(self, row)) {
        reg_pool_revoke(self, row, "nobody wants it any more");
    }
    return SL_OK;
}

void reg_pool_revoke(struct registrar *self, uint32_t row, const char *reason)
{
    struct reg_pool *pool = &self->pools[row];
    SL_ASSERT(pool->state == REG_POOL_READY || pool->state == REG_POOL_ALLOCATING);
    reg_log(self, SL_LOG_INFO, 0, "pool %s/%" PRIu64 "/%s is revoked: %s", pool->name, pool->rank,
            pool->pool, reason);
    call_forget(self, pool);
    pool->state = REG_POOL_REVOKING;
    pool->dropping = pool->lent || pool->sluice;
    pool->call_lates = 0;
    (void)reg_pool_note(self, row);
    /* From now on no swapper learns of it, and who asks later hears that the engine is over. */
    reg_engines_pool_over(self, pool->epoch);
    reg_pool_wake(self, row);
    pool_settle(self, row);
}

void reg_pool_fail(struct registrar *self, uint32_t row, sl_err code, const char *text)
{
    SL_ASSERT(self->pools[row].state == REG_POOL_ALLOCATING);
    reg_pool_tell(self, row, code, text);
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
    struct reg_pool *pool = &self->pools[row];
    uint32_t known = reg_pool_mapper(pool, mapper->name);
    if (known == REG_NONE && pool->mapper_count == REG_POOL_MAPPERS_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "pool %s/%" PRIu64 "/%s: %u processes map it", pool->name,
                       pool->rank, pool->pool, REG_POOL_MAPPERS_MAX);
    }
    if (known != REG_NONE) {
        bool newer = pool->mappers[known].seq < mapper->seq;
        pool->mappers[known].seq = SL_MAX(pool->mappers[known].seq, mapper->seq);
        return newer ? note_write(self, pool, why) : SL_OK;
    }
    struct reg_pool_mapper *fresh = &pool->mappers[pool->mapper_count++];
    *fresh = (struct reg_pool_mapper){.proc = mapper->proc, .seq = mapper->seq};
    (void)snprintf(fresh->name, sizeof(fresh->name), "%s", mapper->name);
    sl_err err = note_write(self, pool, why);
    if (err != SL_OK) {
        pool->mapper_count--;
    }
    return err;
}

static void mapper_out(struct reg_pool *pool, uint32_t mapper)
{
    pool->mappers[mapper] = pool->mappers[--pool->mapper_count];
}

/* The process that the handle names has it no more: another one that has a descriptor stands in.
 * False: the memory is lost to whoever does not map it yet. */
static bool handle_carry(struct reg_pool *pool)
{
    bool carried = pool->handle.kind == MEMORY_KIND_FD || pool->handle.kind == MEMORY_KIND_CUDA_FD;
    for (uint32_t i = 0; carried && i < pool->mapper_count; i++) {
        if (pool->mappers[i].has_fd != 0) {
            pool->handle.proc = pool->mappers[i].proc;
            pool->handle.fd = pool->mappers[i].fd;
            return true;
        }
    }
    return false;
}

/* After a mapper, the owner or the swapper is gone; `carrier`: it was the one that the handle
 * names.
 */
static void pool_left(struct registrar *self, uint32_t row, bool carrier)
{
    struct reg_pool *pool = &self->pools[row];
    if (carrier && pool->state == REG_POOL_READY && pool->mapper_count > 0 && !handle_carry(pool)) {
        reg_pool_revoke(self, row, "the process that had its memory is gone");
        return;
    }
    if (pool_is_unwanted(self, row)) {
        reg_pool_revoke(self, row, "its last client is gone");
        return;
    }
    (void)reg_pool_note(self, row);
    pool_settle(self, row);
}

void reg_pool_mapper_remove(struct registrar *self, uint32_t row, const char *name, uint64_t seq)
{
    struct reg_pool *pool = &self->pools[row];
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
    struct reg_pool *pool = &self->pools[row];
    char text[SL_ERROR_TEXT_BYTES];
    switch (pool->state) {
    case REG_POOL_ALLOCATING:
        (void)snprintf(text, sizeof(text),
                       "pool %s/%" PRIu64 "/%s: its owner %s (process %u) died before it was ready",
                       pool->name, pool->rank, pool->pool, pool->owner_name, pool->owner.pid);
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
    struct reg_pool *pool = &self->pools[row];
    bool concerned = false;
    for (uint32_t i = pool->mapper_count; i-- > 0;) {
        if (sl_proc_id_equal(pool->mappers[i].proc, proc)) {
            mapper_out(pool, i);
            concerned = true;
        }
    }
    uint32_t swapper = swapper_of(self, pool);
    if (pool->dropping && swapper != REG_NONE &&
        sl_proc_id_equal(self->peers[swapper].proc, proc)) {
        call_forget(self, pool); /* what it mapped or made is gone with it */
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

void reg_pools_died(struct registrar *self, struct sl_proc_id proc)
{
    reg_pool_waiters_forget(self, proc);
    for (uint32_t i = 0; i < self->pool_high; i++) {
        if (self->pools[i].used) {
            pool_process_died(self, i, proc);
        }
    }
}

/* ---- answers of swappers ---- */

static void made(struct registrar *self, uint32_t row, const struct sl_msg *msg)
{
    struct reg_pool *pool = &self->pools[row];
    const struct sl_body_pool_make_reply *body = &msg->body.pool_make_reply;
    uint32_t swapper = swapper_of(self, pool);
    struct sl_error why = {0};
    char text[SL_ERROR_TEXT_BYTES];
    sl_err err = msg->code;
    if (err == SL_OK && (swapper == REG_NONE || !self->peers[swapper].present ||
                         self->peers[swapper].proc.pid != body->pid)) {
        err = sl_fail(&why, SL_ERR_PEER_DIED, "process %" PRIu64 " is not it any more", body->pid);
    } else if (err == SL_OK) {
        struct reg_pool_handle handle = {.proc = self->peers[swapper].proc,
                                         .kind = body->handle_kind,
                                         .fd = body->fd,
                                         .inode = body->inode,
                                         .ipc_bytes = body->handle.length};
        if (body->handle.length > 0) { /* at most 64: the table of messages */
            memcpy(handle.ipc, body->handle.at, body->handle.length);
        }
        pool->owner = handle.proc;
        err = reg_pool_publish(self, row, &handle, &why);
    }
    if (err != SL_OK) {
        (void)snprintf(text, sizeof(text), "pool %s/%" PRIu64 "/%s: %s cannot make it: %.64s",
                       pool->name, pool->rank, pool->pool, pool->owner_name,
                       why.text[0] != '\0'    ? why.text
                       : msg->text.length > 0 ? msg->text.at
                                              : sl_err_text(err));
        reg_log(self, SL_LOG_WARN, 0, "%s", text);
        reg_pool_tell(self, row, err, text);
        pool->mapper_count = 0;
        reg_pool_revoke(self, row, "it could not be made");
    }
}

void reg_pool_reply(struct registrar *self, uint32_t row, const struct sl_msg *msg)
{
    struct reg_pool *pool = &self->pools[row];
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
                self->peers[swapper].name, self->peers[swapper].proc.pid);
        sl_metric_add(self->env->metrics, self->metric.killed_count, 1);
        self->env->ops->kill(self->env, self->peers[swapper].proc);
        return; /* its death is its answer */
    } else {    /* dead, or none was ever here */
        pool->dropping = false;
    }
    pool_settle(self, row);
}

void reg_pool_call_expired(struct registrar *self, uint32_t row)
{
    struct reg_pool *pool = &self->pools[row];
    if (pool->state == REG_POOL_REVOKING && pool->call_lates < REG_LATES_MAX &&
        self->env->now_ns > sl_deadline_ns(pool->call_due_ns, REG_LATE_NS)) {
        pool->call_seq = 0; /* the answer may lie unread */
        pool->call_lates++;
        pool_settle(self, row);
        return;
    }
    struct sl_msg none = {.code = SL_ERR_TIMEOUT};
    reg_pool_reply(self, row, &none);
}

/* ---- engines that use them ---- */

static bool pool_is_of(const struct reg_pool *pool, struct sl_proc_id proc)
{
    bool has = sl_proc_id_equal(pool->owner, proc);
    for (uint32_t i = 0; i < pool->mapper_count; i++) {
        has = has || sl_proc_id_equal(pool->mappers[i].proc, proc);
    }
    return has;
}

static sl_err region_lend_check(const struct registrar *self, const struct sl_item_region *region,
                                uint64_t index, struct sl_proc_id proc, struct sl_error *why)
{
    uint32_t row = reg_pool_by_epoch(self, region->pool_epoch);
    const struct reg_pool *pool = row == REG_NONE ? NULL : &self->pools[row];
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
                       "ENGINE_REGISTER.regions[%" PRIu64 "].pool_epoch: process %u has it not",
                       index, proc.pid);
    }
    uint64_t first = pool->handle.offset_bytes;
    if (region->offset_bytes < first || region->offset_bytes - first > pool->length_bytes ||
        region->length_bytes > pool->length_bytes - (region->offset_bytes - first)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "ENGINE_REGISTER.regions[%" PRIu64 "]: beyond the %" PRIu64
                       " bytes of pool %s/%" PRIu64 "/%s",
                       index, pool->length_bytes, pool->name, pool->rank, pool->pool);
    }
    return SL_OK;
}

sl_err reg_pools_lend(struct registrar *self, const struct sl_body_engine_register *engine,
                      struct sl_proc_id proc, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (uint64_t i = 0; i < engine->regions.count && err == SL_OK; i++) {
        if (engine->regions.at[i].pool_epoch != 0) {
            err = region_lend_check(self, &engine->regions.at[i], i, proc, why);
        }
    }
    for (uint64_t i = 0; i < engine->regions.count && err == SL_OK; i++) {
        uint32_t row = reg_pool_by_epoch(self, engine->regions.at[i].pool_epoch);
        if (row != REG_NONE && !self->pools[row].lent) {
            self->pools[row].lent = true;
            err = note_write(self, &self->pools[row], why);
            self->pools[row].lent = err == SL_OK;
        }
    }
    return err;
}

/* ---- restart ---- */

static bool text_ends(const char *text, size_t room)
{
    return memchr(text, '\0', room) != NULL;
}

static bool mappers_fit(const struct pool_note *note, const void *bytes)
{
    for (uint32_t i = 0; i < note->mapper_count; i++) {
        struct reg_pool_mapper mapper;
        memcpy(&mapper, (const unsigned char *)bytes + i * sizeof(mapper), sizeof(mapper));
        if (!text_ends(mapper.name, sizeof(mapper.name)) ||
            !sl_actor_name_is_clean(mapper.name, strlen(mapper.name)) ||
            reg_proc_none(mapper.proc) || mapper.fd > UINT32_MAX) {
            return false;
        }
    }
    return true;
}

/* The first part of the bytes is the note. */
static bool note_fits(const struct pool_note *note, const void *bytes, uint32_t length_bytes)
{
    return note->version == POOL_NOTE_VERSION && note->state > REG_POOL_ABSENT &&
           note->state <= REG_POOL_REVOKING && note->epoch != 0 && note->length_bytes != 0 &&
           note->rank < 64 && note->mapper_count <= REG_POOL_MAPPERS_MAX &&
           note->handle.ipc_bytes <= REG_POOL_IPC_BYTES && note->handle.kind <= MEMORY_KIND_MAX &&
           note->handle.fd <= UINT32_MAX &&
           length_bytes == sizeof(*note) + note->mapper_count * sizeof(struct reg_pool_mapper) &&
           text_ends(note->name, sizeof(note->name)) && text_ends(note->pool, sizeof(note->pool)) &&
           text_ends(note->owner_name, sizeof(note->owner_name)) &&
           reg_pool_names_fit(note->name, note->pool) &&
           sl_actor_name_is_clean(note->owner_name, strlen(note->owner_name)) &&
           mappers_fit(note, (const unsigned char *)bytes + sizeof(*note));
}

static void pool_fill(struct reg_pool *pool, const struct pool_note *note, const void *mappers)
{
    pool->state = (enum reg_pool_state)note->state;
    pool->sluice = note->sluice != 0;
    pool->lent = note->lent != 0;
    pool->epoch = note->epoch;
    pool->length_bytes = note->length_bytes;
    pool->owner_seq = note->owner_seq;
    pool->owner = note->owner;
    memcpy(pool->owner_name, note->owner_name, sizeof(pool->owner_name));
    pool->handle = note->handle;
    pool->mapper_count = note->mapper_count;
    memcpy(pool->mappers, mappers, note->mapper_count * sizeof(pool->mappers[0]));
}

void reg_pool_restore(struct registrar *self, sl_ref blob, const void *bytes, uint32_t length_bytes)
{
    struct pool_note note = {0};
    if (length_bytes < sizeof(note)) {
        sl_index_set_kind(self->index, blob, SL_RECORD_FREE);
        return;
    }
    memcpy(&note, bytes, sizeof(note));
    uint32_t row = note_fits(&note, bytes, length_bytes)
                       ? reg_pool_row_make(self, note.name, note.rank, note.pool)
                       : REG_NONE;
    struct reg_pool *pool = row == REG_NONE ? NULL : &self->pools[row];
    struct sl_entry mine, other;
    if (pool != NULL && pool->blob != 0) { /* killed between two notes: the younger one counts */
        sl_index_read(self->index, blob, &mine);
        sl_index_read(self->index, pool->blob, &other);
        if (mine.version < other.version) {
            pool = NULL;
        }
    }
    if (pool == NULL) {
        sl_index_set_kind(self->index, blob, SL_RECORD_FREE);
        return;
    }
    note_drop(self, pool);
    pool->blob = blob;
    pool_fill(pool, &note, (const unsigned char *)bytes + sizeof(note));
}

/* Whoever died meanwhile is dealt with as always; what was asked of swappers is asked again. */
void reg_pools_check(struct registrar *self)
{
    for (uint32_t i = 0; i < self->pool_high; i++) {
        struct reg_pool *pool = &self->pools[i];
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
        pool->dropping = pool->state == REG_POOL_REVOKING && (pool->lent || pool->sluice);
        for (uint32_t k = 0; k < count && pool->used; k++) {
            if (!reg_proc_none(procs[k]) && !reg_peer_present(self, procs[k], REG_NONE)) {
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

void reg_pools_gauges(struct registrar *self)
{
    uint64_t count = 0, bytes = 0;
    for (uint32_t i = 0; i < self->pool_high; i++) {
        bool there = self->pools[i].used && self->pools[i].state != REG_POOL_ABSENT;
        count += there ? 1 : 0;
        bytes += there ? self->pools[i].length_bytes : 0;
    }
    sl_metric_set(self->env->metrics, self->metric.pool_count, count);
    sl_metric_set(self->env->metrics, self->metric.pool_bytes, bytes);
}
