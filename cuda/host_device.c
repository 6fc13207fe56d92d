/* cuda/host_device.c - the device `host`: shared memory of the engine process replaces GPU
 * memory. It plans like a GPU and runs the kernels' bodies with one worker, so that tests cover
 * what a GPU runs. */
#include "cuda/host_internal.h"
#include "runtime/base/sl_array.h"
#include "runtime/base/sl_copy.h"
#include "runtime/base/sl_limits.h"
#include "runtime/base/sl_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* From this size on a memcpy per piece beats the detour through staging: a call takes 10 ns. */
#define HOST_PIECE_COPY_BYTES 512u
#define HOST_SLICE_BYTES      (8 * SL_MIB)
/* A load of at least this size in one slice bypasses the caches: it would evict its own first
 * bytes, which are read first. */
#define HOST_PAST_CACHES_BYTES (4 * SL_MIB)

/* ---- mapping ---- */

static sl_err host_map_fd(int fd, const struct sl_memory_handle *handle, uint64_t length_bytes,
                          struct sl_mapping *out, struct sl_error *why)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return sl_fail_os(why, errno, "fstat of descriptor %d of process %u", handle->fd,
                          handle->pid);
    }
    if (!S_ISREG(status.st_mode)) {
        return sl_fail(why, SL_ERR_INVALID, "descriptor %d of process %u is no memory file",
                       handle->fd, handle->pid);
    }
    if (status.st_uid != geteuid()) {
        return sl_fail(why, SL_ERR_PERMISSION, "descriptor %d of process %u belongs to uid %u",
                       handle->fd, handle->pid, status.st_uid);
    }
    if (length_bytes == 0 || (uint64_t)status.st_size < length_bytes) {
        return sl_fail(why, SL_ERR_INVALID,
                       "descriptor %d of process %u has %" PRId64 " bytes, %" PRIu64
                       " are registered",
                       handle->fd, handle->pid, (int64_t)status.st_size, length_bytes);
    }
    void *base = mmap(NULL, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return sl_fail_os(why, errno, "map %" PRIu64 " bytes of descriptor %d of process %u",
                          length_bytes, handle->fd, handle->pid);
    }
    *out = (struct sl_mapping){.base = base, .length_bytes = length_bytes};
    return SL_OK;
}

static sl_err host_map(struct sl_device *device, const struct sl_memory_handle *handle,
                       uint64_t length_bytes, struct sl_mapping *out, struct sl_error *why)
{
    SL_AUTO(close) int fd = -1; /* the mapping keeps the memory */
    if (handle->kind == SL_MEMORY_PROCESS) {
        return host_process_open(host_of(device), handle, out, why);
    }
    if (handle->kind != SL_MEMORY_SHARED_FD) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "memory kind %d: device host maps shared descriptors and copies from plain "
                       "memory of processes",
                       (int)handle->kind);
    }
    sl_err err = sl_memory_descriptor(device->runtime_directory, handle, &fd, why);
    return err == SL_OK ? host_map_fd(fd, handle, length_bytes, out, why) : err;
}

static void host_unmap(struct sl_device *device, struct sl_mapping *mapping)
{
    if (mapping->remote != 0) {
        host_process_close(host_of(device), mapping->remote);
    } else if (mapping->base != NULL) {
        (void)munmap(mapping->base, mapping->length_bytes);
    }
    *mapping = (struct sl_mapping){0};
}

/* ---- memory for others ---- */

/* A memfd leaves no name in a file system after a crash, and the kernel frees it with the
 * last process that has it. */
