/* tests/fuzz/hostile_node.c - see hostile_node.h. */
#include "tests/fuzz/hostile_node.h"
#include "ipc/shm/index_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_BYTES 65536u

sl_ref hostile_node_claim(struct hostile_node *node, enum sl_record_kind kind, const char *key,
                          uint64_t length, struct sl_extent *extent)
{
    sl_ref ref = 0;
    struct sl_entry want = {.kind = (uint32_t)kind,
                            .key = key,
                            .key_length = (uint16_t)strlen(key),
                            .owner = {.pid = 1, .start_time = 1},
                            .writer = {.pid = 1, .start_time = 1}};
    if (node->scribbled || length == 0 ||
        node->next_offset + length > sl_arena_data_bytes(node->arena)) {
        return 0;
    }
    want.extent = (struct sl_extent){.generation = sl_arena_next_generation(node->arena),
                                     .offset_bytes = node->next_offset,
                                     .length_bytes = length};
    if (sl_index_claim(node->index, &want, &ref, NULL) != SL_OK) {
        return 0;
    }
    node->next_offset += sl_align_up(length, 64);
    *extent = want.extent;
    return ref;
}

static void part_make(struct hostile_node *node, uint32_t number, const char *key, sl_ref group)
{
    sl_ref ref = 0;
    uint64_t at = node->next_offset;
    struct sl_entry want = {.kind = SL_RECORD_RESERVED,
                            .key = key,
                            .key_length = (uint16_t)strlen(key),
                            .group = group,
                            .part_index = (uint16_t)(number % NODE_RANKS)};
    want.extent = (struct sl_extent){.generation = sl_arena_next_generation(node->arena),
                                     .offset_bytes = at,
                                     .length_bytes = NODE_VALUE};
    node->next_offset += NODE_VALUE;
    unsigned char *bytes = sl_arena_at(node->arena, at, NODE_VALUE);
    memset(bytes, (int)number, NODE_VALUE);
    HOSTILE_MUST(sl_index_claim(node->index, &want, &ref, NULL) == SL_OK);
    HOSTILE_MUST(sl_index_commit(node->index, ref, sl_digest_of(bytes, NODE_VALUE)) == SL_OK);
    (void)sl_index_group_fill(node->index, group, number % NODE_RANKS);
    node->refs[number] = ref;
}

