/* tests/unit/ipc/shm/index_changes_test.c - a reader that compares the index with its last state
 * reports keys that appear and vanish. */
#include "ipc/shm/index_internal.h"
#include "ipc/shm/sl_index_changes.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define INDEX_BYTES  (4 * SL_MIB)
#define REPORTED_MAX 4096u

/* A listener's view: the ids that were last reported as present. */
struct listener {
    uint64_t ids[REPORTED_MAX];
    uint32_t count, appeared, vanished;
    uint32_t room; /* changes it still takes */
};

static bool listen(void *context, const struct sl_index_change *change)
{
    uint64_t id = change->id;
    bool there = change->there;
    struct listener *listener = context;
    uint32_t at = 0;
    if (listener->room == 0) {
        return false;
    }
    listener->room--;
    listener->appeared += there;
    listener->vanished += !there;
    while (at < listener->count && listener->ids[at] != id) {
        at++;
    }
    if (there && at == listener->count) {
        ck_assert_uint_lt(listener->count, REPORTED_MAX);
        listener->ids[listener->count++] = id;
    } else if (!there && at < listener->count) {
        listener->ids[at] = listener->ids[--listener->count];
    }
    return true;
}

static bool is_listed(const struct listener *listener, const char *key)
{
    uint64_t id = sl_key_id(key, (uint32_t)strlen(key));
    for (uint32_t i = 0; i < listener->count; i++) {
        if (listener->ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* Each test runs with a reader that walks the whole table, and one that uses the counts. */
static bool counted;

static const char *counts_of(const struct bed *bed)
{
    return counted ? bed->dir : NULL;
}

static struct sl_index_changes *watch(const struct bed *bed)
{
    struct sl_index_changes *changes = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_index_changes_create(bed->view, counts_of(bed), false, &changes, &why), why);
    return changes;
}

static void walk(struct sl_index_changes *changes, struct listener *listener)
{
    listener->room = UINT32_MAX;
    enum sl_index_walk at = SL_INDEX_WALK_ON;
    while (at == SL_INDEX_WALK_ON) {
        at = sl_index_changes_step(changes, 100, listen, listener);
    }
    ck_assert_int_eq(at, SL_INDEX_WALK_END);
}

START_TEST(what_comes_and_goes_is_told_once)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        sl_ref ref = bed_insert(&bed, "first", 1);
        bed_insert(&bed, "second", 2);

        walk(changes, &listener);
        walk(changes, &listener);
        ck_assert(is_listed(&listener, "first") && is_listed(&listener, "second"));
        ck_assert_uint_eq(listener.appeared, 2);
        ck_assert_uint_eq(sl_index_changes_count(changes), 2);

        sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
        walk(changes, &listener);
        walk(changes, &listener);
        ck_assert(!is_listed(&listener, "first") && is_listed(&listener, "second"));
        ck_assert_uint_eq(listener.vanished, 1);
        ck_assert_uint_eq(listener.appeared, 2);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_value_that_moves_to_disk_is_no_change)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        const struct sl_disk_place place = {.offset_bytes = 4096, .segment = 3, .valid = 1};
        const struct sl_extent none = {0};
        sl_ref ref = bed_insert(&bed, "key", 1);
        walk(changes, &listener);

        ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, &place, &ref), SL_OK);
        walk(changes, &listener);
        ck_assert_uint_eq(listener.appeared + listener.vanished, 1);

        sl_index_unlink(bed.index, ref, SL_RECORD_FREE); /* the disk gave it up too */
        walk(changes, &listener);
        ck_assert_uint_eq(listener.vanished, 1);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* The latest report to a listener for tiers, and the number of reports. */
struct tier_listener {
    struct sl_index_change last;
    char key[64];
    uint32_t count;
};

static bool tiers_listen(void *context, const struct sl_index_change *change)
{
    struct tier_listener *listener = context;
    listener->last = *change;
    snprintf(listener->key, sizeof(listener->key), "%.*s", (int)change->key_length,
             change->key != NULL ? change->key : "");
    listener->count++;
    return true;
}

