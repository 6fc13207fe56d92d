/* tests/unit/ipc/shm/index_crash_test.c - the registrar dies after the n-th store, for every n, and
 * recovery is interrupted as well.
 *
 * A child runs a fixed scenario and exits at a kill point. Recovery must lead to the state before
 * or after the operation in which the child died, never to a third one. Meanwhile readers find
 * everything that both states have. Built with the index's own sources and SL_INDEX_KILL_POINTS. */
#include "ipc/shm/index_internal.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define KILLED_STATUS 77
#define SCENARIO_REFS 16
#define DUMP_BYTES    4096

/* ---- the scenario: operations on named records ---- */

struct stage {
    struct bed bed;
    sl_ref refs[SCENARIO_REFS];
};

static sl_ref scenario_claim(struct stage *stage, const char *key, uint64_t number,
                             enum sl_record_kind kind, sl_ref group, uint16_t part)
{
    struct sl_entry entry = entry_of(key, number);
    sl_ref ref = 0;
    entry.kind = (uint32_t)kind;
    entry.group = group;
    entry.part_index = part;
    must(sl_index_claim(stage->bed.index, &entry, &ref, NULL) == SL_OK);
    return ref;
}

static void scenario_commit(struct stage *stage, int which, uint64_t digest)
{
    must(sl_index_commit(stage->bed.index, stage->refs[which],
                         (struct sl_digest){digest, digest}) == SL_OK);
}

enum { A, B, P, GROUP, PART0, PART1, LONG, BLOB, OTHER };

