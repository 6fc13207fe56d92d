/* client/lib/pool.c - pools of the node's table: creating, waiting, mapping, releasing. */
#include "client/lib/pool.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/base/sl_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL_RELEASE_NS (1 * SL_NS_PER_S)
/* Part of a wait's time that is reserved for giving it up; at most a fifth. */
#define POOL_GIVE_UP_NS (100 * SL_NS_PER_MS)
/* Pause between two tries to map memory whose holder is dying, until the registrar knows it. */
#define POOL_RETRY_NS (2 * SL_NS_PER_MS)

/* The answer to a TAKE or an AWAIT. */
struct pool_state {
    uint64_t state, epoch, length_bytes, start_time, inode;
    struct sl_pool_memory memory;
};
enum { STATE_READY = 2 }; /* as in messages */

/* ---- keys ---- */

static sl_err key_check(const struct sl_pool_key *key, struct sl_error *why)
{
    size_t name_bytes = key->deployment == NULL ? 0 : strlen(key->deployment);
    size_t pool_bytes =
        key->pool == NULL ? 0 : strspn(key->pool, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    if (name_bytes < 1 || name_bytes > 63) {
        return sl_fail(why, SL_ERR_INVALID, "pool: its deployment must have 1 to 63 bytes");
    }
    if (key->rank > 63) {
        return sl_fail(why, SL_ERR_INVALID, "pool: rank %u, 0 to 63", key->rank);
    }
    if (pool_bytes < 1 || pool_bytes > 31 || key->pool[pool_bytes] != '\0') {
        return sl_fail(why, SL_ERR_INVALID, "pool: its name must be 1 to 31 of [a-z0-9_-]");
    }
    return SL_OK;
}

/* A client has one sl_pool per key: two would be one mapper to the registrar, and the first release
 * would end both. */
static sl_err pool_list(struct sl_pool *pool, struct sl_error *why)
{
    struct sl_client *client = pool->client;
    sl_err err = SL_OK;
    pthread_mutex_lock(&client->lock);
    for (const struct sl_pool *at = client->pools; at != NULL && err == SL_OK; at = at->next) {
        if (at->rank == pool->rank && strcmp(at->deployment, pool->deployment) == 0 &&
            strcmp(at->name, pool->name) == 0) {
            err = sl_fail(why, SL_ERR_EXISTS, "pool %s/%u/%s: this client has it already",
                          pool->deployment, pool->rank, pool->name);
        }
    }
    if (err == SL_OK) {
        pool->next = client->pools;
        client->pools = pool;
    }
    pthread_mutex_unlock(&client->lock);
    return err;
}

/* NULL: *err is set. */
static struct sl_pool *pool_new(struct sl_client *client, const struct sl_pool_key *key,
                                sl_err *err, struct sl_error *why)
{
    *err = sl_client_check_writable(client, why);
    if (*err == SL_OK) {
        *err = key_check(key, why);
    }
    if (*err != SL_OK) {
        return NULL;
    }
    struct sl_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        *err = sl_fail(why, SL_ERR_NO_MEMORY, "pool: %zu bytes", sizeof *pool);
        return NULL;
    }
    pool->client = client;
    pool->rank = key->rank;
    pool->fd = -1;
    (void)snprintf(pool->deployment, sizeof pool->deployment, "%s", key->deployment);
    (void)snprintf(pool->name, sizeof pool->name, "%s", key->pool);
    *err = pool_list(pool, why);
    if (*err != SL_OK) {
        free(pool);
        return NULL;
    }
    return pool;
}

/* ---- memory ---- */

static void pool_unmap(struct sl_pool *pool)
{
    if (pool->base != NULL) {
        (void)munmap(pool->base, pool->mapped_bytes);
    }
    if (pool->fd >= 0) {
        (void)close(pool->fd);
    }
    pool->base = NULL;
    pool->at = NULL;
    pool->fd = -1;
}

static void pool_free(struct sl_pool *pool)
{
    pthread_mutex_lock(&pool->client->lock);
    for (struct sl_pool **at = &pool->client->pools; *at != NULL; at = &(*at)->next) {
        if (*at == pool) {
            *at = pool->next;
            break;
        }
    }
    pthread_mutex_unlock(&pool->client->lock);
    pool_unmap(pool);
    free(pool);
}

