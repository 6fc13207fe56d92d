/* tests/unit/ipc/shm/index_test.c - lookups, claims, blocks, switching, limits; a model with
 * restarts; readers under churn. */
#include "tests/unit/ipc/shm/index_support.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

#define INDEX_BYTES (4 * SL_MIB)

static void assert_same_object(const struct sl_entry *got, const struct sl_entry *want)
{
    ck_assert_uint_eq(got->kind, SL_RECORD_COMMITTED);
    ck_assert_mem_eq(&got->extent, &want->extent, sizeof(got->extent));
    ck_assert(sl_digest_equal(got->digest, want->digest));
    ck_assert_mem_eq(&got->disk, &want->disk, sizeof(got->disk));
    ck_assert(sl_proc_id_equal(got->owner, want->owner));
    ck_assert(sl_proc_id_equal(got->writer, want->writer));
    ck_assert_uint_eq(got->deadline_ns, want->deadline_ns);
    ck_assert_uint_eq(got->op_id, want->op_id);
    ck_assert_uint_eq(got->group, want->group);
    ck_assert_uint_eq(got->part_index, want->part_index);
    ck_assert_uint_eq(got->key_length, want->key_length);
    ck_assert_mem_eq(got->key, want->key, want->key_length);
}

START_TEST(what_was_inserted_is_found_with_all_its_fields)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry want = entry_of("model/block/0/kv", 5);
        struct sl_entry got;
        sl_ref ref = 0;
        want.extent.arena = 65535;
        want.disk = (struct sl_disk_place){
            .offset_bytes = UINT64_MAX - 1, .segment = UINT32_MAX, .disk = 65535, .valid = 1};
        ck_assert_int_eq(sl_index_insert(bed.index, &want, &ref, NULL), SL_OK);

        ck_assert_int_eq(bed_find(&bed, "model/block/0/kv", &got), SL_OK);

        assert_same_object(&got, &want);
        ck_assert_uint_eq(got.ref, ref);
        ck_assert(sl_index_unchanged(bed.view, &got));
        ck_assert_int_eq(bed_find(&bed, "model/block/0/kw", &got), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(bed_find(&bed, "model/block/0/k", NULL), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

static void assert_terms(const struct sl_entry *got, const struct sl_entry *want, uint64_t end_ns)
{
    ck_assert_uint_eq(got->hard_pin, want->hard_pin);
    ck_assert_uint_eq(got->soft_pin_ns, want->soft_pin_ns);
    ck_assert_uint_eq(got->soft_pin_end_ns, end_ns);
    ck_assert_uint_eq(got->bundle, want->bundle);
    ck_assert_uint_eq(got->contribution, want->contribution);
}

static const uint32_t key_lengths[] = {1,  7,  8,  9,   15,   16,   40,  41,
                                       63, 64, 65, 255, 1000, 1023, 1024};

/* A mebibyte at a time would be 524 bytes a key here. */
START_TEST(few_keys_populate_little_memory)
    {
        enum { KEYS = 2000 };
        struct bed bed = bed_make(64 * SL_MIB, KEYS);
        struct sl_index_stats stats, empty;
        char key[40];
        sl_index_view_stats(bed.view, &empty);

        for (uint32_t i = 0; i < KEYS; i++) {
            (void)snprintf(key, sizeof(key), "model/%032u", i);
            (void)bed_insert(&bed, key, i);
        }

        sl_index_view_stats(bed.view, &stats);
        ck_assert_uint_lt((stats.mapped_bytes - empty.mapped_bytes) / KEYS, 300);
        bed_remove(&bed);
    }
END_TEST

START_TEST(terms_stay_with_a_value_from_its_claim_on)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        char key[SL_KEY_BYTES_MAX + 1];
        struct sl_disk_place disk = {.segment = 3, .valid = 1};
        struct sl_entry got;
        sl_ref ref = 0;
        memset(key, 'k', sizeof(key));
        struct sl_entry want = entry_of("", 1);
        want.key = key;
        want.key_length = (uint16_t)key_lengths[_i];
        want.hard_pin = true;
        want.soft_pin_ns = 500;
        want.bundle = UINT64_MAX - 7;
        want.contribution = 64;
        sl_index_set_now(bed.index, 10000);
        ck_assert_int_eq(sl_index_claim(bed.index, &want, &ref, NULL), SL_OK);
        sl_index_read(bed.index, ref, &got);
        assert_terms(&got, &want, 0);
        bed_detach(&bed); /* a new registrar commits what the one before granted */
        bed_attach(&bed);
        sl_index_recover(bed.index, NULL, NULL);
        sl_index_set_now(bed.index, 20000);
        ck_assert_int_eq(sl_index_commit(bed.index, ref, (struct sl_digest){1, 2}), SL_OK);
        ck_assert_int_eq(sl_index_find(bed.view, key, want.key_length, &got), SL_OK);
        assert_terms(&got, &want, 20500);
        ck_assert_mem_eq(got.key, key, want.key_length);

        ck_assert_int_eq(sl_index_switch(bed.index, ref, NULL, &disk, &ref), SL_OK);

        ck_assert_int_eq(sl_index_find(bed.view, key, want.key_length, &got), SL_OK);
        assert_terms(&got, &want, 20500);
        ck_assert(sl_index_set_contribution(bed.index, ref, 6));
        want.contribution = 6;
        bed_detach(&bed);
        bed_attach(&bed);
        sl_index_recover(bed.index, NULL, NULL);
        ck_assert_int_eq(sl_index_find(bed.view, key, want.key_length, &got), SL_OK);
        assert_terms(&got, &want, 20500);
        ck_assert_uint_eq(got.disk.segment, 3);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_record_gets_a_place_for_contributions_when_it_is_switched)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_disk_place disk = {.segment = 3, .valid = 1};
        struct sl_entry got;
        sl_ref plain = bed_insert(&bed, "plain", 1);
        ck_assert(!sl_index_set_contribution(bed.index, plain, 2));
        ck_assert(sl_index_set_contribution(bed.index, plain, 0));

        sl_index_set_contributed(bed.index, true);
        ck_assert_int_eq(sl_index_switch(bed.index, plain, NULL, &disk, &plain), SL_OK);

        ck_assert(sl_index_set_contribution(bed.index, plain, 2));
        ck_assert_int_eq(bed_find(&bed, "plain", &got), SL_OK);
        ck_assert_uint_eq(got.contribution, 2);
        ck_assert_uint_eq(got.extent.generation, 1001);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_replaced_value_leaves_when_its_successor_is_there)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry before, got;
        sl_ref old = bed_insert(&bed, "key", 1);
        sl_ref fresh = bed_claim_part(&bed, "key", 2, 0, 0);
        bool retired = false;
        ck_assert_int_eq(bed_find(&bed, "key", &before), SL_OK);
        ck_assert_uint_eq(before.ref, old);

        sl_index_commit_over(bed.index, fresh, (struct sl_digest){8, 9}, old, &retired);

        ck_assert(retired);
        ck_assert(!sl_index_unchanged(bed.view, &before));
        ck_assert_int_eq(bed_find(&bed, "key", &got), SL_OK);
        ck_assert_uint_eq(got.ref, fresh);
        ck_assert_uint_eq(got.digest.low, 8);
        sl_index_read(bed.index, old, &got);
        ck_assert_uint_eq(got.kind, SL_RECORD_RETIRED);
        sl_index_set_kind(bed.index, old, SL_RECORD_FREE);
        bed_remove(&bed);
    }
END_TEST