static void insert_a(struct stage *stage)
{
    stage->refs[A] = bed_insert(&stage->bed, "a", 1);
}
static void claim_b(struct stage *stage)
{
    stage->refs[B] = scenario_claim(stage, "b", 2, SL_RECORD_RESERVED, 0, 0);
}
static void commit_b(struct stage *stage)
{
    scenario_commit(stage, B, 22);
}
static void spill_b(struct stage *stage) /* memory copy removed, old extent retired */
{
    struct sl_disk_place disk = {.segment = 9, .valid = 1};
    struct sl_extent none = {0};
    bool retired = false;
    stage->refs[OTHER] = stage->refs[B];
    must(sl_index_switch_retire(stage->bed.index, stage->refs[B], &none, &disk, &stage->refs[B],
                                &retired) == SL_OK);
}
static void reap_b(struct stage *stage)
{
    sl_index_set_kind(stage->bed.index, stage->refs[OTHER], SL_RECORD_FREE);
}
static void promote_b(struct stage *stage)
{
    stage->refs[P] = scenario_claim(stage, "b", 3, SL_RECORD_PROMOTING, 0, 0);
}
static void promoted_b(struct stage *stage)
{
    struct sl_entry claim;
    sl_index_read(stage->bed.index, stage->refs[P], &claim);
    must(sl_index_switch(stage->bed.index, stage->refs[B], &claim.extent, NULL, &stage->refs[B]) ==
         SL_OK);
}
static void promote_done(struct stage *stage)
{
    sl_index_set_kind(stage->bed.index, stage->refs[P], SL_RECORD_FREE);
}
static void write_a(struct stage *stage) /* a place on disk, same extent */
{
    struct sl_disk_place disk = {.segment = 8, .valid = 1};
    must(sl_index_switch(stage->bed.index, stage->refs[A], NULL, &disk, &stage->refs[A]) == SL_OK);
}
static void claim_a_anew(struct stage *stage) /* with terms: a record of another class */
{
    struct sl_entry entry = entry_of("a", 8);
    entry.hard_pin = true;
    entry.soft_pin_ns = 70;
    entry.bundle = 0xb00d1e;
    entry.contribution = 5;
    must(sl_index_claim(stage->bed.index, &entry, &stage->refs[P], NULL) == SL_OK);
}
static void replace_a(struct stage *stage)
{
    bool retired = false;
    sl_index_commit_over(stage->bed.index, stage->refs[P], (struct sl_digest){88, 88},
                         stage->refs[A], &retired);
    must(retired);
    stage->refs[OTHER] = stage->refs[A];
    stage->refs[A] = stage->refs[P];
}
static void write_a_anew(struct stage *stage)
{
    struct sl_disk_place disk = {.segment = 7, .valid = 1};
    must(sl_index_switch(stage->bed.index, stage->refs[A], NULL, &disk, &stage->refs[A]) == SL_OK);
}
static void charge_a(struct stage *stage)
{
    must(sl_index_set_contribution(stage->bed.index, stage->refs[A], 4));
}
static void group_make(struct stage *stage)
{
    stage->refs[GROUP] = bed_group(&stage->bed, "block", 2);
}
static void claim_parts(struct stage *stage)
{
    stage->refs[PART0] =
        scenario_claim(stage, "block/0", 4, SL_RECORD_RESERVED, stage->refs[GROUP], 0);
}
static void claim_part1(struct stage *stage)
{
    stage->refs[PART1] =
        scenario_claim(stage, "block/1", 5, SL_RECORD_RESERVED, stage->refs[GROUP], 1);
}
static void commit_part0(struct stage *stage)
{
    scenario_commit(stage, PART0, 44);
}
static void fill_part0(struct stage *stage)
{
    sl_index_group_fill(stage->bed.index, stage->refs[GROUP], 0);
}
static void commit_part1(struct stage *stage)
{
    scenario_commit(stage, PART1, 55);
}
static void fill_part1(struct stage *stage)
{
    must(sl_index_group_fill(stage->bed.index, stage->refs[GROUP], 1));
}
static void retire_a(struct stage *stage)
{
    sl_index_unlink(stage->bed.index, stage->refs[A], SL_RECORD_RETIRED);
}
static void free_a(struct stage *stage)
{
    sl_index_set_kind(stage->bed.index, stage->refs[A], SL_RECORD_FREE);
}
static void insert_long(struct stage *stage) /* another class of records */
{
    stage->refs[LONG] = bed_insert(
        &stage->bed,
        "a-key-that-is-longer-than-the-others-and-so-takes-a-slab-of-another-class-of-records", 6);
}
static void drop_group(struct stage *stage)
{
    sl_index_group_drop(stage->bed.index, stage->refs[GROUP]);
}
static void unlink_part0(struct stage *stage)
{
    sl_index_unlink(stage->bed.index, stage->refs[PART0], SL_RECORD_RETIRED);
}
static void unlink_part1(struct stage *stage)
{
    sl_index_unlink(stage->bed.index, stage->refs[PART1], SL_RECORD_FREE);
}
static void unlink_group(struct stage *stage)
{
    sl_index_unlink(stage->bed.index, stage->refs[GROUP], SL_RECORD_FREE);
}
static void put_blob(struct stage *stage)
{
    must(sl_index_blob_put(stage->bed.index, "a note of the registrar", 23, 5, &stage->refs[BLOB],
                           NULL) == SL_OK);
}
static void remove_long(struct stage *stage) /* the last of its slab */
{
    sl_index_unlink(stage->bed.index, stage->refs[LONG], SL_RECORD_FREE);
}
static void blob_over_it(struct stage *stage) /* the slab takes another class */
{
    char bytes[2000];
    memset(bytes, 'n', sizeof(bytes));
    must(sl_index_blob_put(stage->bed.index, bytes, 2000, 6, &stage->refs[LONG], NULL) == SL_OK);
}
static void claim_c(struct stage *stage)
{
    stage->refs[OTHER] = scenario_claim(stage, "c", 7, SL_RECORD_RESERVED, 0, 0);
}
static void quarantine_c(struct stage *stage)
{
    sl_index_set_kind(stage->bed.index, stage->refs[OTHER], SL_RECORD_QUARANTINED);
}

static void (*const scenario[])(struct stage *stage) = {
    insert_a,     claim_b,     commit_b,     spill_b,      reap_b,       promote_b,    promoted_b,
    promote_done, write_a,     claim_a_anew, replace_a,    reap_b,       write_a_anew, charge_a,
    group_make,   claim_parts, claim_part1,  commit_part0, fill_part0,   commit_part1, fill_part1,
    retire_a,     free_a,      insert_long,  put_blob,     drop_group,   unlink_part0, unlink_part1,
    unlink_group, remove_long, blob_over_it, claim_c,      quarantine_c,
};
#define SCENARIO_COUNT (int)SL_COUNT(scenario)
static const char *const keys[] = {
    "a",
    "b",
    "c",
    "block",
    "block/0",
    "block/1",
    "a-key-that-is-longer-than-the-others-and-so-takes-a-slab-of-another-class-of-records",
};

/* ---- kill points ---- */

struct progress {
    _Atomic int done;
    _Atomic long steps;
};
static struct progress *progress; /* shared with the child */
static long kill_at;

