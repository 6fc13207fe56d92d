/* tests/unit/ipc/shm/index_leases_test.c - leases: readers and evictions, restarts, damage. */
#include "ipc/shm/index_internal.h"
#include "tests/unit/ipc/shm/index_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define TTL   (100 * SL_NS_PER_MS)
#define NOW   (1000 * SL_NS_PER_S)
#define GRAIN 65536u /* of a lease's end */
#define KEYS  2000u
/* Of blocks: half as long. */
#define HOLD (TTL / 2)

static const struct sl_lease_times no_times = {0};

struct lease_bed {
    struct bed bed;
    struct sl_leases *leases; /* a reader's */
};

static void leases_attach(struct lease_bed *at, uint64_t ttl_ns)
{
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_index_leases_open(at->bed.index, at->bed.dir,
                                         (struct sl_lease_times){ttl_ns, ttl_ns / 2}, &why),
                    why);
    sl_index_recover(at->bed.index, NULL, NULL);
    if (ttl_ns != 0) {
        ck_assert_sl_ok(sl_leases_open(at->bed.dir, at->bed.view, &at->leases, &why), why);
    }
}

static struct lease_bed leases_make(uint64_t ttl_ns)
{
    struct lease_bed at = {.bed = bed_make(4 * SL_MIB, KEYS)};
    leases_attach(&at, ttl_ns);
    return at;
}

static void leases_restart(struct lease_bed *at, uint64_t ttl_ns)
{
    sl_leases_close(&at->leases);
    bed_detach(&at->bed);
    bed_attach(&at->bed);
    leases_attach(at, ttl_ns);
}

static void leases_remove(struct lease_bed *at)
{
    sl_leases_close(&at->leases);
    bed_remove(&at->bed);
}

/* Returns the end of the lease; 0: not found, or not leased. */
static uint64_t look(const struct lease_bed *at, const char *key, uint64_t now_ns)
{
    struct sl_key text = {key, (uint32_t)strlen(key)};
    struct sl_entry entry;
    uint64_t end_ns = 1;
    sl_err err = sl_leases_find(at->leases, &text, now_ns, &entry, &end_ns);
    ck_assert(err == SL_OK || err == SL_ERR_NOT_FOUND);
    ck_assert(err == SL_OK || end_ns == 0);
    return end_ns;
}

static sl_ref insert_bundled(struct lease_bed *at, const char *key, uint64_t number,
                             uint64_t bundle)
{
    struct sl_entry entry = entry_of(key, number);
    sl_ref ref = 0;
    entry.bundle = bundle;
    ck_assert_int_eq(sl_index_insert(at->bed.index, &entry, &ref, NULL), SL_OK);
    return ref;
}

static index_word *word_of(const struct lease_bed *at, sl_ref ref)
{
    struct index_place place;
    uint64_t hash = word_get(&record_at(&at->bed.index->view, ref)[RECORD_HASH]);
    ck_assert(index_place_of(at->bed.index, hash, ref, &place));
    return lease_at(&at->bed.index->leases, place);
}

static bool near(uint64_t got, uint64_t want)
{
    return got >= want && got <= want + GRAIN;
}

START_TEST(what_a_look_up_found_is_leased_for_the_time_to_live)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), 0);

        uint64_t end_ns = look(&at, "key", NOW);

        ck_assert(near(end_ns, NOW + TTL));
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), end_ns);
        ck_assert(!sl_index_lease_close(at.bed.index, ref, NOW + TTL - 1));
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, end_ns), 0);
        ck_assert(sl_index_lease_close(at.bed.index, ref, end_ns));
        ck_assert_uint_eq(look(&at, "other", NOW), 0);
        leases_remove(&at);
    }
END_TEST