START_TEST(keys_of_any_length_are_compared_in_full)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        char key[SL_KEY_BYTES_MAX + 1];
        struct sl_entry got;
        sl_ref ref = 0;
        uint32_t length = key_lengths[_i];
        memset(key, 'k', sizeof(key));
        struct sl_entry want = entry_of("", 1);
        want.key = key;
        want.key_length = (uint16_t)length;
        ck_assert_int_eq(sl_index_insert(bed.index, &want, &ref, NULL), SL_OK);

        ck_assert_int_eq(sl_index_find(bed.view, key, length, &got), SL_OK);

        ck_assert_mem_eq(got.key, key, length);
        ck_assert_int_eq(sl_index_find(bed.view, key, length - 1, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find(bed.view, key, length + 1, NULL), SL_ERR_NOT_FOUND);
        key[length - 1] = 'x';
        ck_assert_int_eq(sl_index_find(bed.view, key, length, NULL), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

START_TEST(wants_out_of_range_are_invalid)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        char key[SL_KEY_BYTES_MAX + 1] = "k";
        struct sl_entry want = entry_of("k", 1);
        struct sl_group_want group = {.key = {key, 1}, .part_count = 513};
        sl_ref ref = 0;

        want.key_length = 0;
        ck_assert_int_eq(sl_index_insert(bed.index, &want, &ref, NULL), SL_ERR_INVALID);
        want.key = key;
        want.key_length = 1025;
        ck_assert_int_eq(sl_index_claim(bed.index, &want, &ref, NULL), SL_ERR_INVALID);
        want.key_length = 1;
        want.extent.arena = 65536;
        ck_assert_int_eq(sl_index_claim(bed.index, &want, &ref, NULL), SL_ERR_INVALID);
        want.extent.arena = 0;
        want.kind = SL_RECORD_COMMITTED;
        ck_assert_int_eq(sl_index_claim(bed.index, &want, &ref, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_index_group_create(bed.index, &group, &ref, NULL), SL_ERR_INVALID);
        group.part_count = 2;
        ck_assert_int_eq(sl_index_group_create(bed.index, &group, &ref, NULL), SL_OK);
        ck_assert_int_eq(sl_index_group_create(bed.index, &group, &ref, NULL), SL_ERR_EXISTS);
        want.kind = SL_RECORD_RESERVED;
        want.group = ref;
        want.part_index = 2;
        ck_assert_int_eq(sl_index_claim(bed.index, &want, &ref, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_index_blob_put(bed.index, key, SL_BLOB_BYTES_MAX + 1, 0, &ref, NULL),
                         SL_ERR_INVALID);
        ck_assert_int_eq(sl_index_find(bed.view, "", 0, NULL), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

START_TEST(key_is_found_by_the_hash_that_its_record_has)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        const struct sl_key key = {.at = "key", .length = 3}, other = {.at = "kex", .length = 3};
        struct sl_entry got;
        struct sl_extent extent;
        sl_ref group = bed_group(&bed, "block", 1);
        sl_ref ref = bed_claim_part(&bed, "key", 7, group, 0);
        ck_assert_int_eq(sl_index_commit(bed.index, ref, (struct sl_digest){8, 9}), SL_OK);

        uint64_t hash = sl_index_fetch_key(bed.index, key);

        ck_assert_int_eq(sl_index_find_hashed(bed.index, key, hash, &got), SL_OK);
        ck_assert_uint_eq(got.ref, ref);
        ck_assert_uint_eq(got.hash, hash);
        ck_assert_int_eq(sl_index_find_hashed(bed.index, other, hash, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_kind(bed.index, ref), SL_RECORD_COMMITTED);
        ck_assert_int_eq(sl_index_kind(bed.index, group), SL_RECORD_GROUP);
        sl_index_extent(bed.index, ref, &extent);
        ck_assert_mem_eq(&extent, &got.extent, sizeof(extent));
        bed_remove(&bed);
    }
END_TEST

START_TEST(reservation_is_found_only_once_committed)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry got;
        sl_ref ref = bed_claim_part(&bed, "key", 1, 0, 0);
        ck_assert_int_eq(bed_find(&bed, "key", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_any(bed.index, "key", 3, NULL), SL_ERR_NOT_FOUND);
        ck_assert(sl_index_claim_exists(bed.view, ref, 1001));
        ck_assert(!sl_index_claim_exists(bed.view, ref, 1002));

        ck_assert_int_eq(sl_index_commit(bed.index, ref, (struct sl_digest){8, 9}), SL_OK);

        ck_assert_int_eq(bed_find(&bed, "key", &got), SL_OK);
        ck_assert_uint_eq(got.digest.low, 8);
        ck_assert_uint_eq(got.digest.high, 9);
        ck_assert_uint_eq(got.ref, ref);
        ck_assert(!sl_index_claim_exists(bed.view, ref, 1001));
        bed_remove(&bed);
    }
END_TEST

START_TEST(claim_that_ended_does_not_stand)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        sl_ref quarantined = bed_claim_part(&bed, "a", 1, 0, 0);
        sl_ref freed = bed_claim_part(&bed, "b", 2, 0, 0);

        sl_index_set_kind(bed.index, quarantined, SL_RECORD_QUARANTINED);
        sl_index_set_kind(bed.index, freed, SL_RECORD_FREE);

        ck_assert(!sl_index_claim_exists(bed.view, quarantined, 1001));
        ck_assert(!sl_index_claim_exists(bed.view, freed, 1002));
        ck_assert(!sl_index_claim_exists(bed.view, 0, 1001));
        ck_assert(!sl_index_claim_exists(bed.view, UINT32_MAX, 1001));
        struct sl_entry got;
        sl_index_set_deadline(bed.index, quarantined, 77);
        sl_index_read(bed.index, quarantined, &got);
        ck_assert_uint_eq(got.kind, SL_RECORD_QUARANTINED);
        ck_assert_uint_eq(got.deadline_ns, 77);
        bed_remove(&bed);
    }
END_TEST

START_TEST(switch_changes_place_and_keeps_the_rest)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry before;
        struct sl_entry after;
        struct sl_disk_place disk = {.offset_bytes = 4096, .segment = 3, .disk = 1, .valid = 1};
        struct sl_extent none = {0};
        sl_ref old = bed_insert(&bed, "key", 1);
        sl_ref fresh = 0;
        ck_assert_int_eq(bed_find(&bed, "key", &before), SL_OK);

        ck_assert_int_eq(sl_index_switch(bed.index, old, NULL, &disk, &fresh), SL_OK);

        ck_assert(!sl_index_unchanged(bed.view, &before));
        ck_assert_int_eq(bed_find(&bed, "key", &after), SL_OK);
        ck_assert_uint_eq(after.ref, fresh);
        struct sl_entry want = entry_of("key", 1);
        want.disk = disk;
        assert_same_object(&after, &want);

        ck_assert_int_eq(sl_index_switch(bed.index, fresh, &none, NULL, &fresh), SL_OK);

        ck_assert_int_eq(bed_find(&bed, "key", &after), SL_OK);
        ck_assert_uint_eq(after.extent.generation, 0);
        ck_assert_uint_eq(after.extent.length_bytes, 4001); /* of the value, still */
        ck_assert_uint_eq(after.disk.segment, 3);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_unit_has_a_number_that_goes_with_a_switch)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_disk_place disk = {.segment = 3, .valid = 1};
        struct sl_group_want want = {
            .key = {"model/block", 11}, .part_count = 1, .deadline_ns = 100};
        struct sl_group_info info;
        sl_ref group = 0;
        sl_ref object = bed_insert(&bed, "object", 1);
        ck_assert_int_eq(sl_index_group_create(bed.index, &want, &group, NULL), SL_OK);
        ck_assert_ptr_nonnull(sl_index_unit_note(bed.index, group));
        ck_assert_ptr_null(sl_index_unit_note(bed.index, object));

        sl_index_set_unit_number(bed.index, object, 5);
        sl_index_set_unit_number(bed.index, group, 6);
        ck_assert_int_eq(sl_index_switch(bed.index, object, NULL, &disk, &object), SL_OK);

        ck_assert_uint_eq(sl_index_unit_number(bed.index, object), 5);
        ck_assert_uint_eq(sl_index_unit_number(bed.index, group), 6);
        sl_index_group_info(bed.index, group, &info);
        ck_assert_uint_eq(info.deadline_ns, 100);
        ck_assert_uint_eq(sl_index_unit_note(bed.index, group)->parent_hash, 0);
        struct sl_key key = sl_index_key(bed.index, group);
        ck_assert_uint_eq(key.length, 11);
        ck_assert_mem_eq(key.at, "model/block", 11);
        bed_remove(&bed);
    }
END_TEST

START_TEST(switch_that_retires_keeps_the_old_extent_claimed)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry before;
        struct sl_entry got;
        struct sl_extent none = {0};
        struct sl_disk_place disk = {.segment = 3, .valid = 1};
        bool retired = false;
        sl_ref old = bed_insert(&bed, "key", 1);
        sl_ref fresh = 0;
        ck_assert_int_eq(bed_find(&bed, "key", &before), SL_OK);

        ck_assert_int_eq(sl_index_switch_retire(bed.index, old, &none, &disk, &fresh, &retired),
                         SL_OK);

        ck_assert(retired);
        ck_assert(!sl_index_unchanged(bed.view, &before));
        sl_index_read(bed.index, old, &got);
        ck_assert_uint_eq(got.kind, SL_RECORD_RETIRED);
        ck_assert_uint_eq(got.extent.generation, 1001);
        ck_assert_int_eq(bed_find(&bed, "key", &got), SL_OK);
        ck_assert_uint_eq(got.extent.generation, 0);
        sl_index_set_kind(bed.index, old, SL_RECORD_FREE);
        ck_assert_int_eq(
            sl_index_switch_retire(bed.index, fresh, &before.extent, NULL, &fresh, &retired),
            SL_OK);
        ck_assert(!retired); /* it had none */
        ck_assert_int_eq(bed_find(&bed, "key", &got), SL_OK);
        ck_assert_uint_eq(got.extent.generation, 1001);
        bed_remove(&bed);
    }
END_TEST

START_TEST(switch_keeps_the_chain_of_units_linked)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        sl_ref a = bed_insert(&bed, "a", 1);
        sl_ref b = bed_insert(&bed, "b", 2);
        sl_ref c = bed_insert(&bed, "c", 3);
        sl_ref fresh = 0;
        *sl_index_links(bed.index, a) = (struct sl_links){.newer = b};
        *sl_index_links(bed.index, b) = (struct sl_links){.older = a, .newer = c, .flags = 5};
        *sl_index_links(bed.index, c) = (struct sl_links){.older = b};

        ck_assert_int_eq(sl_index_switch(bed.index, b, NULL, NULL, &fresh), SL_OK);

        ck_assert_uint_eq(sl_index_links(bed.index, a)->newer, fresh);
        ck_assert_uint_eq(sl_index_links(bed.index, c)->older, fresh);
        ck_assert_uint_eq(sl_index_links(bed.index, fresh)->older, a);
        ck_assert_uint_eq(sl_index_links(bed.index, fresh)->newer, c);
        ck_assert_uint_eq(sl_index_links(bed.index, fresh)->flags, 5);
        bed_remove(&bed);
    }
