/* ipc/shm/index_changes.c - compares the table with its earlier state.
 *
 * For each slot's word it remembers what was reported: the id of its key, and the upper half of the
 * key's hash (the lower half is the tag in the word). A word that changed may be the same key with
 * a fresh record (it was written to disk, say), another key, or none. A key that left a slot may be
 * in another one, before or after the walk; so it is reported as removed only if its hash is no
 * longer in the table. Otherwise the reported state moves to the slot where the key is now; the key
 * may leave that one before the walk gets there. */
#include "ipc/shm/index_internal.h"
#include "ipc/shm/sl_index_changes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { TOLD_MEMORY = 1, TOLD_DISK = 2 };

struct sl_index_changes {
    const struct sl_index_view *view;
    uint64_t slot_count;
    uint64_t at;            /* slot of the walk */
    uint64_t id_count;      /* ids that are not 0 */
    uint64_t reach_buckets; /* farthest that a reported key was from its own bucket */
    uint64_t torn_count;    /* of the walk */
    uint64_t pending_count; /* of the walk */
    uint64_t *words;        /* [slot]: as last seen; 0: check again */
    uint64_t *ids;          /* [slot]: key reported as existing; 0: none */
    uint32_t *homes;        /* [slot]: upper half of that key's hash */
    uint8_t *tiers;         /* [slot]: tiers that were reported: TOLD_ bits */
    bool with_tiers;
    size_t mapped_bytes;
    /* Of the table's regions; a region whose count moved is read completely. */
    const char *shm_dir; /* NULL: counts are not used */
    struct index_regions regions;
    uint64_t life;         /* writer's life that counted `seen`; other counts are ignored */
    uint64_t *seen;        /* [region]: its count before it was read; REGION_AGAIN */
    uint64_t region_count; /* of the region that is being read */
    uint64_t unsure_count; /* torn and pending slots before it */
    bool counted;          /* this walk skips what did not change */
    bool walked;           /* some of the table, at least once */
    uint32_t attach_walks; /* walks until missing counts are looked for again */
};

#define REGION_AGAIN UINT64_MAX /* a value that no count reaches */
#define ATTACH_WALKS 64u

uint64_t sl_key_id(const char *key, uint32_t key_length)
{
    uint64_t id = XXH3_64bits(key, key_length);
    return id != 0 ? id : 1; /* 0 means none */
}

uint64_t sl_index_view_birth(const struct sl_index_view *view)
{
    return view->header->arena_birth;
}

sl_err sl_index_changes_create(const struct sl_index_view *view, const char *shm_dir, bool tiers,
                               struct sl_index_changes **out, struct sl_error *why)
{
    struct sl_index_changes *changes = calloc(1, sizeof(*changes));
    if (changes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "changes of the index");
    }
    changes->view = view;
    changes->shm_dir = shm_dir;
    changes->regions.segment.fd = -1;
    changes->with_tiers = tiers;
    changes->slot_count = view->bucket_count * INDEX_BUCKET_SLOTS;
    uint64_t region_count = index_region_count(view->bucket_count);
    changes->mapped_bytes =
        changes->slot_count * (2 * sizeof(uint64_t) + sizeof(*changes->homes) + 1) +
        region_count * sizeof(*changes->seen);
    /* Zero pages until they are touched: a table is made for more than it holds. */
    void *at = mmap(NULL, changes->mapped_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        sl_err err = sl_fail(why, SL_ERR_NO_MEMORY, "%zu bytes to remember the index",
                             changes->mapped_bytes);
        free(changes);
        return err;
    }
    changes->seen = at;
    changes->words = changes->seen + region_count;
    changes->ids = changes->words + changes->slot_count;
    changes->homes = (uint32_t *)(changes->ids + changes->slot_count);
    changes->tiers = (uint8_t *)(changes->homes + changes->slot_count);
    *out = changes;
    return SL_OK;
}

void sl_index_changes_destroy(struct sl_index_changes **changes)
{
    if (changes == NULL || *changes == NULL) {
        return;
    }
    index_regions_close(&(*changes)->regions);
    (void)munmap((*changes)->seen, (*changes)->mapped_bytes);
    free(*changes);
    *changes = NULL;
}

