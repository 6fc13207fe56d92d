/* tests/unit/pins_test.c - what is pinned does not change; limits; the access ring; leftovers of
 * the dead. */
#include "ipc/sl_pins.h"
#include "tests/unit/index_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define INDEX_BYTES (2 * SL_MIB)

static struct sl_pins *pins_in(const char *dir, uint32_t slots, uint64_t bytes_max)
{
    struct sl_pins_options options = {.shm_dir = dir,
                                      .name = "pins.client",
                                      .slot_count = slots,
                                      .access_count = 8,
                                      .self = sl_proc_id_self(),
                                      .pinned_bytes_max = bytes_max};
    struct sl_pins *pins = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_create(&options, &pins, &why), why);
    return pins;
}

struct seen {
    uint64_t generations[64];
    uint32_t count;
};

static void see(void *context, uint64_t generation)
{
    struct seen *seen = context;
    ck_assert_uint_lt(seen->count, SL_COUNT(seen->generations));
    seen->generations[seen->count++] = generation;
}

static struct sl_pins_view *view_of(const char *dir)
{
    struct sl_pins_view *view = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_view_open(dir, "client", &view, &why),
                    why); /* the short name is the same */
    return view;
}

START_TEST(pin_is_seen_until_it_is_given_back)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 16, SL_GIB);
        struct sl_pins_view *view = view_of(bed.dir);
        struct sl_entry entry;
        struct seen seen = {.count = 0};
        sl_pin pin = 0;
        bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_OK);

        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 1);
        ck_assert_uint_eq(seen.generations[0], 1001);
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 4001);
        ck_assert(sl_proc_id_equal(sl_pins_view_owner(view), sl_proc_id_self()));

        sl_pins_give(pins, pin);
        sl_pins_give(pins, 0); /* none */

        seen.count = 0;
        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0);
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(entry_that_changed_is_stale)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 16, SL_GIB);
        struct sl_entry entry;
        struct sl_extent none = {0};
        struct seen seen = {.count = 0};
        sl_pin pin = 0;
        sl_ref ref = bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);
        ck_assert_int_eq(sl_index_switch(bed.index, ref, NULL, NULL, &ref), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_STALE);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_OK);
        sl_pins_give(pins, pin);
        sl_index_unlink(bed.index, ref, SL_RECORD_RETIRED);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_STALE);
        ref = bed_insert(&bed, "key", 2);
        ck_assert_int_eq(sl_index_switch(bed.index, ref, &none, NULL, &ref), SL_OK);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pin), SL_ERR_NOT_FOUND);

        struct sl_pins_view *view = view_of(bed.dir);
        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0); /* failed pins leave nothing */
        ck_assert_uint_eq(sl_pins_pinned_bytes(pins), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(slots_and_bytes_are_bounded)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_pins *pins = pins_in(bed.dir, 2, 3 * 4001);
        struct sl_entry entry;
        sl_pin pins_taken[3] = {0};
        bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &entry), SL_OK);

        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[2]),
                         SL_ERR_LIMIT); /* slots */
        sl_pins_give(pins, pins_taken[0]);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        sl_pins_destroy(&pins);

        pins = pins_in(bed.dir, 8, 2 * 4001 - 1);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]),
                         SL_ERR_LIMIT); /* bytes */
        sl_pins_give(pins, pins_taken[0]);
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[0]), SL_OK);
        entry.extent.length_bytes = UINT64_MAX; /* nothing wraps */
        ck_assert_int_eq(sl_pins_take(pins, bed.view, &entry, &pins_taken[1]), SL_ERR_LIMIT);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(accesses_are_drained_in_order_and_the_oldest_are_lost)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = pins_in(dir, 2, SL_GIB);
        struct sl_pins_view *view = view_of(dir);
        struct sl_access out[16];
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 0);
        for (uint32_t i = 0; i < 3; i++) {
            sl_pins_note_access(pins, 10 + i, 100 + i);
        }

        ck_assert_uint_eq(sl_pins_view_drain(view, out, 2), 2);

        ck_assert_uint_eq(out[0].ref, 10);
        ck_assert_uint_eq(out[1].generation, 101);
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 1);
        ck_assert_uint_eq(out[0].ref, 12);
        for (uint32_t i = 0; i < 30; i++) {
            sl_pins_note_access(pins, i, i);
        }
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 8); /* the ring's size */
        ck_assert_uint_eq(out[0].ref, 22);
        ck_assert_uint_eq(out[7].ref, 29);
        ck_assert_uint_eq(sl_pins_view_drain(view, out, 16), 0);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(segment_of_a_dead_process_is_replaced_and_of_a_living_one_is_not)
    {
        char *dir = shm_dir_make();
        struct sl_pins *second = NULL;
        pid_t child = fork();
        if (child == 0) {
            pins_in(dir, 4, SL_GIB);
            _exit(0); /* without destroying */
        }
        ck_assert_int_eq(waitpid(child, NULL, 0), child);

        struct sl_pins *pins = pins_in(dir, 8, SL_GIB);

        struct sl_pins_options options = {.shm_dir = dir,
                                          .name = "pins.client",
                                          .slot_count = 4,
                                          .access_count = 8,
                                          .self = sl_proc_id_self()};
        ck_assert_int_eq(sl_pins_create(&options, &second, NULL), SL_ERR_EXISTS);
        sl_pins_destroy(&pins);
        pins = pins_in(dir, 8, SL_GIB); /* destroying removed the file */
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(counts_out_of_range_are_invalid)
    {
        char *dir = shm_dir_make();
        struct sl_pins *pins = NULL;
        struct sl_pins_options options = {
            .shm_dir = dir, .name = "x", .slot_count = 0, .access_count = 8};
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        options.slot_count = 1;
        options.access_count = 7;
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        options.access_count = 8;
        options.name = "a-name-that-is-much-too-long-for-a-pin-segment-of-one-client-of-a-node";
        ck_assert_int_eq(sl_pins_create(&options, &pins, NULL), SL_ERR_INVALID);
        shm_dir_remove(dir);
    }
END_TEST

static const struct {
    off_t at;
    uint64_t value;
    unsigned bytes;
} hostile[] = {
    {16, 0, 4}, {16, 5000, 4}, {16, UINT32_MAX, 4}, /* slot_count */
    {20, 0, 4}, {20, 7, 4},    {20, 1u << 19, 4},   /* access_count */
};

START_TEST(hostile_counts_of_a_client_are_corrupt)
    {
        char *dir = shm_dir_make();
        char path[128];
        struct sl_pins *pins = pins_in(dir, 4, SL_GIB);
        struct sl_pins_view *view = NULL;
        snprintf(path, sizeof(path), "%s/pins.client", dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &hostile[_i].value, hostile[_i].bytes,
                                (off_t)SL_SEGMENT_OWN_OFFSET_BYTES + hostile[_i].at),
                         hostile[_i].bytes);
        close(fd);

        ck_assert_int_eq(sl_pins_view_open(dir, "pins.client", &view, NULL), SL_ERR_CORRUPT);

        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

START_TEST(hostile_positions_of_a_client_are_bounded)
    {
        char *dir = shm_dir_make();
        char path[128];
        uint64_t value = UINT64_MAX;
        struct sl_access out[16];
        struct seen seen = {.count = 0};
        struct sl_pins *pins = pins_in(dir, 4, SL_GIB);
        struct sl_pins_view *view = view_of(dir);
        snprintf(path, sizeof(path), "%s/pins.client", dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &value, 8, SL_SEGMENT_OWN_OFFSET_BYTES + 64),
                         8); /* slots_used */
        ck_assert_int_eq(pwrite(fd, &value, 8, SL_SEGMENT_OWN_OFFSET_BYTES + 128),
                         8); /* access_position */
        close(fd);

        sl_pins_view_scan(view, see, &seen);
        ck_assert_uint_eq(seen.count, 0);
        ck_assert_uint_le(sl_pins_view_drain(view, out, 16), 8);
        sl_pins_view_close(&view);
        sl_pins_destroy(&pins);
        shm_dir_remove(dir);
    }