END_TEST

static const struct {
    bool ring;      /* the last part points at the first, else at nothing */
    int part_count; /* of the ring */
    int switched;
} rings[] = {
    {true, 1, 0},  {true, 3, 0},  {true, 3, 1},  {true, 3, 2},
    {false, 1, 0}, {false, 3, 0}, {false, 3, 1}, {false, 3, 2},
};

START_TEST(switch_keeps_the_ring_of_parts_linked)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        sl_ref parts[3];
        sl_ref group = bed_group(&bed, "block", 3);
        char key[32];
        int count = rings[_i].part_count;
        for (int i = 0; i < count; i++) {
            snprintf(key, sizeof(key), "block/%d", i);
            parts[i] = bed_claim_part(&bed, key, (uint64_t)i, group, (uint16_t)i);
            ck_assert_int_eq(sl_index_commit(bed.index, parts[i], (struct sl_digest){0}), SL_OK);
        }
        for (int i = 0; i < count; i++) {
            sl_ref last_points_at = rings[_i].ring ? parts[0] : 0;
            sl_index_links(bed.index, parts[i])->next_part =
                i + 1 < count ? parts[i + 1] : last_points_at;
        }
        sl_index_links(bed.index, group)->next_part = parts[0];

        ck_assert_int_eq(sl_index_switch(bed.index, parts[rings[_i].switched], NULL, NULL,
                                         &parts[rings[_i].switched]),
                         SL_OK);

        sl_ref at = sl_index_links(bed.index, group)->next_part;
        for (int i = 0; i < count; i++) {
            ck_assert_uint_eq(at, parts[i]);
            at = sl_index_links(bed.index, at)->next_part;
        }
        ck_assert_uint_eq(at, rings[_i].ring ? parts[0] : 0);
        bed_remove(&bed);
    }
END_TEST

START_TEST(unlinked_object_is_a_miss_and_its_record_stays_when_retired)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_entry before;
        struct sl_entry got;
        sl_ref ref = bed_insert(&bed, "key", 1);
        ck_assert_int_eq(bed_find(&bed, "key", &before), SL_OK);

        sl_index_unlink(bed.index, ref, SL_RECORD_RETIRED);

        ck_assert_int_eq(bed_find(&bed, "key", NULL), SL_ERR_NOT_FOUND);
        ck_assert(!sl_index_unchanged(bed.view, &before));
        sl_index_read(bed.index, ref, &got);
        ck_assert_uint_eq(got.kind, SL_RECORD_RETIRED);
        ck_assert_uint_eq(got.extent.offset_bytes, 4096);
        sl_index_set_kind(bed.index, ref, SL_RECORD_FREE);
        ref = bed_insert(&bed, "key", 2);
        sl_index_unlink(bed.index, ref, SL_RECORD_FREE);
        ck_assert_int_eq(bed_find(&bed, "key", NULL), SL_ERR_NOT_FOUND);
        struct sl_index_stats stats;
        sl_index_view_stats(bed.view, &stats);
        ck_assert_uint_eq(stats.key_count, 0);
        ck_assert_uint_eq(stats.record_bytes_used, 0);
        bed_remove(&bed);
    }
END_TEST