static void count_and_die(void)
{
    long step = atomic_fetch_add(&progress->steps, 1) + 1;
    if (step == kill_at) {
        _exit(KILLED_STATUS);
    }
}

/* ---- what an index holds, as text ---- */

struct dump {
    char text[DUMP_BYTES];
    char lines[64][128];
    int line_count;
};

static void dump_claim(void *context, const struct sl_entry *entry)
{
    struct dump *dump = context;
    must(dump->line_count < 64);
    snprintf(dump->lines[dump->line_count++], 128,
             "kind %u generation %llu key %.*s group %d disk %u terms %d %llu %llu %llx %llu\n",
             entry->kind, (unsigned long long)entry->extent.generation,
             SL_MIN((int)entry->key_length, 20), entry->key, entry->group != 0, entry->disk.segment,
             entry->hard_pin, (unsigned long long)entry->soft_pin_ns,
             (unsigned long long)entry->soft_pin_end_ns, (unsigned long long)entry->bundle,
             (unsigned long long)entry->contribution);
}

static int line_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void dump_sorted(struct dump *dump)
{
    qsort(dump->lines, (size_t)dump->line_count, sizeof(dump->lines[0]), line_order);
    for (int i = 0; i < dump->line_count; i++) {
        strcat(dump->text, dump->lines[i]);
    }
}

/* The view of readers: one line a key. */
static void view_lines(const struct sl_index_view *view, char lines[SL_COUNT(keys)][128])
{
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        struct sl_entry entry = {0};
        sl_err err = sl_index_find(view, keys[i], (uint32_t)strlen(keys[i]), &entry);
        sl_err group = sl_index_find_group(view, keys[i], (uint32_t)strlen(keys[i]));
        snprintf(lines[i], 128, "%.20s: %s generation %llu disk %u digest %llu group %s\n", keys[i],
                 sl_err_name(err), (unsigned long long)entry.extent.generation, entry.disk.segment,
                 (unsigned long long)entry.digest.low, sl_err_name(group));
    }
}

/* Checks that every visible object is once in the scan, with the entry that a lookup finds. */
static void check_scan(const struct sl_index_view *view)
{
    uint64_t cursor = 0;
    uint32_t visible = 0;
    uint32_t scanned = 0;
    struct sl_entry entry;
    struct sl_entry found;
    char key[SL_KEY_BYTES_MAX + 1];
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        visible += sl_index_find(view, keys[i], (uint32_t)strlen(keys[i]), NULL) == SL_OK;
    }
    for (; sl_index_scan(view, &cursor, &entry, key); scanned++) {
        must(sl_index_find(view, key, entry.key_length, &found) == SL_OK);
        must(found.ref == entry.ref);
    }
    must(scanned == visible);
}

static void check_occupied(const struct sl_index *index)
{
    const struct sl_index_view *view = &index->view;
    uint64_t occupied = 0, set = 0;
    for (uint64_t at = 0; at < view->bucket_count; at++) {
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            set += word_get(&view->buckets[at].slots[i]) != 0;
        }
        occupied += at % INDEX_REGION_BUCKETS == 0
                        ? word_get(&view->regions.occupied[at / INDEX_REGION_BUCKETS])
                        : 0;
    }
    must(occupied == set);
}

static void check_overflow_counts(const struct sl_index *index)
{
    uint64_t counts = 0;
    uint64_t distances = 0;
    const struct sl_index_view *view = &index->view;
    check_occupied(index);
    for (uint64_t at = 0; at < view->bucket_count; at++) {
        counts += word_get(&view->buckets[at].overflow);
        for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
            sl_ref ref = (sl_ref)word_get(&view->buckets[at].slots[i]);
            if (ref != 0) {
                uint64_t home = hash_bucket(view, word_get(&record_at(view, ref)[RECORD_HASH]));
                distances += (at + view->bucket_count - home) % view->bucket_count;
            }
        }
    }
    must(counts == distances);
}

static void dump_index(struct stage *stage, struct dump *dump)
{
    char lines[SL_COUNT(keys)][128];
    memset(dump, 0, sizeof(*dump));
    sl_index_recover(stage->bed.index, dump_claim, dump);
    dump_sorted(dump);
    view_lines(stage->bed.view, lines);
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        strcat(dump->text, lines[i]);
    }
    check_scan(stage->bed.view);
    check_overflow_counts(stage->bed.index);
    for (int i = 1; i < dump->line_count; i++) { /* no extent twice */
        unsigned long long one = 0;
        unsigned long long other = 0;
        unsigned kind = 0;
        must(sscanf(dump->lines[i - 1], "kind %u generation %llu", &kind, &one) == 2);
        for (int j = i; j < dump->line_count; j++) {
            must(sscanf(dump->lines[j], "kind %u generation %llu", &kind, &other) == 2);
            must(one == 0 || one != other);
        }
    }
}