START_TEST(where_tiers_are_told_each_move_of_a_value_is_told)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = NULL;
        struct tier_listener heard = {0};
        const struct sl_disk_place place = {.offset_bytes = 4096, .segment = 3, .valid = 1};
        const struct sl_extent none = {0};
        sl_ref ref = bed_insert(&bed, "key", 1);
        ck_assert_int_eq(sl_index_changes_create(bed.view, counts_of(&bed), true, &changes, NULL),
                         SL_OK);

        (void)sl_index_changes_step(changes, UINT64_MAX / 8, tiers_listen, &heard);
        ck_assert_uint_eq(heard.count, 1);
        ck_assert(heard.last.there && heard.last.memory);
        ck_assert_str_eq(heard.key, "key");

        ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, &place, &ref), SL_OK);
        (void)sl_index_changes_step(changes, UINT64_MAX / 8, tiers_listen, &heard);
        ck_assert_uint_eq(heard.count, 2);
        ck_assert(heard.last.there && !heard.last.memory && heard.last.disk);
        ck_assert_uint_eq(heard.last.id, sl_key_id("key", 3));

        sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
        (void)sl_index_changes_step(changes, UINT64_MAX / 8, tiers_listen, &heard);
        ck_assert_uint_eq(heard.count, 3);
        ck_assert(!heard.last.there && heard.last.key == NULL);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_part_is_told_with_its_block)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = NULL;
        struct tier_listener heard = {0};
        const struct sl_digest digest = {1, 2};
        sl_ref group = bed_group(&bed, "model/a/b", 1);
        sl_ref part = bed_claim_part(&bed, "model/a/b/0/kv", 1, group, 0);
        sl_index_unit_note(bed.index, group)->parent_hash = 77;
        sl_index_set_now(bed.index, 4711);
        ck_assert_int_eq(sl_index_changes_create(bed.view, counts_of(&bed), true, &changes, NULL),
                         SL_OK);
        ck_assert_int_eq(sl_index_commit(bed.index, part, digest), SL_OK);
        (void)sl_index_changes_step(changes, UINT64_MAX / 8, tiers_listen, &heard);
        ck_assert_uint_eq(heard.count, 0);
        ck_assert_uint_eq(sl_index_changes_pending(changes), 1);

        ck_assert(sl_index_group_fill(bed.index, group, 0));
        (void)sl_index_changes_step(changes, UINT64_MAX / 8, tiers_listen, &heard);
        ck_assert_uint_eq(heard.count, 1);
        ck_assert_str_eq(heard.key, "model/a/b/0/kv");
        ck_assert_uint_eq(heard.last.block_length, strlen("model/a/b"));
        ck_assert_uint_eq(heard.last.parent_hash, 77);
        ck_assert_uint_eq(heard.last.committed_ns, 4711);
        ck_assert_uint_eq(sl_index_changes_pending(changes), 0);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(parts_are_told_when_their_block_is_visible)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        const struct sl_digest digest = {1, 2};
        sl_ref group = bed_group(&bed, "model/block", 2);
        sl_ref parts[] = {bed_claim_part(&bed, "model/block/0/kv", 1, group, 0),
                          bed_claim_part(&bed, "model/block/1/kv", 2, group, 1)};
        ck_assert_int_eq(sl_index_commit(bed.index, parts[0], digest), SL_OK);
        ck_assert(!sl_index_group_fill(bed.index, group, 0));

        walk(changes, &listener);
        ck_assert_uint_eq(listener.appeared, 0);

        ck_assert_int_eq(sl_index_commit(bed.index, parts[1], digest), SL_OK);
        ck_assert(sl_index_group_fill(bed.index, group, 1));
        walk(changes, &listener);
        ck_assert(is_listed(&listener, "model/block/0/kv"));
        ck_assert(is_listed(&listener, "model/block/1/kv"));
        ck_assert_uint_eq(listener.count, 2); /* the block itself is no object */
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(what_was_told_can_be_told_again)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0}, again = {.room = 60};
        char key[32];
        uint64_t cursor = 0;
        for (uint32_t i = 0; i < 100; i++) {
            snprintf(key, sizeof(key), "key-%u", i);
            bed_insert(&bed, key, i);
        }
        walk(changes, &listener);

        sl_index_changes_again(changes, &cursor, UINT64_MAX, listen, &again);
        ck_assert_uint_eq(again.count, 60); /* the rest was refused */
        ck_assert_uint_ne(cursor, UINT64_MAX);
        again.room = UINT32_MAX;
        while (cursor != UINT64_MAX) {
            sl_index_changes_again(changes, &cursor, 7, listen, &again);
        }
        ck_assert_uint_eq(again.appeared, 100);
        ck_assert_uint_eq(again.count, 100);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(an_index_in_which_nothing_was_ever_written_is_not_dead)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};

        walk(changes, &listener);
        ck_assert_uint_eq(listener.appeared, 0);
        bed_insert(&bed, "first", 1);
        walk(changes, &listener);

        ck_assert(is_listed(&listener, "first"));
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