/* Sets the home of the key reported for the slot. */
static void home_set(struct sl_index_changes *changes, uint64_t slot, uint32_t home)
{
    const struct sl_index_view *view = changes->view;
    uint64_t bucket = slot / INDEX_BUCKET_SLOTS, own = hash_bucket(view, (uint64_t)home << 32);
    uint64_t behind = bucket >= own ? bucket - own : bucket + view->bucket_count - own;
    changes->homes[slot] = home;
    changes->reach_buckets = SL_MAX(changes->reach_buckets, behind);
}

static void id_set(struct sl_index_changes *changes, uint64_t slot, uint64_t id)
{
    changes->id_count += (id != 0) - (uint64_t)(changes->ids[slot] != 0);
    changes->ids[slot] = id;
}

/* The key reported for a slot is now in another one, which takes over the state. False: the other
 * slot has another key to report first. */
static bool slot_report_move(struct sl_index_changes *changes, uint64_t from, uint64_t to,
                             uint64_t word)
{
    if (changes->ids[to] == changes->ids[from]) {
        return true; /* also reported there */
    }
    if (changes->ids[to] != 0) {
        return false;
    }
    id_set(changes, to, changes->ids[from]);
    home_set(changes, to, changes->homes[from]);
    changes->tiers[to] = changes->tiers[from];
    /* Its tier may differ from the report: the slot is checked once more, and its tag stays
     * known. */
    changes->words[to] = changes->with_tiers ? word | UINT32_MAX : word; /* no slot has this ref */
    return true;
}

/* Whether a visible object whose key has this hash is in the table; FOUND: its slot and word. */
static enum index_look hash_look(const struct sl_index_view *view, uint64_t hash,
                                 uint64_t *slot_number, uint64_t *word_out)
{
    char key[SL_KEY_BYTES_MAX + 8];
    uint64_t at = hash_bucket(view, hash);
    uint64_t bucket_count_max = SL_MIN(view->bucket_count, SL_INDEX_PROBE_MAX);
    for (uint64_t n = 0; n < bucket_count_max; n++) {
        struct index_bucket *bucket = &view->buckets[at];
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            uint64_t word = word_get_acquire(&bucket->slots[i]);
            if ((uint32_t)(word >> 32) != hash_tag(hash) || (sl_ref)word == 0) {
                continue;
            }
            struct index_slot seen;
            enum index_look look = index_slot_look(view, at * INDEX_BUCKET_SLOTS + i, &seen, key);
            if (look == INDEX_LOOK_TORN ||
                (look == INDEX_LOOK_FOUND && seen.hash == hash && seen.visible)) {
                *slot_number = at * INDEX_BUCKET_SLOTS + i;
                *word_out = seen.word;
                return look;
            }
        }
        if (word_get_acquire(&bucket->overflow) == 0) {
            break;
        }
        at = bucket_after(view, at);
    }
    return INDEX_LOOK_OTHER;
}

/* Its key was reported as removed. Meanwhile it may have been reported for another slot of its
 * path, and may soon return there under the same word: mark that slot as not reported. */
static void report_elsewhere_clear(struct sl_index_changes *changes, uint64_t hash, uint64_t id)
{
    const struct sl_index_view *view = changes->view;
    uint64_t bucket = hash_bucket(view, hash);
    for (uint64_t n = 0; n <= changes->reach_buckets; n++) {
        for (uint64_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            uint64_t slot = bucket * INDEX_BUCKET_SLOTS + i;
            if (changes->ids[slot] == id) {
                id_set(changes, slot, 0);
                changes->words[slot] = 0;
            }
        }
        bucket = bucket_after(view, bucket);
    }
}

/* Reports the key of this slot as removed, unless it is in another slot. A key that cannot be
 * remembered where it is now is reported as removed, and as existing when the walk gets there.
 * False: refused, or its record is being written or just returned. */