START_TEST(parts_are_visible_only_when_all_are_there)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        struct sl_group_info info;
        struct sl_entry got;
        sl_index_set_now(bed.index, 555);
        sl_ref group = bed_group(&bed, "block", 2);
        sl_ref a = bed_claim_part(&bed, "block/0", 1, group, 0);
        sl_ref b = bed_claim_part(&bed, "block/1", 2, group, 1);
        ck_assert_int_eq(sl_index_find_group(bed.view, "block", 5), SL_ERR_BUSY);
        ck_assert_int_eq(sl_index_commit(bed.index, a, (struct sl_digest){0}), SL_OK);
        ck_assert(!sl_index_group_fill(bed.index, group, 0));
        ck_assert(!sl_index_group_fill(bed.index, group, 0)); /* again */
        ck_assert_int_eq(bed_find(&bed, "block/0", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_any(bed.index, "block/0", 7, &got), SL_OK);
        ck_assert_uint_eq(got.ref, a);
        ck_assert_int_eq(sl_index_commit(bed.index, b, (struct sl_digest){0}), SL_OK);

        ck_assert(sl_index_group_fill(bed.index, group, 1));

        ck_assert(!sl_index_group_fill(bed.index, group, 1));
        ck_assert_int_eq(bed_find(&bed, "block/0", &got), SL_OK);
        ck_assert_uint_eq(got.group, group);
        ck_assert_int_eq(bed_find(&bed, "block/1", &got), SL_OK);
        ck_assert_uint_eq(got.part_index, 1);
        ck_assert_int_eq(sl_index_find_group(bed.view, "block", 5), SL_OK);
        ck_assert_int_eq(bed_find(&bed, "block", NULL), SL_ERR_NOT_FOUND); /* no object */
        ck_assert_int_eq(sl_index_find_any(bed.index, "block", 5, &got), SL_OK);
        ck_assert_uint_eq(got.kind, SL_RECORD_GROUP);
        ck_assert_uint_eq(got.extent.generation, 0);
        sl_index_group_info(bed.index, group, &info);
        ck_assert_int_eq(info.state, SL_GROUP_COMMITTED);
        ck_assert_uint_eq(info.part_count, 2);
        ck_assert_uint_eq(info.committed_ns, 555);
        ck_assert_uint_eq(info.deadline_ns, 100);
        ck_assert_uint_eq(info.transient_ns, 9);
        ck_assert_uint_eq(info.op_id, 7);
        ck_assert_uint_eq(info.owner.pid, 4);

        sl_index_group_drop(bed.index, group);

        ck_assert_int_eq(bed_find(&bed, "block/0", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(bed_find(&bed, "block/1", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_group(bed.view, "block", 5), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

START_TEST(block_of_512_parts_commits_with_the_last)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        sl_ref group = bed_group(&bed, "block", 512);

        for (uint32_t i = 0; i < 511; i++) {
            ck_assert(!sl_index_group_fill(bed.index, group, 511 - i));
        }

        ck_assert(sl_index_group_fill(bed.index, group, 0));
        bed_remove(&bed);
    }
END_TEST

START_TEST(part_does_not_follow_a_group_whose_memory_was_reused)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        sl_ref group = bed_group(&bed, "block", 1);
        sl_ref part = bed_claim_part(&bed, "part", 1, group, 0);
        ck_assert_int_eq(sl_index_commit(bed.index, part, (struct sl_digest){0}), SL_OK);
        ck_assert(sl_index_group_fill(bed.index, group, 0));
        ck_assert_int_eq(bed_find(&bed, "part", NULL), SL_OK);

        sl_index_unlink(bed.index, group, SL_RECORD_FREE); /* against the rules: before its part */
        sl_ref other = bed_group(&bed, "other", 1);
        ck_assert_uint_eq(other, group);
        ck_assert(sl_index_group_fill(bed.index, other, 0));

        ck_assert_int_eq(bed_find(&bed, "part", NULL), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

START_TEST(scan_gives_each_visible_object_once)
    {
        struct bed bed = bed_make(INDEX_BYTES, 1000);
        char key[SL_KEY_BYTES_MAX + 1];
        bool seen[500] = {false};
        struct sl_entry entry;
        uint64_t cursor = 0;
        for (uint32_t i = 0; i < 500; i++) {
            snprintf(key, sizeof(key), "object-%u", i);
            bed_insert(&bed, key, i);
        }
        sl_ref group = bed_group(&bed, "block", 2);
        sl_ref part = bed_claim_part(&bed, "block/0", 1, group, 0);
        ck_assert_int_eq(sl_index_commit(bed.index, part, (struct sl_digest){0}), SL_OK);

        while (sl_index_scan(bed.view, &cursor, &entry, key)) {
            unsigned number = 1000;
            ck_assert_int_eq(sscanf(key, "object-%u", &number), 1);
            ck_assert_uint_lt(number, 500);
            ck_assert(!seen[number]);
            ck_assert_uint_eq(entry.extent.generation, 1000 + number);
            ck_assert_ptr_eq(entry.key, key);
            seen[number] = true;
        }

        for (uint32_t i = 0; i < 500; i++) {
            ck_assert(seen[i]);
        }
        ck_assert_uint_eq(cursor, UINT64_MAX);
        ck_assert(!sl_index_scan(bed.view, &cursor, &entry, key));
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_reference_gives_its_object_while_the_generation_stands)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        char key[SL_KEY_BYTES_MAX + 1];
        struct sl_entry entry;
        sl_ref fresh = 0;
        sl_ref ref = bed_insert(&bed, "object", 1);
        sl_ref group = bed_group(&bed, "block", 2);
        sl_ref part = bed_claim_part(&bed, "block/0", 2, group, 0);
        ck_assert_int_eq(sl_index_commit(bed.index, part, (struct sl_digest){0}), SL_OK);

        ck_assert_int_eq(sl_index_find_ref(bed.view, ref, 1001, &entry, key), SL_OK);

        ck_assert_str_eq(key, "object");
        ck_assert_ptr_eq(entry.key, key);
        ck_assert_uint_eq(entry.ref, ref);
        ck_assert_uint_eq(entry.extent.length_bytes, 4001);
        ck_assert_int_eq(sl_index_find_ref(bed.view, ref, 1002, &entry, key), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_ref(bed.view, ref, 0, &entry, key), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_ref(bed.view, part, 1002, &entry, key),
                         SL_ERR_NOT_FOUND); /* its block is not whole */
        ck_assert_int_eq(sl_index_find_ref(bed.view, group, 1002, &entry, key), SL_ERR_NOT_FOUND);
        const struct sl_extent moved = {.generation = 77, .offset_bytes = 64, .length_bytes = 4001};
        ck_assert_int_eq(sl_index_switch(bed.index, ref, &moved, NULL, &fresh), SL_OK);
        ck_assert_int_eq(sl_index_find_ref(bed.view, ref, 1001, &entry, key), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_ref(bed.view, fresh, 77, &entry, key), SL_OK);
        sl_index_unlink(bed.index, fresh, SL_RECORD_FREE);
        ck_assert_int_eq(sl_index_find_ref(bed.view, fresh, 77, &entry, key), SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

/* The text of a key is made to look like an existing key's record, and references point into it,
 * and everywhere else. */
START_TEST(arbitrary_references_find_only_existing_records)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        char key[SL_KEY_BYTES_MAX + 1];
        char forged[512 + 1] = "";
        const uint32_t length = sizeof forged - 1;
        struct sl_entry entry = {0};
        uint32_t found = 0;
        sl_ref ref = bed_insert(&bed, "object", 1);
        memset(forged, 0xff, length); /* lengths beyond all bounds */
        entry = entry_of(forged, 2);
        entry.key_length = (uint16_t)length;
        ck_assert_int_eq(sl_index_insert(bed.index, &entry, &(sl_ref){0}, NULL), SL_OK);
        for (uint32_t i = 0; i < length; i += 8) { /* kind COMMITTED, six bytes of key */
            const uint64_t what = UINT64_C(6) << 48 | SL_RECORD_COMMITTED;
            memcpy(&forged[i], &what, 8);
        }
        entry = entry_of(forged, 3);
        entry.key_length = (uint16_t)length;
        ck_assert_int_eq(sl_index_insert(bed.index, &entry, &(sl_ref){0}, NULL), SL_OK);

        for (uint64_t i = 0; i < UINT64_C(1) << 32; i += i < 300000 ? 1 : 65521) {
            found += sl_index_find_ref(bed.view, (sl_ref)i, 1001, &entry, key) == SL_OK;
        }

        ck_assert_uint_eq(found, 1);
        ck_assert_int_eq(sl_index_find_ref(bed.view, UINT32_MAX, 1001, &entry, key),
                         SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find_ref(bed.view, ref, 1001, &entry, key), SL_OK);
        bed_remove(&bed);
    }
END_TEST

START_TEST(batch_answers_as_single_look_ups_do)
    {
        struct bed bed = bed_make(INDEX_BYTES, 400);
        enum { COUNT = 300 };
        char keys[COUNT][32];
        struct sl_key asked[COUNT];
        struct sl_entry out[COUNT];
        sl_err codes[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            snprintf(keys[i], sizeof(keys[i]), "key-%u", i);
            asked[i] = (struct sl_key){keys[i], i == 7 ? 0 : (uint32_t)strlen(keys[i])};
            if (i % 3 != 0) {
                bed_insert(&bed, keys[i], i);
            }
        }

        sl_index_find_batch(bed.view, asked, COUNT, out, codes);

        for (uint32_t i = 0; i < COUNT; i++) {
            ck_assert_int_eq(codes[i], i % 3 != 0 && i != 7 ? SL_OK : SL_ERR_NOT_FOUND);
            ck_assert(codes[i] != SL_OK || out[i].extent.generation == 1000 + i);
        }
        sl_index_find_batch(bed.view, asked, COUNT, NULL, codes); /* exists only */
        ck_assert_int_eq(codes[1], SL_OK);
        ck_assert_int_eq(codes[3], SL_ERR_NOT_FOUND);
        bed_remove(&bed);
    }
END_TEST

/* Inserts until there is no space; returns the number of keys. */
static uint32_t fill_with_keys(struct bed *bed, const char *format, sl_ref *refs, uint32_t max)
{
    char key[512];
    uint32_t count = 0;
    struct sl_error why;
    for (; count < max; count++) {
        snprintf(key, sizeof(key), format, count);
        struct sl_entry entry = entry_of(key, count);
        sl_err err = sl_index_insert(bed->index, &entry, &refs[count], &why);
        if (err != SL_OK) {
            ck_assert_int_eq(err, SL_ERR_NO_SPACE);
            break;
        }
    }
    return count;
}

/* A sliced walk must not scan a whole, nearly empty index in one step. */
START_TEST(a_walk_gives_each_record_once_and_stops_where_a_slab_ends)
    {
        struct bed bed = bed_make(512 * SL_KIB, 5000);
        sl_ref refs[2000];
        struct sl_entry entry;
        uint64_t cursor = 0;
        uint32_t given = 0, stops = 0;
        ck_assert_uint_eq(fill_with_keys(&bed, "key-%u", refs, SL_COUNT(refs)), SL_COUNT(refs));
        for (uint32_t i = 0; i + 1 < SL_COUNT(refs); i++) {
            sl_index_unlink(bed.index, refs[i], SL_RECORD_FREE);
        }

        while (sl_index_walk(bed.index, &cursor, &entry)) {
            stops += entry.kind == SL_RECORD_FREE && given == 0;
            given += entry.kind != SL_RECORD_FREE;
        }

        ck_assert_uint_eq(given, 1);
        ck_assert_uint_gt(stops, 4);
        bed_remove(&bed);
    }
END_TEST

START_TEST(full_index_changes_what_it_has_and_takes_keys_of_other_lengths_after_eviction)
    {
        struct bed bed = bed_make(512 * SL_KIB, 5000);
        enum { MAX = 20000 };
        sl_ref *refs = calloc(MAX, sizeof(*refs));
        uint32_t count = fill_with_keys(&bed, "short-%u", refs, MAX);
        ck_assert_uint_gt(count, 1000);
        ck_assert_uint_lt(count, MAX);
        ck_assert(sl_index_nearly_full(bed.index));
        struct sl_entry claim = entry_of("one more", 1);
        sl_ref ref = 0;
        ck_assert_int_eq(sl_index_claim(bed.index, &claim, &ref, NULL), SL_ERR_NO_SPACE);
        struct sl_group_want group = {.key = {"g", 1}, .part_count = 1};
        ck_assert_int_eq(sl_index_group_create(bed.index, &group, &ref, NULL), SL_ERR_NO_SPACE);
        for (uint32_t i = 0; i < count; i++) { /* a place on disk for everyone */
            struct sl_disk_place disk = {.segment = 1, .valid = 1};
            must(sl_index_switch(bed.index, refs[i], NULL, &disk, &refs[i]) == SL_OK);
        }
        ck_assert_int_eq(sl_index_claim(bed.index, &claim, &ref, NULL), SL_ERR_NO_SPACE);
        char note[SL_BLOB_BYTES_MAX] = {0};
        uint32_t notes = 0;
        while (sl_index_blob_put(bed.index, note, sizeof(note), 0, &ref, NULL) == SL_OK) {
            notes++;
        }
        ck_assert_uint_le(notes, 1); /* the slab that was kept for a switch */

        for (uint32_t i = 0; i < count; i++) {
            sl_index_unlink(bed.index, refs[i], SL_RECORD_FREE);
        }

        ck_assert(!sl_index_nearly_full(bed.index));
        char format[256];
        memset(format, 'x', sizeof(format));
        memcpy(format + 240, "%u", 3);
        ck_assert_uint_gt(fill_with_keys(&bed, format, refs, MAX), count / 5);
        free(refs);
        bed_remove(&bed);
    }
END_TEST

struct pace {
    uint32_t calls, calls_before, given, given_since, given_since_max;
};

static void pace_call(void *context)
{
    struct pace *pace = context;
    pace->calls++;
    pace->given_since = 0;
}

static void pace_give(void *context, const struct sl_entry *entry)
{
    struct pace *pace = context;
    (void)entry;
    pace->calls_before = pace->given++ == 0 ? pace->calls : pace->calls_before;
    pace->given_since_max = SL_MAX(pace->given_since_max, ++pace->given_since);
}

/* For a large index, the caller has to send heartbeats in between. */
START_TEST(recovery_calls_its_caller_back_in_each_pass)
    {
        enum { KEYS = 5000, SLAB_UNITS = 1024 };
        struct bed bed = bed_make(16 * SL_MIB, 2 * KEYS);
        struct pace pace = {0};
        static sl_ref refs[KEYS];
        ck_assert_uint_eq(fill_with_keys(&bed, "key-%u", refs, KEYS), KEYS);
        bed_detach(&bed);
        bed.goes_on = (struct sl_progress_callback){.call = pace_call, .context = &pace};
        bed_attach(&bed);
        pace = (struct pace){0};

        ck_assert_int_eq(sl_index_recover(bed.index, pace_give, &pace), SL_OK);

        ck_assert_uint_eq(pace.given, KEYS);
        ck_assert_uint_gt(pace.calls_before, KEYS / SLAB_UNITS);
        ck_assert_uint_lt(pace.given_since_max, SLAB_UNITS);
        bed_remove(&bed);
    }
END_TEST

START_TEST(full_table_is_no_space_but_for_what_was_reserved)
    {
        struct bed bed = bed_make(SL_MIB, 10);
        sl_ref refs[100];
        struct sl_entry entry;
        sl_ref claimed = bed_claim_part(&bed, "late", 500, 0, 0);

        uint32_t count = fill_with_keys(&bed, "k%u", refs, 100);

        ck_assert_uint_ge(count, 10);
        ck_assert_uint_lt(count, 100);
        ck_assert(sl_index_nearly_full(bed.index));
        struct sl_entry other = entry_of("other", 501);
        sl_ref ref = 0;
        ck_assert_int_eq(sl_index_claim(bed.index, &other, &ref, NULL), SL_ERR_NO_SPACE);
        for (uint32_t i = 0; i < count; i++) { /* over-full buckets lose no key */
            char key[16];
            snprintf(key, sizeof(key), "k%u", i);
            ck_assert_int_eq(bed_find(&bed, key, NULL), SL_OK);
        }
        ck_assert_int_eq(bed_find(&bed, "absent", NULL), SL_ERR_NOT_FOUND);
        bed_detach(&bed); /* a restart keeps the slots promised to clients */
        bed_attach(&bed);
        sl_index_recover(bed.index, NULL, NULL);
        ck_assert_int_eq(sl_index_claim(bed.index, &other, &ref, NULL), SL_ERR_NO_SPACE);

        ck_assert_int_eq(sl_index_commit(bed.index, claimed, (struct sl_digest){0}), SL_OK);

        ck_assert_int_eq(bed_find(&bed, "late", &entry), SL_OK);
        bed_remove(&bed);
    }
END_TEST

START_TEST(full_system_is_no_space_and_no_signal)
    {
        char *dir = shm_dir_make();
        if (!shm_dir_limit(dir, "3m")) {
            printf("skipped: no tmpfs can be mounted here\n");
            shm_dir_remove(dir);
            return;
        }
        struct bed bed = {
            .dir = dir, .index_bytes = 16 * SL_MIB, .key_count = 1000, .arena_bytes = SL_MIB};
        enum { MAX = 100000 };
        sl_ref *refs = calloc(MAX, sizeof(*refs));
        ck_assert(bed_attach(&bed));

        uint32_t count = fill_with_keys(&bed, "key-%u", refs, MAX);

        ck_assert_uint_gt(count, 1000);
        ck_assert_uint_lt(count, MAX);
        ck_assert_int_eq(bed_find(&bed, "key-0", NULL), SL_OK);
        ck_assert(sl_index_nearly_full(bed.index));
        bed_detach(&bed);
        free(refs);
        unlink(strcat(strcpy((char[256]){0}, dir), "/index"));
        bed.key_count = 300000; /* a table that does not fit gets no file */
        struct sl_error why = {0};
        struct sl_arena_options arena = {
            .directory = dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        bool created = false;
        ck_assert_sl_ok(sl_arena_open_owner(&arena, &created, &bed.arena, &why), why);
        struct sl_index_options options = {.shm_dir = dir,
                                           .index_bytes_max = 64 * SL_MIB,
                                           .key_count = 300000,
                                           .arena = bed.arena};
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, &why), SL_ERR_NO_SPACE);
        ck_assert_int_eq(sl_index_view_open(dir, &bed.view, NULL), SL_ERR_NOT_FOUND);
        sl_arena_close(&bed.arena);
        umount(dir);
        shm_dir_remove(dir);
    }
END_TEST

static void one_more(void *context)
{
    ++*(uint32_t *)context;
}

START_TEST(who_takes_memory_for_a_large_table_is_told_that_it_goes_on)
    {
        struct bed bed = {.dir = shm_dir_make(), .arena_bytes = SL_MIB};
        struct sl_arena_options arena = {
            .directory = bed.dir, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        struct sl_error why = {0};
        struct statvfs room;
        uint32_t told_count = 0;
        bool created = false;
        if (statvfs(bed.dir, &room) != 0 || room.f_bavail * room.f_frsize < 512 * SL_MIB) {
            shm_dir_remove(bed.dir); /* too small a machine, or too full */
            return;
        }
        ck_assert_sl_ok(sl_arena_open_owner(&arena, &created, &bed.arena, &why), why);
        struct sl_index_options options = {.shm_dir = bed.dir,
                                           .index_bytes_max = 512 * SL_MIB,
                                           .key_count =
                                               6000000, /* 70 MiB, and the same for leases */
                                           .arena = bed.arena,
                                           .leases = {.object_ns = SL_NS_PER_S},
                                           .goes_on = {one_more, &told_count}};

        ck_assert_sl_ok(sl_index_open(&options, &created, &bed.index, &why), why);

        ck_assert(created);
        ck_assert_uint_ge(told_count, 4); /* 64 MiB at a time */
        sl_index_close(&bed.index);
        sl_arena_close(&bed.arena);
        shm_dir_remove(bed.dir);
    }
END_TEST

START_TEST(notes_survive_a_restart)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        unsigned char bytes[SL_BLOB_BYTES_MAX];
        sl_ref small = 0;
        sl_ref large = 0;
        uint32_t length = 0;
        uint32_t tag = 0;
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (unsigned char)(i * 7);
        }
        ck_assert_int_eq(sl_index_blob_put(bed.index, "hi", 2, 77, &small, NULL), SL_OK);
        ck_assert_int_eq(sl_index_blob_put(bed.index, bytes, sizeof(bytes), 78, &large, NULL),
                         SL_OK);
        bed_detach(&bed);

        ck_assert(!bed_attach(&bed));
        sl_index_recover(bed.index, NULL, NULL);

        ck_assert_mem_eq(sl_index_blob_at(bed.index, small, &length, &tag), "hi", 2);
        ck_assert_uint_eq(length, 2);
        ck_assert_uint_eq(tag, 77);
        ck_assert_mem_eq(sl_index_blob_at(bed.index, large, &length, &tag), bytes, sizeof(bytes));
        ck_assert_uint_eq(length, sizeof(bytes));
        sl_index_set_kind(bed.index, large, SL_RECORD_FREE);
        sl_index_set_kind(bed.index, small, SL_RECORD_FREE);
        struct sl_index_stats stats;
        sl_index_view_stats(bed.view, &stats);
        ck_assert_uint_eq(stats.record_bytes_used, 0);
        bed_remove(&bed);
    }
END_TEST

START_TEST(index_of_another_size_is_a_config_error)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        bool created = false;
        sl_index_close(&bed.index);
        struct sl_index_options options = {.shm_dir = bed.dir,
                                           .index_bytes_max = INDEX_BYTES * 2,
                                           .key_count = 100,
                                           .arena = bed.arena};

        ck_assert_int_eq(sl_index_fits(&options, NULL), SL_ERR_CONFIG); /* asked before a start */
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, NULL), SL_ERR_CONFIG);
        options.derived = true; /* as of a disk that is larger than it was */
        ck_assert_int_eq(sl_index_fits(&options, NULL), SL_OK);
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, NULL), SL_OK);
        ck_assert(!created);
        sl_index_close(&bed.index);
        options.derived = false;
        options.index_bytes_max = INDEX_BYTES;
        ck_assert_int_eq(sl_index_fits(&options, NULL), SL_OK);
        options.key_count = 1000;
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, NULL), SL_ERR_CONFIG);
        options.key_count = 1000000; /* their table leaves no room for records */
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, NULL), SL_ERR_CONFIG);
        options.key_count = UINT64_MAX;
        ck_assert_int_eq(sl_index_open(&options, &created, &bed.index, NULL), SL_ERR_CONFIG);
        bed_remove(&bed);
    }
