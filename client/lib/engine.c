/* client/lib/engine.c - an engine: the memory of its pools, and its registration with the node. */
#include "client/lib/engine.h"
#include "client/lib/plain_pages.h"
#include "client/lib/pool.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENGINE_END_NS    (1500 * SL_NS_PER_MS) /* a stopped swapper is killed after 1 s */
#define HUGE_PAGES_NS    SL_NS_PER_S           /* for huge pages, of a registration; some GB/s */
#define WORLD_MAX        64u
#define POOLS_MAX        8u
#define LAYERS_MAX       4096u
#define REGIONS_MAX      65536u
#define BLOCK_TOKENS_MAX 65536u
#define PARTS_MAX        64u

/* ---- checks of the options ---- */

static uint32_t ranks_here(const struct sl_engine_options *options)
{
    return options->team == 0 ? options->world : options->rank_count;
}

static bool pool_name_fine(const char *name)
{
    size_t length = name == NULL ? 0 : strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return length >= 1 && length <= 31 && name[length] == '\0';
}

static sl_err layer_check(const struct sl_engine_pool *pool, uint32_t number, uint64_t block_count,
                          uint64_t parts_bytes[PARTS_MAX], struct sl_error *why)
{
    const struct sl_engine_layer *layer = &pool->layers[number];
    uint64_t last_start;
    uint64_t end;
    uint64_t *part_bytes = &parts_bytes[SL_MIN(layer->part, PARTS_MAX - 1)];
    if (layer->part >= SL_MAX(pool->part_count, 1u)) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s layer %u: part %u of %u", pool->name, number,
                       layer->part, SL_MAX(pool->part_count, 1u));
    }
    if (layer->piece_bytes == 0 || layer->piece_bytes > layer->block_stride_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %s layer %u: piece of %" PRIu64 " bytes, stride %" PRIu64, pool->name,
                       number, layer->piece_bytes, layer->block_stride_bytes);
    }
    uint64_t span =
        sl_runs_span(layer->piece_bytes, layer->fragment_bytes, layer->fragment_stride_bytes);
    if (span == 0 || span > layer->block_stride_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %s layer %u: piece of %" PRIu64 " bytes, fragments of %" PRIu64
                       " every %" PRIu64 ", stride %" PRIu64,
                       pool->name, number, layer->piece_bytes, layer->fragment_bytes,
                       layer->fragment_stride_bytes, layer->block_stride_bytes);
    }
    if (__builtin_mul_overflow(block_count - 1, layer->block_stride_bytes, &last_start) ||
        __builtin_add_overflow(last_start, span, &end) || end > layer->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %s layer %u: %" PRIu64 " blocks do not fit %" PRIu64 " bytes",
                       pool->name, number, block_count, layer->length_bytes);
    }
    if (__builtin_add_overflow(layer->offset_bytes, layer->length_bytes, &end) ||
        end > pool->memory_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "pool %s layer %u: ends at %" PRIu64 " of %" PRIu64 " bytes", pool->name,
                       number, layer->offset_bytes + layer->length_bytes, pool->memory_bytes);
    }
    if (__builtin_add_overflow(*part_bytes, layer->piece_bytes, part_bytes) ||
        *part_bytes > SL_VALUE_BYTES_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s: a part is larger than %" PRIu64 " bytes",
                       pool->name, SL_VALUE_BYTES_MAX);
    }
    return SL_OK;
}