END_TEST

/* ---- pinned bytes do not change ---- */

#define STRESS_KEYS    24u
#define STRESS_READERS 2
#define STRESS_BYTES   512u
#define RETIRED_MAX    4096u

struct stress {
    struct bed bed;
    struct sl_pins *pins;
    struct sl_pins_view *pins_view;
    struct sl_alloc *alloc;
    _Atomic bool stop;
    _Atomic uint64_t pinned, stale, limit, wrong, misses;
    struct {
        sl_ref ref;
        struct sl_extent extent;
    } retired[RETIRED_MAX];
    uint32_t retired_count;
    uint64_t held_count;
};

static uint64_t stress_word(uint32_t key, uint64_t generation)
{
    return generation * UINT64_C(0x9e3779b97f4a7c15) ^ key;
}

static bool stress_bytes_right(struct stress *stress, uint32_t key, const struct sl_entry *entry)
{
    const _Atomic uint64_t *words =
        sl_arena_at(stress->bed.arena, entry->extent.offset_bytes, STRESS_BYTES);
    bool right = words != NULL;
    for (uint32_t i = 0; right && i < STRESS_BYTES / 8; i++) {
        right = atomic_load_explicit(&words[i], memory_order_relaxed) ==
                stress_word(key, entry->extent.generation);
    }
    return right;
}

