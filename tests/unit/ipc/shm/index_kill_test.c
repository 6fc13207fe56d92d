/* tests/unit/ipc/shm/index_kill_test.c - the only writer of index and allocator is killed (SIGKILL)
 * at arbitrary moments, thousands of times.
 *
 * A child opens arena and index, recovers, and puts, spills, promotes and removes objects and
 * blocks at random. It records what it is about to do, and that it is done, in a page that outlives
 * it. After each kill the parent first reads the index as any reader would, then recovers, and
 * finds each key in the state before or after: with the right bytes, no extent claimed twice, and
 * no space lost. */
#include "ipc/shm/sl_index_changes.h"
#include "ipc/shm/sl_pins.h"
#include "tests/support/own_id.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define OBJECTS      20
#define BLOCKS       4
#define UNITS        (OBJECTS + BLOCKS)
#define PARTS        2
#define VALUE_BYTES  512u
#define KILLS        3000
#define OPS_MAX      24 /* done before the kill, at most */
#define WAIT_S       30 /* for a child to get that far */
#define DELAY_NS_MAX 60000

/* A unit is an object, or a block of two parts. number 0: it does not exist. */
struct state {
    uint64_t number;
    bool memory, disk;
};

struct history {
    _Atomic uint64_t ops, started;
    _Atomic int busy; /* unit + 1 */
    struct state before, after;
    struct state units[UNITS];
    uint64_t number;
};

struct writer {
    struct bed bed;
    struct history *history; /* shared */
    struct sl_alloc *alloc;
    sl_ref refs[UNITS][PARTS], groups[UNITS];
    uint64_t random;
};

static uint32_t part_count(int unit)
{
    return unit < OBJECTS ? 1 : PARTS;
}

/* Keys of several lengths: records of several classes. */
static void key_of(int unit, uint32_t part, char key[128])
{
    if (unit < OBJECTS) {
        snprintf(key, 128, "object-%d%.*s", unit, unit % 3 * 40,
                 "-with-a-name-that-is-long-enough-to-need-a-larger-record-than-the-others-do-");
    } else {
        snprintf(key, 128, "block-%d/%u", unit, part);
    }
}

static void group_key_of(int unit, char key[128])
{
    snprintf(key, 128, "block-%d", unit);
}

static uint64_t word_of(uint64_t number, uint32_t part)
{
    return (number * 2 + part) * UINT64_C(0x9e3779b97f4a7c15);
}

/* As bed_attach, but a killed child must not be in the middle of a message to Check. */
static void bed_open_quietly(struct bed *bed)
{
    struct sl_arena_options arena = {
        .directory = bed->dir, .data_bytes = bed->arena_bytes, .chunk_bytes = bed->arena_bytes};
    bool created = false;
    must(sl_arena_open_owner(&arena, &created, &bed->arena, NULL) == SL_OK);
    struct sl_index_options options = {.shm_dir = bed->dir,
                                       .index_bytes_max = bed->index_bytes,
                                       .key_count = bed->key_count,
                                       .arena = bed->arena};
    must(sl_index_open(&options, &created, &bed->index, NULL) == SL_OK);
    must(sl_index_view_open(bed->dir, &bed->view, NULL) == SL_OK);
}

/* ---- the child: what a registrar does ---- */

static struct sl_entry want_fill(struct writer *writer, int unit, uint32_t part, uint64_t number,
                                 char key[128])
{
    key_of(unit, part, key);
    struct sl_entry want = entry_of(key, 0);
    want.extent = (struct sl_extent){.length_bytes = VALUE_BYTES};
    must(sl_alloc_take(writer->alloc, VALUE_BYTES, &want.extent.offset_bytes) == SL_OK);
    want.extent.generation = sl_arena_next_generation(writer->bed.arena);
    want.part_index = (uint16_t)part;
    want.group = writer->groups[unit];
    want.digest = (struct sl_digest){number, part};
    return want;
}