START_TEST(a_lease_grows_and_never_shrinks)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        (void)look(&at, "key", NOW);

        ck_assert(near(look(&at, "key", NOW + TTL / 2), NOW + TTL / 2 + TTL));
        (void)look(&at, "key", NOW); /* a reader that read its clock earlier */

        ck_assert(near(sl_index_lease_end(at.bed.index, ref, NOW + TTL), NOW + TTL / 2 + TTL));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_word_that_is_closed_gives_no_lease_and_hides_nothing)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        ck_assert(sl_index_lease_close(at.bed.index, ref, NOW));

        ck_assert_uint_eq(look(&at, "key", NOW), 0);
        ck_assert_int_eq(bed_find(&at.bed, "key", NULL), SL_OK);
        ck_assert(sl_index_lease_close(at.bed.index, ref, NOW)); /* once more changes nothing */

        sl_index_lease_reopen(at.bed.index, ref);
        ck_assert(near(look(&at, "key", NOW), NOW + TTL));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_key_that_comes_into_a_slot_is_not_leased)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        (void)look(&at, "key", NOW);
        index_word *word = word_of(&at, ref);
        sl_index_unlink(at.bed.index, ref, SL_RECORD_FREE);

        ref = bed_insert(&at.bed, "key", 2);

        ck_assert_ptr_eq(word_of(&at, ref), word);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), 0);
        /* A late reader of another key that used the slot before. */
        atomic_store(word, lease_units(NOW + TTL) | lease_tag(0x1234) | UINT64_C(1) << 63);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), 0);
        ck_assert(near(look(&at, "key", NOW), NOW + TTL));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_switched_value_stays_leased)
    {
        struct lease_bed at = leases_make(TTL);
        struct sl_disk_place disk = {.segment = 3, .valid = 1};
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        uint64_t end_ns = look(&at, "key", NOW);

        ck_assert_int_eq(sl_index_switch(at.bed.index, ref, NULL, &disk, &ref), SL_OK);

        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), end_ns);
        leases_remove(&at);
    }
END_TEST

START_TEST(what_lies_too_far_ahead_ends_like_any_other)
    {
        static const uint64_t wild[] = {LEASE_END_MASK, LEASE_END_MASK - 1, LEASE_END_MASK / 2};
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        sl_ref member = insert_bundled(&at, "member", 2, 77);
        struct sl_entry entry;
        sl_index_read(at.bed.index, ref, &entry);
        atomic_store(word_of(&at, ref), lease_tag(entry.hash) | wild[_i]);
        atomic_store(lease_of_bundle(&at.bed.index->leases, 77), wild[_i]);

        ck_assert(near(sl_index_lease_end(at.bed.index, ref, NOW), NOW + TTL));
        ck_assert(near(sl_index_bundle_lease_end(at.bed.index, 77, NOW), NOW + TTL));

        ck_assert(sl_index_lease_close(at.bed.index, ref, NOW + TTL + GRAIN));
        ck_assert(sl_index_bundle_lease_close(at.bed.index, 77, NOW + TTL + GRAIN));
        ck_assert_uint_ne(member, 0);
        leases_remove(&at);
    }
END_TEST

START_TEST(a_member_leases_its_bundle)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref a = insert_bundled(&at, "a", 1, 77);
        sl_ref b = insert_bundled(&at, "b", 2, 77);

        uint64_t end_ns = look(&at, "a", NOW);

        ck_assert(near(end_ns, NOW + TTL));
        ck_assert_uint_eq(sl_index_bundle_lease_end(at.bed.index, 77, NOW), end_ns);
        ck_assert_uint_eq(sl_index_bundle_lease_end(at.bed.index, 78, NOW), 0);
        ck_assert(!sl_index_bundle_lease_close(at.bed.index, 77, NOW));
        /* Renewed when half of it is over, for all. */
        ck_assert_uint_eq(look(&at, "b", NOW + TTL / 2 - GRAIN), end_ns);
        ck_assert(near(look(&at, "b", NOW + TTL / 2 + 2 * GRAIN), NOW + 3 * TTL / 2 + 2 * GRAIN));
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, a, NOW),
                          0); /* the bundle's word shows it */
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, b, NOW), 0);
        leases_remove(&at);
    }
END_TEST