/* ---- runs ---- */

/* A child opens the bed and runs the first `count` operations; dies at its step-th store, 0: never.
 * Returns whether it was killed. */
static bool run_child(struct stage *stage, int count, long step)
{
    atomic_store(&progress->done, 0);
    atomic_store(&progress->steps, 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        bed_attach(&stage->bed);
        sl_index_set_now(stage->bed.index, 1000); /* when soft pins begin */
        kill_at = step;
        sl_index_kill_point = count_and_die;
        for (int i = 0; i < count; i++) {
            scenario[i](stage);
            atomic_store(&progress->done, i + 1);
        }
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    must(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED_STATUS));
    return WEXITSTATUS(status) == KILLED_STATUS;
}

/* Runs recovery in a child that dies at its step-th store. */
static bool recover_in_child(struct stage *stage, long step)
{
    atomic_store(&progress->steps, 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        bed_attach(&stage->bed);
        kill_at = step;
        sl_index_kill_point = count_and_die;
        sl_index_recover(stage->bed.index, NULL, NULL);
        _exit(0);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    must(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED_STATUS));
    return WEXITSTATUS(status) == KILLED_STATUS;
}

static struct stage stage_make(void)
{
    return (struct stage){
        .bed = {
            .dir = shm_dir_make(), .index_bytes = SL_MIB, .key_count = 8, .arena_bytes = SL_MIB}};
}

static void stage_remove(struct stage *stage)
{
    bed_detach(&stage->bed);
    shm_dir_remove(stage->bed.dir);
}

/* The recovered index must still work: it takes new keys, and all space can be freed. */
static void check_usable(struct stage *stage)
{
    sl_ref refs[12];
    char key[64];
    for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
        snprintf(key, sizeof(key), "new-%u-%.*s", i, (int)(i % 4) * 12,
                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        struct sl_entry entry = entry_of(key, 100 + i);
        sl_err err = sl_index_insert(stage->bed.index, &entry, &refs[i], NULL);
        must(err == SL_OK || err == SL_ERR_NO_SPACE); /* eight keys were asked for */
        refs[i] = err == SL_OK ? refs[i] : 0;
        must(err != SL_OK || bed_find(&stage->bed, key, NULL) == SL_OK);
    }
    for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
        if (refs[i] != 0) {
            sl_index_unlink(stage->bed.index, refs[i], SL_RECORD_FREE);
        }
    }
    check_overflow_counts(stage->bed.index);
}

static struct dump expected[SCENARIO_COUNT + 1];
static char expected_view[SCENARIO_COUNT + 1][SL_COUNT(keys)][128];
static char recovered_view[SCENARIO_COUNT + 1][SL_COUNT(keys)][128];

static void learn_expected(void)
{
    for (int count = 0; count <= SCENARIO_COUNT; count++) {
        struct stage stage = stage_make();
        must(!run_child(&stage, count, 0));
        bed_attach(&stage.bed);
        view_lines(stage.bed.view, expected_view[count]);
        dump_index(&stage, &expected[count]);
        view_lines(stage.bed.view, recovered_view[count]);
        stage_remove(&stage);
    }
}

/* Checks readers of a dead registrar's index before any repair. With `repaired`, it may have been
 * repaired: then a block may be present that lacked only its last store. */
static void check_readers(struct stage *stage, int done, bool repaired)
{
    char lines[SL_COUNT(keys)][128];
    int next = SL_MIN(done + 1, SCENARIO_COUNT);
    struct sl_index_view *view = NULL;
    if (sl_index_view_open(stage->bed.dir, &view, NULL) != SL_OK) {
        return; /* it died before there was an index */
    }
    view_lines(view, lines);
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        bool fine = strcmp(lines[i], expected_view[done][i]) == 0 ||
                    strcmp(lines[i], expected_view[next][i]) == 0 ||
                    (repaired && (strcmp(lines[i], recovered_view[done][i]) == 0 ||
                                  strcmp(lines[i], recovered_view[next][i]) == 0));
        ck_assert_msg(fine, "after %d operations a reader sees\n%sexpected\n%sor\n%s", done,
                      lines[i], expected_view[done][i], expected_view[next][i]);
    }
    sl_index_view_close(&view);
}