static void bytes_fill(struct writer *writer, const struct sl_extent *extent, uint64_t number,
                       uint32_t part)
{
    uint64_t *words = sl_arena_at(writer->bed.arena, extent->offset_bytes, VALUE_BYTES);
    must(words != NULL);
    for (uint32_t i = 0; i < VALUE_BYTES / 8; i++) {
        words[i] = word_of(number, part);
    }
}

static void unit_put(struct writer *writer, int unit, uint64_t number)
{
    struct sl_entry wants[PARTS];
    char keys[PARTS][128];
    char group_key[128];
    if (part_count(unit) > 1) {
        group_key_of(unit, group_key);
        struct sl_group_want want = {.key = {group_key, (uint32_t)strlen(group_key)},
                                     .part_count = PARTS};
        must(sl_index_group_create(writer->bed.index, &want, &writer->groups[unit], NULL) == SL_OK);
    }
    for (uint32_t i = 0; i < part_count(unit); i++) {
        wants[i] = want_fill(writer, unit, i, number, keys[i]);
        wants[i].kind = SL_RECORD_RESERVED;
        must(sl_index_claim(writer->bed.index, &wants[i], &writer->refs[unit][i], NULL) == SL_OK);
    }
    for (uint32_t i = 0; i < part_count(unit); i++) {
        bytes_fill(writer, &wants[i].extent, number, i);
        must(sl_index_commit(writer->bed.index, writer->refs[unit][i], wants[i].digest) == SL_OK);
        if (writer->groups[unit] != 0) {
            sl_index_group_fill(writer->bed.index, writer->groups[unit], i);
        }
    }
}

static void extent_give(struct writer *writer, sl_ref retired, const struct sl_extent *extent)
{
    sl_index_set_kind(writer->bed.index, retired, SL_RECORD_FREE);
    sl_alloc_free(writer->alloc, extent->offset_bytes, VALUE_BYTES);
}

static void part_remove(struct writer *writer, sl_ref ref)
{
    struct sl_entry entry;
    sl_index_read(writer->bed.index, ref, &entry);
    if (entry.extent.generation == 0) {
        sl_index_unlink(writer->bed.index, ref, SL_RECORD_FREE);
        return;
    }
    sl_index_unlink(writer->bed.index, ref, SL_RECORD_RETIRED);
    extent_give(writer, ref, &entry.extent);
}

static void unit_remove(struct writer *writer, int unit)
{
    if (writer->groups[unit] != 0) {
        sl_index_group_drop(writer->bed.index, writer->groups[unit]);
    }
    for (uint32_t i = 0; i < part_count(unit); i++) {
        if (writer->refs[unit][i] != 0) {
            part_remove(writer, writer->refs[unit][i]);
            writer->refs[unit][i] = 0;
        }
    }
    if (writer->groups[unit] != 0) {
        sl_index_unlink(writer->bed.index, writer->groups[unit], SL_RECORD_FREE);
        writer->groups[unit] = 0;
    }
}

/* Gives a part a place on disk, gives up its memory, or both at once. */
static void part_spill(struct writer *writer, sl_ref *ref, bool memory, bool disk)
{
    struct sl_disk_place place = {.segment = 3, .offset_bytes = 4096, .valid = 1};
    struct sl_extent none = {0};
    struct sl_entry old;
    bool retired = false;
    sl_index_read(writer->bed.index, *ref, &old);
    must(sl_index_switch_retire(writer->bed.index, *ref, memory ? NULL : &none,
                                disk ? &place : NULL, ref, &retired) == SL_OK);
    must(retired == !memory);
    if (retired) {
        extent_give(writer, old.ref, &old.extent);
    }
}

static void part_promote(struct writer *writer, int unit, uint32_t part, uint64_t number)
{
    char key[128];
    sl_ref claim = 0;
    struct sl_entry want = want_fill(writer, unit, part, number, key);
    want.kind = SL_RECORD_PROMOTING;
    must(sl_index_claim(writer->bed.index, &want, &claim, NULL) == SL_OK);
    bytes_fill(writer, &want.extent, number, part);
    must(sl_index_switch(writer->bed.index, writer->refs[unit][part], &want.extent, NULL,
                         &writer->refs[unit][part]) == SL_OK);
    sl_index_set_kind(writer->bed.index, claim, SL_RECORD_FREE);
}