static sl_err pool_check(const struct sl_engine_options *options, uint32_t number,
                         struct sl_error *why)
{
    const struct sl_engine_pool *pool = &options->pools[number];
    if (!pool_name_fine(pool->name)) {
        return sl_fail(why, SL_ERR_INVALID, "pool %u: its name must be 1 to 31 of [a-z0-9_-]",
                       number);
    }
    for (uint32_t i = 0; i < number; i++) {
        if (strcmp(options->pools[i].name, pool->name) == 0) {
            return sl_fail(why, SL_ERR_INVALID, "pool %s: named twice", pool->name);
        }
    }
    if (pool->part_count > PARTS_MAX || (options->team != 0 && pool->part_count == 0)) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s: part_count %u, %s to %u", pool->name,
                       pool->part_count, options->team != 0 ? "of a team 1" : "0", PARTS_MAX);
    }
    if (ranks_here(options) == 0) {
        return SL_OK;
    }
    bool none = pool->layer_count == 0 && options->team != 0; /* other ranks have its layers */
    if (!none &&
        (pool->layer_count == 0 || pool->layer_count > LAYERS_MAX || pool->layers == NULL)) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s: 1 to %u layers, not %u", pool->name,
                       LAYERS_MAX, pool->layer_count);
    }
    uint64_t parts_bytes[PARTS_MAX] = {0};
    for (uint32_t i = 0; i < pool->layer_count; i++) {
        sl_err err = layer_check(pool, i, options->block_count, parts_bytes, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

static sl_err options_check(const struct sl_engine_options *options, struct sl_error *why)
{
    size_t name_bytes = options->name == NULL ? 0 : strlen(options->name);
    size_t format_bytes = options->key_format == NULL ? 0 : strlen(options->key_format);
    uint64_t region_count = 0;
    if (name_bytes < 1 || name_bytes > 63) {
        return sl_fail(why, SL_ERR_INVALID, "engine: its name must have 1 to 63 bytes");
    }
    if (format_bytes < 1 || format_bytes > 31) {
        return sl_fail(why, SL_ERR_INVALID, "engine: key_format must have 1 to 31 bytes");
    }
    if (options->seed != NULL && strlen(options->seed) > 255) {
        return sl_fail(why, SL_ERR_INVALID, "engine: seed has over 255 bytes");
    }
    if (options->block_tokens == 0 || options->block_tokens > BLOCK_TOKENS_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "engine: block_tokens %u, 1 to %u",
                       options->block_tokens, BLOCK_TOKENS_MAX);
    }
    if (options->world == 0 || options->world > WORLD_MAX) {
        return sl_fail(why, SL_ERR_INVALID, "engine: world %u, 1 to %u", options->world, WORLD_MAX);
    }
    if (options->team != 0 && options->team < SL_TEAM_FIRST) {
        return sl_fail(why, SL_ERR_INVALID, "engine: team %" PRIu64 ", from 2^63 on",
                       options->team);
    }
    if ((uint64_t)options->first_rank + options->rank_count > options->world ||
        (options->team == 0 && options->rank_count != 0 && options->rank_count != options->world)) {
        return sl_fail(why, SL_ERR_INVALID, "engine: ranks %u to %u of %u%s", options->first_rank,
                       options->first_rank + options->rank_count, options->world,
                       options->team == 0 ? ", and no team" : "");
    }
    if (options->block_count == 0) {
        return sl_fail(why, SL_ERR_INVALID, "engine: block_count is 0");
    }
    if (options->pool_count == 0 || options->pool_count > POOLS_MAX || options->pools == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "engine: %u pools, 1 to %u", options->pool_count,
                       POOLS_MAX);
    }
    for (uint32_t i = 0; i < options->pool_count; i++) {
        sl_err err = pool_check(options, i, why);
        if (err != SL_OK) {
            return err;
        }
        region_count += (uint64_t)options->pools[i].layer_count * ranks_here(options);
    }
    if (region_count > REGIONS_MAX || (region_count == 0 && ranks_here(options) > 0)) {
        return sl_fail(why, SL_ERR_INVALID,
                       "engine: %" PRIu64 " regions of ranks, pools and layers, 1 to %u",
                       region_count, REGIONS_MAX);
    }
    return SL_OK;
}

/* ---- memory ---- */

static sl_err memory_make(const struct sl_engine *engine, struct sl_engine_memory *memory,
                          struct sl_error *why)
{
    memory->fd = memfd_create(engine->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory->fd < 0) {
        return sl_fail_os(why, errno, "memfd_create '%s'", engine->name);
    }
    if (sl_file_resize(memory->fd, memory->length_bytes) != 0) {
        return sl_fail_os(why, errno, "engine memory of %" PRIu64 " bytes", memory->length_bytes);
    }
    /* Processes that map it may rely on its size. */
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return sl_fail_os(why, errno, "seal engine memory");
    }
    return SL_OK;
}

static sl_err memory_borrow(int fd, struct sl_engine_memory *memory, struct sl_error *why)
{
    struct stat about;
    memory->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (memory->fd < 0 || fstat(memory->fd, &about) != 0) {
        return sl_fail_os(why, errno, "descriptor %d of engine memory", fd);
    }
    if ((uint64_t)about.st_size < memory->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "descriptor %d has %" PRIu64 " bytes, the pool %" PRIu64, fd,
                       (uint64_t)about.st_size, memory->length_bytes);
    }
    return SL_OK;
}

