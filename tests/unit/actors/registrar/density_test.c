/* tests/unit/actors/registrar/density_test.c - the order of units by chain hit density. */
#include "runtime/base/sl_base.h"
#include "runtime/policy/density/density.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define SMALL_GHOSTS 8u

/* In memory; 0: it is not. */
static uint32_t here(const struct sl_density *density, uint64_t hash)
{
    uint32_t unit = sl_density_find(density, hash);
    return sl_density_owns(density, unit, sl_density_user(density, unit)) ? unit : 0;
}

static struct sl_density *density_new(void)
{
    struct sl_density_options options = {.ghosts_min = SMALL_GHOSTS, .ghosts_max = 1u << 20};
    struct sl_density *density = NULL;
    ck_assert_int_eq(sl_density_create(&options, &density), SL_OK);
    return density;
}

static uint32_t enter(struct sl_density *density, uint64_t hash, uint64_t parent_hash)
{
    struct reg_wanted wanted = {.parent_hash = parent_hash, .stored_count = 1};
    uint32_t unit = sl_density_enter(density, hash, (uint32_t)hash, &wanted);
    ck_assert_uint_ne(unit, 0);
    return unit;
}

/* Restores a unit that was in memory before a restart. */
static uint32_t restore(struct sl_density *density, uint64_t hash, uint64_t parent_hash,
                        const struct sl_density_note *note)
{
    struct sl_density_was was = {.user = (uint32_t)hash, .parent_hash = parent_hash, .note = *note};
    was.note.hash = hash;
    return sl_density_restore(density, &was);
}

static void disk_restore(struct sl_density *density, uint64_t hash,
                         const struct sl_density_note *note)
{
    struct sl_density_was was = {.where = SL_DENSITY_DISK, .note = *note};
    was.note.hash = hash;
    (void)sl_density_restore(density, &was);
}

/* A chain of hashes first, first + 1, ... */
static void chain_enter(struct sl_density *density, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)enter(density, first + i, i > 0 ? first + i - 1 : 0);
    }
}

static uint64_t stats_count(const struct sl_density *density)
{
    return sl_density_stats(density).unit_count;
}

/* The table gains a slot with each unit; units that belong there move from another slot. */
START_TEST(units_are_found_while_their_table_grows)
    {
        struct sl_density *density = density_new();
        const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
        for (uint64_t n = 1; n <= 70000; n++) { /* the table grows twice */
            uint32_t unit = enter(density, n * odd, 0);
            if (n % 4 == 0) {
                sl_density_leave(density, unit);
            }
            for (uint64_t i = 1; n % 10000 == 0 && i <= n; i++) {
                ck_assert_int_eq(here(density, i * odd) != 0, i % 4 != 0);
            }
        }
        ck_assert_uint_eq(stats_count(density), 70000 / 4 * 3);
        sl_density_destroy(&density);
    }
END_TEST