START_TEST(a_node_without_leases_gives_none)
    {
        struct lease_bed at = leases_make(TTL);
        struct sl_key key = {"key", 3};
        struct sl_entry entry;
        uint64_t end_ns = 1;
        sl_err code = SL_ERR_INTERNAL;
        (void)bed_insert(&at.bed, "key", 1);
        struct sl_leases *kept = at.leases;
        at.leases = NULL;
        ck_assert_int_eq(sl_index_leases_open(at.bed.index, at.bed.dir, no_times, NULL), SL_OK);

        ck_assert_int_eq(sl_leases_find(kept, &key, NOW, &entry, &end_ns), SL_OK);
        ck_assert_uint_eq(end_ns, 0);
        end_ns = 1;
        sl_leases_find_batch(kept, &key, 1, NOW, NULL, &end_ns, &code);

        ck_assert_int_eq(code, SL_OK);
        ck_assert_uint_eq(end_ns, 0);
        ck_assert_uint_eq(sl_index_view_lease_ttl(at.bed.view), 0);
        sl_leases_close(&kept);
        leases_remove(&at);
    }
END_TEST

START_TEST(an_index_is_made_with_its_leases)
    {
        struct lease_bed at = leases_make(TTL); /* whose leases another index finds */
        struct sl_index_options options = {.shm_dir = at.bed.dir,
                                           .index_bytes_max = at.bed.index_bytes,
                                           .key_count = at.bed.key_count,
                                           .arena = at.bed.arena,
                                           .leases = {TTL, HOLD}};
        struct sl_error why = {0};
        bool created = false;
        sl_leases_close(&at.leases);
        sl_index_view_close(&at.bed.view);
        sl_index_close(&at.bed.index);
        ck_assert_int_eq(sl_shm_file_remove(at.bed.dir, "index", NULL), SL_OK);

        ck_assert_sl_ok(sl_index_open(&options, &created, &at.bed.index, &why), why);

        ck_assert(created); /* a reader of this moment leases */
        ck_assert_sl_ok(sl_index_view_open(at.bed.dir, &at.bed.view, &why), why);
        ck_assert_uint_eq(sl_index_view_lease_ttl(at.bed.view), TTL);
        ck_assert_uint_eq(sl_index_view_lease_blocks(at.bed.view), HOLD);
        ck_assert_sl_ok(sl_leases_open(at.bed.dir, at.bed.view, &at.leases, &why), why);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        uint64_t end_ns = look(&at, "key", NOW);
        ck_assert_sl_ok(sl_index_leases_open(at.bed.index, at.bed.dir, options.leases, &why), why);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), end_ns);
        leases_remove(&at);
    }
END_TEST

START_TEST(no_leases_take_no_memory)
    {
        struct lease_bed at = leases_make(0);
        char path[256];
        snprintf(path, sizeof(path), "%s/leases", at.bed.dir);

        ck_assert_int_ne(access(path, F_OK), 0);
        sl_ref ref = bed_insert(&at.bed, "key", 1);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), 0);
        ck_assert(sl_index_lease_close(at.bed.index, ref, NOW));
        ck_assert(sl_index_bundle_lease_close(at.bed.index, 5, NOW));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_restart_keeps_leases_and_opens_what_was_closed)
    {
        struct lease_bed at = leases_make(TTL);
        struct sl_entry entry;
        (void)bed_insert(&at.bed, "leased", 1);
        sl_ref going = bed_insert(&at.bed, "going", 2);
        (void)insert_bundled(&at, "member", 3, 77);
        uint64_t end_ns = look(&at, "leased", NOW);
        (void)look(&at, "member", NOW);
        ck_assert(sl_index_lease_close(at.bed.index, going, NOW));
        ck_assert(sl_index_bundle_lease_close(at.bed.index, 78, NOW));

        leases_restart(&at, TTL);

        ck_assert_int_eq(bed_find(&at.bed, "leased", &entry), SL_OK);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, entry.ref, NOW), end_ns);
        ck_assert_uint_eq(sl_index_bundle_lease_end(at.bed.index, 77, NOW), end_ns);
        ck_assert(near(look(&at, "going", NOW), NOW + TTL));
        ck_assert_uint_eq(atomic_load(lease_of_bundle(&at.bed.index->leases, 78)), 0);
        leases_restart(&at, 100 * TTL);
        (void)look(&at, "leased", NOW);
        leases_restart(&at, TTL); /* a much shorter time applies to existing leases as well */
        ck_assert_int_eq(bed_find(&at.bed, "leased", &entry), SL_OK);
        ck_assert(near(sl_index_lease_end(at.bed.index, entry.ref, NOW), NOW + TTL));
        leases_remove(&at);
    }