END_TEST

START_TEST(index_of_an_arena_that_is_gone_is_replaced)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        struct sl_index_view *stale = NULL;
        bed_insert(&bed, "key", 1);
        ck_assert_int_eq(sl_index_view_open(bed.dir, &stale, NULL), SL_OK);
        bed_detach(&bed);
        ck_assert_int_eq(sl_shm_file_remove(bed.dir, "arena.0", NULL), SL_OK);
        sleep(1); /* the birth of an arena has the resolution of the wall clock's seconds */

        ck_assert(bed_attach(&bed)); /* created */

        ck_assert_int_eq(bed_find(&bed, "key", NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(sl_index_find(stale, "key", 3, NULL), SL_ERR_BUSY); /* ask the registrar */
        sl_index_view_close(&stale);
        bed_remove(&bed);
    }
END_TEST

START_TEST(torn_header_of_the_index_is_corrupt)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        char path[128];
        uint64_t value = UINT64_MAX;
        struct sl_index_view *view = NULL;
        snprintf(path, sizeof(path), "%s/index", bed.dir);
        int fd = open(path, O_RDWR);
        ck_assert_int_eq(pwrite(fd, &value, 8, (off_t)SL_SHM_FILE_OWN_OFFSET_BYTES + 16 + 8 * _i),
                         8); /* bucket_count and on */
        close(fd);

        ck_assert_int_eq(sl_index_view_open(bed.dir, &view, NULL), SL_ERR_CORRUPT);

        bed_remove(&bed);
    }
