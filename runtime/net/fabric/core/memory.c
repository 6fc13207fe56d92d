/* runtime/net/fabric/core/memory.c - registers memories, one region a step. */
#include "runtime/net/fabric/core/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Number of registered regions of a memory on all rails. */
static uint32_t regions_left(const struct sl_fabric *fabric, uint32_t index)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        count += fabric->rails[i]->mappings[index].region_count;
    }
    return count;
}

/* Removes one region, on the first rail that has one. */
static void region_drop(struct sl_fabric *fabric, uint32_t index)
{
    uint32_t i = 0;
    while (fabric->rails[i]->mappings[index].region_count == 0) {
        i++;
    }
    struct fabric_rail *rail = fabric->rails[i];
    struct fabric_mapping *mapping = &rail->mappings[index];
    mapping->region_count--;
    if (fabric->ops->region_remove != NULL) {
        fabric->ops->region_remove(rail, &mapping->regions[mapping->region_count]);
    }
    rail->stats.regions--;
}

static void mappings_free(struct sl_fabric *fabric, uint32_t index)
{
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        struct fabric_mapping *mapping = &fabric->rails[i]->mappings[index];
        free(mapping->regions);
        *mapping = (struct fabric_mapping){0};
    }
}

void fabric_memory_clear(struct sl_fabric *fabric, uint32_t index)
{
    struct fabric_memory *memory = &fabric->memories[index];
    while (regions_left(fabric, index) > 0) {
        region_drop(fabric, index);
    }
    if (memory->state == MEMORY_REGISTERING || memory->state == MEMORY_FAILED) {
        fabric->registering--;
    }
    if (memory->by_dmabuf) {
        close(memory->dmabuf.fd);
    }
    mappings_free(fabric, index);
    free(memory->why);
    *memory = (struct fabric_memory){.generation = memory->generation};
}

uint64_t sl_fabric_region_bytes_max(const struct sl_fabric *fabric)
{
    uint64_t bytes = UINT64_MAX;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        bytes = SL_MIN(bytes, fabric->rails[i]->options.region_bytes_max);
    }
    return bytes;
}

static bool memory_cut(const struct fabric_rail *rail, const struct sl_fabric_memory *what,
                       uint64_t *at, struct sl_mr_cut *cut)
{
    uint64_t limit = rail->options.region_bytes_max;
    return what->stride_bytes != 0
               ? sl_mr_next_of_pool(what->length_bytes, what->stride_bytes, limit, at, cut)
               : sl_mr_next_of_arena(what->length_bytes, what->chunk_bytes, limit, at, cut);
}

sl_err sl_fabric_dmabuf_check(const struct sl_fabric *fabric, struct sl_error *why)
{
    if (fabric->ops->dmabuf_check == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "fabric %s: it does not support dmabufs",
                       fabric->ops->name);
    }
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < fabric->rail_count && err == SL_OK; i++) {
        err = fabric->ops->dmabuf_check(fabric->rails[i], why);
    }
    return err;
}

/* Duplicates the descriptor and chooses the NIC's address of the memory. */
static sl_err memory_dmabuf(struct sl_fabric *fabric, const struct sl_fabric_dmabuf *dmabuf,
                            struct fabric_memory *out, struct sl_error *why)
{
    sl_err err = sl_fabric_dmabuf_check(fabric, why);
    if (err != SL_OK) {
        return err;
    }
    if (dmabuf->offset_bytes > INT64_MAX - out->what.length_bytes) {
        return sl_fail(why, SL_ERR_INVALID, "a dmabuf has no byte %" PRIu64, dmabuf->offset_bytes);
    }
    out->dmabuf = (struct sl_fabric_dmabuf){.fd = fcntl(dmabuf->fd, F_DUPFD_CLOEXEC, 0),
                                            .offset_bytes = dmabuf->offset_bytes};
    if (out->dmabuf.fd < 0) {
        return sl_fail_os(why, errno, "copy descriptor %d of a dmabuf", dmabuf->fd);
    }
    out->by_dmabuf = true;
    out->what.dmabuf = NULL;
    out->what.at = (void *)(uintptr_t)(FABRIC_DMABUF_BASE + dmabuf->offset_bytes % (2 * SL_MIB));
    return SL_OK;
}