END_TEST

static const struct {
    const char *what;
    long at; /* byte of the file that is written to; -1: it is cut */
} damages[] = {{"magic", 0}, {"seed", SL_SHM_FILE_OWN_OFFSET_BYTES}, {"size", -1}, {"empty", -2}};

START_TEST(damaged_leases_are_made_anew)
    {
        struct lease_bed at = leases_make(TTL);
        struct sl_error why = {0};
        char path[256];
        (void)bed_insert(&at.bed, "key", 1);
        (void)look(&at, "key", NOW);
        sl_leases_close(&at.leases);
        bed_detach(&at.bed);
        snprintf(path, sizeof(path), "%s/leases", at.bed.dir);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        if (damages[_i].at < 0) {
            ck_assert_int_eq(ftruncate(fd, damages[_i].at == -1 ? 8192 : 0), 0);
        } else {
            ck_assert_int_eq(pwrite(fd, "\xa5\x5a\xa5\x5a", 4, damages[_i].at), 4);
        }
        close(fd);

        bed_attach(&at.bed);
        if (damages[_i].at != -2) {
            ck_assert_int_ne(sl_leases_open(at.bed.dir, at.bed.view, &at.leases, &why), SL_OK);
        }
        leases_attach(&at, TTL);

        ck_assert(near(look(&at, "key", NOW + TTL), NOW + 2 * TTL));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_batch_answers_and_leases_as_single_look_ups_do)
    {
        struct lease_bed at = leases_make(TTL);
        static char names[300][24];
        struct sl_key keys[300];
        struct sl_entry entries[300];
        uint64_t ends[300];
        sl_err codes[300];
        for (uint32_t i = 0; i < 300; i++) {
            snprintf(names[i], sizeof(names[i]), "key-%u-%.*s", i, (int)(i % 9), "xxxxxxxxx");
            keys[i] = (struct sl_key){names[i], (uint32_t)strlen(names[i])};
            if (i % 3 == 0) {
                (void)bed_insert(&at.bed, names[i], i);
            } else if (i % 3 == 1) {
                (void)insert_bundled(&at, names[i], i, 1000 + i / 10);
            }
        }
        keys[299].length = 0;

        sl_leases_find_batch(at.leases, keys, 300, NOW, entries, ends, codes);

        for (uint32_t i = 0; i < 300; i++) {
            bool there = i % 3 != 2;
            ck_assert_int_eq(codes[i], there ? SL_OK : SL_ERR_NOT_FOUND);
            ck_assert(there ? near(ends[i], NOW + TTL) : ends[i] == 0);
            if (there) {
                uint64_t end_ns = i % 3 == 0
                                      ? sl_index_lease_end(at.bed.index, entries[i].ref, NOW)
                                      : sl_index_bundle_lease_end(at.bed.index, 1000 + i / 10, NOW);
                ck_assert_uint_eq(end_ns, ends[i]);
            }
        }
        sl_leases_find_batch(at.leases, keys, 300, NOW, NULL, NULL, codes); /* neither is wanted */
        ck_assert_int_eq(codes[0], SL_OK);
        leases_remove(&at);
    }
END_TEST

/* ---- a reader that leases and a registrar that takes away, key by key at the same time ---- */

struct race {
    struct lease_bed at;
    char names[KEYS][16];
    sl_ref refs[KEYS];
    bool leased[KEYS], gone[KEYS];
    _Atomic uint32_t turn; /* both have started on this key */
};

static void race_wait(struct race *race, uint32_t key)
{
    atomic_fetch_add(&race->turn, 1);
    while (atomic_load(&race->turn) < 2 * (key + 1)) {
        sched_yield();
    }
}

static void *race_reader(void *context)
{
    struct race *race = context;
    for (uint32_t i = 0; i < KEYS; i++) {
        race_wait(race, i);
        race->leased[i] = look(&race->at, race->names[i], NOW) != 0;
    }
    return NULL;
}