END_TEST

START_TEST(writing_before_recovery_is_caught)
    {
        struct bed bed = bed_make(INDEX_BYTES, 100);
        bed_detach(&bed);
        bed_attach(&bed);
        shm_dir_remove(strdup(bed.dir));
        bed_insert(&bed, "key", 1);
    }
END_TEST

/* ---- a model with restarts ---- */

#define MODEL_KEYS 400

struct model_key {
    sl_ref ref; /* 0: absent */
    uint64_t generation;
    bool on_disk;
};

struct model {
    struct bed bed;
    struct model_key keys[MODEL_KEYS];
    uint64_t next_generation;
    uint32_t given_count;
};

/* Keys of many lengths: many classes of records. */
static void model_key_name(uint32_t number, char key[SL_KEY_BYTES_MAX + 1])
{
    uint32_t length = number % 7 == 0 ? 200 + number : 8 + number % 90;
    char prefix[8];
    snprintf(prefix, sizeof(prefix), "%03u.", number % 1000);
    memset(key, 'a' + (int)(number % 26), length);
    memcpy(key, prefix, 4);
    key[length] = '\0';
}

static void model_check(struct model *model)
{
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        char key[SL_KEY_BYTES_MAX + 1];
        struct sl_entry entry;
        model_key_name(i, key);
        sl_err err = bed_find(&model->bed, key, &entry);
        const struct model_key *want = &model->keys[i];
        bool good = want->ref == 0 ? err == SL_ERR_NOT_FOUND
                                   : err == SL_OK && entry.ref == want->ref &&
                                         entry.extent.generation == want->generation &&
                                         (entry.disk.valid != 0) == want->on_disk &&
                                         memcmp(entry.key, key, entry.key_length) == 0;
        if (!good) {
            ck_abort_msg("key %u: %s, ref %u, expected %u", i, sl_err_name(err), entry.ref,
                         want->ref);
        }
    }
}