static sl_err host_memory_create(struct sl_device *device, uint64_t length_bytes,
                                 struct sl_device_memory *out, struct sl_error *why)
{
    (void)device;
    int fd = memfd_create("sluice-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return sl_fail_os(why, errno, "memfd of %" PRIu64 " bytes", length_bytes);
    }
    /* Processes that map it may rely on its size. */
    if (sl_file_resize(fd, length_bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int os_code = errno;
        (void)close(fd);
        return sl_fail_os(why, os_code, "memfd of %" PRIu64 " bytes", length_bytes);
    }
    *out = (struct sl_device_memory){.length_bytes = length_bytes, .fd = fd};
    return SL_OK;
}

static sl_err host_memory_export(struct sl_device *device, const struct sl_device_memory *memory,
                                 struct sl_memory_handle *out, struct sl_error *why)
{
    struct stat status;
    (void)device;
    if (fstat(memory->fd, &status) != 0) {
        return sl_fail_os(why, errno, "fstat of descriptor %d", memory->fd);
    }
    *out = (struct sl_memory_handle){.kind = SL_MEMORY_SHARED_FD,
                                     .pid = (uint32_t)getpid(),
                                     .fd = memory->fd,
                                     .inode = (uint64_t)status.st_ino};
    return SL_OK;
}

static void host_memory_free(struct sl_device *device, struct sl_device_memory *memory)
{
    (void)device;
    (void)close(memory->fd);
}

/* ---- tables ---- */

static sl_err host_layers_add(struct sl_device *device, const struct sl_layer *layers,
                              uint32_t layer_count, uint32_t *layers_index, struct sl_error *why)
{
    struct host_device *host = host_of(device);
    uint32_t slot = 0;
    while (slot < host->table_count && host->tables[slot].layers != NULL) {
        slot++;
    }
    if (slot == HOST_TABLES_MAX) {
        return sl_fail(why, SL_ERR_LIMIT, "%u layer tables are in use", HOST_TABLES_MAX);
    }
    if (slot == host->table_count) {
        if (!SL_ARRAY_ROOM(host->tables, host->table_capacity, slot + 1)) {
            return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for layer table %u", slot);
        }
        host->tables[slot] = (struct sl_layer_table){0};
        host->table_count++;
    }
    sl_err err =
        sl_layer_table_init(&host->tables[slot], layers, layer_count, HOST_PIECE_COPY_BYTES, why);
    if (err == SL_OK && host->tables[slot].remote != 0) {
        err = host_process_probe(host, &host->tables[slot], why);
        if (err != SL_OK) {
            sl_layer_table_fini(&host->tables[slot]);
        }
    }
    if (err == SL_OK) {
        *layers_index = slot;
    }
    return err;
}

static void host_layers_remove(struct sl_device *device, uint32_t layers_index)
{
    struct host_device *host = host_of(device);
    SL_ASSERT(layers_index < host->table_count);
    sl_layer_table_fini(&host->tables[layers_index]);
}

/* ---- moving ---- */

static void copy_cached(void *to, const void *from, uint64_t length_bytes)
{
    memcpy(to, from, length_bytes);
}

static void copy_value(const struct host_device *host, struct sl_move *move, unsigned char *value,
                       unsigned char *device, uint64_t length_bytes, bool to_host, bool digest)
{
    if (!to_host) {
        host->copy_in(device, value, length_bytes);
    } else if (digest) {
        move->digest = sl_digest_copy(value, device, length_bytes);
    } else {
        memcpy(value, device, length_bytes);
    }
    move->done = 1;
}

static void host_move_runs(const struct host_device *host, const struct sl_layer_table *table,
                           const struct sl_plan_range *range, struct sl_move *moves, uint32_t count,
                           bool to_host, bool digests)
{
    const struct sl_swap_layer *layer = &table->layers[0];
    bool whole = range->length_bytes == table->value_bytes;
    for (uint32_t i = 0; i < count;) {
        bool alone = !whole || (digests && to_host);
        uint32_t run = alone ? 1 : sl_plan_run(table, moves + i, count - i);
        unsigned char *device =
            layer->base + moves[i].device_block * layer->stride_bytes + range->offset_bytes;
        copy_value(host, &moves[i], moves[i].host + range->offset_bytes, device,
                   run * range->length_bytes, to_host, digests);
        for (uint32_t k = 1; k < run; k++) {
            moves[i + k].done = 1;
        }
        i += run;
    }
}

/* Copies bytes [from, from + length) of a piece between contiguous memory `flat` and its block. */
static void piece_copy(const struct host_device *host, const struct sl_swap_layer *layer,
                       unsigned char *block, unsigned char *flat, uint64_t from,
                       uint64_t length_bytes, bool to_flat)
{
    struct sl_swap_cursor at = sl_swap_cursor_of(layer, from);
    for (uint64_t done = 0; done < length_bytes;) {
        uint64_t run = SL_MIN(at.left_bytes, length_bytes - done);
        unsigned char *device = block + at.offset_bytes;
        if (to_flat) {
            memcpy(flat + done, device, run);
        } else {
            host->copy_in(device, flat + done, run);
        }
        done += run;
        sl_swap_cursor_next(layer, &at, run);
    }
}

/* Gives bytes [from, from + length) of a block's value, which begin in layer *l: in place if they
 * are one run, otherwise assembled at `flat`. *l becomes the layer of the byte after them. */
static const unsigned char *value_gather(const struct host_device *host,
                                         const struct sl_layer_table *table, uint32_t *l,
                                         uint64_t device_block, unsigned char *flat, uint64_t from,
                                         uint64_t length_bytes)
{
    for (uint64_t done = 0; done < length_bytes;) {
        const struct sl_swap_layer *layer = &table->layers[*l];
        unsigned char *block = layer->base + device_block * layer->stride_bytes;
        uint64_t at = from + done - layer->value_offset_bytes;
        uint64_t part = SL_MIN(layer->piece_bytes - at, length_bytes - done);
        *l += at + part == layer->piece_bytes;
        struct sl_swap_cursor cursor = sl_swap_cursor_of(layer, at);
        if (part == length_bytes && cursor.left_bytes >= part) {
            return block + cursor.offset_bytes;
        }
        piece_copy(host, layer, block, flat + done, at, part, true);
        done += part;
    }
    return flat;
}

/* Assembles each chunk in the cache, and hashes it while it is copied to the value. */
static void host_digest_pieces(struct host_device *host, const struct sl_layer_table *table,
                               const struct sl_plan_range *range, struct sl_move *move)
{
    struct sl_digest_copying copying;
    uint32_t l = range->first_layer;
    sl_digest_copy_start(&copying, move->host + range->offset_bytes, range->length_bytes);
    for (uint64_t at = 0; at < range->length_bytes; at += SL_DIGEST_CHUNK_BYTES) {
        uint64_t part = SL_MIN(range->length_bytes - at, SL_DIGEST_CHUNK_BYTES);
        sl_digest_copy_piece(&copying,
                             value_gather(host, table, &l, move->device_block, host->staging,
                                          range->offset_bytes + at, part),
                             part);
    }
    move->digest = sl_digest_copy_finish(&copying);
}

static void host_move_pieces(struct host_device *host, const struct sl_layer_table *table,
                             const struct sl_plan_range *range, struct sl_move *moves,
                             uint32_t count, bool to_host, bool digests)
{
    for (uint32_t i = 0; i < count; i++) {
        if (digests) {
            host_digest_pieces(host, table, range, &moves[i]);
        }
        for (uint32_t l = range->first_layer; !digests && l < range->layer_end; l++) {
            const struct sl_swap_layer *layer = &table->layers[l];
            piece_copy(host, layer, layer->base + moves[i].device_block * layer->stride_bytes,
                       moves[i].host + layer->value_offset_bytes, 0, layer->piece_bytes, to_host);
        }
        moves[i].done = 1;
    }
}

/* Moves as many ranges of values as half of the staging holds. */
static void host_move_batch(struct host_device *host, const struct sl_layer_table *table,
                            const struct sl_plan_range *range, struct sl_move *moves,
                            uint32_t count, bool to_host, bool digests)
{
    SL_ASSERT(count <= HOST_BATCH_BLOCKS && count * range->length_bytes <= host->half_bytes);
    for (uint32_t i = 0; i < count; i++) {
        host->block_ids[i] = moves[i].device_block;
    }
    struct sl_swap swap =
        sl_plan_swap(table, range->first_layer, range->layer_end - range->first_layer,
                     host->block_ids, count, host->staging);
    if (to_host) {
        sl_gather_body(&swap, 0, 1);
    }
    for (uint32_t i = 0; i < count; i++) {
        copy_value(host, &moves[i], moves[i].host + range->offset_bytes,
                   host->staging + i * range->length_bytes, range->length_bytes, to_host, digests);
    }
    if (!to_host) {
        sl_scatter_body(&swap, 0, 1);
    }
}

/* Moves a range larger than half of the staging, some layers at a time. */
static void host_move_sliced(struct host_device *host, const struct sl_layer_table *table,
                             const struct sl_plan_range *range, struct sl_move *move, bool to_host,
                             bool digests)
{
    struct sl_digest_stream stream;
    if (digests) {
        sl_digest_start(&stream);
    }
    for (uint32_t first = range->first_layer; first < range->layer_end;) {
        uint32_t layers = sl_plan_slice(table, first, range->layer_end, host->half_bytes);
        struct sl_swap swap =
            sl_plan_swap(table, first, layers, &move->device_block, 1, host->staging);
        unsigned char *value = move->host + table->layers[first].value_offset_bytes;
        /* A single layer's piece exceeds the room: the kernel writes to the value itself. */
        bool direct = swap.value_bytes > host->half_bytes;
        if (direct) {
            swap.values = value;
        }
        if (!to_host && !direct) {
            memcpy(host->staging, value, swap.value_bytes);
        }
        if (to_host) {
            sl_gather_body(&swap, 0, 1);
        } else {
            sl_scatter_body(&swap, 0, 1);
        }
        if (to_host && !direct) {
            memcpy(value, host->staging, swap.value_bytes);
        }
        if (to_host && digests) {
            sl_digest_feed(&stream, swap.values, swap.value_bytes);
        }
        first += layers;
    }
    if (digests) {
        move->digest = sl_digest_finish(&stream);
    }
    move->done = 1;
}

static void host_move_staged(struct host_device *host, const struct sl_layer_table *table,
                             const struct sl_plan_range *range, struct sl_move *moves,
                             uint32_t count, bool to_host, bool digests)
{
    uint64_t room = SL_MIN(host->half_bytes / range->length_bytes, (uint64_t)HOST_BATCH_BLOCKS);
    for (uint32_t i = 0; i < count;) {
        if (room == 0) {
            host_move_sliced(host, table, range, &moves[i++], to_host, digests);
            continue;
        }
        uint32_t batch = (uint32_t)SL_MIN(room, (uint64_t)(count - i));
        host_move_batch(host, table, range, moves + i, batch, to_host, digests);
        i += batch;
    }
}

static sl_err host_moves_check(const struct host_device *host, const struct sl_move *moves,
                               uint32_t count, struct sl_error *why)
{
    struct sl_plan_range range;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = moves[i].layers_index;
        if (index >= host->table_count || host->tables[index].layers == NULL) {
            return sl_fail(why, SL_ERR_INVALID, "move %u: layer table %u is unknown", i, index);
        }
        if (moves[i].device_block >= host->tables[index].block_count) {
            return sl_fail(why, SL_ERR_INVALID, "move %u: device block %" PRIu64 " of %" PRIu64, i,
                           moves[i].device_block, host->tables[index].block_count);
        }
        sl_err err = sl_plan_range_of(&host->tables[index], &moves[i], &range, why);
        if (err != SL_OK) {
            return err;
        }
    }
    return SL_OK;
}