static void *stress_reader(void *argument)
{
    struct stress *stress = argument;
    uint64_t random = (uint64_t)(uintptr_t)&random | 1;
    while (!atomic_load(&stress->stop)) {
        uint32_t number = (uint32_t)(random_next(&random) % STRESS_KEYS);
        struct sl_entry entry;
        sl_pin pin = 0;
        char key[16];
        snprintf(key, sizeof(key), "key-%u", number);
        if (bed_find(&stress->bed, key, &entry) != SL_OK) {
            atomic_fetch_add(&stress->misses, 1);
            continue;
        }
        sl_err err = sl_pins_take(stress->pins, stress->bed.view, &entry, &pin);
        if (err == SL_OK) {
            bool right = true;
            for (int i = 0; i < 4; i++) { /* for a while */
                right = right && stress_bytes_right(stress, number, &entry);
            }
            atomic_fetch_add(&stress->wrong, right ? 0 : 1);
            atomic_fetch_add(&stress->pinned, 1);
            sl_pins_give(stress->pins, pin);
        } else {
            must(err == SL_ERR_STALE || err == SL_ERR_LIMIT);
            atomic_fetch_add(err == SL_ERR_STALE ? &stress->stale : &stress->limit, 1);
        }
    }
    return NULL;
}

static struct sl_extent stress_fill(struct stress *stress, uint32_t number)
{
    struct sl_extent extent = {.length_bytes = STRESS_BYTES};
    must(sl_alloc_take(stress->alloc, STRESS_BYTES, &extent.offset_bytes) == SL_OK);
    extent.generation = sl_arena_next_generation(stress->bed.arena);
    _Atomic uint64_t *words = sl_arena_at(stress->bed.arena, extent.offset_bytes, STRESS_BYTES);
    for (uint32_t i = 0; i < STRESS_BYTES / 8; i++) {
        atomic_store_explicit(&words[i], stress_word(number, extent.generation),
                              memory_order_relaxed);
    }
    return extent;
}

/* The registrar's batch: fence, scan, free what nobody pins. */
static void stress_reap(struct stress *stress)
{
    struct seen seen = {.count = 0};
    uint32_t kept = 0;
    atomic_thread_fence(memory_order_seq_cst);
    sl_pins_view_scan(stress->pins_view, see, &seen);
    for (uint32_t i = 0; i < stress->retired_count; i++) {
        bool pinned = false;
        for (uint32_t j = 0; j < seen.count; j++) {
            pinned = pinned || seen.generations[j] == stress->retired[i].extent.generation;
        }
        if (pinned) {
            stress->held_count++;
            stress->retired[kept++] = stress->retired[i];
            continue;
        }
        sl_index_set_kind(stress->bed.index, stress->retired[i].ref, SL_RECORD_FREE);
        sl_alloc_give(stress->alloc, stress->retired[i].extent.offset_bytes, STRESS_BYTES);
    }
    stress->retired_count = kept;
}