static sl_err fd_map(struct sl_pool *pool, struct sl_error *why)
{
    struct stat about;
    uint64_t bytes;
    if (__builtin_add_overflow(pool->memory.offset_bytes, pool->length_bytes, &bytes) ||
        fstat(pool->fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        (uint64_t)about.st_size < bytes) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s/%u/%s: its memory is not %" PRIu64 " bytes",
                       pool->deployment, pool->rank, pool->name, pool->length_bytes);
    }
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->fd, 0);
    if (base == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes of pool %s/%u/%s", bytes,
                          pool->deployment, pool->rank, pool->name);
    }
    pool->base = base;
    pool->mapped_bytes = bytes;
    pool->at = (unsigned char *)base + pool->memory.offset_bytes;
    return SL_OK;
}

static sl_err inode_of(int fd, uint64_t *inode, struct sl_error *why)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return sl_fail_os(why, errno, "fstat of descriptor %d", fd);
    }
    *inode = (uint64_t)about.st_ino;
    return SL_OK;
}

/* Fetches the memory from the process that has it. SL_ERR_PEER_DIED: that process died, or no
 * longer has the memory. */
static sl_err peer_map(struct sl_pool *pool, const struct pool_state *state, uint64_t deadline_ns,
                       struct sl_error *why)
{
    const struct sl_descriptors_source holder = {.runtime_dir = pool->client->paths.runtime_dir,
                                                 .pid = pool->memory.pid,
                                                 .number = state->start_time};
    if (pool->memory.kind == SL_POOL_MEMORY_CUDA_IPC) {
        return SL_OK; /* for the caller to map */
    }
    sl_err err = sl_descriptors_fetch_file(&holder, pool->memory.fd, state->inode, deadline_ns,
                                           &pool->fd, why);
    if (err == SL_ERR_NOT_FOUND) {
        return sl_fail(why, SL_ERR_PEER_DIED, "pool %s/%u/%s: process %u no longer has it",
                       pool->deployment, pool->rank, pool->name, holder.pid);
    }
    if (err == SL_OK && pool->memory.kind == SL_POOL_MEMORY_FD) {
        err = fd_map(pool, why);
    }
    if (err != SL_OK) {
        pool_unmap(pool);
        return err;
    }
    pool->memory.pid = pool->client->self.pid;
    pool->memory.fd = pool->fd;
    return SL_OK;
}