/* Total bytes of moves that were checked. */
static uint64_t moves_bytes(const struct host_device *host, const struct sl_move *moves,
                            uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_plan_range range = {0};
        (void)sl_plan_range_of(&host->tables[moves[i].layers_index], &moves[i], &range, NULL);
        sum += range.length_bytes;
    }
    return sum;
}

static sl_err host_move(struct sl_device *device, struct sl_move *moves, uint32_t count,
                        bool to_host, bool digests, struct sl_error *why)
{
    struct host_device *host = host_of(device);
    digests = digests && to_host;
    for (uint32_t i = 0; i < count; i++) {
        moves[i].done = 0;
    }
    sl_err err = host_moves_check(host, moves, count, why);
    host->copy_in =
        err == SL_OK && !to_host && moves_bytes(host, moves, count) >= HOST_PAST_CACHES_BYTES
            ? sl_copy_uncached
            : copy_cached;
    for (uint32_t i = 0; err == SL_OK && i < count;) {
        const struct sl_layer_table *table = &host->tables[moves[i].layers_index];
        uint32_t same = sl_plan_same(moves + i, count - i);
        struct sl_plan_range range;
        err = sl_plan_range_of(table, &moves[i], &range, why);
        if (err != SL_OK) {
            break;
        }
        if (table->remote != 0) {
            err = host_process_move(host, table, &range, moves + i, same, to_host, digests, why);
            i += same;
            continue;
        }
        switch (table->path) {
        case SL_PLAN_RUNS:
            host_move_runs(host, table, &range, moves + i, same, to_host, digests);
            break;
        case SL_PLAN_PIECES:
            host_move_pieces(host, table, &range, moves + i, same, to_host, digests);
            break;
        case SL_PLAN_STAGED:
            host_move_staged(host, table, &range, moves + i, same, to_host, digests);
            break;
        }
        i += same;
    }
    return err;
}