static struct state state_next(struct writer *writer, struct state now)
{
    uint64_t dice = random_next(&writer->random) >> 32;
    if (now.number == 0) {
        return (struct state){++writer->history->number, true, false};
    }
    if (dice % 3 == 0) {
        return (struct state){0, false, false};
    }
    if (!now.memory) {
        return (struct state){now.number, true, true};
    }
    if (now.disk) {
        return (struct state){now.number, false, true};
    }
    return (struct state){now.number, dice % 2 == 0, true};
}

static void unit_change(struct writer *writer, int unit, struct state from, struct state to)
{
    if (to.number == 0) {
        unit_remove(writer, unit);
        return;
    }
    if (from.number == 0) {
        unit_put(writer, unit, to.number);
        return;
    }
    for (uint32_t i = 0; i < part_count(unit); i++) {
        if (to.memory && !from.memory) {
            part_promote(writer, unit, i, to.number);
        } else {
            part_spill(writer, &writer->refs[unit][i], to.memory, !from.disk);
        }
    }
}

/* Finds the unit and part that a key names. */
static bool unit_of(const struct sl_entry *entry, int *unit, uint32_t *part)
{
    char key[128];
    for (*unit = 0; *unit < UNITS; (*unit)++) {
        for (*part = 0; *part < part_count(*unit); (*part)++) {
            key_of(*unit, *part, key);
            if (strlen(key) == entry->key_length && memcmp(key, entry->key, strlen(key)) == 0) {
                return true;
            }
        }
        group_key_of(*unit, key);
        if (strlen(key) == entry->key_length && memcmp(key, entry->key, strlen(key)) == 0) {
            *part = PARTS;
            return true;
        }
    }
    return false;
}

/* Claims of the dead writer end; all others are claimed from the allocator. */
static void writer_adopt(void *context, const struct sl_entry *entry)
{
    struct writer *writer = context;
    int unit = 0;
    uint32_t part = 0;
    if (entry->kind != SL_RECORD_COMMITTED && entry->kind != SL_RECORD_GROUP) {
        sl_index_set_kind(writer->bed.index, entry->ref, SL_RECORD_FREE);
        return;
    }
    must(unit_of(entry, &unit, &part));
    if (entry->kind == SL_RECORD_GROUP) {
        writer->groups[unit] = entry->ref;
        return;
    }
    writer->refs[unit][part] = entry->ref;
    if (entry->extent.generation != 0) {
        must(sl_alloc_claim(writer->alloc, entry->extent.offset_bytes, VALUE_BYTES) == SL_OK);
    }
}

static void writer_open(struct writer *writer)
{
    struct sl_alloc_options options = {.data_bytes = writer->bed.arena_bytes,
                                       .chunk_bytes = writer->bed.arena_bytes};
    bed_open_quietly(&writer->bed);
    must(sl_alloc_create(&options, &writer->alloc, NULL) == SL_OK);
    sl_err err = sl_arena_populate_below(writer->bed.arena, UINT64_MAX, NULL);
    must(err == SL_OK || err == SL_ERR_NOT_FOUND);
    sl_alloc_grow(writer->alloc, sl_arena_populated_bytes(writer->bed.arena));
    memset(writer->refs, 0, sizeof(writer->refs));
    memset(writer->groups, 0, sizeof(writer->groups));
    sl_index_recover(writer->bed.index, writer_adopt, writer);
    for (int unit = OBJECTS; unit < UNITS; unit++) { /* blocks that were not completed */
        struct sl_group_info info;
        if (writer->groups[unit] == 0) {
            must(writer->refs[unit][0] == 0 && writer->refs[unit][1] == 0);
            continue;
        }
        sl_index_group_info(writer->bed.index, writer->groups[unit], &info);
        if (info.state != SL_GROUP_COMMITTED || writer->refs[unit][0] == 0 ||
            writer->refs[unit][1] == 0) {
            unit_remove(writer, unit);
        }
    }
}