static void check_recovered(struct stage *stage, int done, long step)
{
    static struct dump got;
    int next = SL_MIN(done + 1, SCENARIO_COUNT);
    bed_attach(&stage->bed);
    dump_index(stage, &got);
    bool fine =
        strcmp(got.text, expected[done].text) == 0 || strcmp(got.text, expected[next].text) == 0;
    ck_assert_msg(fine, "killed at store %ld after %d operations:\n%s--- expected\n%s--- or\n%s",
                  step, done, got.text, expected[done].text, expected[next].text);
    check_usable(stage);
}

START_TEST(every_kill_point_leaves_the_state_before_or_after)
    {
        progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
        ck_assert_ptr_ne(progress, MAP_FAILED);
        learn_expected();
        long kills = 0;
        for (long step = 1;; step++) {
            struct stage stage = stage_make();
            bool killed = run_child(&stage, SCENARIO_COUNT, step);
            int done = atomic_load(&progress->done);
            check_readers(&stage, done, false);
            check_recovered(&stage, done, step);
            stage_remove(&stage);
            if (!killed) {
                break;
            }
            kills++;
        }
        printf("killed at each of %ld stores\n", kills);
        ck_assert_int_gt(kills, 300);
    }
END_TEST

START_TEST(recovery_that_is_killed_starts_again)
    {
        uint64_t random = random_seed("recovery_that_is_killed_starts_again");
        progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
        ck_assert_ptr_ne(progress, MAP_FAILED);
        learn_expected();
        long kills = 0;
        for (int i = 0; i < 400; i++) {
            struct stage stage = stage_make();
            long step = 1 + (long)(random_next(&random) % 700);
            run_child(&stage, SCENARIO_COUNT, step);
            int done = atomic_load(&progress->done);
            for (int round = 0; round < 3; round++) {
                kills += recover_in_child(&stage, 1 + (long)(random_next(&random) % 20)) ? 1 : 0;
                check_readers(&stage, done, true);
            }
            check_recovered(&stage, done, step);
            stage_remove(&stage);
        }
        printf("recovery was killed %ld times\n", kills);
        ck_assert_int_gt(kills, 100);
    }
END_TEST

/* ---- damage that no crash makes ---- */

START_TEST(orphans_of_a_lost_group_leave_the_table_and_keep_their_claims)
    {
        struct stage stage = stage_make();
        struct dump dump;
        bed_attach(&stage.bed);
        group_make(&stage);
        claim_parts(&stage);
        claim_part1(&stage);
        commit_part0(&stage);
        sl_index_unlink(stage.bed.index, stage.refs[GROUP],
                        SL_RECORD_FREE); /* against the rules: before its parts */
        bed_detach(&stage.bed);

        bed_attach(&stage.bed);
        dump_index(&stage, &dump);

        ck_assert_ptr_nonnull(
            strstr(dump.text, "kind 3 generation 1004 key block/0 group 0")); /* retired */
        ck_assert_ptr_nonnull(
            strstr(dump.text, "kind 4 generation 1005 key block/1 group 0")); /* quarantined */
        ck_assert_int_eq(sl_index_find_any(stage.bed.index, "block/0", 7, NULL), SL_ERR_NOT_FOUND);
        stage_remove(&stage);
    }
END_TEST

START_TEST(a_commit_that_finds_no_slot_stays_a_reservation)
    {
        struct stage stage = stage_make();
        struct sl_entry entry;
        bed_attach(&stage.bed);
        claim_b(&stage);
        const struct sl_index_view *view = &stage.bed.index->view;
        for (uint64_t at = 0; at < view->bucket_count; at++) {
            for (uint32_t i = 0; i < INDEX_BUCKET_SLOTS; i++) {
                word_set(&view->buckets[at].slots[i], 1);
            }
        }

        ck_assert_int_eq(sl_index_commit(stage.bed.index, stage.refs[B], (struct sl_digest){2, 2}),
                         SL_ERR_NO_SPACE);

        sl_index_read(stage.bed.index, stage.refs[B], &entry);
        ck_assert_uint_eq(entry.kind, SL_RECORD_RESERVED);
        word_set(&view->buckets[0].slots[0], 0);
        ck_assert_int_eq(sl_index_commit(stage.bed.index, stage.refs[B], (struct sl_digest){2, 2}),
                         SL_OK);
        stage_remove(&stage);
    }