START_TEST(pinned_bytes_do_not_change_while_everything_else_does)
    {
        uint64_t random = random_seed("pinned_bytes_do_not_change_while_everything_else_does");
        struct stress *stress = calloc(1, sizeof(*stress));
        sl_ref refs[STRESS_KEYS];
        pthread_t readers[STRESS_READERS];
        stress->bed = bed_make(SL_MIB, 100);
        stress->pins = pins_in(stress->bed.dir, 32, SL_GIB);
        stress->pins_view = view_of(stress->bed.dir);
        struct sl_alloc_options options = {.data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        ck_assert_int_eq(sl_arena_populate_step(stress->bed.arena, NULL), SL_OK);
        ck_assert_int_eq(sl_alloc_create(&options, &stress->alloc, NULL), SL_OK);
        sl_alloc_grow(stress->alloc, sl_arena_populated_bytes(stress->bed.arena));
        for (uint32_t i = 0; i < STRESS_KEYS; i++) {
            char key[16];
            snprintf(key, sizeof(key), "key-%u", i);
            struct sl_entry entry = entry_of(key, i);
            entry.extent = stress_fill(stress, i);
            ck_assert_int_eq(sl_index_insert(stress->bed.index, &entry, &refs[i], NULL), SL_OK);
        }
        for (int i = 0; i < STRESS_READERS; i++) {
            ck_assert_int_eq(pthread_create(&readers[i], NULL, stress_reader, stress), 0);
        }
        uint64_t ends_ns = stopwatch_ns() + 3000000000u;
        uint64_t changes = 0;
        while (stopwatch_ns() < ends_ns) {
            for (int i = 0; i < 20; i++, changes++) {
                uint32_t number = (uint32_t)(random_next(&random) % STRESS_KEYS);
                struct sl_entry old;
                bool retired = false;
                sl_index_read(stress->bed.index, refs[number], &old);
                struct sl_extent extent = stress_fill(stress, number);
                must(sl_index_switch_retire(stress->bed.index, old.ref, &extent, NULL,
                                            &refs[number], &retired) == SL_OK);
                must(retired && stress->retired_count < RETIRED_MAX);
                stress->retired[stress->retired_count].ref = old.ref;
                stress->retired[stress->retired_count++].extent = old.extent;
            }
            stress_reap(stress);
        }
        atomic_store(&stress->stop, true);
        for (int i = 0; i < STRESS_READERS; i++) {
            pthread_join(readers[i], NULL);
        }
        printf("pins: %llu changes, %llu pinned, %llu stale, %llu held back\n",
               (unsigned long long)changes, (unsigned long long)stress->pinned,
               (unsigned long long)stress->stale, (unsigned long long)stress->held_count);
        ck_assert_uint_eq(stress->wrong, 0);
        ck_assert_uint_eq(stress->misses, 0);
        ck_assert_uint_gt(stress->pinned, 100);
        stress_reap(stress);
        ck_assert_uint_eq(stress->retired_count, 0);
        ck_assert_uint_eq(sl_pins_pinned_bytes(stress->pins), 0);
        sl_alloc_destroy(&stress->alloc);
        sl_pins_view_close(&stress->pins_view);
        sl_pins_destroy(&stress->pins);
        bed_remove(&stress->bed);
        free(stress);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("pins");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, pin_is_seen_until_it_is_given_back);
    tcase_add_test(tcase, entry_that_changed_is_stale);
    tcase_add_test(tcase, slots_and_bytes_are_bounded);
    tcase_add_test(tcase, accesses_are_drained_in_order_and_the_oldest_are_lost);
    tcase_add_test(tcase, segment_of_a_dead_process_is_replaced_and_of_a_living_one_is_not);
    tcase_add_test(tcase, counts_out_of_range_are_invalid);
    tcase_add_loop_test(tcase, hostile_counts_of_a_client_are_corrupt, 0, SL_COUNT(hostile));
    tcase_add_test(tcase, hostile_positions_of_a_client_are_bounded);
    tcase_add_test(tcase, pinned_bytes_do_not_change_while_everything_else_does);
    return suite_run(tcase, "pins");
}