static sl_err memory_of_pool(const struct sl_pool *pool, uint32_t rank,
                             struct sl_engine_memory *memory, struct sl_error *why)
{
    if (pool == NULL || pool->rank != rank) {
        return sl_fail(why, SL_ERR_INVALID, "rank %u: no pool, or one of rank %u", rank,
                       pool == NULL ? 0 : pool->rank);
    }
    if (pool->length_bytes < memory->length_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "pool %s/%u/%s has %" PRIu64 " bytes, not %" PRIu64,
                       pool->deployment, pool->rank, pool->name, pool->length_bytes,
                       memory->length_bytes);
    }
    memory->from = pool;
    memory->base = pool->at;
    return SL_OK;
}

static sl_err memory_of_device(const struct sl_engine_pool *pool, const uint64_t *addresses,
                               struct sl_engine_memory *memory, struct sl_error *why)
{
    memory->rows = addresses == NULL ? NULL : calloc(pool->layer_count, sizeof *memory->rows);
    if (memory->rows == NULL) {
        return addresses == NULL
                   ? sl_fail(why, SL_ERR_INVALID, "pool %s: no addresses of a rank", pool->name)
                   : sl_fail(why, SL_ERR_NO_MEMORY, "pool %s: %u addresses", pool->name,
                             pool->layer_count);
    }
    memory->row_count = pool->layer_count;
    for (uint32_t l = 0; l < pool->layer_count; l++) {
        struct sl_error reason = {0};
        const struct sl_engine_layer *layer = &pool->layers[l];
        uint64_t address = 0;
        sl_err err =
            __builtin_add_overflow(addresses[l], layer->offset_bytes, &address)
                ? sl_fail(&reason, SL_ERR_INVALID, "its offset overflows")
                : sl_engine_row_find(address, layer->length_bytes, &memory->rows[l], &reason);
        if (err != SL_OK) {
            return sl_fail(why, err, "pool %s layer %u: %s", pool->name, l, reason.text);
        }
        if ((memory->rows[l].kind == SL_MEMORY_PROCESS) !=
            (memory->rows[0].kind == SL_MEMORY_PROCESS)) {
            return sl_fail(why, SL_ERR_INVALID,
                           "pool %s layer %u: device memory and plain memory in one pool",
                           pool->name, l);
        }
    }
    return SL_OK;
}

static sl_err memory_open(const struct sl_engine *engine, const struct sl_engine_pool *pool,
                          uint32_t rank, struct sl_engine_memory *memory, struct sl_error *why)
{
    if (pool->layer_count == 0) {
        return SL_OK;
    }
    memory->length_bytes = pool->memory_bytes;
    if (pool->device != NULL) {
        return memory_of_device(pool, pool->device[rank], memory, why);
    }
    if (pool->from != NULL) {
        return memory_of_pool(pool->from[rank], engine->first_rank + rank, memory, why);
    }
    sl_err err = pool->fds == NULL ? memory_make(engine, memory, why)
                                   : memory_borrow(pool->fds[rank], memory, why);
    if (err != SL_OK) {
        return err;
    }
    void *base =
        mmap(NULL, memory->length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (base == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes of engine memory",
                          memory->length_bytes);
    }
    memory->base = base;
    return SL_OK;
}

static void memories_close(struct sl_engine *engine)
{
    for (uint32_t i = 0; engine->memories != NULL && i < engine->rank_count * engine->pool_count;
         i++) {
        struct sl_engine_memory *memory = &engine->memories[i];
        if (memory->base != NULL && memory->from == NULL) {
            (void)munmap(memory->base, memory->length_bytes);
        }
        if (memory->fd >= 0) {
            (void)close(memory->fd);
        }
        free(memory->rows);
    }
    free(engine->memories);
    engine->memories = NULL;
}