static void model_given(void *context, const struct sl_entry *entry)
{
    struct model *model = context;
    model->given_count += entry->kind == SL_RECORD_COMMITTED;
}

static void model_restart(struct model *model)
{
    uint32_t present = 0;
    bed_detach(&model->bed);
    ck_assert(!bed_attach(&model->bed));
    model->given_count = 0;
    sl_index_recover(model->bed.index, model_given, model);
    for (uint32_t i = 0; i < MODEL_KEYS; i++) {
        present += model->keys[i].ref != 0;
    }
    ck_assert_uint_eq(model->given_count, present);
    struct sl_index_stats stats;
    sl_index_view_stats(model->bed.view, &stats);
    ck_assert_uint_eq(stats.key_count, present);
    model_check(model);
}

static void model_put(struct model *model, uint32_t number)
{
    char key[SL_KEY_BYTES_MAX + 1];
    struct model_key *at = &model->keys[number];
    model_key_name(number, key);
    struct sl_entry entry = entry_of(key, 0);
    entry.extent.generation = ++model->next_generation;
    sl_err err = sl_index_claim(model->bed.index, &entry, &at->ref, NULL);
    if (err == SL_OK) {
        err = sl_index_commit(model->bed.index, at->ref, (struct sl_digest){0});
        if (err != SL_OK) {
            sl_index_set_kind(model->bed.index, at->ref, SL_RECORD_FREE);
        }
    }
    if (err != SL_OK) {
        ck_assert_int_eq(err, SL_ERR_NO_SPACE);
        at->ref = 0;
        return;
    }
    at->generation = entry.extent.generation;
    at->on_disk = false;
}

static void model_switch(struct model *model, struct model_key *at, bool evict)
{
    struct sl_disk_place disk = {.segment = 1, .valid = 1};
    struct sl_extent extent = {.generation = evict ? 0 : ++model->next_generation};
    sl_ref old = at->ref;
    bool retired = false;
    if (sl_index_switch_retire(model->bed.index, at->ref, &extent, &disk, &at->ref, &retired) !=
        SL_OK) {
        return;
    }
    if (retired) {
        sl_index_set_kind(model->bed.index, old, SL_RECORD_FREE);
    }
    at->generation = extent.generation;
    at->on_disk = true;
}

START_TEST(model_and_index_agree_over_restarts)
    {
        uint64_t random = random_seed("model_and_index_agree_over_restarts") + (uint64_t)_i;
        struct model *model = calloc(1, sizeof(*model));
        /* the second run: so small that there is no space now and then */
        model->bed = bed_make(_i == 0 ? 2 * SL_MIB : 256 * SL_KIB, _i == 0 ? 300 : 250);
        model->next_generation = 1;
        for (int step = 0; step < 20000; step++) {
            uint32_t number = (uint32_t)(random_next(&random) % MODEL_KEYS);
            struct model_key *at = &model->keys[number];
            uint64_t dice = random_next(&random) % 100;
            if (at->ref == 0) {
                model_put(model, number);
            } else if (dice < 50) {
                model_switch(model, at, dice < 25);
            } else {
                sl_index_unlink(model->bed.index, at->ref, SL_RECORD_FREE);
                at->ref = 0;
            }
            if (step % 997 == 0) {
                model_check(model);
            }
            if (step % 2503 == 0) {
                model_restart(model);
            }
        }
        model_restart(model);
        bed_remove(&model->bed);
        free(model);
    }
END_TEST

/* ---- readers under churn ---- */

#define STRESS_STEADY  32u /* keys that always exist */
#define STRESS_KEYS    96u
#define STRESS_READERS 2
#define STRESS_BYTES   4096u

struct stress {
    struct bed bed;
    struct sl_alloc *alloc;
    _Atomic bool stop;
    _Atomic uint64_t reads, retries, busy, wrong, misses;
};

static void stress_key(uint32_t number, char key[32])
{
    snprintf(key, 32, "stress/%u/%.*s", number, (int)(number % 13), "xxxxxxxxxxxxx");
}

static uint64_t stress_word(uint32_t key, uint64_t generation, uint64_t at)
{
    return (generation * UINT64_C(0x9e3779b97f4a7c15)) ^ (key * UINT64_C(0xff51afd7ed558ccd)) ^ at;
}

static _Atomic uint64_t *stress_at(struct sl_arena *arena, const struct sl_extent *extent)
{
    return sl_arena_at(arena, extent->offset_bytes, extent->length_bytes);
}

/* Fills an extent with new bytes that readers may still be reading: relaxed stores after a release
 * fence, so that a reader that sees one of them also sees that the old record was removed. */
static struct sl_extent stress_fill(struct stress *stress, uint32_t key, uint64_t generation,
                                    uint64_t length_bytes)
{
    struct sl_extent extent = {.generation = generation, .length_bytes = length_bytes};
    must(sl_alloc_take(stress->alloc, extent.length_bytes, &extent.offset_bytes) == SL_OK);
    _Atomic uint64_t *words = stress_at(stress->bed.arena, &extent);
    atomic_thread_fence(memory_order_release);
    for (uint64_t i = 0; i < extent.length_bytes / 8; i++) {
        atomic_store_explicit(&words[i], stress_word(key, extent.generation, i),
                              memory_order_relaxed);
    }
    return extent;
}