/* Digests the value in a block, chunk by chunk. */
static struct sl_digest host_digest_block(struct host_device *host,
                                          const struct sl_layer_table *table,
                                          const struct sl_plan_range *range, uint64_t device_block)
{
    struct sl_digest_stream stream;
    uint32_t l = range->first_layer;
    sl_digest_start(&stream);
    for (uint64_t at = 0; at < range->length_bytes; at += SL_DIGEST_CHUNK_BYTES) {
        uint64_t part = SL_MIN(range->length_bytes - at, SL_DIGEST_CHUNK_BYTES);
        sl_digest_feed(&stream,
                       value_gather(host, table, &l, device_block, host->staging,
                                    range->offset_bytes + at, part),
                       part);
    }
    return sl_digest_finish(&stream);
}

static sl_err host_digest_begin(struct sl_device *device, struct sl_move *moves, uint32_t count,
                                struct sl_error *why)
{
    struct host_device *host = host_of(device);
    host->copy_in = copy_cached;
    for (uint32_t i = 0; i < count; i++) {
        moves[i].done = 0;
    }
    sl_err err = host_moves_check(host, moves, count, why);
    for (uint32_t i = 0; err == SL_OK && i < count; i++) {
        const struct sl_layer_table *table = &host->tables[moves[i].layers_index];
        struct sl_plan_range range;
        err = sl_plan_range_of(table, &moves[i], &range, why);
        if (err == SL_OK && table->remote != 0) {
            err = host_process_digest(host, table, &range, &moves[i], why);
        } else if (err == SL_OK) {
            moves[i].digest = host_digest_block(host, table, &range, moves[i].device_block);
        }
        moves[i].done = err == SL_OK;
    }
    return err;
}