static sl_err mapping_make(struct fabric_mapping *mapping, const struct fabric_rail *rail,
                           const struct sl_fabric_memory *what, struct sl_error *why)
{
    struct sl_mr_cut cut;
    uint64_t at = 0;
    while (memory_cut(rail, what, &at, &cut)) {
        if (++mapping->region_capacity > SL_FABRIC_REGIONS_MAX) {
            return sl_fail(why, SL_ERR_LIMIT,
                           "memory of %" PRIu64 " bytes needs more than %u regions",
                           what->length_bytes, SL_FABRIC_REGIONS_MAX);
        }
    }
    SL_ASSERT(mapping->region_capacity > 0); /* the length is not 0 */
    mapping->regions = calloc(mapping->region_capacity, sizeof(*mapping->regions));
    return mapping->regions != NULL ? SL_OK
                                    : sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u regions",
                                              mapping->region_capacity);
}

sl_err sl_fabric_memory_add(struct sl_fabric *fabric, const struct sl_fabric_memory *memory,
                            uint32_t *out, struct sl_error *why)
{
    if ((memory->at == NULL) == (memory->dmabuf == NULL) || memory->length_bytes == 0 ||
        memory->length_bytes > INT64_MAX ||
        (memory->chunk_bytes == 0) == (memory->stride_bytes == 0)) {
        return sl_fail(
            why, SL_ERR_INVALID,
            "memory needs an address or a dmabuf, a length, and either a chunk or a stride");
    }
    uint32_t index = 0;
    while (index < fabric->options.memories_max && fabric->memories[index].state != MEMORY_FREE) {
        index++;
    }
    if (index == fabric->options.memories_max) {
        return sl_fail(why, SL_ERR_LIMIT, "more than %u registered memories", index);
    }
    struct fabric_memory fresh = {.what = *memory, .state = MEMORY_REGISTERING};
    sl_err err = SL_OK;
    for (uint32_t i = 0; i < fabric->rail_count && err == SL_OK; i++) {
        err = mapping_make(&fabric->rails[i]->mappings[index], fabric->rails[i], memory, why);
    }
    if (err == SL_OK && memory->dmabuf != NULL) {
        err = memory_dmabuf(fabric, memory->dmabuf, &fresh, why);
    }
    if (err != SL_OK) {
        mappings_free(fabric, index);
        return err;
    }
    fresh.generation = fabric_generation_next(fabric->memories[index].generation);
    fabric->memories[index] = fresh;
    fabric->registering++;
    fabric->work_due = true;
    *out = fabric_handle_make(fresh.generation, index);
    return SL_OK;
}

sl_err sl_fabric_memory_remove_step(struct sl_fabric *fabric, uint32_t handle, bool *gone)
{
    struct fabric_memory *memory = fabric_memory_of(fabric, handle);
    uint32_t index = handle & 0xffffu;
    if (memory == NULL) {
        return SL_ERR_NOT_FOUND;
    }
    if (memory->users > 0) {
        return SL_ERR_BUSY;
    }
    if (memory->state == MEMORY_REGISTERING || memory->state == MEMORY_FAILED) {
        fabric->registering--;
    }
    memory->state = MEMORY_LEAVING;
    if (regions_left(fabric, index) > 0) {
        region_drop(fabric, index);
    }
    *gone = regions_left(fabric, index) == 0;
    if (*gone) {
        fabric_memory_clear(fabric, index);
    }
    return SL_OK;
}