static bool slot_report_removed(struct sl_index_changes *changes, uint64_t slot,
                                sl_index_change_fn fn, void *context, bool *refused)
{
    uint64_t hash = (uint64_t)changes->homes[slot] << 32 | changes->words[slot] >> 32;
    uint64_t to = 0, word = 0;
    enum index_look look = hash_look(changes->view, hash, &to, &word);
    /* It returned here since it was read: it was reported as existing, and is checked once more. */
    bool back = look == INDEX_LOOK_FOUND && to == slot;
    if (look == INDEX_LOOK_TORN || back) {
        changes->torn_count++;
        return false; /* in the next walk */
    }
    const struct sl_index_change gone = {.id = changes->ids[slot]};
    bool elsewhere = look == INDEX_LOOK_FOUND && slot_report_move(changes, slot, to, word);
    if (!elsewhere && !fn(context, &gone)) {
        *refused = true;
        return false;
    }
    if (!elsewhere) {
        report_elsewhere_clear(changes, hash, gone.id);
    }
    id_set(changes, slot, 0);
    changes->words[slot] = 0;
    return true;
}

/* Handles a slot whose word differs from the remembered one, or that had nothing to report. */
static bool slot_changed(struct sl_index_changes *changes, uint64_t slot, sl_index_change_fn fn,
                         void *context)
{
    char key[SL_KEY_BYTES_MAX];
    struct index_slot seen;
    bool refused = false;
    enum index_look look = index_slot_look(changes->view, slot, &seen, key);
    if (look == INDEX_LOOK_TORN) {
        changes->torn_count++;
        return true;
    }
    bool visible = look == INDEX_LOOK_FOUND && seen.visible;
    uint64_t id = visible ? sl_key_id(key, seen.key_length) : 0;
    uint8_t tiers = 0;
    if (changes->with_tiers && visible) {
        tiers = (uint8_t)((seen.memory ? TOLD_MEMORY : 0) | (seen.disk ? TOLD_DISK : 0));
    }
    if (changes->ids[slot] != 0 && changes->ids[slot] != id &&
        !slot_report_removed(changes, slot, fn, context, &refused)) {
        return !refused;
    }
    if (id != 0 && (changes->ids[slot] != id || changes->tiers[slot] != tiers)) {
        const struct sl_index_change here = {.id = id,
                                             .there = true,
                                             .memory = seen.memory,
                                             .disk = seen.disk,
                                             .key = key,
                                             .key_length = seen.key_length,
                                             .block_length = seen.block_length,
                                             .parent_hash = seen.parent_hash,
                                             .committed_ns = seen.committed_ns};
        if (!fn(context, &here)) {
            return false;
        }
        id_set(changes, slot, id);
        home_set(changes, slot, (uint32_t)(seen.hash >> 32));
        changes->tiers[slot] = tiers;
    }
    changes->pending_count += look == INDEX_LOOK_FOUND && !visible;
    /* A part of an uncommitted block is checked until the block is committed. */
    changes->words[slot] = look == INDEX_LOOK_FOUND && !visible ? 0 : seen.word;
    return true;
}

/* Whether the slot's record has its value in another tier than reported: a key that left and
 * returned between two walks may have the same slot and record. The record may be another one by
 * now, which the following check detects. */
static bool tier_differs(const struct sl_index_changes *changes, uint64_t slot, uint64_t word)
{
    sl_ref ref = (sl_ref)word;
    if (changes->ids[slot] == 0 || !ref_in_bounds(changes->view, ref, INDEX_UNITS_MIN)) {
        return false;
    }
    index_word *record = record_at(changes->view, ref);
    uint8_t tiers = (uint8_t)((word_get(&record[RECORD_GENERATION]) != 0 ? TOLD_MEMORY : 0) |
                              (word_get(&record[RECORD_DISK]) >> 48 != 0 ? TOLD_DISK : 0));
    return tiers != changes->tiers[slot];
}

/* Determines which writer's life counts, if any, and whether the counts continue those of the last
 * walk. */
