/* tests/unit/ipc/shm/index_interleave_test.c - a reader of the index, with the registrar's stores
 * between any two of its loads.
 *
 * The registrar's operations run once, and every store is recorded at the kill point after it. Then
 * the reader runs repeatedly: before one of its loads the first stores happen, before a later one
 * all the rest, for every choice of the two loads and of the number of stores. Keys that exist
 * throughout must be found each time, in a state that existed at one moment. (Stores happen in
 * order here; tests/models covers reordered ones.) */
#include "ipc/shm/index_internal.h"
#include "ipc/shm/sl_index_changes.h"
#include "tests/unit/ipc/shm/index_support.h"

#define CHANGES_MAX 4096
#define STEPS_MAX   512

/* ---- the registrar's stores, as changes of words ---- */

struct change {
    uint64_t *word;
    uint64_t old, fresh;
};

struct script {
    struct change changes[CHANGES_MAX];
    int change_count;
    int steps[STEPS_MAX + 1]; /* where the changes of each store begin */
    int step_count;
    uint64_t *words, *seen; /* the index's data, and what it was at the last step */
    uint64_t word_count;
    int applied; /* steps in the memory now */
};

static struct script script;

static void script_step(void)
{
    must(script.step_count < STEPS_MAX);
    for (uint64_t i = 0; i < script.word_count; i++) {
        if (script.words[i] != script.seen[i]) {
            must(script.change_count < CHANGES_MAX);
            script.changes[script.change_count++] =
                (struct change){&script.words[i], script.seen[i], script.words[i]};
            script.seen[i] = script.words[i];
        }
    }
    script.steps[++script.step_count] = script.change_count;
}

static void script_forward(int step)
{
    for (; script.applied < step; script.applied++) {
        for (int i = script.steps[script.applied]; i < script.steps[script.applied + 1]; i++) {
            *script.changes[i].word = script.changes[i].fresh;
        }
    }
}

static void script_rewind(void)
{
    for (int i = script.steps[script.applied]; i > 0; i--) {
        *script.changes[i - 1].word = script.changes[i - 1].old;
    }
    script.applied = 0;
}

static void script_record(struct bed *bed, void (*run)(struct bed *bed))
{
    memset(&script, 0, sizeof(script));
    script.words = (uint64_t *)(void *)bed->index->view.buckets;
    script.word_count =
        (uint64_t)((unsigned char *)bed->index->view.records - bed->index->view.segment.data) / 8 +
        (uint64_t)bed->index->slab_count * INDEX_SLAB_BYTES / 8;
    script.seen = malloc(script.word_count * 8);
    must(script.seen != NULL);
    memcpy(script.seen, script.words, script.word_count * 8);
    sl_index_kill_point = script_step;
    run(bed);
    sl_index_kill_point = NULL;
    script_step();
    script.applied = script.step_count;
    free(script.seen);
    script_rewind();
}

/* ---- the reader's loads ---- */

static struct {
    long count, first, second;
    int steps;
} loads;

static void load_point(void)
{
    long load = loads.count++;
    if (load == loads.first) {
        script_forward(loads.steps);
    }
    if (load == loads.second) {
        script_forward(script.step_count);
    }
}

/* Runs look() with every interleaving; it returns false for a result that must not be. */
static void interleave(struct bed *bed, bool (*look)(struct bed *bed), const char *what)
{
    long runs = 0;
    sl_index_load_point = load_point;
    loads.first = -1;
    loads.second = -1;
    loads.count = 0;
    must(look(bed));
    long load_count = loads.count;
    loads.count = 0;
    script_forward(script.step_count);
    must(look(bed));
    script_rewind();
    load_count = SL_MAX(load_count, loads.count);
    for (int steps = 0; steps <= script.step_count; steps++) {
        for (long first = 0; first < load_count; first++) {
            for (long second = first; second <= load_count; second++, runs++) {
                loads.first = first;
                loads.second = second;
                loads.steps = steps;
                loads.count = 0;
                bool good = look(bed);
                ck_assert_msg(good,
                              "%s: wrong with %d of %d stores before load %ld and the rest before "
                              "load %ld of %ld",
                              what, steps, script.step_count, first, second, load_count);
                script_rewind();
            }
        }
    }
    sl_index_load_point = NULL;
    printf("%s: %ld interleavings of %d stores and %ld loads\n", what, runs, script.step_count,
           load_count);
    ck_assert_int_gt(script.step_count, 3);
    ck_assert_int_gt(load_count, 3);
}

/* ---- a key that is always there ---- */

#define NEIGHBOUR                                                          \
    "b-of-another-length-that-needs-a-larger-record-than-a-does-for-sure-" \
    "in-a-class-of-its-own"