static sl_err memories_open(struct sl_engine *engine, const struct sl_engine_options *options,
                            struct sl_error *why)
{
    uint32_t count = engine->rank_count * engine->pool_count;
    engine->memories = calloc(count + 1u, sizeof *engine->memories);
    if (engine->memories == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "engine: %u memories", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        engine->memories[i].fd = -1;
    }
    for (uint32_t i = 0; i < count; i++) {
        sl_err err = memory_open(engine, &options->pools[i % engine->pool_count],
                                 i / engine->pool_count, &engine->memories[i], why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* ---- registration ---- */

/* How the swapper finds the memory. For a pool it is our own descriptor if we have one, so that it
 * can be mapped even after its creator has died. */
static struct sl_item_region memory_handle(const struct sl_engine *engine,
                                           const struct sl_engine_memory *memory)
{
    static const unsigned char no_gpu[sizeof memory->from->memory.gpu];
    const struct sl_pool *pool = memory->from;
    struct sl_item_region region = {.handle_kind = SL_MEMORY_SHARED_FD,
                                    .pid = engine->client->self.pid,
                                    .start_time = engine->client->self.start_time,
                                    .fd = (uint64_t)memory->fd};
    if (pool == NULL) {
        return region;
    }
    region.pool_epoch = pool->epoch;
    region.offset_bytes = pool->memory.offset_bytes;
    region.handle_kind = (uint64_t)pool->memory.kind;
    if (memcmp(pool->memory.gpu, no_gpu, sizeof no_gpu) != 0) {
        region.gpu = (struct sl_bytes){.at = pool->memory.gpu, .length = sizeof pool->memory.gpu};
    }
    if (pool->fd >= 0) {
        region.fd = (uint64_t)pool->fd;
    } else if (pool->memory.kind == SL_POOL_MEMORY_CUDA_IPC) {
        region.fd = 0;
        region.handle =
            (struct sl_bytes){.at = pool->memory.handle, .length = sizeof pool->memory.handle};
    } else {
        region.fd = (uint64_t)pool->memory.fd;
    }
    return region;
}

/* Runs on the server's thread; the rows do not change until it is stopped. */
static sl_err memory_server_give(void *context, const struct sl_descriptors_request *ask,
                                 uint32_t first, struct sl_descriptors_part *out,
                                 struct sl_error *why)
{
    const struct sl_engine *engine = context;
    for (uint32_t i = 0; i < engine->rank_count * engine->pool_count; i++) {
        const struct sl_engine_memory *memory = &engine->memories[i];
        for (uint32_t l = 0; l < memory->row_count; l++) {
            const struct sl_engine_row *row = &memory->rows[l];
            if (row->kind == SL_MEMORY_CUDA_PARTS && row->address == ask->address &&
                row->length_bytes == ask->length_bytes && row->life_first == ask->life) {
                return sl_engine_row_give(row, first, out, why);
            }
        }
    }
    return sl_fail(why, SL_ERR_STALE, "%" PRIu64 " bytes at 0x%" PRIx64 " are not registered",
                   ask->length_bytes, ask->address);
}

/* How a swapper maps one layer of device memory. */
static sl_err row_handle(struct sl_engine *engine, struct sl_engine_row *row,
                         struct sl_item_region *region, struct sl_error *why)
{
    if (row->kind == SL_MEMORY_CUDA_PARTS && engine->memory_server == NULL) {
        sl_err err = sl_descriptors_serve(engine->client->paths.runtime_dir, 0, memory_server_give,
                                          engine, &engine->memory_server, why);
        if (err != SL_OK) {
            return err;
        }
    }
    if (row->kind == SL_MEMORY_CUDA_PARTS) {
        const struct sl_memory_name name = {.number = sl_descriptors_number(engine->memory_server),
                                            .address = row->address,
                                            .length_bytes = row->length_bytes,
                                            .life = row->life_first};
        memcpy(row->name, &name, sizeof name);
    }
    if (row->kind == SL_MEMORY_PROCESS) {
        struct sl_proc_id process;
        sl_err err = sl_proc_id_self(&process, why);
        if (err != SL_OK) {
            return err;
        }
        *region = (struct sl_item_region){.handle_kind = row->kind,
                                          .pid = process.pid,
                                          .start_time = process.start_time,
                                          .offset_bytes = row->address};
        return SL_OK;
    }
    *region = (struct sl_item_region){
        .handle_kind = row->kind,
        .pid = engine->client->self.pid,
        .handle = {.at = row->name, .length = sizeof row->name},
        .gpu = {.at = row->uuid, .length = sizeof row->uuid},
        .offset_bytes = row->address - row->base,
    };
    return SL_OK;
}

/* Huge pages for plain memory, which the kernel copies for swappers page by page. */
static void plain_pages_ask(const struct sl_engine *engine, uint64_t deadline_ns)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    uint64_t huge_ns = SL_MIN(sl_budget_ns(now_ns, deadline_ns) / 4, HUGE_PAGES_NS);
    for (uint32_t i = 0; i < engine->rank_count * engine->pool_count; i++) {
        const struct sl_engine_memory *memory = &engine->memories[i];
        for (uint32_t l = 0; l < memory->row_count; l++) {
            const struct sl_engine_row *row = &memory->rows[l];
            if (row->kind == SL_MEMORY_PROCESS) {
                sl_plain_pages_ask(row->address, row->length_bytes, now_ns + huge_ns);
            }
        }
    }
}

sl_err sl_engine_memory_check(const struct sl_engine *engine, struct sl_error *why)
{
    for (uint32_t i = 0; i < engine->rank_count * engine->pool_count; i++) {
        const struct sl_engine_memory *memory = &engine->memories[i];
        for (uint32_t l = 0; l < memory->row_count; l++) {
            sl_err err = sl_engine_row_check(&memory->rows[l], why);
            if (err != SL_OK) {
                return err;
            }
        }
    }
    return SL_OK;
}

/* The part to which a rank's layer belongs, and its number in it. */
static sl_err region_place(const struct sl_engine *engine, const struct sl_engine_pool *pool,
                           uint32_t number, struct sl_item_region *region, struct sl_error *why)
{
    const struct sl_engine_layer *layer = &pool->layers[number];
    uint64_t first = pool->first_parts != NULL ? pool->first_parts[region->rank]
                                               : region->rank * pool->part_count / engine->world;
    for (uint32_t i = 0; i < number; i++) {
        region->layer += pool->layers[i].part == layer->part;
    }
    region->part = pool->part_count == 0 ? 0 : first + layer->part;
    return region->part < SL_MAX(pool->part_count, 1u)
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "pool %s layer %u: part %" PRIu64 " of %u",
                         pool->name, number, region->part, pool->part_count);
}

static sl_err regions_fill(struct sl_engine *engine, const struct sl_engine_options *options,
                           struct sl_error *why)
{
    uint32_t per_rank = 0;
    for (uint32_t p = 0; p < options->pool_count; p++) {
        per_rank += options->pools[p].layer_count;
    }
    if (engine->rank_count == 0) {
        return SL_OK;
    }
    SL_ASSERT(per_rank > 0); /* checked by options_check */
    engine->regions = calloc((size_t)per_rank * engine->rank_count, sizeof *engine->regions);
    engine->ours_fds = calloc((size_t)per_rank * engine->rank_count, sizeof *engine->ours_fds);
    if (engine->regions == NULL || engine->ours_fds == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "engine: regions");
    }
    for (uint32_t i = 0; i < engine->rank_count * engine->pool_count; i++) {
        const struct sl_engine_pool *pool = &options->pools[i % engine->pool_count];
        for (uint32_t l = 0; l < pool->layer_count; l++) {
            struct sl_engine_memory *memory = &engine->memories[i];
            struct sl_item_region region = memory_handle(engine, memory);
            if (memory->rows != NULL) {
                sl_err err = row_handle(engine, &memory->rows[l], &region, why);
                if (err != SL_OK) {
                    return err;
                }
            } else if (__builtin_add_overflow(region.offset_bytes, pool->layers[l].offset_bytes,
                                              &region.offset_bytes)) {
                return sl_fail(why, SL_ERR_INVALID, "pool %s layer %u: its offset overflows",
                               pool->name, l);
            }
            region.rank = engine->first_rank + i / engine->pool_count;
            region.pool = i % engine->pool_count;
            sl_err placed = region_place(engine, pool, l, &region, why);
            if (placed != SL_OK) {
                return placed;
            }
            region.fragment_bytes = pool->layers[l].fragment_bytes;
            region.fragment_stride_bytes = pool->layers[l].fragment_stride_bytes;
            region.length_bytes = pool->layers[l].length_bytes;
            region.block_stride_bytes = pool->layers[l].block_stride_bytes;
            region.piece_bytes = pool->layers[l].piece_bytes;
            region.block_count = options->block_count;
            engine->ours_fds[engine->region_count] = -1;
            engine->regions[engine->region_count++] = region;
        }
    }
    return SL_OK;
}