static void writer_close(struct writer *writer)
{
    sl_alloc_destroy(&writer->alloc);
    bed_detach(&writer->bed);
}

static _Noreturn void child_run(struct writer *writer)
{
    struct history *history = writer->history;
    atomic_store(&history->started, 1);
    writer_open(writer);
    for (;;) {
        int unit = (int)(random_next(&writer->random) >> 32) % UNITS;
        unit = unit < 0 ? -unit : unit;
        history->before = history->units[unit];
        history->after = state_next(writer, history->before);
        atomic_store(&history->busy, unit + 1);
        unit_change(writer, unit, history->before, history->after);
        history->units[unit] = history->after;
        atomic_store(&history->busy, 0);
        atomic_fetch_add(&history->ops, 1);
    }
}

/* ---- the parent ---- */

static bool state_equal(struct state a, struct state b)
{
    return a.number == b.number && a.memory == b.memory && a.disk == b.disk;
}

/* A part as a reader sees it; wrong bytes fail the test. */
static struct state part_seen(const struct bed *bed, int unit, uint32_t part)
{
    char key[128];
    struct sl_entry entry;
    key_of(unit, part, key);
    sl_err err = bed_find(bed, key, &entry);
    must(err == SL_OK || err == SL_ERR_NOT_FOUND);
    if (err != SL_OK) {
        return (struct state){0, false, false};
    }
    if (entry.extent.generation != 0) {
        const uint64_t *words = sl_arena_at(bed->arena, entry.extent.offset_bytes, VALUE_BYTES);
        for (uint32_t i = 0; i < VALUE_BYTES / 8; i++) {
            must(words[i] == word_of(entry.digest.low, part));
        }
    }
    return (struct state){entry.digest.low, entry.extent.generation != 0, entry.disk.valid != 0};
}

/* Checks that a unit is as before or after the dead writer's operation; returns its state. */
static struct state unit_seen(const struct bed *bed, const struct history *history, int unit)
{
    bool busy = atomic_load(&history->busy) == unit + 1;
    struct state before = busy ? history->before : history->units[unit];
    struct state after = busy ? history->after : before;
    struct state seen = {0};
    for (uint32_t i = 0; i < part_count(unit); i++) {
        struct state part = part_seen(bed, unit, i);
        ck_assert_msg(state_equal(part, before) || state_equal(part, after),
                      "unit %d part %u: value %llu memory %d disk %d, expected %llu %d %d or "
                      "%llu %d %d",
                      unit, i, (unsigned long long)part.number, part.memory, part.disk,
                      (unsigned long long)before.number, before.memory, before.disk,
                      (unsigned long long)after.number, after.memory, after.disk);
        must(i == 0 || (part.number == 0) == (seen.number == 0)); /* a block: all or none */
        seen = i == 0 || state_equal(part, before) ? part : seen;
    }
    return seen;
}

/* The view of a reader before any repair. */
static void check_as_left(const struct writer *writer)
{
    struct bed bed = writer->bed;
    struct sl_error why = {0};
    if (sl_index_view_open(bed.dir, &bed.view, &why) != SL_OK) {
        return; /* it died before there was an index */
    }
    ck_assert_sl_ok(sl_arena_attach(bed.dir, 0, false, &bed.arena, &why), why);
    for (int unit = 0; unit < UNITS; unit++) {
        (void)unit_seen(&bed, writer->history, unit);
    }
    sl_index_view_close(&bed.view);
    sl_arena_close(&bed.arena);
}

/* Gives all parts of a block that was left halfway the same state. */
static void unit_settle(struct writer *writer, int unit, struct state to)
{
    for (uint32_t i = 0; i < part_count(unit) && to.number != 0; i++) {
        struct state now = part_seen(&writer->bed, unit, i);
        if (to.memory && !now.memory) {
            part_promote(writer, unit, i, to.number);
        } else if (!state_equal(now, to)) {
            part_spill(writer, &writer->refs[unit][i], to.memory, !now.disk);
        }
    }
}