static sl_ref ref_a;

static bool entry_is_whole(const struct sl_entry *entry)
{
    uint64_t number = entry->extent.generation == 0 ? 0 : entry->extent.generation - 1000;
    bool extent =
        number == 0 ? entry->disk.valid == 1 : entry->extent.offset_bytes == number * 4096;
    return extent && number <= 3 && entry->digest.low == 3 && entry->digest.high == 5 &&
           entry->extent.length_bytes == 4001 &&
           (entry->disk.valid == 0) == (entry->disk.segment == 0);
}

static bool a_is_found(struct bed *bed)
{
    struct sl_entry entry;
    return sl_index_find(bed->view, "a", 1, &entry) == SL_OK && entry_is_whole(&entry);
}

static bool a_exists_in_a_batch(struct bed *bed)
{
    struct sl_key keys[2] = {{"a", 1}, {"b", 1}};
    sl_err codes[2];
    sl_index_find_batch(bed->view, keys, 2, NULL, codes);
    return codes[0] == SL_OK && codes[1] == SL_ERR_NOT_FOUND;
}

static bool a_is_scanned_once(struct bed *bed)
{
    uint64_t cursor = 0;
    int count = 0;
    struct sl_entry entry;
    char key[SL_KEY_BYTES_MAX + 1];
    while (sl_index_scan(bed->view, &cursor, &entry, key)) {
        if (strcmp(key, NEIGHBOUR) != 0) { /* which is added and removed */
            count += strcmp(key, "a") == 0 && entry_is_whole(&entry) ? 1 : 100;
        }
    }
    return count == 1;
}

static struct sl_extent extent_of(uint64_t number)
{
    return (struct sl_extent){
        .generation = 1000 + number, .offset_bytes = number * 4096, .length_bytes = 4000 + number};
}

/* Moves it twice to another extent: the second new record reuses the first old one's memory. */
static void move_twice(struct bed *bed)
{
    for (uint64_t number = 2; number <= 3; number++) {
        struct sl_extent extent = extent_of(number);
        sl_ref old = ref_a;
        bool retired = false;
        must(sl_index_switch_retire(bed->index, ref_a, &extent, NULL, &ref_a, &retired) == SL_OK);
        must(retired);
        sl_index_set_kind(bed->index, old, SL_RECORD_FREE);
    }
}

/* To disk, out of memory, and back into memory. */
static void through_disk(struct bed *bed)
{
    struct sl_disk_place disk = {.segment = 9, .valid = 1};
    struct sl_extent none = {0};
    struct sl_extent back = extent_of(2);
    sl_ref old = ref_a;
    bool retired = false;
    must(sl_index_switch(bed->index, ref_a, NULL, &disk, &ref_a) == SL_OK);
    old = ref_a;
    must(sl_index_switch_retire(bed->index, ref_a, &none, NULL, &ref_a, &retired) == SL_OK);
    must(retired);
    sl_index_set_kind(bed->index, old, SL_RECORD_FREE);
    must(sl_index_switch(bed->index, ref_a, &back, NULL, &ref_a) == SL_OK);
}

/* Adds and removes neighbours, and their slab with them: its memory is reused for records of
 * another class. */
static void neighbours(struct bed *bed)
{
    struct sl_extent extent = extent_of(2);
    sl_ref old = ref_a;
    bool retired = false;
    /* The key's own record moves to a slab of its class that stays; then the other slab changes. */
    must(sl_index_switch_retire(bed->index, ref_a, &extent, NULL, &ref_a, &retired) == SL_OK);
    sl_index_set_kind(bed->index, old, SL_RECORD_FREE);
    sl_ref b = bed_insert(bed, NEIGHBOUR, 20);
    sl_index_unlink(bed->index, b, SL_RECORD_FREE);
    char note[600];
    memset(note, 'n', sizeof(note));
    must(sl_index_blob_put(bed->index, note, sizeof(note), 1, &b, NULL) == SL_OK);
}

static const struct {
    const char *what;
    void (*run)(struct bed *bed);
} writers[] = {
    {"moved twice", move_twice},
    {"through disk", through_disk},
    {"neighbours", neighbours},
};

START_TEST(a_key_that_stays_is_found_between_any_two_stores)
    {
        struct bed bed = bed_make(SL_MIB, 8);
        ref_a = bed_insert(&bed, "a", 1);
        script_record(&bed, writers[_i].run);

        interleave(&bed, a_is_found, writers[_i].what);
        interleave(&bed, a_exists_in_a_batch, writers[_i].what);
        interleave(&bed, a_is_scanned_once, writers[_i].what);

        bed_remove(&bed);
    }