static void walk_begins(struct sl_index_changes *changes)
{
    changes->torn_count = changes->pending_count = 0;
    uint64_t life = index_regions_life(&changes->regions);
    if (life == 0 && changes->shm_dir != NULL && changes->attach_walks-- == 0) {
        changes->attach_walks = ATTACH_WALKS; /* they may have changed by then */
        index_regions_close(&changes->regions);
        (void)index_regions_attach(changes->shm_dir, changes->view, &changes->regions);
        changes->life = 0; /* their writer is not known yet */
        life = index_regions_life(&changes->regions);
    }
    changes->counted = life != 0;
    if (changes->walked && life != changes->life) {
        memset(changes->seen, 0xff, /* REGION_AGAIN: changes since were not counted */
               index_region_count(changes->view->bucket_count) * sizeof(*changes->seen));
    }
    changes->life = life;
    changes->walked = true;
}

/* Whether the region has to be read: its count moved, or this walk reads everything. */
static bool region_begins(struct sl_index_changes *changes)
{
    uint64_t region = changes->at / INDEX_REGION_SLOTS;
    if (!changes->counted) {
        return true;
    }
    changes->region_count = word_get_acquire(&changes->regions.counts[region]);
    changes->unsure_count = changes->torn_count + changes->pending_count;
    return changes->region_count != changes->seen[region];
}

static void region_ends(struct sl_index_changes *changes, uint64_t region)
{
    if (changes->counted) {
        bool sure = changes->unsure_count == changes->torn_count + changes->pending_count;
        changes->seen[region] = sure ? changes->region_count : REGION_AGAIN;
    }
}

enum sl_index_walk sl_index_changes_step(struct sl_index_changes *changes,
                                         uint64_t bucket_count_max, sl_index_change_fn fn,
                                         void *context)
{
    const struct sl_index_view *view = changes->view;
    if (word_get_acquire(&view->header->slab_count) == 0) {
        return SL_INDEX_WALK_DEAD;
    }
    if (changes->at == 0) {
        walk_begins(changes);
    }
    /* A skipped region counts as one bucket. */
    for (uint64_t left = bucket_count_max * INDEX_BUCKET_SLOTS;
         left > 0 && changes->at < changes->slot_count; left--) {
        uint64_t slot = changes->at;
        if (slot % INDEX_REGION_SLOTS == 0 && !region_begins(changes)) {
            changes->at = SL_MIN(slot + INDEX_REGION_SLOTS, changes->slot_count);
            left -= SL_MIN(left - 1, (uint64_t)INDEX_BUCKET_SLOTS - 1);
            continue;
        }
        uint64_t word =
            word_get(&view->buckets[slot / INDEX_BUCKET_SLOTS].slots[slot % INDEX_BUCKET_SLOTS]);
        bool looks = word != changes->words[slot] ||
                     (changes->with_tiers && tier_differs(changes, slot, word));
        if (looks && !slot_changed(changes, slot, fn, context)) {
            return SL_INDEX_WALK_REFUSED;
        }
        changes->at++;
        if (changes->at % INDEX_REGION_SLOTS == 0 || changes->at == changes->slot_count) {
            region_ends(changes, slot / INDEX_REGION_SLOTS);
        }
    }
    if (changes->at < changes->slot_count) {
        return SL_INDEX_WALK_ON;
    }
    changes->at = 0;
    return SL_INDEX_WALK_END;
}

void sl_index_changes_again(const struct sl_index_changes *changes, uint64_t *cursor,
                            uint64_t slot_count_max, sl_index_change_fn fn, void *context)
{
    uint64_t left = slot_count_max;
    while (*cursor < changes->slot_count && left > 0) {
        const struct sl_index_change here = {.id = changes->ids[*cursor], .there = true};
        if (here.id != 0 && !fn(context, &here)) {
            return;
        }
        (*cursor)++;
        left--;
    }
    if (*cursor >= changes->slot_count) {
        *cursor = UINT64_MAX;
    }
}

uint64_t sl_index_changes_torn(const struct sl_index_changes *changes)
{
    return changes->torn_count;
}

uint64_t sl_index_changes_pending(const struct sl_index_changes *changes)
{
    return changes->pending_count;
}

uint64_t sl_index_changes_count(const struct sl_index_changes *changes)
{
    return changes->id_count;
}
