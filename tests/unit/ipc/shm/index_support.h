/* tests/unit/ipc/shm/index_support.h - an index over a small arena in a directory of its own. */
#ifndef INDEX_SUPPORT_H
#define INDEX_SUPPORT_H

#include "ipc/shm/sl_index.h"
#include "tests/unit/ipc/shm/shm_support.h"

struct bed {
    char *dir;
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_index_view *view; /* a reader's own mapping */
    uint64_t index_bytes, key_count, arena_bytes;
    struct sl_progress_callback goes_on;
};

static inline bool bed_attach(struct bed *bed)
{
    struct sl_arena_options arena = {
        .directory = bed->dir, .data_bytes = bed->arena_bytes, .chunk_bytes = bed->arena_bytes};
    struct sl_error why = {0};
    bool created = false;
    ck_assert_sl_ok(sl_arena_open_owner(&arena, &created, &bed->arena, &why), why);
    struct sl_index_options options = {.shm_dir = bed->dir,
                                       .index_bytes_max = bed->index_bytes,
                                       .key_count = bed->key_count,
                                       .arena = bed->arena,
                                       .goes_on = bed->goes_on};
    ck_assert_sl_ok(sl_index_open(&options, &created, &bed->index, &why), why);
    ck_assert_sl_ok(sl_index_view_open(bed->dir, &bed->view, &why), why);
    return created;
}

static inline void bed_detach(struct bed *bed)
{
    sl_index_view_close(&bed->view);
    sl_index_close(&bed->index);
    sl_arena_close(&bed->arena);
}

static inline struct bed bed_make(uint64_t index_bytes, uint64_t key_count)
{
    struct bed bed = {.dir = shm_dir_make(),
                      .index_bytes = index_bytes,
                      .key_count = key_count,
                      .arena_bytes = SL_MIB};
    ck_assert(bed_attach(&bed));
    return bed;
}

static inline void bed_remove(struct bed *bed)
{
    bed_detach(bed);
    shm_dir_remove(bed->dir);
}

/* An entry with every field set from a number; key is borrowed. */
static inline struct sl_entry entry_of(const char *key, uint64_t number)
{
    return (struct sl_entry){
        .kind = SL_RECORD_RESERVED,
        .extent = {.generation = 1000 + number,
                   .offset_bytes = number * 4096,
                   .length_bytes = 4000 + number,
                   .arena = 0},
        .digest = {.low = number * 3, .high = number * 5},
        .owner = {.start_time = 11, .pid = 12},
        .writer = {.start_time = 13, .pid = 14},
        .deadline_ns = 15,
        .op_id = 16,
        .key = key,
        .key_length = (uint16_t)strlen(key),
    };
}

static inline sl_ref bed_insert(struct bed *bed, const char *key, uint64_t number)
{
    struct sl_entry entry = entry_of(key, number);
    struct sl_error why = {0};
    sl_ref ref = 0;
    ck_assert_sl_ok(sl_index_insert(bed->index, &entry, &ref, &why), why);
    return ref;
}

static inline sl_err bed_find(const struct bed *bed, const char *key, struct sl_entry *out)
{
    return sl_index_find(bed->view, key, (uint32_t)strlen(key), out);
}

static inline sl_ref bed_group(struct bed *bed, const char *key, uint32_t part_count)
{
    struct sl_group_want want = {.key = {key, (uint32_t)strlen(key)},
                                 .part_count = part_count,
                                 .deadline_ns = 100,
                                 .op_id = 7,
                                 .transient_ns = 9,
                                 .owner = {.start_time = 3, .pid = 4}};
    struct sl_error why = {0};
    sl_ref ref = 0;
    ck_assert_sl_ok(sl_index_group_create(bed->index, &want, &ref, &why), why);
    return ref;
}

static inline sl_ref bed_claim_part(struct bed *bed, const char *key, uint64_t number, sl_ref group,
                                    uint16_t part)
{
    struct sl_entry entry = entry_of(key, number);
    struct sl_error why = {0};
    sl_ref ref = 0;
    entry.group = group;
    entry.part_index = part;
    ck_assert_sl_ok(sl_index_claim(bed->index, &entry, &ref, &why), why);
    return ref;
}

#endif