void hostile_node_make(struct hostile_node *node, const char *shm_dir)
{
    bool created = false;
    *node = (struct hostile_node){.device_fd = memfd_create("device", MFD_CLOEXEC)};
    HOSTILE_MUST(node->device_fd >= 0 && ftruncate(node->device_fd, DEVICE_BYTES) == 0);
    struct sl_arena_options arena = {
        .directory = shm_dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    HOSTILE_MUST(sl_arena_open_owner(&arena, &created, &node->arena, NULL) == SL_OK);
    while (sl_arena_populate_below(node->arena, UINT64_MAX, NULL) == SL_OK) {
    }
    struct sl_index_options index = {
        .shm_dir = shm_dir, .index_bytes_max = 512 * SL_KIB, .key_count = 40, .arena = node->arena};
    HOSTILE_MUST(sl_index_open(&index, &created, &node->index, NULL) == SL_OK);
    for (uint32_t block = 0; block < NODE_BLOCKS; block++) {
        char key[96];
        int length = snprintf(key, sizeof(key), NODE_MODEL "/b%u", block);
        struct sl_group_want want = {.key = {key, (uint32_t)length}, .part_count = NODE_RANKS};
        sl_ref group = 0;
        HOSTILE_MUST(sl_index_group_create(node->index, &want, &group, NULL) == SL_OK);
        for (uint32_t rank = 0; rank < NODE_RANKS; rank++) {
            (void)snprintf(key, sizeof(key), NODE_MODEL "/b%u/%u/kv", block, rank);
            part_make(node, block * NODE_RANKS + rank, key, group);
        }
    }
    uint32_t last = NODE_BLOCKS * NODE_RANKS - 1;
    struct sl_extent none = {0};
    struct sl_disk_place place = {.segment = 1, .offset_bytes = 4096, .valid = 1};
    HOSTILE_MUST(sl_index_switch(node->index, node->refs[last], &none, &place, &node->refs[last]) ==
                 SL_OK);
}

void hostile_node_end(struct hostile_node *node)
{
    sl_index_close(&node->index);
    sl_arena_close(&node->arena);
    (void)close(node->device_fd);
}

static void part_move(struct hostile_node *node, uint32_t at, uint64_t how)
{
    struct sl_extent none = {0};
    struct sl_extent fresh = {.generation = sl_arena_next_generation(node->arena),
                              .offset_bytes = (uint64_t)at * 4096,
                              .length_bytes = NODE_VALUE};
    struct sl_disk_place place = {.segment = 1, .offset_bytes = 4096 * at, .valid = 1};
    sl_ref ref = 0;
    if (node->scribbled || node->refs[at] == 0 || !sl_index_ref_live(node->index, node->refs[at])) {
        return;
    }
    if (how % 4 == 0) {
        sl_index_unlink(node->index, node->refs[at], SL_RECORD_FREE);
        node->refs[at] = 0;
    } else if (sl_index_switch(node->index, node->refs[at], how % 4 == 1 ? &none : &fresh,
                               how % 4 == 3 ? NULL : &place, &ref) == SL_OK) {
        node->refs[at] = ref;
    }
}

void hostile_node_change(struct hostile_node *node, struct hostile *hostile)
{
    struct hostile_input *input = &hostile->input;
    uint64_t how = hostile_byte(input);
    if (how < 96) {
        part_move(node, (uint32_t)(how % (NODE_BLOCKS * NODE_RANKS)), hostile_byte(input));
    } else if (how < 160) {
        struct sl_extent extent;
        sl_ref ref =
            hostile_node_claim(node, (how & 1) != 0 ? SL_RECORD_PROMOTING : SL_RECORD_RESERVED,
                               NODE_MODEL "/b9/0/kv", (how & 2) != 0 ? NODE_VALUE : 4096, &extent);
        if (ref != 0) {
            hostile->next_slot++;
            hostile_remember(hostile, "ref", ref);
            hostile_remember(hostile, "generation", extent.generation);
            hostile_remember(hostile, "offset_bytes", extent.offset_bytes);
            hostile_remember(hostile, "length_bytes", extent.length_bytes);
            hostile_remember(hostile, "key", 0);
        }
    } else if (how < 176) { /* any word of the records, or a bucket */
        struct sl_index_view *view = &node->index->view;
        index_word *words = (how & 1) != 0 ? (index_word *)(void *)view->buckets : view->records;
        uint64_t count = (how & 1) != 0 ? view->bucket_count * 8 : 2048;
        uint64_t at = (hostile_byte(input) << 8 | hostile_byte(input)) % count;
        word_set(&words[at], hostile_number(input, 0, UINT64_MAX));
        node->scribbled = true;
    } else {
        uint64_t at = hostile_byte(input) * 16;
        unsigned char *byte = sl_arena_at(node->arena, at, 1);
        *byte = (unsigned char)how;
    }
}

void hostile_node_engine(const struct hostile_node *node, struct sl_body_engine_get_reply *out)
{
    static struct sl_item_pool pool;
    static struct sl_item_region regions[NODE_RANKS * NODE_LAYERS];
    pool = (struct sl_item_pool){.name = sl_text_of("kv")};
    for (uint32_t i = 0; i < NODE_RANKS * NODE_LAYERS; i++) {
        regions[i] = (struct sl_item_region){.rank = i / NODE_LAYERS,
                                             .layer = i % NODE_LAYERS,
                                             .handle_kind = 1,
                                             .pid = (uint64_t)getpid(),
                                             .fd = (uint64_t)node->device_fd,
                                             .offset_bytes = i * (DEVICE_BYTES / 8),
                                             .length_bytes = DEVICE_BYTES / 8,
                                             .block_stride_bytes = NODE_VALUE / NODE_LAYERS,
                                             .piece_bytes = NODE_VALUE / NODE_LAYERS,
                                             .block_count = 64};
    }
    out->pid = hostile_proc(0).pid;
    out->start_time = hostile_proc(0).start_time;
    out->name = sl_text_of("engine");
    out->model = sl_text_of(NODE_MODEL);
    out->key_format = sl_text_of("sluice");
    out->block_tokens = 4;
    out->world = NODE_RANKS;
    out->pools.at = &pool;
    out->pools.count = 1;
    out->regions.at = regions;
    out->regions.count = NODE_RANKS * NODE_LAYERS;
}