static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    ck_assert(file != NULL && fscanf(file, "%lu", &pages) == 1 && fclose(file) == 0);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* There is memory for twice the units (1 MiB more), but not for their table. */
START_TEST(no_memory_for_the_table_leaves_the_units_as_they_are)
    {
        struct sl_density *density = density_new();
        struct reg_wanted wanted = {.stored_count = 1};
        uint64_t n = 1, mapped = mapped_bytes();
        const struct rlimit limit = {mapped + SL_MIB + 131072, RLIM_INFINITY};
        const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
        while (sl_density_enter(density, n, (uint32_t)n, &wanted) != 0) {
            n++;
        }
        ck_assert_uint_lt(mapped_bytes(), mapped + 524288);
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
        (void)enter(density, n, 0);
        ck_assert_uint_eq(stats_count(density), n);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_chain_goes_from_its_end)
    {
        struct sl_density *density = density_new();
        chain_enter(density, 100, 50);
        uint32_t unit = sl_density_first(density);
        for (uint32_t i = 50; i-- > 0;) {
            ck_assert_uint_eq(sl_density_user(density, unit), 100 + i);
            sl_density_leave(density, unit);
            unit = sl_density_next(density, false);
        }
        ck_assert_uint_eq(unit, 0);
        ck_assert_uint_eq(stats_count(density), 0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(before_anything_was_learnt_the_oldest_chain_goes_first)
    {
        struct sl_density *density = density_new();
        chain_enter(density, 100, 3);
        chain_enter(density, 200, 3);
        ck_assert_uint_eq(sl_density_user(density, sl_density_first(density)), 102);
        sl_density_use(density, here(density, 100), REG_HINT_NONE);
        sl_density_use(density, here(density, 101), REG_HINT_NONE);
        sl_density_use(density, here(density, 102), REG_HINT_NONE);
        ck_assert_uint_eq(sl_density_user(density, sl_density_first(density)), 202);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(of_several_ends_the_one_used_longest_ago_goes)
    {
        struct sl_density *density = density_new();
        (void)enter(density, 1, 0);
        (void)enter(density, 10, 1);
        (void)enter(density, 20, 1);
        (void)enter(density, 30, 1);
        sl_density_use(density, here(density, 10), REG_HINT_NONE);
        sl_density_evict_first(density, here(density, 1)); /* asked to go first: its ends do */
        static const uint32_t want[] = {20, 30, 10, 1};
        uint32_t unit = sl_density_first(density);
        for (uint32_t i = 0; i < SL_COUNT(want); i++) {
            ck_assert_uint_eq(sl_density_user(density, unit), want[i]);
            sl_density_leave(density, unit);
            unit = sl_density_next(density, false);
        }
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_cannot_go_is_passed_once_a_walk_and_holds_its_chain)
    {
        struct sl_density *density = density_new();
        chain_enter(density, 100, 4);
        chain_enter(density, 200, 2);
        uint32_t stays = sl_density_first(density);
        ck_assert_uint_eq(sl_density_user(density, stays), 103);
        uint32_t unit =
            sl_density_next(density, false); /* no block before 103: that would leave a gap */
        ck_assert_uint_eq(sl_density_user(density, unit), 201);
        sl_density_leave(density, unit);
        unit = sl_density_next(density, false);
        ck_assert_uint_eq(sl_density_user(density, unit), 200);
        sl_density_leave(density, unit);
        ck_assert_uint_eq(sl_density_next(density, false), 0);
        ck_assert_uint_eq(sl_density_first(density), stays);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_walk_goes_on_when_others_leave_beside_it)
    {
        struct sl_density *density = density_new();
        for (uint64_t hash = 1; hash <= 6; hash++) {
            (void)enter(density, hash, 0);
        }
        uint32_t unit = sl_density_first(density);
        ck_assert_uint_eq(sl_density_user(density, unit), 1);
        sl_density_leave(density, here(density, 2)); /* where the walk would continue */
        sl_density_leave(density, here(density, 3));
        ck_assert_uint_eq(sl_density_user(density, sl_density_next(density, false)), 4);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_ghost_that_comes_back_was_wanted_twice)
    {
        struct sl_density *density = density_new();
        struct sl_density_note view;
        uint32_t unit = enter(density, 7, 0);
        sl_density_leave(density, unit);
        ck_assert_uint_eq(here(density, 7), 0);
        unit = enter(density, 7, 0);
        view = sl_density_note(density, unit);
        ck_assert_uint_eq(view.use_count, 2);
        ck_assert_uint_eq(view.class_index, SL_DENSITY_TWICE);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(ghosts_are_bounded_and_the_first_that_left_goes)
    {
        struct sl_density *density = density_new();
        struct sl_density_stats stats;
        struct sl_density_note view;
        for (uint64_t hash = 1; hash <= SMALL_GHOSTS + 1; hash++) {
            sl_density_leave(density, enter(density, hash, 0));
        }
        stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.ghost_count, SMALL_GHOSTS);
        view = sl_density_note(density, enter(density, 1, 0));
        ck_assert_uint_eq(view.use_count, 1); /* forgotten */
        view = sl_density_note(density, enter(density, SMALL_GHOSTS + 1, 0));
        ck_assert_uint_eq(view.use_count, 2);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_parent_that_is_forgotten_leaves_its_children_alone)
    {
        struct sl_density *density = density_new();
        uint32_t parent = enter(density, 1, 0);
        (void)enter(density, 2, 1);
        sl_density_leave(density, parent);
        for (uint64_t hash = 100; hash < 100 + 2 * SMALL_GHOSTS; hash++) {
            sl_density_leave(density, enter(density, hash, 0));
        }
        uint32_t child = here(density, 2);
        sl_density_use(density, child, REG_HINT_NONE);
        ck_assert_uint_eq(sl_density_first(density), child);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_chain_that_names_itself_is_no_chain)
    {
        struct sl_density *density = density_new();
        (void)enter(density, 1, 1);
        (void)enter(density, 2, 1);
        (void)enter(density, 3, 2);
        sl_density_leave(density, here(density, 1));
        (void)enter(density, 1, 3); /* would close a ring */
        uint32_t count = 0;
        for (uint32_t unit = sl_density_first(density); unit != 0;
             unit = sl_density_next(density, false)) {
            sl_density_leave(density, unit);
            count++;
        }
        ck_assert_uint_eq(count, 3);
        sl_density_destroy(&density);
    }
END_TEST

/* Pairs of blocks: the first kind is always requested again after 600 others, the second kind
 * never; a hundred blocks stored together against one. */
START_TEST(what_comes_back_is_kept_before_what_does_not)
    {
        struct sl_density *density = density_new();
        uint64_t good = UINT64_C(1) << 32;
        uint64_t bad = UINT64_C(1) << 33;
        for (uint64_t i = 0; i < 20000; i++) {
            struct reg_wanted alone = {.stored_count = 1};
            struct reg_wanted many = {.stored_count = 100};
            ck_assert_uint_ne(sl_density_enter(density, good + i, 1, &alone), 0);
            ck_assert_uint_ne(sl_density_enter(density, bad + i, 2, &many), 0);
            if (i >= 300) {
                uint32_t unit = here(density, good + i - 300);
                if (unit != 0) {
                    sl_density_use(density, unit, REG_HINT_NONE);
                } else {
                    ck_assert_uint_ne(sl_density_enter(density, good + i - 300, 1, &alone), 0);
                }
            }
            for (uint32_t unit = sl_density_first(density); stats_count(density) > 400;
                 unit = sl_density_next(density, false)) {
                sl_density_leave(density, unit);
            }
        }
        uint32_t kept = 0;
        for (uint64_t i = 20000 - 300; i < 20000; i++) {
            kept += here(density, good + i) != 0;
        }
        ck_assert_uint_ge(kept, 280);
        sl_density_destroy(&density);
    }
END_TEST

static uint64_t mix(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

START_TEST(what_was_said_parts_what_goes_on_from_what_ends)
    {
        static const enum reg_hint hints[] = {REG_HINT_ENDS, REG_HINT_CONTINUES};
        struct sl_density *density = density_new();
        for (uint64_t i = 0; i < 20000; i++) {
            struct reg_wanted wanted = {.stored_count = 1, .hint = hints[mix(i) % 2]};
            (void)sl_density_enter(density, 100 + i, 1, &wanted);
            uint32_t before = i >= 10 ? here(density, 100 + i - 10) : 0;
            if (before != 0 && hints[mix(i - 10) % 2] == REG_HINT_CONTINUES) {
                sl_density_use(density, before, REG_HINT_NONE);
            }
            if (i >= 500) {
                sl_density_leave(density, here(density, 100 + i - 500));
            }
        }
        struct reg_wanted last = {.stored_count = 1, .hint = REG_HINT_ENDS};
        double ends = sl_density_value(density, sl_density_enter(density, 1, 1, &last));
        last.hint = REG_HINT_CONTINUES;
        double goes_on = sl_density_value(density, sl_density_enter(density, 2, 1, &last));
        ck_assert_double_gt(goes_on, 10.0 * ends);
        sl_density_destroy(&density);
    }
END_TEST

/* Any calls in any order: a walk returns each unit once, and none before its children. */
START_TEST(any_order_of_calls_keeps_every_unit_and_every_chain)
    {
        enum { HASHES = 300, STEPS = 200000 };
        struct sl_density *density = density_new();
        bool disk[HASHES + 1] = {false};
        uint64_t on_disk = 0;
        for (uint64_t step = 0; step < STEPS; step++) {
            uint64_t drawn = mix(step * 3 + (uint64_t)_i * 1000003);
            uint64_t hash = 1 + drawn % HASHES;
            uint32_t unit = here(density, hash);
            uint32_t what = (uint32_t)(drawn >> 32) % 16;
            if (unit == 0 && what == 11) {
                on_disk -= disk[hash];
                disk[hash] = false;
                sl_density_disk(density, hash, false);
            } else if (unit == 0) {
                const struct reg_wanted how = {.parent_hash = hash > 3 ? hash / 3 : 0,
                                               .stored_count = 1};
                sl_density_disk(density, hash, false);
                on_disk -= disk[hash];
                disk[hash] = false;
                (void)sl_density_return(density, hash, (uint32_t)hash, &how, what % 2 == 0);
            } else if (what == 11) {
                sl_density_leave(density, unit);
                sl_density_disk(density, hash, true);
                disk[hash] = true;
                on_disk++;
            } else if (what < 8) {
                sl_density_use(density, unit, (enum reg_hint)(what % REG_HINT_COUNT));
            } else if (what == 8) {
                sl_density_evict_first(density, unit);
            } else if (what == 9) {
                sl_density_leave(density, unit); /* removed, in the middle of a chain */
            } else if (what == 11) {
                sl_density_hint(density, unit, (enum reg_hint)((drawn >> 40) % REG_HINT_COUNT),
                                (enum reg_priority)((drawn >> 48) % REG_PRIORITY_COUNT));
            } else if (what == 12) {
                const struct reg_keep keep = {.end_s = (uint32_t)(step / 64 + (drawn >> 40) % 64),
                                              .pages = 1 + (uint32_t)(drawn >> 48) % 4};
                sl_density_keep(density, unit, &keep);
            } else if (what == 13) {
                sl_density_now(density, (uint32_t)(step / 64), (drawn >> 40) % 64);
            } else if (what == 10) {
                uint32_t left = (uint32_t)(drawn >> 40) % 8;
                for (unit = sl_density_first(density); unit != 0 && left > 0; left--) {
                    if ((drawn >> (48 + left)) % 2 == 0) {
                        sl_density_leave(density, unit);
                    }
                    unit = sl_density_next(density, false);
                }
            }
        }
        uint64_t count = 0;
        for (uint64_t hash = 1; hash <= HASHES; hash++) {
            count += here(density, hash) != 0;
        }
        ck_assert_uint_eq(stats_count(density), count);
        struct sl_density_stats stats;
        stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.disk_count, on_disk);
        for (uint32_t unit = sl_density_first(density); unit != 0;
             unit = sl_density_next(density, false)) {
            sl_density_leave(density, unit);
            count--;
        }
        ck_assert_uint_eq(count, 0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_restart_keeps_order_classes_and_chains)
    {
        struct sl_density *before = density_new();
        struct sl_density *after = density_new();
        struct sl_density_note notes[40];
        struct sl_density_note was, is;
        for (uint64_t i = 0; i < 40; i++) { /* two chains of twenty, the second from its end */
            uint64_t place = i < 20 ? i : 59 - i;
            (void)enter(before, 100 + place, place % 20 > 0 ? 99 + place : 0);
        }
        for (uint64_t i = 0; i < 20; i++) {
            sl_density_use(before, here(before, 100 + i), REG_HINT_ENDS);
        }
        for (uint32_t i = 0; i < 40; i++) {
            notes[i] = sl_density_note(before, here(before, 100 + i));
        }

        for (uint32_t i = 0; i < 40; i++) { /* in any order */
            uint32_t hash = 100 + i * 17 % 40;
            uint32_t place = hash - 100;
            ck_assert_uint_ne(restore(after, hash, place % 20 > 0 ? hash - 1 : 0, &notes[place]),
                              0);
        }
        sl_density_restored(after);

        for (uint32_t i = 0; i < 40; i++) {
            was = sl_density_note(before, here(before, 100 + i));
            is = sl_density_note(after, here(after, 100 + i));
            ck_assert_uint_eq(is.class_index, was.class_index);
            ck_assert_uint_eq(is.use_count, was.use_count);
            ck_assert_uint_eq(is.age_references, was.age_references);
        }
        uint32_t unit = sl_density_first(before);
        uint32_t other = sl_density_first(after);
        for (uint32_t i = 0; i < 40; i++) {
            ck_assert_uint_eq(sl_density_user(before, unit), sl_density_user(after, other));
            unit = sl_density_next(before, true);
            other = sl_density_next(after, true);
        }
        ck_assert(unit == 0 && other == 0);
        for (uint64_t i = 0; i < 2000; i++) { /* rows hold what they should: all of it gets older */
            sl_density_leave(after, enter(after, 10000 + i, 0));
        }
        uint32_t count = 0;
        for (other = sl_density_first(after); other != 0; other = sl_density_next(after, false)) {
            sl_density_leave(after, other);
            count++;
        }
        ck_assert_uint_eq(count, 40);
        sl_density_destroy(&before);
        sl_density_destroy(&after);
    }
END_TEST

START_TEST(what_was_learnt_comes_back_and_nothing_else_does)
    {
        static unsigned char bytes[SL_DENSITY_SAVED_BYTES + 1];
        struct sl_density *before = density_new();
        struct sl_density *after = density_new();
        struct sl_density_stats stats;
        for (uint64_t i = 0; i < 5000; i++) {
            sl_density_leave(before, enter(before, 1 + i % 700, 0));
        }
        uint32_t length_bytes = sl_density_save(before, bytes);

        ck_assert(!sl_density_load(after, bytes, length_bytes - 1));
        ck_assert(!sl_density_load(after, bytes, length_bytes + 1));
        bytes[length_bytes - 1] = 0xff; /* no number, or a negative one */
        ck_assert(!sl_density_load(after, bytes, length_bytes));
        stats = sl_density_stats(after);
        ck_assert(!stats.learnt && stats.reference_count == 0);
        (void)sl_density_save(before, bytes);
        ck_assert(sl_density_load(after, bytes, length_bytes));

        stats = sl_density_stats(after);
        ck_assert(stats.learnt && stats.reference_count == 5000);
        double was = sl_density_value(before, enter(before, 1 << 20, 0));
        double is = sl_density_value(after, enter(after, 1 << 20, 0));
        ck_assert(is > was * 0.99 && is < was * 1.01);

        for (uint32_t i = 0; i < SL_DENSITY_CELLS;
             i++) { /* hits in no time: one a reference at most */
            const float rates[2] = {0.0f, 1e14f};
            memcpy(&bytes[16 + i * sizeof(float)], &rates[0], sizeof(float));
            memcpy(&bytes[16 + (SL_DENSITY_CELLS + i) * sizeof(float)], &rates[1], sizeof(float));
        }
        ck_assert(sl_density_load(after, bytes, length_bytes));
        is = sl_density_value(after, enter(after, 2 << 20, 0));
        ck_assert_msg(is > 0.5 && is <= 1.0, "%g", is);
        sl_density_destroy(&before);
        sl_density_destroy(&after);
    }
END_TEST

START_TEST(ghosts_come_back_and_what_is_none_does_no_harm)
    {
        enum { GHOSTS = 1500 };
        static struct sl_density_was lots[2 * GHOSTS];
        const struct sl_density_options options = {.ghosts_min = 4096, .ghosts_max = 1u << 20};
        struct sl_density *before = NULL;
        struct sl_density *after = NULL;
        struct sl_density_note note, was, is;
        struct sl_density_stats stats;
        ck_assert_int_eq(sl_density_create(&options, &before), SL_OK);
        ck_assert_int_eq(sl_density_create(&options, &after), SL_OK);
        (void)enter(before, 7, 0);
        sl_density_use(before, here(before, 7), REG_HINT_NONE);
        note = sl_density_note(before, here(before, 7));
        for (uint64_t i = 0; i < SL_COUNT(lots); i++) { /* each leaves twice */
            uint32_t unit = enter(before, 100 + i % GHOSTS, 0);
            lots[i] = (struct sl_density_was){.where = SL_DENSITY_GHOST,
                                              .note = sl_density_note(before, unit)};
            sl_density_leave(before, unit);
        }

        (void)restore(after, 7, GHOSTS + 99, &note);
        sl_density_restored(after);
        for (uint64_t i = SL_COUNT(lots); i-- > 0;) {
            (void)sl_density_restore(after, &lots[i]);
        }
        struct sl_density_was garbage;
        memset(&garbage, 0xff, sizeof(garbage));
        garbage.where = SL_DENSITY_GHOST;
        (void)sl_density_restore(after, &garbage);
        (void)sl_density_restore(after, &garbage); /* one ghost, so often */
        garbage.note.hash = 7;
        (void)sl_density_restore(after, &garbage); /* more is known */

        stats = sl_density_stats(after);
        ck_assert_uint_eq(stats.ghost_count, GHOSTS + 1);
        ck_assert_uint_eq(stats.unit_count, 1);
        is = sl_density_note(after, here(after, 7));
        ck_assert_uint_eq(is.use_count, 2);
        for (uint64_t hash = 100; hash < 100 + GHOSTS; hash += 111) {
            was = sl_density_note(before, enter(before, hash, 0));
            is = sl_density_note(after, enter(after, hash, 0));
            ck_assert_uint_eq(is.use_count, was.use_count);
            ck_assert_uint_eq(is.use_count, 3);
            ck_assert_uint_eq(is.class_index, was.class_index);
        }
        for (uint64_t i = 0; i < 9000; i++) { /* rows hold what they should: all of it gets older */
            sl_density_leave(after, enter(after, 10000 + i, 0));
        }
        stats = sl_density_stats(after);
        ck_assert_uint_eq(stats.ghost_count, 4096);
        sl_density_destroy(&before);
        sl_density_destroy(&after);
    }
END_TEST

/* A registrar gets such reports while it serves. */
START_TEST(a_ghost_from_before_a_restart_is_older_than_what_left_since)
    {
        struct sl_density *density = density_new();
        struct sl_density_was was = {
            .where = SL_DENSITY_GHOST,
            .note = {.hash = 1, .at = 1000000, .use_count = 7, .class_index = SL_DENSITY_MANY}};
        sl_density_restored(density);
        uint32_t unit = enter(density, 1, 0);
        sl_density_use(density, unit, REG_HINT_NONE);
        sl_density_leave(density, unit);

        ck_assert_uint_eq(sl_density_restore(density, &was), 0); /* the newer one stays */
        for (was.note.hash = 2; was.note.hash <= 20; was.note.hash++) {
            (void)sl_density_restore(density, &was);
        }

        const struct sl_density_note newer = sl_density_note(density, sl_density_find(density, 1));
        const struct sl_density_note older = sl_density_note(density, sl_density_find(density, 2));
        ck_assert_uint_eq(newer.use_count, 2);
        ck_assert_uint_eq(newer.class_index, SL_DENSITY_TWICE);
        ck_assert_uint_eq(older.use_count, 7);
        ck_assert_uint_eq(older.age_references, 0); /* no use is in the future */
        const struct sl_density_stats stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.ghost_count, SMALL_GHOSTS);
        ck_assert_uint_ne(sl_density_find(density, SMALL_GHOSTS), 0);
        ck_assert_uint_eq(sl_density_find(density, SMALL_GHOSTS + 1),
                          0); /* the oldest is dropped */
        sl_density_destroy(&density);
    }
END_TEST

/* The same for units that are kept for now and leave together afterwards. */
START_TEST(a_walk_that_only_looks_gives_each_unit_once_ends_of_chains_first)
    {
        struct sl_density *density = density_new();
        bool seen[64] = {false};
        uint32_t count = 0;
        for (uint64_t hash = 1; hash < 64; hash++) {
            (void)enter(density, hash, hash / 2);
        }
        for (uint32_t unit = sl_density_first(density); unit != 0;
             unit = sl_density_next(density, true)) {
            uint32_t hash = sl_density_user(density, unit);
            ck_assert(!seen[hash]);
            ck_assert(2 * hash >= 64 || (seen[2 * hash] && seen[2 * hash + 1]));
            seen[hash] = true;
            count++;
            ck_assert_uint_le(count, 63);
        }
        ck_assert_uint_eq(count, 63);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(classes_are_those_of_the_table)
    {
        static const struct {
            uint32_t uses, stored;
            bool cut;
            enum reg_hint hint;
            uint32_t want;
        } rows[] = {
            {1, 1, false, REG_HINT_NONE, 0},
            {1, 2, false, REG_HINT_NONE, 1},
            {1, 3, false, REG_HINT_NONE, 1},
            {1, 127, false, REG_HINT_NONE, 6},
            {1, 128, false, REG_HINT_NONE, 7},
            {1, UINT32_MAX, false, REG_HINT_NONE, 7},
            {1, 5, true, REG_HINT_NONE, SL_DENSITY_CUT},
            {2, 5, true, REG_HINT_NONE, SL_DENSITY_TWICE},
            {3, 5, false, REG_HINT_NONE, SL_DENSITY_FEW},
            {4, 5, false, REG_HINT_NONE, SL_DENSITY_FEW},
            {5, 5, false, REG_HINT_NONE, SL_DENSITY_MANY},
            {5, 5, false, REG_HINT_ENDS, SL_DENSITY_MANY + SL_DENSITY_KINDS},
            {1, 0, false, REG_HINT_CONTINUES, 2 * SL_DENSITY_KINDS},
        };
        ck_assert_uint_eq(
            sl_density_class(rows[_i].uses, rows[_i].stored, rows[_i].cut, rows[_i].hint),
            rows[_i].want);
    }
END_TEST

#define CLASS_ROWS 13

/* ---- only on disk ---- */

static uint32_t uses_of(struct sl_density *density, uint64_t hash)
{
    return sl_density_note(density, sl_density_find(density, hash)).use_count;
}

static void to_disk(struct sl_density *density, uint64_t hash)
{
    sl_density_leave(density, here(density, hash));
    sl_density_disk(density, hash, true);
}

START_TEST(what_is_on_disk_is_known_longer_than_any_ghost)
    {
        struct sl_density *density = density_new();
        (void)enter(density, 1, 0);
        to_disk(density, 1);
        for (uint64_t hash = 100; hash < 200;
             hash++) { /* as many ghosts as there may be, and more */
            (void)enter(density, hash, 0);
            sl_density_leave(density, here(density, hash));
        }
        struct sl_density_stats stats;
        stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.disk_count, 1);
        ck_assert_uint_le(stats.ghost_count, SMALL_GHOSTS);

        (void)enter(density, 1, 0);

        ck_assert_uint_eq(uses_of(density, 1), 2);
        (void)enter(density, 100, 0); /* a ghost that was forgotten */
        ck_assert_uint_eq(uses_of(density, 100), 1);
        stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.disk_count, 0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_read_from_disk_is_one_use_though_two_tell_of_it)
    {
        const struct reg_wanted how = {.stored_count = 1};
        struct sl_density *density = density_new();
        (void)enter(density, 1, 0);
        to_disk(density, 1);
        sl_density_disk(density, 1, false);

        uint32_t unit = sl_density_return(density, 1, 1, &how, true);
        ck_assert_uint_eq(uses_of(density, 1), 2);
        sl_density_use(density, unit, REG_HINT_NONE); /* its reader */
        ck_assert_uint_eq(uses_of(density, 1), 2);
        sl_density_use(density, unit, REG_HINT_NONE); /* the next one */

        ck_assert_uint_eq(uses_of(density, 1), 3);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_is_read_for_the_logs_sake_stands_where_it_did)
    {
        const struct reg_wanted how = {.stored_count = 1};
        struct sl_density *density = density_new();
        struct sl_density_note view;
        (void)enter(density, 1, 0);
        to_disk(density, 1);
        for (uint64_t hash = 100; hash < 1100; hash++) {
            (void)enter(density, hash, 0);
        }
        sl_density_disk(density, 1, false);

        uint32_t unit = sl_density_return(density, 1, 1, &how, false);

        ck_assert_uint_eq(uses_of(density, 1), 1);
        view = sl_density_note(density, unit);
        ck_assert_uint_eq(view.age_references, 1000);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_a_scan_finds_was_stored_once)
    {
        struct sl_density *density = density_new();
        sl_density_disk(density, 1, true);
        ck_assert_uint_eq(uses_of(density, 1), 1);
        (void)enter(density, 1, 0);
        ck_assert_uint_eq(uses_of(density, 1), 2);
        sl_density_disk(density, 1, false); /* it is in memory: no effect */
        ck_assert_uint_ne(here(density, 1), 0);
        sl_density_disk(density, 2, false);
        ck_assert_uint_eq(uses_of(density, 2), 0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_is_on_disk_survives_a_restart_with_its_age)
    {
        struct sl_density *density = density_new();
        const struct sl_density_note old = {.at = 1000, .use_count = 3, .class_index = 9};
        const struct sl_density_note young = {.at = 9000, .use_count = 1, .class_index = 0};
        disk_restore(density, 1, &old);
        ck_assert_uint_ne(restore(density, 2, 0, &young), 0);
        disk_restore(density, 3, &old);
        sl_density_disk(density, 3, false); /* before all are restored */

        sl_density_restored(density);

        struct sl_density_stats stats;
        stats = sl_density_stats(density);
        ck_assert_uint_eq(stats.disk_count, 1);
        ck_assert_uint_eq(stats.unit_count, 1);
        ck_assert_uint_eq(uses_of(density, 1), 3);
        (void)enter(density, 1, 0);
        ck_assert_uint_eq(uses_of(density, 1), 4);
        sl_density_destroy(&density);
    }
END_TEST

/* Values that are used repeatedly are worth more than those that never are. */
START_TEST(the_cut_parts_what_is_worth_more)
    {
        struct sl_density *density = density_new();
        for (uint64_t hash = 1; hash <= 10; hash++) {
            (void)enter(density, hash, 0);
        }
        for (uint64_t round = 0; round < 300; round++) {
            for (uint64_t hash = 1; hash <= 10; hash++) {
                sl_density_use(density, here(density, hash), REG_HINT_NONE);
            }
            for (uint64_t hash = 0; hash < 10; hash++) {
                (void)enter(density, 1000 + 10 * round + hash, 0);
            }
        }
        for (uint64_t hash = 1; hash <= 10; hash++) {
            to_disk(density, hash);
        }
        for (uint64_t hash = 1000; hash < 1090; hash++) {
            to_disk(density, hash);
        }

        double cut = sl_density_disk_cut(density, 0.1);

        ck_assert_double_gt(sl_density_value(density, sl_density_find(density, 1)), cut);
        ck_assert_double_le(sl_density_value(density, sl_density_find(density, 1000)), cut);
        ck_assert_double_eq(sl_density_value(density, sl_density_find(density, 999999)), 0.0);
        ck_assert_double_eq(sl_density_disk_cut(density, 1.0), 0.0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_chance_grows_with_the_horizon)
    {
        struct sl_density *density = density_new();
        double last = 0.0;
        ck_assert_double_eq(sl_density_chance(density, sl_density_find(density, 1), 1),
                            1.0); /* nothing has been learnt */
        for (uint64_t hash = 1; hash <= 2000; hash++) {
            (void)enter(density, hash, 0);
            if (hash > 100 && hash % 2 == 0) { /* every second one, once, after a while */
                sl_density_use(density, here(density, hash - 100), REG_HINT_NONE);
            }
        }
        static const uint64_t horizons[] = {0, 100, 1000, 10000};
        for (uint32_t i = 0; i < SL_COUNT(horizons); i++) {
            for (uint64_t hash = 0; hash < 1000; hash++) { /* until values are computed again */
                sl_density_use(density, here(density, 2000), REG_HINT_NONE);
            }
            double chance = sl_density_chance(density, sl_density_find(density, 1999), horizons[i]);
            ck_assert_msg(i == 0 ? chance <= 0.0 : chance > last && chance < 1.0, "%f after %f",
                          chance, last);
            last = chance;
        }
        ck_assert_double_eq(sl_density_chance(density, sl_density_find(density, 999999), 1), 0.0);
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(a_number_is_of_one_user_and_of_what_is_in_memory)
    {
        struct sl_density *density = density_new();
        struct reg_wanted wanted = {.stored_count = 1};
        uint32_t unit = enter(density, 7, 0);
        ck_assert(sl_density_owns(density, unit, 7));
        ck_assert(!sl_density_owns(density, unit, 8));
        ck_assert(!sl_density_owns(density, 0, 0));
        ck_assert(!sl_density_owns(density, unit + 1, 7));
        ck_assert(!sl_density_owns(density, UINT32_MAX, 7));
        ck_assert_uint_eq(sl_density_enter(density, 7, 9, &wanted), 0); /* of another's key */
        ck_assert(sl_density_owns(density, unit, 7));
        ck_assert_uint_eq(stats_count(density), 1);
        sl_density_leave(density, unit);
        ck_assert(!sl_density_owns(density, unit, 7));
        sl_density_destroy(&density);
    }
END_TEST

#define FOLD_HASHES 300u
/* All of them start at the same slot of the table, and its words distinguish half of them. */
static uint64_t folded(uint64_t i)
{
    uint64_t high = (i % 2 == 0 ? i + 1 : i) << 32;
    return high | (UINT64_C(77) ^ high >> 32) | (i % 2 == 0 ? UINT64_C(1) << 31 : 0);
}

START_TEST(hashes_of_one_place_are_told_apart_whichever_leaves)
    {
        struct sl_density *density = density_new();
        for (uint64_t i = 0; i < FOLD_HASHES; i++) {
            (void)enter(density, folded(i), 0);
        }
        for (uint64_t i = 0; i < FOLD_HASHES; i += 3) { /* most are removed as well */
            sl_density_leave(density, here(density, folded(i)));
        }
        for (uint64_t i = 0; i < FOLD_HASHES; i++) {
            uint32_t unit = here(density, folded(i));
            ck_assert_int_eq(unit != 0, i % 3 != 0);
            ck_assert_uint_eq(sl_density_user(density, unit), unit != 0 ? (uint32_t)folded(i) : 0);
        }
        sl_density_destroy(&density);
    }
END_TEST

START_TEST(what_is_used_goes_behind_those_that_follow_it_however_many)
    {
        struct sl_density *density = density_new();
        (void)enter(density, 1, 0);
        for (uint64_t child = 2; child < 2 + (uint64_t)_i; child++) {
            (void)enter(density, child, 1);
        }
        sl_density_use(density, here(density, 1), REG_HINT_NONE);
        for (uint64_t left = (uint64_t)_i; left > 0; left--) {
            uint32_t unit = sl_density_first(density);
            ck_assert_uint_ne(sl_density_user(density, unit), 1);
            sl_density_use(density, unit, REG_HINT_NONE);
            unit = sl_density_first(density);
            ck_assert_uint_ne(sl_density_user(density, unit), 1);
            sl_density_leave(density, unit);
        }
        ck_assert_uint_eq(sl_density_user(density, sl_density_first(density)), 1);
        sl_density_destroy(&density);
    }
END_TEST

/* A few units that enter and leave for long use few numbers, and therefore little memory. */
START_TEST(numbers_are_used_again)
    {
        struct sl_density *density = density_new();
        uint32_t first = enter(density, UINT64_MAX, 0);
        uint32_t most = first;
        for (uint64_t hash = 1; hash <= 100000; hash++) {
            uint32_t unit = enter(density, hash, 0);
            most = SL_MAX(most, unit);
            unit = here(density, hash - hash % 50);
            if (unit != 0) {
                sl_density_use(density, unit, REG_HINT_NONE);
            }
            if (hash > 100) {
                sl_density_leave(density, sl_density_first(density));
            }
        }
        ck_assert_uint_lt(most - first, 1024);
        sl_density_destroy(&density);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("density");
    TCase *tcase = tcase_create("density");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_chain_goes_from_its_end);
    tcase_add_test(tcase, units_are_found_while_their_table_grows);
    tcase_add_test(tcase, no_memory_for_the_table_leaves_the_units_as_they_are);
    tcase_add_test(tcase, before_anything_was_learnt_the_oldest_chain_goes_first);
    tcase_add_test(tcase, of_several_ends_the_one_used_longest_ago_goes);
    tcase_add_test(tcase, what_cannot_go_is_passed_once_a_walk_and_holds_its_chain);
    tcase_add_test(tcase, a_walk_goes_on_when_others_leave_beside_it);
    tcase_add_test(tcase, a_ghost_that_comes_back_was_wanted_twice);
    tcase_add_test(tcase, ghosts_are_bounded_and_the_first_that_left_goes);
    tcase_add_test(tcase, a_parent_that_is_forgotten_leaves_its_children_alone);
    tcase_add_test(tcase, a_chain_that_names_itself_is_no_chain);
    tcase_add_test(tcase, what_comes_back_is_kept_before_what_does_not);
    tcase_add_test(tcase, what_was_said_parts_what_goes_on_from_what_ends);
    tcase_add_loop_test(tcase, any_order_of_calls_keeps_every_unit_and_every_chain, 0, 4);
    tcase_add_test(tcase, a_restart_keeps_order_classes_and_chains);
    tcase_add_test(tcase, what_was_learnt_comes_back_and_nothing_else_does);
    tcase_add_test(tcase, ghosts_come_back_and_what_is_none_does_no_harm);
    tcase_add_test(tcase, a_ghost_from_before_a_restart_is_older_than_what_left_since);
    tcase_add_test(tcase, a_walk_that_only_looks_gives_each_unit_once_ends_of_chains_first);
    tcase_add_loop_test(tcase, classes_are_those_of_the_table, 0, CLASS_ROWS);
    tcase_add_test(tcase, what_is_on_disk_is_known_longer_than_any_ghost);
    tcase_add_test(tcase, a_read_from_disk_is_one_use_though_two_tell_of_it);
    tcase_add_test(tcase, what_is_read_for_the_logs_sake_stands_where_it_did);
    tcase_add_test(tcase, what_a_scan_finds_was_stored_once);
    tcase_add_test(tcase, what_is_on_disk_survives_a_restart_with_its_age);
    tcase_add_test(tcase, the_cut_parts_what_is_worth_more);
    tcase_add_test(tcase, a_chance_grows_with_the_horizon);
    tcase_add_test(tcase, a_number_is_of_one_user_and_of_what_is_in_memory);
    tcase_add_test(tcase, hashes_of_one_place_are_told_apart_whichever_leaves);
    tcase_add_loop_test(tcase, what_is_used_goes_behind_those_that_follow_it_however_many, 0, 8);
    tcase_add_test(tcase, numbers_are_used_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