START_TEST(a_key_is_leased_or_gone_and_never_both)
    {
        struct race *race = calloc(1, sizeof(*race));
        pthread_t reader;
        uint32_t leased = 0, gone = 0;
        ck_assert_ptr_nonnull(race);
        race->at = leases_make(TTL);
        for (uint32_t i = 0; i < KEYS; i++) {
            snprintf(race->names[i], sizeof(race->names[i]), "key%u", i);
            race->refs[i] = i % 2 == 0 ? bed_insert(&race->at.bed, race->names[i], i)
                                       : insert_bundled(&race->at, race->names[i], i, 5000 + i);
        }
        ck_assert_int_eq(pthread_create(&reader, NULL, race_reader, race), 0);
        struct sl_index *index = race->at.bed.index;
        for (uint32_t i = 0; i < KEYS; i++) {
            race_wait(race, i);
            race->gone[i] = i % 2 == 0 ? sl_index_lease_close(index, race->refs[i], NOW)
                                       : sl_index_bundle_lease_close(index, 5000 + i, NOW);
            if (race->gone[i]) {
                sl_index_unlink(index, race->refs[i], SL_RECORD_FREE);
                sl_index_bundle_lease_reopen(index, i % 2 == 0 ? 0 : 5000 + i);
            }
        }
        pthread_join(reader, NULL);

        for (uint32_t i = 0; i < KEYS; i++) {
            ck_assert_msg(race->leased[i] != race->gone[i], "key %u: leased %d, gone %d", i,
                          race->leased[i], race->gone[i]);
            leased += race->leased[i];
            gone += race->gone[i];
        }
        printf("%u leased, %u gone\n", leased, gone);
        leases_remove(&race->at);
        free(race);
    }
END_TEST

/* ---- blocks ---- */

static sl_ref block_insert(struct lease_bed *at, const char *key, uint64_t number)
{
    char part[64];
    (void)snprintf(part, sizeof part, "%s/0", key);
    sl_ref group = bed_group(&at->bed, key, 1);
    sl_ref ref = bed_claim_part(&at->bed, part, number, group, 0);
    ck_assert_int_eq(sl_index_commit(at->bed.index, ref, (struct sl_digest){1, 2}), SL_OK);
    ck_assert(sl_index_group_fill(at->bed.index, group, 0));
    return group;
}

/* Returns the end of the hold; 0: not held. */
static uint64_t hold(const struct lease_bed *at, const char *key, uint64_t hold_ns, sl_err want)
{
    const struct sl_key text = {key, (uint32_t)strlen(key)};
    sl_err code = SL_ERR_INTERNAL;
    uint64_t end_ns = sl_leases_find_group_batch(at->leases, &text, 1, NOW, hold_ns, &code);
    ck_assert_int_eq(code, want);
    return code == SL_OK ? end_ns : 0;
}

START_TEST(a_block_that_was_found_is_held)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = block_insert(&at, "m/a", 1);
        (void)bed_group(&at.bed, "m/pending", 1);
        ck_assert_uint_eq(hold(&at, "m/a", 0, SL_OK), 0);
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), 0);

        uint64_t end_ns = hold(&at, "m/a", HOLD / 2, SL_OK);

        ck_assert(near(end_ns, NOW + HOLD / 2));
        ck_assert_uint_eq(sl_index_lease_end(at.bed.index, ref, NOW), end_ns);
        ck_assert(!sl_index_lease_close(at.bed.index, ref, NOW + HOLD / 2 - 1));
        ck_assert(sl_index_lease_close(at.bed.index, ref, end_ns));
        (void)hold(&at, "m/pending", HOLD, SL_ERR_BUSY);
        (void)hold(&at, "m/b", HOLD, SL_ERR_NOT_FOUND);
        (void)hold(&at, "m/a/0", HOLD, SL_ERR_NOT_FOUND); /* a part is no block */
        leases_remove(&at);
    }
END_TEST

START_TEST(blocks_are_held_as_long_as_the_node_allows)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = block_insert(&at, "m/a", 1);

        ck_assert(near(hold(&at, "m/a", UINT64_MAX, SL_OK), NOW + HOLD));

        ck_assert(near(sl_index_lease_end(at.bed.index, ref, NOW), NOW + HOLD));
        struct sl_leases *kept = at.leases;
        ck_assert_int_eq(sl_index_leases_open(at.bed.index, at.bed.dir, no_times, NULL), SL_OK);
        at.leases = kept;
        ck_assert_uint_eq(hold(&at, "m/a", HOLD, SL_OK), 0);
        leases_remove(&at);
    }