END_TEST

/* ---- a block: all of its parts or none ---- */

static sl_ref group, part_refs[2];

static void commit_block(struct bed *bed)
{
    for (uint16_t i = 0; i < 2; i++) {
        must(sl_index_commit(bed->index, part_refs[i], (struct sl_digest){3, 5}) == SL_OK);
        sl_index_group_fill(bed->index, group, i);
    }
}

static void drop_block(struct bed *bed)
{
    commit_block(bed);
    sl_index_group_drop(bed->index, group);
    sl_index_unlink(bed->index, part_refs[0], SL_RECORD_RETIRED);
    sl_index_unlink(bed->index, part_refs[1], SL_RECORD_FREE);
    sl_index_unlink(bed->index, group, SL_RECORD_FREE);
    bed_insert(bed, "other", 9); /* takes the memory of a part or of the group */
}

/* Reads part 0 first: once it was seen, part 1 is visible as well, until the block is dropped. */
static bool parts_become_visible_together(struct bed *bed)
{
    sl_err one = sl_index_find(bed->view, "block/0", 7, NULL);
    sl_err other = sl_index_find(bed->view, "block/1", 7, NULL);
    sl_err block = sl_index_find_group(bed->view, "block", 5);
    return (one != SL_OK || (other == SL_OK && block == SL_OK)) &&
           (one == SL_OK || one == SL_ERR_NOT_FOUND);
}

static bool a_visible_part_is_its_own(struct bed *bed)
{
    struct sl_entry entry;
    sl_err err = sl_index_find(bed->view, "block/1", 7, &entry);
    return err == SL_ERR_NOT_FOUND || (err == SL_OK && entry.digest.low == 3 &&
                                       entry.extent.generation == 1005 && entry.part_index == 1);
}

START_TEST(parts_of_a_block_are_seen_together_between_any_two_stores)
    {
        struct bed bed = bed_make(SL_MIB, 8);
        group = bed_group(&bed, "block", 2);
        part_refs[0] = bed_claim_part(&bed, "block/0", 4, group, 0);
        part_refs[1] = bed_claim_part(&bed, "block/1", 5, group, 1);
        script_record(&bed, _i == 0 ? commit_block : drop_block);

        if (_i == 0) {
            interleave(&bed, parts_become_visible_together, "block committed");
        }
        interleave(&bed, a_visible_part_is_its_own, _i == 0 ? "block committed" : "block dropped");

        bed_remove(&bed);
    }
END_TEST

/* ---- a writer's own claim ---- */

static sl_ref claim;

static void end_claim(struct bed *bed)
{
    sl_index_set_kind(bed->index, claim, SL_RECORD_QUARANTINED);
    sl_index_set_kind(bed->index, claim, SL_RECORD_FREE);
    struct sl_entry entry = entry_of("c", 8);
    must(sl_index_claim(bed->index, &entry, &claim, NULL) == SL_OK); /* the same memory */
}

static sl_ref claim_was;

static bool an_ended_claim_does_not_stand(struct bed *bed)
{
    bool stands_before = sl_index_claim_exists(bed->view, claim_was, 1007);
    bool other = sl_index_claim_exists(bed->view, claim_was, 1009);
    bool stands_after = sl_index_claim_exists(bed->view, claim_was, 1007);
    return !other && (stands_before || !stands_after);
}

START_TEST(a_claim_ends_once_between_any_two_stores)
    {
        struct bed bed = bed_make(SL_MIB, 8);
        struct sl_entry entry = entry_of("c", 7);
        ck_assert_int_eq(sl_index_claim(bed.index, &entry, &claim, NULL), SL_OK);
        claim_was = claim;
        script_record(&bed, end_claim);

        interleave(&bed, an_ended_claim_does_not_stand, "claim");

        bed_remove(&bed);
    }
END_TEST

/* ---- a reader that follows what changes ---- */

static struct bed *back_bed;
static sl_ref back_ref;
static uint32_t back_at; /* loads until the key is back */

static void key_is_back(void)
{
    if (back_at-- == 0) {
        sl_index_load_point = NULL; /* the registrar's loads are its own */
        back_ref = bed_insert(back_bed, "back", 1);
    }
}

static bool back_told(void *context, const struct sl_index_change *change)
{
    *(bool *)context = change->there;
    return true;
}

static void back_walk(struct sl_index_changes *changes, bool *there)
{
    ck_assert_int_eq(sl_index_changes_step(changes, UINT64_MAX / 8, back_told, there),
                     SL_INDEX_WALK_END);
}

/* The key is removed, and returns to its slot before any load of the walk that finds it missing;
 * then it is removed permanently. */