static void check_recovered(struct writer *writer)
{
    struct history *history = writer->history;
    struct sl_alloc_stats stats;
    uint64_t extents = 0;
    writer_open(writer);
    for (int unit = 0; unit < UNITS; unit++) {
        struct state seen = unit_seen(&writer->bed, history, unit);
        bool busy = atomic_load(&history->busy) == unit + 1;
        if (busy && seen.number != 0 && part_count(unit) > 1 && history->before.number != 0) {
            /* Parts leave memory and come back one by one. */
            unit_settle(writer, unit, history->after.number != 0 ? history->after : seen);
            seen = history->after.number != 0 ? history->after : seen;
        }
        history->units[unit] = seen;
        extents += seen.memory ? part_count(unit) : 0;
    }
    atomic_store(&history->busy, 0);
    sl_alloc_stats(writer->alloc, &stats);
    ck_assert_uint_eq(stats.extent_count, extents); /* nothing lost, nothing twice */
    writer_close(writer);
}

static void nap(uint64_t ns)
{
    struct timespec time = {.tv_nsec = (long)ns};
    (void)nanosleep(&time, NULL);
}

/* Waits until the child has come that far, a little longer, and kills it. */
static void child_kill(struct writer *writer, pid_t child)
{
    struct history *history = writer->history;
    uint64_t ends_ns = stopwatch_ns() + WAIT_S * UINT64_C(1000000000);
    uint64_t ops = random_next(&writer->random) % OPS_MAX; /* 0: in its recovery, perhaps */
    while (atomic_load(&history->started) == 0 || atomic_load(&history->ops) < ops) {
        must(stopwatch_ns() < ends_ns);
        nap(20000);
    }
    nap(random_next(&writer->random) % DELAY_NS_MAX);
    int status = 0;
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                  "the child ended by itself with status %x", (unsigned)status);
}

/* ---- a reader that follows what changes, and leaves out what did not ---- */

struct follower {
    struct sl_index_view *view;
    struct sl_index_changes *changes;
    uint64_t ids[UNITS][PARTS];
    struct sl_index_change told[UNITS][PARTS];
};

static void follower_make(struct follower *follower, const struct bed *bed)
{
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_index_view_open(bed->dir, &follower->view, &why), why);
    ck_assert_sl_ok(
        sl_index_changes_create(follower->view, bed->dir, true, &follower->changes, &why), why);
    for (int unit = 0; unit < UNITS; unit++) {
        for (uint32_t i = 0; i < part_count(unit); i++) {
            char key[128];
            key_of(unit, i, key);
            follower->ids[unit][i] = sl_key_id(key, (uint32_t)strlen(key));
        }
    }
}

static bool follower_hear(void *context, const struct sl_index_change *change)
{
    struct follower *follower = context;
    bool known = false;
    for (int unit = 0; unit < UNITS; unit++) {
        for (uint32_t i = 0; i < part_count(unit); i++) {
            if (follower->ids[unit][i] == change->id) {
                follower->told[unit][i] = *change;
                known = true;
            }
        }
    }
    must(known);
    return true;
}

static void follower_walk(struct follower *follower)
{
    while (sl_index_changes_step(follower->changes, 16, follower_hear, follower) ==
           SL_INDEX_WALK_ON) {
    }
}

/* While there is no writer: the reports match the index. */
static void follower_check(struct follower *follower, const struct history *history)
{
    follower_walk(follower);
    follower_walk(follower); /* the first one may have begun before */
    for (int unit = 0; unit < UNITS; unit++) {
        const struct state *state = &history->units[unit];
        for (uint32_t i = 0; i < part_count(unit); i++) {
            const struct sl_index_change *told = &follower->told[unit][i];
            ck_assert_msg(
                told->there == (state->number != 0) &&
                    (!told->there || (told->memory == state->memory && told->disk == state->disk)),
                "unit %d part %u: reported %d %d %d, is %d %d %d", unit, i, told->there,
                told->memory, told->disk, state->number != 0, state->memory, state->disk);
        }
    }
}