static void memory_report(struct sl_fabric *fabric, uint32_t handle, uint32_t region_index,
                          const struct sl_error *why)
{
    if (fabric->options.events.registered != NULL) {
        fabric->options.events.registered(fabric->options.events.context, handle, region_index,
                                          why);
    }
}

/* Removes one region; reports the failure when all are removed. */
static void memory_roll_back(struct sl_fabric *fabric, uint32_t index)
{
    struct fabric_memory *memory = &fabric->memories[index];
    uint32_t handle = fabric_handle_make(memory->generation, index);
    uint32_t region_index = memory->failed_region;
    struct sl_error why = {.code = SL_ERR_NO_MEMORY, .text = "a region was not registered"};
    if (regions_left(fabric, index) > 0) {
        region_drop(fabric, index);
        return;
    }
    if (memory->why != NULL) {
        why = *memory->why;
    }
    fabric_memory_clear(fabric, index);
    memory_report(fabric, handle, region_index, &why);
}

static sl_err region_add(struct fabric_rail *rail, const struct fabric_memory *memory,
                         struct fabric_region *region, struct sl_error *why)
{
    const struct fabric_backend *ops = rail->fabric->ops;
    void *at = (unsigned char *)memory->what.at + region->offset_bytes;
    const struct sl_fabric_dmabuf dmabuf = {.fd = memory->dmabuf.fd,
                                            .offset_bytes =
                                                memory->dmabuf.offset_bytes + region->offset_bytes};
    return ops->region_add == NULL ? SL_OK
                                   : ops->region_add(rail, memory->by_dmabuf ? &dmabuf : NULL, at,
                                                     region->length_bytes, region, why);
}

/* Registers the next region on one rail. False: all are registered. */
static bool mapping_step(struct fabric_rail *rail, uint32_t index)
{
    struct fabric_memory *memory = &rail->fabric->memories[index];
    struct fabric_mapping *mapping = &rail->mappings[index];
    struct sl_error why = {.code = SL_OK};
    struct sl_mr_cut cut;
    if (!memory_cut(rail, &memory->what, &mapping->cut_at, &cut)) {
        return false;
    }
    struct fabric_region *region = &mapping->regions[mapping->region_count];
    *region = (struct fabric_region){.offset_bytes = cut.offset_bytes,
                                     .length_bytes = cut.length_bytes,
                                     .unread = memory->what.unread};
    if (region_add(rail, memory, region, &why) == SL_OK) {
        mapping->region_count++;
        rail->stats.regions++;
        return true;
    }
    memory->state = MEMORY_FAILED;
    memory->failed_region = mapping->region_count;
    memory->why = malloc(sizeof(*memory->why));
    if (memory->why != NULL) {
        *memory->why = why;
    }
    return true;
}

/* Registers the next region of one memory on each rail; other work runs in between. */
static void memory_step(struct sl_fabric *fabric, uint32_t index)
{
    struct fabric_memory *memory = &fabric->memories[index];
    const struct sl_error none = {.code = SL_OK};
    bool more = false;
    for (uint32_t i = 0; i < fabric->rail_count && memory->state == MEMORY_REGISTERING; i++) {
        more |= mapping_step(fabric->rails[i], index);
    }
    if (!more) {
        memory->state = MEMORY_READY;
        fabric->registering--;
        memory_report(fabric, fabric_handle_make(memory->generation, index),
                      fabric->rails[0]->mappings[index].region_count, &none);
    }
}

void fabric_memories_step(struct sl_fabric *fabric)
{
    for (uint32_t i = 0; i < fabric->options.memories_max && fabric->registering > 0; i++) {
        if (fabric->memories[i].state == MEMORY_REGISTERING) {
            memory_step(fabric, i);
            break; /* one memory a step */
        }
        if (fabric->memories[i].state == MEMORY_FAILED) {
            memory_roll_back(fabric, i);
            break;
        }
    }
    fabric->work_due |= fabric->registering > 0;
}