START_TEST(a_key_back_before_its_removal_was_reported_is_removed_later)
    {
        struct bed bed = bed_make(SL_MIB, 8);
        struct sl_index_changes *changes = NULL;
        bool there = false, was_back = true;
        const char *dir = _i == 1 ? bed.dir : NULL;
        ck_assert_int_eq(sl_index_changes_create(bed.view, dir, true, &changes, NULL), SL_OK);
        back_bed = &bed;
        back_ref = bed_insert(&bed, "back", 1);
        for (uint32_t load = 0; was_back; load++) {
            back_walk(changes, &there);
            ck_assert(there);
            sl_index_unlink(bed.index, back_ref, SL_RECORD_FREE);
            back_at = load;
            sl_index_load_point = key_is_back;
            back_walk(changes, &there);
            was_back = sl_index_load_point == NULL;
            sl_index_load_point = NULL;
            if (was_back) {
                sl_index_unlink(bed.index, back_ref, SL_RECORD_FREE);
            }
            back_walk(changes, &there);
            back_walk(changes, &there);
            ck_assert_msg(!there, "back before load %u", load);
            back_ref = bed_insert(&bed, "back", 1);
        }
        sl_index_changes_destroy(&changes);
        bed_remove(&bed);
    }
END_TEST

/* Few buckets: keys return to slots where they were reported before, during a walk. */
#define MOVING_KEYS   12u
#define MOVING_ROUNDS 60000u
static struct {
    struct bed bed;
    uint64_t seed;
    sl_ref refs[MOVING_KEYS];
    bool told[MOVING_KEYS];
} moving;

static void moving_op(void)
{
    uint32_t at = (uint32_t)(random_next(&moving.seed) % MOVING_KEYS);
    char key[32];
    (void)snprintf(key, sizeof key, "moving-%u", at);
    if (moving.refs[at] == 0) {
        moving.refs[at] = bed_insert(&moving.bed, key, at);
    } else {
        sl_index_unlink(moving.bed.index, moving.refs[at], SL_RECORD_FREE);
        moving.refs[at] = 0;
    }
}

static void moving_load(void)
{
    if (random_next(&moving.seed) % 8 == 0) {
        sl_index_load_point = NULL; /* the registrar's loads are its own */
        for (uint64_t ops = 1 + random_next(&moving.seed) % 6; ops > 0; ops--) {
            moving_op();
        }
        sl_index_load_point = moving_load;
    }
}

static bool moving_told(void *context, const struct sl_index_change *change)
{
    (void)context;
    for (uint32_t at = 0; at < MOVING_KEYS; at++) {
        char key[32];
        (void)snprintf(key, sizeof key, "moving-%u", at);
        if (sl_key_id(key, (uint32_t)strlen(key)) == change->id) {
            moving.told[at] = change->there;
        }
    }
    return true;
}

START_TEST(what_moves_between_any_loads_of_a_walk_is_told_in_the_end)
    {
        struct sl_index_changes *changes = NULL;
        memset(&moving, 0, sizeof moving);
        moving.seed = random_seed("index_interleave_moving");
        moving.bed = bed_make(SL_MIB, MOVING_KEYS + 2);
        ck_assert_int_eq(sl_index_changes_create(moving.bed.view, _i == 1 ? moving.bed.dir : NULL,
                                                 false, &changes, NULL),
                         SL_OK);
        for (uint32_t round = 0; round < MOVING_ROUNDS; round++) {
            sl_index_load_point = moving_load;
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, moving_told, NULL);
            sl_index_load_point = NULL;
            if (round % 3 != 0) {
                continue; /* several walks before it rests */
            }
            (void)sl_index_changes_step(changes, UINT64_MAX / 8, moving_told, NULL);
            for (uint32_t at = 0; at < MOVING_KEYS; at++) {
                ck_assert_msg(moving.told[at] == (moving.refs[at] != 0),
                              "round %u: key %u was reported %d", round, at, moving.told[at]);
            }
        }
        sl_index_changes_destroy(&changes);
        bed_remove(&moving.bed);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_interleave");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, a_key_that_stays_is_found_between_any_two_stores, 0,
                        SL_COUNT(writers));
    tcase_add_loop_test(tcase, parts_of_a_block_are_seen_together_between_any_two_stores, 0, 2);
    tcase_add_test(tcase, a_claim_ends_once_between_any_two_stores);
    tcase_add_loop_test(tcase, a_key_back_before_its_removal_was_reported_is_removed_later, 0, 2);
    tcase_add_loop_test(tcase, what_moves_between_any_loads_of_a_walk_is_told_in_the_end, 0, 2);
    return suite_run(tcase, "index_interleave");
}