static sl_err own_map(struct sl_pool *pool, struct sl_error *why)
{
    pool->fd = memfd_create(pool->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (pool->fd < 0) {
        return sl_fail_os(why, errno, "memfd_create '%s'", pool->name);
    }
    if (sl_file_resize(pool->fd, pool->length_bytes) != 0 ||
        fcntl(pool->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return sl_fail_os(why, errno, "pool memory of %" PRIu64 " bytes", pool->length_bytes);
    }
    pool->memory = (struct sl_pool_memory){
        .kind = SL_POOL_MEMORY_FD, .pid = pool->client->self.pid, .fd = pool->fd};
    return fd_map(pool, why);
}

/* ---- requests ---- */

static void state_taken(void *context, const struct sl_msg *reply)
{
    struct pool_state *out = context;
    const struct sl_body_pool_await_reply *body = &reply->body.pool_await_reply;
    _Static_assert(sizeof(*body) == sizeof(reply->body.pool_take_reply), "one table makes both");
    if (reply->code != SL_OK) {
        return;
    }
    *out = (struct pool_state){
        .state = body->state,
        .epoch = body->epoch,
        .length_bytes = body->length_bytes,
        .start_time = body->start_time,
        .inode = body->inode,
        .memory = {.kind = (enum sl_pool_memory_kind)body->handle_kind,
                   .pid = (uint32_t)body->pid,
                   .fd = body->fd > INT32_MAX ? -1 : (int)body->fd,
                   .offset_bytes = body->offset_bytes},
    };
    if (body->gpu.length == sizeof out->memory.gpu) {
        memcpy(out->memory.gpu, body->gpu.at, sizeof out->memory.gpu);
    }
    if (body->handle.length > 0) {
        memcpy(out->memory.handle, body->handle.at,
               SL_MIN(body->handle.length, (uint64_t)sizeof out->memory.handle));
    }
}

static sl_err take_ask(const struct sl_pool *pool, bool sluice, uint64_t deadline_ns,
                       struct pool_state *out, struct sl_error *why)
{
    struct sl_client_call call = {
        .deadline_ns = deadline_ns, .answered = state_taken, .context = out};
    call.msg.type = SL_MSG_POOL_TAKE;
    call.msg.body.pool_take.name = sl_text_of(pool->deployment);
    call.msg.body.pool_take.rank = pool->rank;
    call.msg.body.pool_take.pool = sl_text_of(pool->name);
    call.msg.body.pool_take.length_bytes = pool->length_bytes;
    call.msg.body.pool_take.sluice = sluice;
    return sl_client_call_registrar(pool->client, &call, why);
}

static sl_err await_ask(const struct sl_pool *pool, uint64_t epoch, uint64_t deadline_ns,
                        struct pool_state *out, struct sl_error *why)
{
    struct sl_client_call call = {
        .deadline_ns = deadline_ns, .answered = state_taken, .context = out};
    call.msg.type = SL_MSG_POOL_AWAIT;
    call.msg.body.pool_await.name = sl_text_of(pool->deployment);
    call.msg.body.pool_await.rank = pool->rank;
    call.msg.body.pool_await.pool = sl_text_of(pool->name);
    call.msg.body.pool_await.epoch = epoch;
    return sl_client_call_registrar(pool->client, &call, why);
}

static sl_err mapped_tell(struct sl_pool *pool, uint64_t deadline_ns, struct sl_error *why)
{
    struct sl_client_call call = {.deadline_ns = deadline_ns};
    sl_err err = pool->fd >= 0 ? sl_client_files_serve(pool->client, why) : SL_OK;
    if (err != SL_OK) {
        return err;
    }
    call.msg.type = SL_MSG_POOL_MAPPED;
    call.msg.body.pool_mapped.epoch = pool->epoch;
    call.msg.body.pool_mapped.has_fd = pool->fd >= 0;
    call.msg.body.pool_mapped.fd = pool->fd >= 0 ? (uint64_t)pool->fd : 0;
    return sl_client_call_registrar(pool->client, &call, why);
}

/* epoch 0: anything that this client has or waits for under the key. Without an answer it ends with
 * this process. */
static void release_tell(const struct sl_pool *pool, uint64_t epoch, uint64_t deadline_ns)
{
    struct sl_client_call call = {.to = "registrar", .deadline_ns = deadline_ns};
    call.msg.type = SL_MSG_POOL_RELEASE;
    call.msg.body.pool_release.name = sl_text_of(pool->deployment);
    call.msg.body.pool_release.rank = pool->rank;
    call.msg.body.pool_release.pool = sl_text_of(pool->name);
    call.msg.body.pool_release.epoch = epoch;
    (void)sl_client_call(pool->client, &call, NULL);
}

/* The end of a wait, early enough that it can be given up by the deadline. */
static uint64_t wait_until(uint64_t deadline_ns)
{
    uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
    return deadline_ns - SL_MIN(left_ns / 5, POOL_GIVE_UP_NS);
}

/* ---- as owner ---- */

sl_err sl_pool_create(struct sl_client *client, const struct sl_pool_key *key,
                      uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                      struct sl_error *why)
{
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    struct pool_state state = {0};
    sl_err err = SL_OK;
    if (length_bytes == 0) {
        return sl_fail(why, SL_ERR_INVALID, "pool: 0 bytes");
    }
    struct sl_pool *pool = pool_new(client, key, &err, why);
    if (pool == NULL) {
        return err;
    }
    pool->owner = true;
    pool->length_bytes = length_bytes;
    err = own_map(pool, why);
    if (err == SL_OK) {
        err = take_ask(pool, false, wait_until(deadline_ns), &state, why);
        if (err == SL_ERR_TIMEOUT) { /* it may have been granted since */
            release_tell(pool, 0, deadline_ns);
        }
    }
    if (err != SL_OK) {
        pool_free(pool);
        return err;
    }
    pool->epoch = state.epoch;
    *out = pool;
    return SL_OK;
}

sl_err sl_pool_publish(struct sl_pool *pool, const struct sl_pool_memory *memory,
                       uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_client_call call = {.deadline_ns = sl_client_deadline(pool->client, timeout_ns)};
    static const unsigned char no_gpu[sizeof memory->gpu];
    const struct sl_pool_memory *given = memory != NULL ? memory : &pool->memory;
    if (!pool->owner) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s/%u/%s: another process made it",
                       pool->deployment, pool->rank, pool->name);
    }
    if (given->kind != SL_POOL_MEMORY_CUDA_IPC && given->fd < 0) {
        return sl_fail(why, SL_ERR_INVALID, "pool memory: descriptor %d is not valid", given->fd);
    }
    uint64_t inode = 0;
    if (given->kind == SL_POOL_MEMORY_FD) {
        sl_err known = inode_of(given->fd, &inode, why);
        if (known != SL_OK) {
            return known;
        }
    }
    if (given->kind != SL_POOL_MEMORY_CUDA_IPC) {
        sl_err served = sl_client_files_serve(pool->client, why);
        if (served != SL_OK) {
            return served;
        }
    }
    call.msg.type = SL_MSG_POOL_READY;
    call.msg.body.pool_ready.inode = inode;
    call.msg.body.pool_ready.epoch = pool->epoch;
    call.msg.body.pool_ready.handle_kind = given->kind;
    call.msg.body.pool_ready.pid = pool->client->self.pid;
    call.msg.body.pool_ready.offset_bytes = given->offset_bytes;
    if (memcmp(given->gpu, no_gpu, sizeof no_gpu) != 0) {
        call.msg.body.pool_ready.gpu = (struct sl_bytes){.at = given->gpu, .length = sizeof no_gpu};
    }
    if (given->kind == SL_POOL_MEMORY_CUDA_IPC) {
        call.msg.body.pool_ready.handle =
            (struct sl_bytes){.at = given->handle, .length = sizeof given->handle};
    } else {
        call.msg.body.pool_ready.fd = (uint64_t)given->fd;
    }
    sl_err err = sl_client_call_registrar(pool->client, &call, why);
    if (err == SL_OK && memory != NULL) {
        pool_unmap(pool);
        pool->memory = *memory;
        pool->memory.pid = pool->client->self.pid;
    }
    return err;
}