END_TEST

/* Closed permanently, as by a stopped registrar: a lookup without a hold finds it. */
START_TEST(a_block_that_is_being_evicted_is_not_held)
    {
        struct lease_bed at = leases_make(TTL);
        sl_ref ref = block_insert(&at, "m/a", 1);
        ck_assert(sl_index_lease_close(at.bed.index, ref, NOW));

        (void)hold(&at, "m/a", HOLD, SL_ERR_NOT_FOUND);
        (void)hold(&at, "m/a", 0, SL_OK);

        sl_index_lease_reopen(at.bed.index, ref);
        ck_assert(near(hold(&at, "m/a", HOLD, SL_OK), NOW + HOLD));
        leases_remove(&at);
    }
END_TEST

START_TEST(a_batch_of_blocks_answers_as_single_look_ups_do)
    {
        static char names[300][16];
        static struct sl_key keys[300];
        static sl_err codes[300], held[300];
        static sl_ref refs[300];
        struct lease_bed at = leases_make(TTL);
        for (uint32_t i = 0; i < 300; i++) {
            snprintf(names[i], sizeof names[i], "m/%u", i);
            keys[i] = (struct sl_key){names[i], (uint32_t)strlen(names[i])};
            if (i % 3 == 0) {
                refs[i] = block_insert(&at, names[i], i + 1);
            } else if (i % 3 == 1) {
                (void)bed_group(&at.bed, names[i], 2);
            }
        }
        keys[299].length = SL_KEY_BYTES_MAX + 1;
        keys[298].length = 0;

        sl_index_find_group_batch(at.bed.view, keys, 300, codes);
        uint64_t end_ns = sl_leases_find_group_batch(at.leases, keys, 300, NOW, HOLD, held);

        ck_assert(near(end_ns, NOW + HOLD));
        for (uint32_t i = 0; i < 300; i++) {
            ck_assert_int_eq(codes[i],
                             sl_index_find_group(at.bed.view, keys[i].at, keys[i].length));
            ck_assert_int_eq(held[i], codes[i]);
            ck_assert_int_eq(codes[i], i >= 298     ? SL_ERR_NOT_FOUND
                                       : i % 3 == 0 ? SL_OK
                                       : i % 3 == 1 ? SL_ERR_BUSY
                                                    : SL_ERR_NOT_FOUND);
            ck_assert(refs[i] == 0 || sl_index_lease_end(at.bed.index, refs[i], NOW) == end_ns);
        }
        leases_remove(&at);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_leases");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_a_look_up_found_is_leased_for_the_time_to_live);
    tcase_add_test(tcase, a_lease_grows_and_never_shrinks);
    tcase_add_test(tcase, a_word_that_is_closed_gives_no_lease_and_hides_nothing);
    tcase_add_test(tcase, a_key_that_comes_into_a_slot_is_not_leased);
    tcase_add_test(tcase, a_switched_value_stays_leased);
    tcase_add_loop_test(tcase, what_lies_too_far_ahead_ends_like_any_other, 0, 3);
    tcase_add_test(tcase, a_member_leases_its_bundle);
    tcase_add_test(tcase, a_node_without_leases_gives_none);
    tcase_add_test(tcase, an_index_is_made_with_its_leases);
    tcase_add_test(tcase, no_leases_take_no_memory);
    tcase_add_test(tcase, a_restart_keeps_leases_and_opens_what_was_closed);
    tcase_add_loop_test(tcase, damaged_leases_are_made_anew, 0, SL_COUNT(damages));
    tcase_add_test(tcase, a_batch_answers_and_leases_as_single_look_ups_do);
    tcase_add_test(tcase, a_key_is_leased_or_gone_and_never_both);
    tcase_add_test(tcase, a_block_that_was_found_is_held);
    tcase_add_test(tcase, blocks_are_held_as_long_as_the_node_allows);
    tcase_add_test(tcase, a_block_that_is_being_evicted_is_not_held);
    tcase_add_test(tcase, a_batch_of_blocks_answers_as_single_look_ups_do);
    return suite_run(tcase, "index_leases");
}