START_TEST(an_index_made_anew_is_dead)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000), fresh = bed;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {.room = UINT32_MAX};
        uint64_t birth = sl_index_view_birth(bed.view);
        char path[128];
        sl_index_close(&bed.index);
        sl_arena_close(&bed.arena);
        snprintf(path, sizeof(path), "%s/arena.0", bed.dir);
        ck_assert_int_eq(unlink(path), 0);
        sleep(1); /* the birth of an arena has the resolution of the wall clock's seconds */

        fresh.view = NULL;
        ck_assert(bed_attach(&fresh)); /* the index followed its arena */

        ck_assert_int_eq(sl_index_changes_step(changes, 1, listen, &listener), SL_INDEX_WALK_DEAD);
        ck_assert_uint_ne(sl_index_view_birth(fresh.view), birth);
        sl_index_changes_destroy(&changes);
        sl_index_view_close(&bed.view);
        bed_remove(&fresh);
    }
END_TEST

/* A key has moved because its old slot is in use by another. The walk stops at the other key, which
 * the listener refuses, and the first key is removed before the walk reaches its old slot: its
 * removal must be reported. */
#define MOVE_ROUNDS 40u
#define MOVE_OTHERS 20u
START_TEST(a_key_that_moved_and_was_removed_before_the_walk_is_reported)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 2 * MOVE_OTHERS);
        char key[32];
        for (uint32_t round = 0; round < MOVE_ROUNDS * MOVE_OTHERS; round++) {
            struct sl_index_changes *changes = watch(&bed);
            struct listener listener = {0};
            sl_ref others[MOVE_OTHERS];
            sl_ref ref = bed_insert(&bed, "moves", 1);
            walk(changes, &listener);
            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) {
                snprintf(key, sizeof(key), "other-%u-%u", round / MOVE_OTHERS, i);
                others[i] = bed_insert(&bed, key, 2 + i);
            }
            ref = bed_insert(&bed, "moves", 1);
            listener.room = round % MOVE_OTHERS;
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, listen, &listener);

            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            walk(changes, &listener);
            walk(changes, &listener);
            ck_assert(!is_listed(&listener, "moves"));
            ck_assert_uint_eq(listener.count, MOVE_OTHERS);
            ck_assert_uint_eq(sl_index_changes_count(changes), MOVE_OTHERS);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) {
                sl_index_unlink(bed.index, others[i], SL_RECORD_FREE);
            }
            sl_index_changes_destroy(&changes);
        }
        bed_remove(&bed);
    }
END_TEST

/* Remembers the tiers reported for one key. */
struct place_listener {
    uint64_t id;
    bool there, memory, disk;
    bool refuses; /* reports about other keys, so that the walk stops there */
};

static bool place_listen(void *context, const struct sl_index_change *change)
{
    struct place_listener *listener = context;
    if (change->id == listener->id) {
        listener->there = change->there;
        listener->memory = change->memory;
        listener->disk = change->disk;
    }
    return change->id == listener->id || !listener->refuses;
}

START_TEST(a_key_that_went_and_came_in_another_tier_and_slot_is_told_there)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 2 * MOVE_OTHERS);
        const struct sl_disk_place place = {.offset_bytes = 4096, .segment = 3, .valid = 1};
        const struct sl_extent none = {0};
        char key[32];
        for (uint32_t round = 0; round < MOVE_ROUNDS; round++) {
            struct sl_index_changes *changes = NULL;
            struct place_listener listener = {.id = sl_key_id("moves", 5)};
            sl_ref others[MOVE_OTHERS];
            ck_assert_int_eq(
                sl_index_changes_create(bed.view, counts_of(&bed), true, &changes, NULL), SL_OK);
            sl_ref ref = bed_insert(&bed, "moves", 1);
            ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, &place, &ref), SL_OK);
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
            ck_assert(listener.there && !listener.memory && listener.disk);

            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) { /* some round, one takes its slot */
                snprintf(key, sizeof(key), "other-%u-%u", round, i);
                others[i] = bed_insert(&bed, key, 2 + i);
            }
            ref = bed_insert(&bed, "moves", 1);
            for (uint32_t i = 0; i < 3; i++) {
                (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
            }
            ck_assert(listener.there && listener.memory);
            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) {
                sl_index_unlink(bed.index, others[i], SL_RECORD_FREE);
            }
            sl_index_changes_destroy(&changes);
        }
        bed_remove(&bed);
    }