START_TEST(a_killed_writer_loses_and_invents_nothing)
    {
        struct history *history =
            mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(history, MAP_FAILED);
        struct writer writer = {.bed = {.dir = shm_dir_make(),
                                        .index_bytes = SL_MIB,
                                        .key_count = 64,
                                        .arena_bytes = SL_MIB},
                                .history = history,
                                .random = random_seed("a_killed_writer_loses_and_invents_nothing")};
        struct follower follower = {0};
        uint64_t total = 0;
        uint64_t torn = 0;
        for (int i = 0; i < KILLS; i++) {
            atomic_store(&history->started, 0);
            atomic_store(&history->ops, 0);
            writer.random ^= (uint64_t)i << 17;
            pid_t child = fork();
            ck_assert_int_ge(child, 0);
            if (child == 0) {
                child_run(&writer);
            }
            for (int walks = i % 4; follower.view != NULL && walks > 0; walks--) {
                follower_walk(&follower);
            }
            child_kill(&writer, child);
            if (follower.view != NULL && i % 3 == 0) {
                follower_walk(&follower);
            }
            total += atomic_load(&history->ops);
            torn += atomic_load(&history->busy) != 0;
            check_as_left(&writer);
            check_recovered(&writer);
            if (follower.view == NULL) {
                follower_make(&follower, &writer.bed);
            }
            follower_check(&follower, history);
        }
        sl_index_changes_destroy(&follower.changes);
        sl_index_view_close(&follower.view);
        printf("%d kills after %llu operations, %llu of them in the middle of one\n", KILLS,
               (unsigned long long)total, (unsigned long long)torn);
        ck_assert_uint_gt(torn, 0);
        shm_dir_remove(writer.bed.dir);
        munmap(history, sizeof(*history));
    }
END_TEST

/* ---- while the segments are made ---- */

static pid_t child_start(void (*run)(struct writer *writer), struct writer *writer)
{
    atomic_store(&writer->history->started, 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        atomic_store(&writer->history->started, 1);
        run(writer);
        for (;;) {
            pause();
        }
    }
    while (atomic_load(&writer->history->started) == 0) {
        nap(10000);
    }
    return child;
}

static uint32_t files_in(const char *path)
{
    uint32_t count = 0;
    DIR *directory = opendir(path);
    must(directory != NULL);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        count += entry->d_name[0] != '.';
    }
    closedir(directory);
    return count;
}

START_TEST(a_writer_killed_while_it_makes_its_segments_leaves_none_or_whole_ones)
    {
        uint32_t before = 0;
        struct history *history =
            mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(history, MAP_FAILED);
        struct writer writer = {
            .history = history,
            .random = random_seed(
                "a_writer_killed_while_it_makes_its_segments_leaves_none_or_whole_ones")};
        for (int i = 0; i < 400; i++) {
            writer.bed = (struct bed){.dir = shm_dir_make(),
                                      .index_bytes = SL_MIB,
                                      .key_count = 64,
                                      .arena_bytes = SL_MIB};
            pid_t child = child_start(writer_open, &writer);
            nap(random_next(&writer.random) % 150000);
            ck_assert_int_eq(kill(child, SIGKILL), 0);
            ck_assert_int_eq(waitpid(child, NULL, 0), child);
            before += files_in(writer.bed.dir) < 3;

            writer_open(&writer);

            ck_assert_uint_eq(files_in(writer.bed.dir), 3); /* arena, index and its changes */
            unit_put(&writer, 0, 1);
            ck_assert_uint_eq(part_seen(&writer.bed, 0, 0).number, 1);
            writer_close(&writer);
            shm_dir_remove(writer.bed.dir);
        }
        printf("400 kills, %u before all segments were there\n", before);
        munmap(history, sizeof(*history));
    }
END_TEST

/* ---- readers ---- */