static bool stress_copy_is_right(struct stress *stress, uint32_t key, const struct sl_entry *entry,
                                 bool *torn)
{
    uint64_t copy[STRESS_BYTES / 8];
    bool right = true;
    const _Atomic uint64_t *words = stress_at(stress->bed.arena, &entry->extent);
    if (words == NULL || entry->extent.length_bytes > STRESS_BYTES) {
        return false;
    }
    for (uint64_t i = 0; i < entry->extent.length_bytes / 8; i++) {
        copy[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
    }
    *torn = !sl_index_unchanged(stress->bed.view, entry);
    for (uint64_t i = 0; !*torn && i < entry->extent.length_bytes / 8; i++) {
        right = right && copy[i] == stress_word(key, entry->extent.generation, i);
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
        char key[32];
        bool torn = false;
        stress_key(number, key);
        sl_err err = bed_find(&stress->bed, key, &entry);
        atomic_fetch_add(&stress->reads, 1);
        if (err == SL_OK) {
            bool right = entry.key_length == strlen(key) &&
                         entry.digest.low == entry.extent.generation &&
                         stress_copy_is_right(stress, number, &entry, &torn);
            atomic_fetch_add(&stress->wrong, right ? 0 : 1);
            atomic_fetch_add(&stress->retries, torn ? 1 : 0);
        } else if (err == SL_ERR_BUSY) {
            atomic_fetch_add(&stress->busy, 1);
        } else {
            atomic_fetch_add(&stress->misses, number < STRESS_STEADY ? 1 : 0);
        }
    }
    return NULL;
}

static void stress_put(struct stress *stress, sl_ref *ref, uint32_t number, uint64_t *random)
{
    char key[32];
    stress_key(number, key);
    struct sl_entry fresh = entry_of(key, number);
    uint64_t length_bytes = 64 + random_next(random) % (STRESS_BYTES - 64) / 8 * 8;
    fresh.extent =
        stress_fill(stress, number, sl_arena_next_generation(stress->bed.arena), length_bytes);
    fresh.digest.low = fresh.extent.generation;
    must(sl_index_claim(stress->bed.index, &fresh, ref, NULL) == SL_OK);
    must(sl_index_commit(stress->bed.index, *ref, fresh.digest) == SL_OK);
}

/* Changes one key: put, remove, or move to another extent. The old extent is reused at once:
 * readers that copy must notice that. */
static void stress_change(struct stress *stress, sl_ref *ref, uint32_t number, uint64_t *random)
{
    struct sl_entry old;
    if (*ref == 0) {
        stress_put(stress, ref, number, random);
        return;
    }
    sl_index_read(stress->bed.index, *ref, &old);
    if (number < STRESS_STEADY || random_next(random) % 2 == 0) {
        /* the same bytes (they follow from the generation) in another place */
        struct sl_extent moved =
            stress_fill(stress, number, old.extent.generation, old.extent.length_bytes);
        must(sl_index_switch(stress->bed.index, *ref, &moved, NULL, ref) == SL_OK);
    } else {
        sl_index_unlink(stress->bed.index, *ref, SL_RECORD_FREE);
        *ref = 0;
    }
    sl_alloc_free(stress->alloc, old.extent.offset_bytes, old.extent.length_bytes);
}

START_TEST(readers_see_right_bytes_and_no_false_miss_under_churn)
    {
        uint64_t random = random_seed("readers_see_right_bytes_and_no_false_miss_under_churn");
        struct stress *stress = calloc(1, sizeof(*stress));
        sl_ref refs[STRESS_KEYS] = {0};
        pthread_t readers[STRESS_READERS];
        /* a small table and arena: probes overflow, memory is reused at once */
        stress->bed = bed_make(SL_MIB, 100);
        struct sl_alloc_options options = {.data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
        ck_assert_int_eq(sl_arena_populate_below(stress->bed.arena, UINT64_MAX, NULL), SL_OK);
        ck_assert_int_eq(sl_alloc_create(&options, &stress->alloc, NULL), SL_OK);
        sl_alloc_grow(stress->alloc, sl_arena_populated_bytes(stress->bed.arena));
        for (uint32_t i = 0; i < STRESS_STEADY; i++) {
            stress_change(stress, &refs[i], i, &random);
        }
        for (int i = 0; i < STRESS_READERS; i++) {
            ck_assert_int_eq(pthread_create(&readers[i], NULL, stress_reader, stress), 0);
        }
        uint64_t ends_ns = stopwatch_ns() + 3000000000u;
        uint64_t changes = 0;
        while (stopwatch_ns() < ends_ns) {
            for (int i = 0; i < 100; i++, changes++) {
                uint32_t number = (uint32_t)(random_next(&random) % STRESS_KEYS);
                stress_change(stress, &refs[number], number, &random);
            }
        }
        atomic_store(&stress->stop, true);
        for (int i = 0; i < STRESS_READERS; i++) {
            pthread_join(readers[i], NULL);
        }
        printf("churn: %llu changes, %llu reads, %llu torn copies, %llu busy\n",
               (unsigned long long)changes, (unsigned long long)stress->reads,
               (unsigned long long)stress->retries, (unsigned long long)stress->busy);
        ck_assert_uint_eq(stress->wrong, 0);
        ck_assert_uint_eq(stress->misses, 0);
        ck_assert_uint_gt(stress->reads, 100);
        sl_alloc_destroy(&stress->alloc);
        bed_remove(&stress->bed);
        free(stress);
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_was_inserted_is_found_with_all_its_fields);
    tcase_add_test(tcase, few_keys_populate_little_memory);
    tcase_add_loop_test(tcase, terms_stay_with_a_value_from_its_claim_on, 0, SL_COUNT(key_lengths));
    tcase_add_test(tcase, a_record_gets_a_place_for_contributions_when_it_is_switched);
    tcase_add_test(tcase, a_replaced_value_leaves_when_its_successor_is_there);
    tcase_add_loop_test(tcase, keys_of_any_length_are_compared_in_full, 0, SL_COUNT(key_lengths));
    tcase_add_test(tcase, wants_out_of_range_are_invalid);
    tcase_add_test(tcase, key_is_found_by_the_hash_that_its_record_has);
    tcase_add_test(tcase, reservation_is_found_only_once_committed);
    tcase_add_test(tcase, claim_that_ended_does_not_stand);
    tcase_add_test(tcase, switch_changes_place_and_keeps_the_rest);
    tcase_add_test(tcase, a_unit_has_a_number_that_goes_with_a_switch);
    tcase_add_test(tcase, switch_that_retires_keeps_the_old_extent_claimed);
    tcase_add_test(tcase, switch_keeps_the_chain_of_units_linked);
    tcase_add_loop_test(tcase, switch_keeps_the_ring_of_parts_linked, 0, SL_COUNT(rings));
    tcase_add_test(tcase, unlinked_object_is_a_miss_and_its_record_stays_when_retired);
    tcase_add_test(tcase, parts_are_visible_only_when_all_are_there);
    tcase_add_test(tcase, block_of_512_parts_commits_with_the_last);
    tcase_add_test(tcase, part_does_not_follow_a_group_whose_memory_was_reused);
    tcase_add_test(tcase, scan_gives_each_visible_object_once);
    tcase_add_test(tcase, a_walk_gives_each_record_once_and_stops_where_a_slab_ends);
    tcase_add_test(tcase, a_reference_gives_its_object_while_the_generation_stands);
    tcase_add_test(tcase, arbitrary_references_find_only_existing_records);
    tcase_add_test(tcase, batch_answers_as_single_look_ups_do);
    tcase_add_test(tcase,
                   full_index_changes_what_it_has_and_takes_keys_of_other_lengths_after_eviction);
    tcase_add_test(tcase, full_table_is_no_space_but_for_what_was_reserved);
    tcase_add_test(tcase, recovery_calls_its_caller_back_in_each_pass);
    tcase_add_test(tcase, full_system_is_no_space_and_no_signal);
    tcase_add_test(tcase, who_takes_memory_for_a_large_table_is_told_that_it_goes_on);
    tcase_add_test(tcase, notes_survive_a_restart);
    tcase_add_test(tcase, index_of_another_size_is_a_config_error);
    tcase_add_test(tcase, index_of_an_arena_that_is_gone_is_replaced);
    tcase_add_loop_test(tcase, torn_header_of_the_index_is_corrupt, 0, 3);
    tcase_add_test_raise_signal(tcase, writing_before_recovery_is_caught, SIGABRT);
    tcase_add_loop_test(tcase, model_and_index_agree_over_restarts, 0, 2);
    tcase_add_test(tcase, readers_see_right_bytes_and_no_false_miss_under_churn);
    return suite_run(tcase, "index");
}