END_TEST

START_TEST(random_damage_is_survived)
    {
        uint64_t random = random_seed("random_damage_is_survived") + (uint64_t)_i;
        struct stage stage = stage_make();
        bed_attach(&stage.bed);
        for (int i = 0; i < SCENARIO_COUNT; i++) {
            scenario[i](&stage);
        }
        insert_a(&stage);
        group_make(&stage);
        index_word *words = (index_word *)(void *)stage.bed.index->view.buckets;
        uint64_t word_count =
            ((uint64_t)stage.bed.index->view.slab_count_max * INDEX_SLAB_BYTES) / 8;
        uint64_t table_words = (uint64_t)(stage.bed.index->view.records - words);
        for (int i = 0; i < 200; i++) {
            uint64_t near = random_next(&random) % 4 == 0
                                ? random_next(&random) % (8 * stage.bed.index->view.bucket_count)
                                : table_words + random_next(&random) % SL_MIN(word_count, 30000);
            word_set(&words[near], random_next(&random) % 3 == 0 ? random_next(&random) % 2000
                                                                 : random_next(&random));
        }
        bed_detach(&stage.bed);

        bed_attach(&stage.bed);
        sl_index_recover(stage.bed.index, NULL, NULL); /* no crash, no endless loop */

        check_overflow_counts(stage.bed.index);
        sl_ref ref = 0;
        struct sl_entry entry = entry_of("fresh", 1);
        sl_err err = sl_index_insert(stage.bed.index, &entry, &ref, NULL);
        ck_assert(err == SL_OK || err == SL_ERR_NO_SPACE);
        stage_remove(&stage);
    }
END_TEST

static uint64_t loads;

static void load_count(void)
{
    loads++;
}

/* The number of objects it finds; the loads of shared words are counted in `loads`. */
static uint32_t walk_counted(const struct sl_index_view *view)
{
    char key[SL_KEY_BYTES_MAX + 1];
    struct sl_entry entry;
    uint64_t cursor = 0;
    uint32_t found = 0;
    loads = 0;
    sl_index_load_point = load_count;
    while (sl_index_scan(view, &cursor, &entry, key)) {
        found++;
    }
    sl_index_load_point = NULL;
    return found;
}

/* In a table for many keys: no key ever existed, a few exist, many existed and were removed, the
 * index was opened again. */
START_TEST(a_walk_costs_what_is_there)
    {
        enum { FEW = 3, MANY = 2000 };
        struct bed bed = bed_make(64 * SL_MIB, 100000);
        uint64_t regions = index_region_count(bed.view->bucket_count);
        uint64_t region_loads = INDEX_REGION_SLOTS + 100; /* some more for a record */
        static sl_ref refs[MANY];
        char key[32];
        ck_assert_uint_eq(walk_counted(bed.view), 0);
        ck_assert_uint_le(loads, regions + 100);
        for (uint32_t i = 0; i < MANY; i++) {
            snprintf(key, sizeof(key), "object-%u", i);
            refs[i] = bed_insert(&bed, key, i);
        }
        ck_assert_uint_eq(walk_counted(bed.view), MANY);

        for (uint32_t i = FEW; i < MANY; i++) {
            sl_index_unlink(bed.index, refs[i], SL_RECORD_FREE);
        }

        ck_assert_uint_eq(walk_counted(bed.view), FEW);
        ck_assert_uint_le(loads, regions + 100 + FEW * region_loads);
        ck_assert_uint_gt(bed.view->bucket_count,
                          10 * (regions + FEW * region_loads) / INDEX_BUCKET_SLOTS);
        bed_detach(&bed);
        bed_attach(&bed);
        sl_index_recover(bed.index, NULL, NULL);
        ck_assert_uint_eq(walk_counted(bed.view), FEW);
        ck_assert_uint_le(loads, regions + 100 + FEW * region_loads);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_crash");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, every_kill_point_leaves_the_state_before_or_after);
    tcase_add_test(tcase, recovery_that_is_killed_starts_again);
    tcase_add_test(tcase, orphans_of_a_lost_group_leave_the_table_and_keep_their_claims);
    tcase_add_test(tcase, a_commit_that_finds_no_slot_stays_a_reservation);
    tcase_add_test(tcase, a_walk_costs_what_is_there);
    tcase_add_loop_test(tcase, random_damage_is_survived, 0, 40);
    return suite_run(tcase, "index_crash");
}