END_TEST

/* The key is remembered at its new slot, and is removed before the refused walk gets there. */
START_TEST(a_key_added_in_another_slot_and_removed_is_reported)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 2 * MOVE_OTHERS);
        char key[32];
        for (uint32_t round = 0; round < MOVE_ROUNDS * MOVE_OTHERS; round++) {
            struct sl_index_changes *changes = NULL;
            struct place_listener listener = {.id = sl_key_id("moves", 5)};
            sl_ref others[MOVE_OTHERS];
            ck_assert_int_eq(
                sl_index_changes_create(bed.view, counts_of(&bed), true, &changes, NULL), SL_OK);
            sl_ref ref = bed_insert(&bed, "moves", 1);
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) { /* some round, one takes its slot */
                snprintf(key, sizeof(key), "other-%u-%u", round / MOVE_OTHERS, i);
                others[i] = bed_insert(&bed, key, 2 + i);
            }
            ref = bed_insert(&bed, "moves", 1);
            listener.refuses = true; /* of the one that has its slot now */
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
            listener.refuses = false;
            sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
            for (uint32_t i = 0; i < 3; i++) {
                (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
            }
            ck_assert(!listener.there);
            ck_assert_uint_eq(sl_index_changes_count(changes), MOVE_OTHERS);
            for (uint32_t i = 0; i < MOVE_OTHERS; i++) {
                sl_index_unlink(bed.index, others[i], SL_RECORD_FREE);
            }
            sl_index_changes_destroy(&changes);
        }
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_key_back_in_its_slot_and_record_is_reported_with_its_tiers)
    {
        counted = _i == 1;
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        const struct sl_disk_place place = {.offset_bytes = 4096, .segment = 3, .valid = 1};
        const struct sl_extent none = {0};
        struct sl_index_changes *changes = NULL;
        struct place_listener listener = {.id = sl_key_id("key", 3)};
        ck_assert_int_eq(sl_index_changes_create(bed.view, counts_of(&bed), true, &changes, NULL),
                         SL_OK);
        sl_ref ref = bed_insert(&bed, "key", 1), before = 0;
        ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, &place, &before), SL_OK);
        (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
        ck_assert(listener.disk && !listener.memory);

        sl_index_unlink(bed.index, before, SL_RECORD_FREE);
        for (uint32_t i = 0; i < 8 && ref != before; i++) { /* others take the records before it */
            char key[32];
            ref = bed_insert(&bed, "key", 1);
            if (ref != before) {
                sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
                snprintf(key, sizeof(key), "filler-%u", i);
                bed_insert(&bed, key, 10 + i);
            }
        }
        ck_assert_uint_eq(ref, before); /* so the slot has the word that it had */

        (void)sl_index_changes_step(changes, UINT64_MAX / 8, place_listen, &listener);
        ck_assert(listener.there && listener.memory && !listener.disk);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

static void index_open(struct bed *bed)
{
    struct sl_index_options options = {.shm_dir = bed->dir,
                                       .index_bytes_max = bed->index_bytes,
                                       .key_count = bed->key_count,
                                       .arena = bed->arena};
    struct sl_error why = {0};
    bool created = true;
    ck_assert_sl_ok(sl_index_open(&options, &created, &bed->index, &why), why);
    ck_assert(!created);
}

static void index_reopen(struct bed *bed)
{
    sl_index_close(&bed->index);
    index_open(bed);
    sl_index_recover(bed->index, NULL, NULL);
}

/* Keys are added and removed between the steps of a walk whose listener sometimes refuses; at the
 * end the listener's view is exact. */
#define MODEL_KEYS  600u
#define MODEL_STEPS 20000u
START_TEST(a_listener_believes_what_is_there_after_any_order)
    {
        counted = _i == 1;
        uint64_t seed = random_seed("index_changes");
        struct bed bed = bed_make(INDEX_BYTES, 700); /* crowded: probes overflow */
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        static sl_ref refs[MODEL_KEYS];
        char key[32];
        for (uint32_t step = 0; step < MODEL_STEPS; step++) {
            uint32_t at = (uint32_t)(random_next(&seed) % MODEL_KEYS);
            snprintf(key, sizeof(key), "key-%u", at);
            if (refs[at] == 0) {
                refs[at] = bed_insert(&bed, key, step);
            } else {
                sl_index_unlink(bed.index, refs[at], SL_RECORD_FREE);
                refs[at] = 0;
            }
            listener.room = (uint32_t)(random_next(&seed) % 4);
            (void)sl_index_changes_step(changes, random_next(&seed) % 8, listen, &listener);
            if (random_next(&seed) % 4000 == 0) { /* the next registrar */
                index_reopen(&bed);
            }
        }
        walk(changes, &listener);
        walk(changes, &listener); /* the first one began in the middle */

        uint32_t there = 0;
        for (uint32_t at = 0; at < MODEL_KEYS; at++) {
            snprintf(key, sizeof(key), "key-%u", at);
            there += refs[at] != 0;
            ck_assert_msg(is_listed(&listener, key) == (refs[at] != 0), "%s", key);
        }
        ck_assert_uint_eq(listener.count, there);
        ck_assert_uint_eq(sl_index_changes_count(changes), there);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* Number of bucket steps that a walk takes. */
static uint32_t walk_steps(struct sl_index_changes *changes, struct listener *listener)
{
    uint32_t steps = 1;
    listener->room = UINT32_MAX;
    while (sl_index_changes_step(changes, 1, listen, listener) == SL_INDEX_WALK_ON) {
        steps++;
    }
    return steps;
}

#define MANY_BUCKETS 16384u
START_TEST(what_did_not_change_is_left_out)
    {
        struct bed bed = bed_make(32 * SL_MIB, MANY_BUCKETS * 5);
        const uint32_t regions =
            (uint32_t)index_region_count(sl_index_as_view(bed.index)->bucket_count);
        counted = true;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        ck_assert_uint_eq(walk_steps(changes, &listener), regions); /* also in the first walk */

        sl_ref ref = bed_insert(&bed, "one", 1);
        ck_assert_uint_lt(walk_steps(changes, &listener), regions + 2 * INDEX_REGION_BUCKETS);
        ck_assert(is_listed(&listener, "one"));
        ck_assert_uint_eq(walk_steps(changes, &listener), regions);

        sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
        ck_assert_uint_lt(walk_steps(changes, &listener), regions + 2 * INDEX_REGION_BUCKETS);
        ck_assert(!is_listed(&listener, "one"));
        index_reopen(&bed); /* changes are unknown if the previous one did not count them */
        ck_assert_uint_gt(walk_steps(changes, &listener), MANY_BUCKETS / 2);
        ck_assert_uint_eq(walk_steps(changes, &listener), regions);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* A registrar from before counts existed uses the index and does not update them. */
START_TEST(what_is_changed_without_counts_is_told)
    {
        enum { KEYS = 20 };
        struct bed bed = bed_make(32 * SL_MIB, MANY_BUCKETS * 5);
        counted = true;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        char key[32];
        walk(changes, &listener);

        index_regions_close(/* closed, as by a writer that counted and died */
                            &bed.index->view.regions);
        for (uint32_t turn = 0; turn < 2; turn++) {
            for (uint32_t i = 0; i < KEYS; i++) {
                (void)snprintf(key, sizeof key, "uncounted-%u-%u", turn, i);
                bed_insert(&bed, key, turn * KEYS + i);
            }
            walk(changes, &listener);
            ck_assert_uint_eq(listener.count, (turn + 1) * KEYS);
        }
        for (uint32_t i = 0; i < KEYS; i++) { /* before the walk a counting one starts */
            (void)snprintf(key, sizeof key, "between-%u", i);
            bed_insert(&bed, key, 100 + i);
        }
        index_reopen(&bed);
        walk(changes, &listener);
        ck_assert_uint_eq(listener.count, 3 * KEYS);
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* It counts from the end of its recovery on; changes by the recovery are not counted. */
START_TEST(what_a_recovery_changes_is_told)
    {
        struct bed bed = bed_make(32 * SL_MIB, MANY_BUCKETS * 5);
        counted = true;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        sl_ref ref = bed_insert(&bed, "damaged", 1);
        walk(changes, &listener);

        index_word *record = record_at(sl_index_as_view(bed.index), ref);
        for (uint32_t walks = 0; walks < 2; walks++) { /* one during it, or none */
            word_set(&record[RECORD_WHAT], 0);
            sl_index_close(&bed.index);
            index_open(&bed);
            if (walks == 0) {
                ck_assert_uint_gt(walk_steps(changes, &listener), MANY_BUCKETS / 2);
            }
            sl_index_recover(bed.index, NULL, NULL);
            walk(changes, &listener);
            ck_assert_uint_eq(listener.count, 0);
            ref = bed_insert(&bed, "damaged", 1);
            walk(changes, &listener);
            ck_assert_uint_eq(listener.count, 1);
            record = record_at(sl_index_as_view(bed.index), ref);
        }
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* Another process writes all the time: when it pauses, the reports match the index. */
#define BUSY_KEYS   4000u
#define BUSY_OPS    400000u
#define BUSY_ROUNDS 5u
struct busy {
    _Atomic uint32_t rounds_asked, rounds_done;
    bool there[BUSY_KEYS];
};

static _Noreturn void busy_run(struct bed *bed, struct busy *busy, uint64_t seed)
{
    static sl_ref refs[BUSY_KEYS];
    index_open(bed);
    sl_index_recover(bed->index, NULL, NULL);
    for (uint32_t round = 0; round < BUSY_ROUNDS; round++) {
        while (atomic_load(&busy->rounds_asked) == round) {
            (void)usleep(100);
        }
        for (uint32_t i = 0; i < BUSY_OPS; i++) {
            uint32_t at = (uint32_t)(random_next(&seed) % BUSY_KEYS);
            char key[32];
            (void)snprintf(key, sizeof key, "busy-%u", at);
            if (refs[at] == 0) {
                refs[at] = bed_insert(bed, key, at);
            } else {
                sl_index_unlink(bed->index, refs[at], SL_RECORD_FREE);
                refs[at] = 0;
            }
            busy->there[at] = refs[at] != 0;
        }
        atomic_store(&busy->rounds_done, round + 1);
    }
    for (;;) {
        (void)pause();
    }
}

START_TEST(what_another_process_changes_meanwhile_is_told)
    {
        uint64_t seed = random_seed("index_changes_busy");
        struct bed bed = bed_make(32 * SL_MIB, MANY_BUCKETS * 5);
        struct busy *busy =
            mmap(NULL, sizeof *busy, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(busy, MAP_FAILED);
        sl_index_close(&bed.index); /* the other process's from now on */
        pid_t pid = fork();
        if (pid == 0) {
            busy_run(&bed, busy, seed);
        }
        counted = true;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        const uint32_t regions = (uint32_t)index_region_count(bed.view->bucket_count);
        while (walk_steps(changes, &listener) != regions) { /* until it counts */
            (void)usleep(1000);
        }
        for (uint32_t round = 1; round <= BUSY_ROUNDS; round++) {
            atomic_store(&busy->rounds_asked, round);
            uint32_t walks = 0;
            while (atomic_load(&busy->rounds_done) < round) {
                walk(changes, &listener);
                walks++;
            }
            walk(changes, &listener);
            uint32_t there = 0;
            for (uint32_t at = 0; at < BUSY_KEYS; at++) {
                char key[32];
                (void)snprintf(key, sizeof key, "busy-%u", at);
                there += busy->there[at];
                ck_assert_msg(is_listed(&listener, key) == busy->there[at], "round %u: %s", round,
                              key);
            }
            ck_assert_uint_eq(listener.count, there);
            ck_assert_uint_eq(walk_steps(changes, &listener), regions); /* all by counts */
            ck_assert_uint_gt(walks, 0);
        }
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        sl_index_changes_destroy(&changes);
        sl_index_view_close(&bed.view);
        sl_arena_close(&bed.arena);
        shm_dir_remove(bed.dir);
        (void)munmap(busy, sizeof *busy);
    }
END_TEST

/* Counts that are missing, or belong to another index, are ignored, and used once they exist. */
START_TEST(counts_that_are_missing_cost_a_whole_look)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        char path[256];
        (void)snprintf(path, sizeof path, "%s/changes", bed.dir);
        ck_assert_int_eq(unlink(path), 0);
        counted = true;
        struct sl_index_changes *changes = watch(&bed);
        struct listener listener = {0};
        bed_insert(&bed, "one", 1);
        walk(changes, &listener);
        ck_assert(is_listed(&listener, "one"));

        index_reopen(&bed); /* which creates them */
        bed_insert(&bed, "two", 2);
        for (uint32_t i = 0; i < 200; i++) {
            walk(changes, &listener);
        }
        uint32_t regions = (uint32_t)index_region_count(sl_index_as_view(bed.index)->bucket_count);
        ck_assert_uint_eq(walk_steps(changes, &listener), regions);
        ck_assert(is_listed(&listener, "one") && is_listed(&listener, "two"));

        struct bed other = bed_make(INDEX_BYTES, 1000);
        char others[256];
        (void)snprintf(others, sizeof others, "%s/changes", other.dir);
        sl_index_changes_destroy(&changes);
        ck_assert_int_eq(rename(others, path), 0);
        changes = watch(&bed);
        listener.count = 0;
        walk(changes, &listener); /* claims another index's table, whose regions never changed */
        ck_assert_uint_eq(listener.count, 2);
        bed_remove(&other);

        index_reopen(&bed);
        for (uint32_t i = 0; i < 200; i++) {
            walk(changes, &listener);
        }
        ck_assert_uint_eq(walk_steps(changes, &listener), regions);
        ck_assert_int_eq(truncate(path, SL_PAGE_BYTES), 0); /* they are truncated */
        bed_insert(&bed, "three", 3);
        walk(changes, &listener);
        walk(changes, &listener);
        ck_assert(is_listed(&listener, "three"));
        ck_assert(sl_index_changes_renew(bed.index, bed.dir));
        ck_assert(!sl_index_changes_renew(bed.index, bed.dir));
        bed_insert(&bed, "four", 4);
        for (uint32_t i = 0; i < 200; i++) {
            walk(changes, &listener);
        }
        ck_assert_uint_eq(walk_steps(changes, &listener), regions);
        ck_assert(is_listed(&listener, "four"));
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_changes");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_comes_and_goes_is_told_once, 0, 2);
    tcase_add_loop_test(tcase, a_value_that_moves_to_disk_is_no_change, 0, 2);
    tcase_add_loop_test(tcase, where_tiers_are_told_each_move_of_a_value_is_told, 0, 2);
    tcase_add_loop_test(tcase, a_part_is_told_with_its_block, 0, 2);
    tcase_add_loop_test(tcase, parts_are_told_when_their_block_is_visible, 0, 2);
    tcase_add_loop_test(tcase, what_was_told_can_be_told_again, 0, 2);
    tcase_add_loop_test(tcase, an_index_in_which_nothing_was_ever_written_is_not_dead, 0, 2);
    tcase_add_loop_test(tcase, an_index_made_anew_is_dead, 0, 2);
    tcase_add_loop_test(tcase, a_key_that_moved_and_was_removed_before_the_walk_is_reported, 0, 2);
    tcase_add_loop_test(tcase, a_key_that_went_and_came_in_another_tier_and_slot_is_told_there, 0,
                        2);
    tcase_add_loop_test(tcase, a_key_added_in_another_slot_and_removed_is_reported, 0, 2);
    tcase_add_loop_test(tcase, a_key_back_in_its_slot_and_record_is_reported_with_its_tiers, 0, 2);
    tcase_add_loop_test(tcase, a_listener_believes_what_is_there_after_any_order, 0, 2);
    tcase_add_test(tcase, what_did_not_change_is_left_out);
    tcase_add_test(tcase, what_is_changed_without_counts_is_told);
    tcase_add_test(tcase, what_another_process_changes_meanwhile_is_told);
    tcase_add_test(tcase, what_a_recovery_changes_is_told);
    tcase_add_test(tcase, counts_that_are_missing_cost_a_whole_look);
    return suite_run(tcase, "index_changes");
}