static void pin_for_ever(struct writer *writer)
{
    struct sl_pins *pins = NULL;
    struct sl_pins_options options = {.shm_dir = writer->bed.dir,
                                      .name = "reader",
                                      .slot_count = 8,
                                      .access_count = 8,
                                      .self = own_id(),
                                      .pinned_bytes_max = SL_GIB};
    must(sl_pins_create(&options, &pins, NULL) == SL_OK); /* also over a dead one's */
    for (;;) {
        struct sl_entry entry;
        sl_pin taken[4] = {0};
        for (uint32_t i = 0; i < SL_COUNT(taken); i++) {
            sl_err err = bed_find(&writer->bed, "object-0", &entry);
            err = err == SL_OK ? sl_pins_take(pins, writer->bed.view, &entry, &taken[i]) : err;
            must(err == SL_OK || err == SL_ERR_STALE);
        }
        for (uint32_t i = 0; i < SL_COUNT(taken); i++) {
            sl_pins_release(pins, taken[i]);
            sl_pins_note_access(pins, entry.ref, entry.extent.generation);
        }
        atomic_fetch_add(&writer->history->ops, 1);
    }
}

struct pinned {
    uint64_t count, generation;
    bool wrong;
};

static void pin_seen(void *context, uint64_t generation)
{
    struct pinned *pinned = context;
    pinned->count++;
    pinned->wrong = pinned->wrong || generation != pinned->generation;
}

START_TEST(a_killed_reader_leaves_pins_that_are_read_and_then_replaced)
    {
        uint64_t left = 0;
        struct history *history =
            mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(history, MAP_FAILED);
        struct writer writer = {
            .bed = {.dir = shm_dir_make(),
                    .index_bytes = SL_MIB,
                    .key_count = 64,
                    .arena_bytes = SL_MIB},
            .history = history,
            .random = random_seed("a_killed_reader_leaves_pins_that_are_read_and_then_replaced")};
        writer_open(&writer);
        unit_put(&writer, 0, 1);
        struct sl_entry entry;
        must(bed_find(&writer.bed, "object-0", &entry) == SL_OK);
        for (int i = 0; i < 400; i++) {
            struct sl_pins_view *view = NULL;
            struct pinned pinned = {.generation = entry.extent.generation};
            uint64_t ends_ns = stopwatch_ns() + WAIT_S * UINT64_C(1000000000);
            atomic_store(&history->ops, 0);
            pid_t child = child_start(pin_for_ever, &writer);
            while (i % 2 == 0 && atomic_load(&history->ops) == 0) { /* else in the making of it */
                must(stopwatch_ns() < ends_ns);
                nap(20000);
            }
            nap(random_next(&writer.random) % DELAY_NS_MAX);
            ck_assert_int_eq(kill(child, SIGKILL), 0);
            ck_assert_int_eq(waitpid(child, NULL, 0), child);

            sl_err err = sl_pins_view_open(writer.bed.dir, "pins.reader", &view, NULL);

            ck_assert(err == SL_OK || (err == SL_ERR_NOT_FOUND && i % 2 == 1));
            if (err == SL_OK) {
                struct sl_access accesses[8];
                sl_pins_view_scan(view, pin_seen, &pinned);
                ck_assert(!pinned.wrong && pinned.count <= 4);
                ck_assert_uint_le(sl_pins_view_drain(view, accesses, 8), 8);
                sl_pins_view_close(&view);
            }
            left += pinned.count > 0;
        }
        printf("400 readers killed, %llu with pins\n", (unsigned long long)left);
        ck_assert_uint_gt(left, 0);
        writer_close(&writer);
        shm_dir_remove(writer.bed.dir);
        munmap(history, sizeof(*history));
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_kill");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, a_killed_writer_loses_and_invents_nothing);
    tcase_add_test(tcase, a_writer_killed_while_it_makes_its_segments_leaves_none_or_whole_ones);
    tcase_add_test(tcase, a_killed_reader_leaves_pins_that_are_read_and_then_replaced);
    return suite_run(tcase, "index_kill");
}