/* ---- as a mapper ---- */

/* One try: a ready pool is mapped and reported. *again: it ended meanwhile. */
static sl_err acquire_once(struct sl_pool *pool, bool sluice, uint64_t deadline_ns, bool *again,
                           struct sl_error *why)
{
    struct pool_state state = {0};
    sl_err err = sluice ? take_ask(pool, true, wait_until(deadline_ns), &state, why)
                        : await_ask(pool, 0, wait_until(deadline_ns), &state, why);
    if (err == SL_ERR_TIMEOUT) { /* it may have become ready since */
        release_tell(pool, 0, deadline_ns);
    }
    *again = sluice && err == SL_ERR_PEER_DIED;
    if (err != SL_OK) {
        return err;
    }
    if (state.state != STATE_READY || state.epoch == 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "registrar gave a pool in state %" PRIu64,
                       state.state);
    }
    pool->epoch = state.epoch;
    pool->length_bytes = state.length_bytes;
    pool->memory = state.memory;
    err = peer_map(pool, &state, deadline_ns, why);
    if (err == SL_OK) {
        err = mapped_tell(pool, deadline_ns, why);
    }
    *again = err == SL_ERR_PEER_DIED || err == SL_ERR_STALE;
    if (err != SL_OK) {
        pool_unmap(pool);
        release_tell(pool, pool->epoch, deadline_ns);
    }
    return err;
}

static sl_err pool_acquire(struct sl_client *client, const struct sl_pool_key *key, bool sluice,
                           uint64_t length_bytes, uint64_t deadline_ns, struct sl_pool **out,
                           struct sl_error *why)
{
    sl_err err = SL_OK;
    struct sl_pool *pool = pool_new(client, key, &err, why);
    if (pool == NULL) {
        return err;
    }
    for (;;) {
        bool again = false;
        pool->length_bytes = length_bytes;
        err = acquire_once(pool, sluice, deadline_ns, &again, why);
        if (!again || sl_clock_monotonic_ns() + POOL_RETRY_NS >= deadline_ns) {
            break;
        }
        sl_client_sleep(POOL_RETRY_NS);
    }
    if (err != SL_OK) {
        pool_free(pool);
        return err;
    }
    *out = pool;
    return SL_OK;
}

sl_err sl_pool_await(struct sl_client *client, const struct sl_pool_key *key, uint64_t timeout_ns,
                     struct sl_pool **out, struct sl_error *why)
{
    return pool_acquire(client, key, false, 0, sl_client_deadline(client, timeout_ns), out, why);
}