static void registered(void *context, const struct sl_msg *reply)
{
    if (reply->code == SL_OK) {
        *(struct sl_body_engine_register_reply *)context = reply->body.engine_register_reply;
    }
}

/* The engine's selection of GPUs, for an error message. Empty: not set, or not plain text. */
static const char *visible_devices(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    size_t length = text == NULL ? 0 : strlen(text);
    for (size_t i = 0; i < length; i++) {
        if (length > 255 || text[i] < ' ' || text[i] > '~') {
            return "";
        }
    }
    return text == NULL ? "" : text;
}

sl_err sl_engine_announce(struct sl_engine *engine, uint64_t deadline_ns, struct sl_error *why)
{
    const struct sl_proc_id self = engine->client->self;
    struct sl_item_pool pools[POOLS_MAX];
    for (uint32_t i = 0; i < engine->pool_count; i++) {
        pools[i] = (struct sl_item_pool){.name = sl_text_of(engine->pool_names[i]),
                                         .kind = engine->pool_kinds[i],
                                         .part_count = engine->pool_parts[i]};
    }
    struct sl_body_engine_register_reply answer = {0};
    if (engine->rank_count == 0) { /* others register */
        atomic_store_explicit(&engine->id, engine->team, memory_order_release);
        return SL_OK;
    }
    sl_err served = sl_engine_files(engine, why);
    if (served != SL_OK) {
        return served;
    }
    struct sl_client_call call = {
        .to = "registrar", .deadline_ns = deadline_ns, .answered = registered, .context = &answer};
    call.msg.type = SL_MSG_ENGINE_REGISTER;
    call.msg.op_id = sl_client_op_id(engine->client);
    call.msg.body.engine_register.pid = self.pid;
    call.msg.body.engine_register.start_time = self.start_time;
    call.msg.body.engine_register.name = sl_text_of(engine->name);
    call.msg.body.engine_register.model = sl_text_of(engine->identity);
    call.msg.body.engine_register.key_format = sl_text_of(engine->key_format);
    call.msg.body.engine_register.seed = sl_text_of(engine->seed);
    call.msg.body.engine_register.block_tokens = engine->block_tokens;
    call.msg.body.engine_register.world = engine->world;
    call.msg.body.engine_register.team = engine->team;
    call.msg.body.engine_register.pools.at = pools;
    call.msg.body.engine_register.pools.count = engine->pool_count;
    call.msg.body.engine_register.regions.at = engine->regions;
    call.msg.body.engine_register.regions.count = engine->region_count;
    call.msg.body.engine_register.facts.at = engine->facts.items;
    call.msg.body.engine_register.facts.count = engine->facts.count;
    call.msg.body.engine_register.visible_devices = sl_text_of(visible_devices());
    sl_err err = sl_client_call(engine->client, &call, why);
    if (err != SL_OK) {
        return err;
    }
    if (answer.engine_id == 0) {
        return sl_fail(why, SL_ERR_PROTOCOL, "registrar gave the engine no id");
    }
    atomic_store_explicit(&engine->registration, answer.engine_id, memory_order_release);
    atomic_store_explicit(&engine->id, engine->team != 0 ? engine->team : answer.engine_id,
                          memory_order_release);
    return SL_OK;
}