static void host_destroy(struct sl_device *device)
{
    struct host_device *host = host_of(device);
    for (uint32_t i = 0; i < host->table_count; i++) {
        sl_layer_table_fini(&host->tables[i]);
    }
    host_processes_close(host);
    free(host->tables);
    free(host->staging);
    free(host);
}

static const struct sl_device_ops host_ops = {
    .name = "host",
    .map = host_map,
    .unmap = host_unmap,
    .memory_create = host_memory_create,
    .memory_export = host_memory_export,
    .memory_free = host_memory_free,
    .layers_add = host_layers_add,
    .layers_remove = host_layers_remove,
    .move = host_move,
    .digest_begin = host_digest_begin,
    .destroy = host_destroy,
};

sl_err sl_device_host_open(const struct sl_device_options *options, struct sl_device **out,
                           struct sl_error *why)
{
    struct host_device *host = calloc(1, sizeof(*host));
    if (host == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for device host");
    }
    host->base.ops = &host_ops;
    host->base.runtime_directory = options->runtime_directory;
    host->copy_threads = options->copy_threads;
    host->base.staging_bytes = options->staging_bytes;
    host->base.slice_bytes = HOST_SLICE_BYTES;
    host->base.slice_moves = HOST_BATCH_BLOCKS;
    host->half_bytes = options->staging_bytes / 2 / SL_WORD_BYTES * SL_WORD_BYTES;
    host->staging =
        aligned_alloc(SL_CACHE_LINE_BYTES, sl_align_up(host->half_bytes, SL_CACHE_LINE_BYTES));
    if (host->staging == NULL) {
        host_destroy(&host->base);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of staging",
                       options->staging_bytes);
    }
    *out = &host->base;
    return SL_OK;
}