sl_err sl_pool_acquire(struct sl_client *client, const struct sl_pool_key *key,
                       uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                       struct sl_error *why)
{
    if (length_bytes == 0) {
        return sl_fail(why, SL_ERR_INVALID, "pool: 0 bytes");
    }
    return pool_acquire(client, key, true, length_bytes, sl_client_deadline(client, timeout_ns),
                        out, why);
}

sl_err sl_pool_wait_over(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why)
{
    struct pool_state state = {0};
    return await_ask(pool, pool->epoch, sl_client_deadline(pool->client, timeout_ns), &state, why);
}

/* ---- releasing ---- */

sl_err sl_pool_revoke(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why)
{
    struct sl_client_call call = {.deadline_ns = sl_client_deadline(pool->client, timeout_ns)};
    call.msg.type = SL_MSG_POOL_REVOKE;
    call.msg.body.pool_revoke.epoch = pool->epoch;
    if (!pool->owner) { /* asking also reports that it is unmapped here */
        pool_unmap(pool);
    }
    return sl_client_call_registrar(pool->client, &call, why);
}

void sl_pool_release(struct sl_pool **pool)
{
    struct sl_pool *gone = pool == NULL ? NULL : *pool;
    if (gone == NULL) {
        return;
    }
    if (!gone->owner) {
        pool_unmap(gone);
    }
    release_tell(gone, gone->epoch, sl_deadline_ns(sl_clock_monotonic_ns(), POOL_RELEASE_NS));
    pool_free(gone);
    *pool = NULL;
}

/* ---- properties ---- */

void *sl_pool_at(const struct sl_pool *pool)
{
    return pool->at;
}

uint64_t sl_pool_length(const struct sl_pool *pool)
{
    return pool->length_bytes;
}

uint64_t sl_pool_epoch(const struct sl_pool *pool)
{
    return pool->epoch;
}

void sl_pool_memory_get(const struct sl_pool *pool, struct sl_pool_memory *out)
{
    *out = pool->memory;
}

/* ---- the table ---- */

struct pools_asked {
    struct sl_pool_info *infos;
    uint32_t count_max, *count;
};

static void pools_taken(void *context, const struct sl_msg *reply)
{
    static const char *const states[] = {"absent", "allocating", "ready", "revoking"};
    const struct pools_asked *asked = context;
    const struct sl_body_pools_reply *body = &reply->body.pools_reply;
    if (reply->code != SL_OK) {
        return;
    }
    *asked->count = (uint32_t)body->pools.count;
    for (uint32_t i = 0; i < SL_MIN(*asked->count, asked->count_max); i++) {
        const struct sl_item_holding *item = &body->pools.at[i];
        struct sl_pool_info *info = &asked->infos[i];
        *info = (struct sl_pool_info){.rank = (uint32_t)item->rank,
                                      .epoch = item->epoch,
                                      .length_bytes = item->length_bytes,
                                      .by_sluice = item->sluice,
                                      .owner_pid = (uint32_t)item->owner_pid,
                                      .mapper_count = (uint32_t)item->mapper_count,
                                      .waiter_count = (uint32_t)item->waiter_count};
        (void)snprintf(info->state, sizeof info->state, "%s",
                       states[item->state < SL_COUNT(states) ? item->state : 0]);
        sl_client_text_take(info->deployment, sizeof info->deployment, &item->name);
        sl_client_text_take(info->pool, sizeof info->pool, &item->pool);
        sl_client_text_take(info->owner, sizeof info->owner, &item->owner);
        sl_client_text_take(info->mappers, sizeof info->mappers, &item->mappers);
    }
}

sl_err sl_pools(struct sl_client *client, struct sl_pool_info *infos, uint32_t count_max,
                uint32_t *count, uint64_t timeout_ns, struct sl_error *why)
{
    struct pools_asked asked = {.infos = infos, .count_max = count_max, .count = count};
    struct sl_client_call call = {.to = "registrar",
                                  .deadline_ns = sl_client_deadline(client, timeout_ns),
                                  .answered = pools_taken,
                                  .context = &asked};
    call.msg.type = SL_MSG_POOLS;
    *count = 0;
    return sl_client_call(client, &call, why);
}