static void engine_free(struct sl_engine *engine)
{
    if (sl_client_is_ours(engine->client)) { /* a fork does not have its thread */
        sl_descriptors_stop(&engine->memory_server);
    }
    for (uint32_t i = 0; engine->ours_fds != NULL && i < engine->region_count; i++) {
        sl_auto_close(&engine->ours_fds[i]);
    }
    memories_close(engine);
    sl_turn_fini(&engine->registering, sl_client_is_ours(engine->client));
    free(engine->ours_fds);
    free(engine->regions);
    free(engine);
}

static struct sl_engine *engine_new(struct sl_client *client,
                                    const struct sl_engine_options *options)
{
    struct sl_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    sl_turn_init(&engine->registering);
    engine->client = client;
    engine->world = options->world;
    engine->team = options->team;
    engine->first_rank = options->team != 0 ? options->first_rank : 0;
    engine->rank_count = ranks_here(options);
    engine->pool_count = options->pool_count;
    engine->block_tokens = options->block_tokens;
    (void)snprintf(engine->name, sizeof engine->name, "%s", options->name);
    (void)snprintf(engine->key_format, sizeof engine->key_format, "%s", options->key_format);
    (void)snprintf(engine->seed, sizeof engine->seed, "%s",
                   options->seed == NULL ? "" : options->seed);
    for (uint32_t i = 0; i < options->pool_count; i++) {
        (void)snprintf(engine->pool_names[i], sizeof engine->pool_names[i], "%s",
                       options->pools[i].name);
        engine->pool_kinds[i] = options->pools[i].kind;
        engine->pool_parts[i] = options->pools[i].part_count;
    }
    sl_model_identity(options, engine->identity);
    sl_identity_facts(options, &engine->facts);
    (void)snprintf(engine->model_name, sizeof engine->model_name, "%s",
                   options->model.name == NULL ? "" : options->model.name);
    return engine;
}

sl_err sl_engine_register(struct sl_client *client, const struct sl_engine_options *options,
                          uint64_t timeout_ns, struct sl_engine **out, struct sl_error *why)
{
    uint64_t deadline_ns = sl_client_deadline(client, timeout_ns);
    sl_err err = sl_client_check_writable(client, why);
    if (err == SL_OK) {
        err = options_check(options, why);
    }
    if (err != SL_OK) {
        return err;
    }
    struct sl_engine *engine = engine_new(client, options);
    if (engine == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "engine: %zu bytes", sizeof *engine);
    }
    err = memories_open(engine, options, why);
    if (err == SL_OK) {
        plain_pages_ask(engine, deadline_ns);
    }
    if (err == SL_OK) {
        err = regions_fill(engine, options, why);
    }
    if (err == SL_OK) {
        err = sl_engine_enter(engine, deadline_ns, why);
    }
    if (err != SL_OK) {
        engine_free(engine);
        return err;
    }
    SL_AUTO(reader) struct sl_reader *reader = sl_reader_enter();
    (void)sl_label_find(sl_client_labels(sl_client_attachment(client)), SL_LABEL_MODEL,
                        engine->identity, engine->model_name, &engine->model_place);
    *out = engine;
    return SL_OK;
}

void sl_engine_end(struct sl_engine **engine)
{
    struct sl_engine *gone = engine == NULL ? NULL : *engine;
    if (gone == NULL) {
        return;
    }
    struct sl_client_call call = {
        .to = "registrar", .deadline_ns = sl_deadline_ns(sl_clock_monotonic_ns(), ENGINE_END_NS)};
    call.msg.type = SL_MSG_ENGINE_END;
    call.msg.body.engine_end.engine_id =
        atomic_load_explicit(&gone->registration, memory_order_acquire);
    if (gone->rank_count > 0) {
        (void)sl_client_call(gone->client, &call, NULL); /* unanswered: ends with this process */
    }
    engine_free(gone);
    *engine = NULL;
}

/* NULL: not in this process. */
static struct sl_engine_memory *memory_of(const struct sl_engine *engine, uint32_t rank,
                                          uint32_t pool)
{
    bool here = rank >= engine->first_rank && rank - engine->first_rank < engine->rank_count &&
                pool < engine->pool_count;
    return here ? &engine->memories[(rank - engine->first_rank) * engine->pool_count + pool] : NULL;
}

const char *sl_engine_memory_kind(const struct sl_engine *engine, uint32_t rank, uint32_t pool)
{
    const struct sl_engine_memory *memory = memory_of(engine, rank, pool);
    if (memory == NULL) {
        return NULL;
    }
    uint64_t kind = memory_handle(engine, memory).handle_kind;
    for (uint32_t l = 0; l < memory->row_count; l++) {
        kind = l == 0 || memory->rows[l].kind == SL_MEMORY_CUDA_PARTS ? memory->rows[l].kind : kind;
    }
    return kind == SL_MEMORY_CUDA_PARTS ? "cuda memory of many handles"
           : kind == SL_MEMORY_PROCESS  ? "memory of the process"
           : kind == SL_MEMORY_CUDA_IPC ? "cuda ipc"
           : kind == SL_MEMORY_CUDA_FD  ? "cuda descriptor"
                                        : "shared memory";
}

void *sl_engine_memory(struct sl_engine *engine, uint32_t rank, uint32_t pool)
{
    const struct sl_engine_memory *memory = memory_of(engine, rank, pool);
    return memory != NULL ? memory->base : NULL;
}

uint64_t sl_team_number(const void *at, uint64_t length_bytes)
{
    return sl_digest_of(at, length_bytes).low | SL_TEAM_FIRST;
}

const char *sl_engine_model_identity(const struct sl_engine *engine)
{
    return engine->identity;
}
