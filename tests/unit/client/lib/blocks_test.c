/* tests/unit/client/lib/blocks_test.c - lookups of blocks by the engine's keys, in an index that
 * the test writes itself: present blocks, the blocks that a prefix needs, held blocks, and threads
 * that read during writes. */
#include "client/lib/engine.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS    (20 * SL_NS_PER_S)
#define HOLD_NS    (60 * SL_NS_PER_S)
#define IDENTITY   "00112233445566778899aabbccddeeff"
#define BLOCKS_MAX 300u
#define HASH_BYTES 32u

struct bed {
    struct sl_tmpdir dir;
    struct sl_arena *arena;
    struct sl_index *index;
    struct sl_client *client;
    struct sl_engine engine;
};

static void bed_open(struct bed *bed, uint64_t block_lease_ns)
{
    char runtime_dir[96], shm_dir[96];
    const char *settings[] = {runtime_dir, shm_dir, NULL};
    bool created = false;
    struct sl_error why = {0};
    memset(bed, 0, sizeof *bed);
    sl_tmpdir_make(&bed->dir, "/dev/shm");
    (void)snprintf(runtime_dir, sizeof runtime_dir, "runtime_dir=%s", bed->dir.path);
    (void)snprintf(shm_dir, sizeof shm_dir, "shm_dir=%s", bed->dir.path);
    struct sl_arena_options arena = {
        .directory = bed->dir.path, .data_bytes = SL_MIB, .chunk_bytes = SL_MIB};
    ck_assert_int_eq(sl_arena_open_owner(&arena, &created, &bed->arena, NULL), SL_OK);
    struct sl_index_options index = {.shm_dir = bed->dir.path,
                                     .index_bytes_max = 8 * SL_MIB,
                                     .key_count = 4096,
                                     .arena = bed->arena,
                                     .leases.block_ns = block_lease_ns};
    ck_assert_int_eq(sl_index_open(&index, &created, &bed->index, NULL), SL_OK);
    ck_assert_int_eq(sl_index_leases_open(bed->index, bed->dir.path, index.leases, NULL), SL_OK);
    sl_index_recover(bed->index, NULL, NULL);
    struct sl_client_options options = {.api_version = SLUICE_API_VERSION,
                                        .settings = settings,
                                        .timeout_ns = WAIT_NS,
                                        .read_only = true};
    ck_assert_msg(sl_client_open(&options, &bed->client, &why) == SL_OK, "%s", why.text);
    bed->client->read_only = false; /* it may hold blocks; there is no registrar to greet */
    bed->engine.client = bed->client;
    memcpy(bed->engine.identity, IDENTITY, sizeof IDENTITY);
}

static void bed_close(struct bed *bed)
{
    sl_client_close(&bed->client);
    sl_index_close(&bed->index);
    sl_arena_close(&bed->arena);
    sl_tmpdir_remove(&bed->dir);
}

/* The hash of a block, from its number. */
static void hash_make(unsigned char *to, uint32_t bytes, uint32_t number)
{
    for (uint32_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(number >> (8 * (i % 4)) ^ (0xa0 + 37 * i));
    }
}

/* Returns the record of a block with one part; pending: without the part. */
static sl_ref block_put(struct bed *bed, uint32_t number, uint32_t hash_bytes, bool pending)
{
    unsigned char hash[64];
    char key[200], part[204];
    hash_make(hash, hash_bytes, number);
    int length = snprintf(key, sizeof key, IDENTITY "/");
    for (uint32_t i = 0; i < hash_bytes; i++) {
        length += snprintf(&key[length], sizeof key - (size_t)length, "%02x", hash[i]);
    }
    struct sl_group_want want = {.key = {key, (uint32_t)length}, .part_count = 1};
    sl_ref group = 0, ref = 0;
    ck_assert_int_eq(sl_index_group_create(bed->index, &want, &group, NULL), SL_OK);
    if (!pending) {
        (void)snprintf(part, sizeof part, "%s/0", key);
        struct sl_entry entry = {.kind = SL_RECORD_RESERVED,
                                 .key = part,
                                 .key_length = (uint16_t)strlen(part),
                                 .extent = {.generation = number + 1, .length_bytes = 4096},
                                 .group = group};
        ck_assert_int_eq(sl_index_claim(bed->index, &entry, &ref, NULL), SL_OK);
        ck_assert_int_eq(sl_index_commit(bed->index, ref, (struct sl_digest){1, 2}), SL_OK);
        ck_assert(sl_index_group_fill(bed->index, group, 0));
    }
    return group;
}

static unsigned char hashes[BLOCKS_MAX * 64];

static struct sl_prefix_query look_of(uint32_t count, uint32_t hash_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        hash_make(&hashes[(size_t)i * hash_bytes], hash_bytes, i);
    }
    return (struct sl_prefix_query){.hashes = hashes, .hash_bytes = hash_bytes, .count = count};
}

static bool bit_of(const unsigned char *bits, uint32_t at)
{
    return ((unsigned)bits[at / 8] >> at % 8 & 1u) != 0;
}

static struct sl_prefix_result look_up(struct bed *bed, const struct sl_prefix_query *look,
                                       unsigned char *there)
{
    struct sl_prefix_result out = {.prefix_count = UINT32_MAX, .held_until_ns = 77};
    struct sl_error why = {0};
    ck_assert_msg(sl_prefix_match(&bed->engine, look, &out, there, &why) == SL_OK, "%s", why.text);
    return out;
}

/* Of 300 blocks, 0 to 199 exist, except 130, which is being written, and 150 and 151. */
static bool is_there(uint32_t number)
{
    return number < 200 && number != 130 && number != 150 && number != 151;
}

static void blocks_put(struct bed *bed, uint32_t hash_bytes, sl_ref refs[BLOCKS_MAX])
{
    for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
        refs[i] = is_there(i) || i == 130 ? block_put(bed, i, hash_bytes, i == 130) : 0;
    }
}

static const uint32_t widths[] = {2, 16, 32, 64};

START_TEST(a_prefix_ends_where_a_block_is_missing)
    {
        static struct bed bed;
        sl_ref refs[BLOCKS_MAX];
        unsigned char there[BLOCKS_MAX / 8 + 1];
        bed_open(&bed, 0);
        blocks_put(&bed, widths[_i], refs);
        struct sl_prefix_query look = look_of(BLOCKS_MAX, widths[_i]);
        memset(there, 0x5a, sizeof there);

        struct sl_prefix_result with = look_up(&bed, &look, there);
        struct sl_prefix_result without = look_up(&bed, &look, NULL);

        ck_assert_uint_eq(with.prefix_count, 130);
        ck_assert_uint_eq(without.prefix_count, 130);
        ck_assert_uint_eq(with.held_until_ns, 0);
        for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
            ck_assert_msg(bit_of(there, i) == is_there(i), "block %u", i);
        }
        look.count = 130;
        ck_assert_uint_eq(look_up(&bed, &look, NULL).prefix_count, 130);
        look.count = 0;
        ck_assert_uint_eq(look_up(&bed, &look, there).prefix_count, 0);
        bed_close(&bed);
    }
END_TEST

static const struct {
    uint32_t window, count, prefix;
} windows[] = {
    {1, 300, 200},  {48, 300, 200}, {49, 300, 130}, {130, 300, 130}, {131, 300, 130},
    {19, 150, 150}, {20, 150, 130}, {1, 130, 130},  {1, 151, 150},   {UINT32_MAX, 300, 130},
};
START_TEST(a_window_wants_its_last_blocks_only)
    {
        static struct bed bed;
        sl_ref refs[BLOCKS_MAX];
        bed_open(&bed, HOLD_NS);
        blocks_put(&bed, HASH_BYTES, refs);
        struct sl_prefix_query look = look_of(windows[_i].count, HASH_BYTES);
        look.window = windows[_i].window;

        struct sl_prefix_result looked = look_up(&bed, &look, NULL);
        ck_assert_uint_eq(looked.prefix_count, windows[_i].prefix);
        ck_assert_uint_eq(looked.held_until_ns, 0);
        look.hold_ns = HOLD_NS;
        uint64_t now_ns = sl_clock_monotonic_ns();
        looked = look_up(&bed, &look, NULL);

        ck_assert_uint_eq(looked.prefix_count, windows[_i].prefix);
        ck_assert_uint_gt(looked.held_until_ns, now_ns + HOLD_NS / 2);
        for (uint32_t i = 0; i < BLOCKS_MAX; i++) { /* no other block is held */
            bool needed = i < looked.prefix_count && looked.prefix_count - i <= look.window;
            uint64_t end_ns = refs[i] == 0 ? 0 : sl_index_lease_end(bed.index, refs[i], now_ns);
            ck_assert_msg((end_ns != 0) == needed, "block %u", i);
            ck_assert(end_ns == 0 || end_ns >= looked.held_until_ns);
        }
        bed_close(&bed);
    }
END_TEST

START_TEST(what_a_prefix_needs_is_held)
    {
        static struct bed bed;
        sl_ref refs[BLOCKS_MAX];
        unsigned char there[BLOCKS_MAX / 8 + 1];
        bed_open(&bed, HOLD_NS);
        blocks_put(&bed, HASH_BYTES, refs);
        struct sl_prefix_query look = look_of(BLOCKS_MAX, HASH_BYTES);
        look.hold_ns = UINT64_MAX; /* as long as the node allows */
        uint64_t now_ns = sl_clock_monotonic_ns();

        struct sl_prefix_result looked = look_up(&bed, &look, _i == 0 ? NULL : there);

        ck_assert_uint_eq(looked.prefix_count, 130);
        ck_assert_uint_gt(looked.held_until_ns, now_ns + HOLD_NS / 2);
        ck_assert_uint_lt(looked.held_until_ns, now_ns + HOLD_NS + WAIT_NS);
        for (uint32_t i = 0; i < 130; i++) {
            ck_assert_uint_ge(sl_index_lease_end(bed.index, refs[i], now_ns), looked.held_until_ns);
            ck_assert(!sl_index_lease_close(bed.index, refs[i], now_ns));
        }
        /* One that is being evicted at this moment cannot be held: the prefix ends before it. */
        ck_assert(sl_index_lease_close(bed.index, refs[7], now_ns + 10 * HOLD_NS));
        looked = look_up(&bed, &look, _i == 0 ? NULL : there);
        ck_assert_uint_eq(looked.prefix_count, 7);
        ck_assert(_i == 0 || !bit_of(there, 7));
        look.window = 10;
        look.count = 130;
        sl_index_lease_reopen(bed.index, refs[7]);
        ck_assert(sl_index_lease_close(bed.index, refs[125], now_ns + 10 * HOLD_NS));
        looked = look_up(&bed, &look, _i == 0 ? NULL : there);
        ck_assert_uint_eq(looked.prefix_count, 125);
        ck_assert(_i == 0 || !bit_of(there, 125));
        bed_close(&bed);
    }
END_TEST

START_TEST(a_node_without_holds_holds_nothing)
    {
        static struct bed bed;
        sl_ref refs[BLOCKS_MAX];
        bed_open(&bed, 0);
        blocks_put(&bed, HASH_BYTES, refs);
        struct sl_prefix_query look = look_of(BLOCKS_MAX, HASH_BYTES);
        look.hold_ns = HOLD_NS;

        struct sl_prefix_result looked = look_up(&bed, &look, NULL);

        ck_assert_uint_eq(looked.prefix_count, 130);
        ck_assert_uint_eq(looked.held_until_ns, 0);
        bed_close(&bed);
    }
END_TEST

static const struct {
    struct sl_prefix_query look;
    const char *said;
} wrong[] = {
    {{.hashes = hashes, .hash_bytes = 0, .count = 1}, "hashes of 0 bytes"},
    {{.hashes = hashes, .hash_bytes = 65, .count = 1}, "hashes of 65 bytes"},
    {{.hashes = hashes, .hash_bytes = 1, .count = SL_BATCH_MAX + 1}, "65537 blocks"},
    {{.hashes = NULL, .hash_bytes = 1, .count = 3}, "3 hashes at address NULL"},
};
START_TEST(a_look_up_that_is_wrong_is_named)
    {
        static struct bed bed;
        struct sl_prefix_result out = {.prefix_count = 5};
        struct sl_error why = {0};
        bed_open(&bed, 0);

        sl_err err = sl_prefix_match(&bed.engine, &wrong[_i].look, &out, NULL, &why);

        ck_assert_int_eq(err, SL_ERR_INVALID);
        ck_assert_msg(strstr(why.text, wrong[_i].said) != NULL, "%s", why.text);
        ck_assert_uint_eq(out.prefix_count, 5);
        bed_close(&bed);
    }
END_TEST

START_TEST(a_node_that_was_stopped_has_no_blocks)
    {
        static struct bed bed;
        sl_ref refs[BLOCKS_MAX];
        struct sl_prefix_result out = {.prefix_count = 5};
        bed_open(&bed, 0);
        blocks_put(&bed, HASH_BYTES, refs);
        struct sl_prefix_query look = look_of(BLOCKS_MAX, HASH_BYTES);
        ck_assert_uint_eq(look_up(&bed, &look, NULL).prefix_count, 130);
        ck_assert_int_eq(sl_shm_file_remove(bed.dir.path, "index", NULL), SL_OK);

        for (uint32_t i = 0; i < 2; i++) { /* at once, and every time */
            ck_assert_int_eq(sl_prefix_match(&bed.engine, &look, &out, NULL, NULL),
                             SL_ERR_UNREACHABLE);
        }

        ck_assert_uint_eq(out.prefix_count, 5);
        bed_close(&bed);
    }
END_TEST

/* ---- classes of pools ---- */

static bool suits(const unsigned char *there, uint32_t window, uint32_t prefix)
{
    uint32_t first = window == 0 || window > prefix ? 0 : prefix - window;
    for (uint32_t i = first; i < prefix; i++) {
        if (!bit_of(there, i)) {
            return false;
        }
    }
    return true;
}

#define CLASSES 5
#define BITS    320
START_TEST(a_prefix_of_classes_is_the_longest_that_suits_all)
    {
        static const uint32_t sizes[] = {0, 1, 2, 3, 5, 17, 64, 100, UINT32_MAX};
        unsigned char there[CLASSES][BITS / 8];
        srand(4711);
        for (uint32_t round = 0; round < 20000; round++) {
            struct sl_prefix_class classes[CLASSES];
            uint32_t class_count = (uint32_t)rand() % (CLASSES + 1);
            uint32_t count = (uint32_t)rand() % (round % 2 == 0 ? 65 : BITS + 1);
            uint32_t holes = (uint32_t)rand() % 8 + 1; /* one in `holes` bytes has gaps */
            for (uint32_t i = 0; i < class_count; i++) {
                for (uint32_t k = 0; k < BITS / 8; k++) {
                    there[i][k] = (unsigned char)(rand() | rand() | rand());
                    there[i][k] = (uint32_t)rand() % holes == 0 ? there[i][k] : 0xff;
                }
                classes[i] = (struct sl_prefix_class){
                    .there = there[i], .window = sizes[(uint32_t)rand() % SL_COUNT(sizes)]};
            }
            uint32_t want = count;
            for (bool fits = false; !fits; want -= fits ? 0 : 1) {
                fits = true;
                for (uint32_t i = 0; i < class_count; i++) {
                    fits = fits && suits(there[i], classes[i].window, want);
                }
            }

            ck_assert_uint_eq(sl_prefix_match_hybrid(classes, class_count, count), want);
        }
    }
END_TEST

/* Classes with long windows, and those that want all blocks, read few bits again while other
 * classes narrow the prefix. */
static const uint32_t patient_windows[] = {0, 1u << 21, (1u << 22) - 1, UINT32_MAX};
START_TEST(a_prefix_of_many_blocks_is_found_in_time)
    {
        enum { COUNT = 1 << 22 };
        static unsigned char all[COUNT / 8], even[COUNT / 8], odd[COUNT / 8];
        memset(all, 0xff, sizeof all);
        memset(even, 0x55, sizeof even);
        memset(odd, 0xaa, sizeof odd);
        even[1] = odd[1] = 0x30; /* blocks 12 and 13 are in both */
        const struct sl_prefix_class patient = {.there = all, .window = patient_windows[_i]};
        const struct sl_prefix_class evens = {.there = even, .window = 1};
        const struct sl_prefix_class odds = {.there = odd, .window = 1};
        const struct sl_prefix_class orders[][3] = {
            {patient, evens, odds}, {evens, patient, odds}, {odds, evens, patient}};
        for (uint32_t i = 0; i < SL_COUNT(orders); i++) {
            ck_assert_uint_eq(sl_prefix_match_hybrid(orders[i], 3, COUNT), 14);
        }
    }
END_TEST

/* ---- threads ---- */

#define THREADS_MAX 8u
#define STABLE      200u
#define ROUNDS      200u
#define SIDE_BY     64u /* other blocks, added and removed */

struct reader {
    struct bed *bed;
    pthread_t thread;
    const struct sl_prefix_query *look;
    _Atomic bool *stop;
    uint32_t looks, missed;
};

static void *reader_run(void *context)
{
    struct reader *self = context;
    while (!atomic_load(self->stop) || self->looks < 10) {
        unsigned char there[BLOCKS_MAX / 8 + 1];
        struct sl_prefix_result out;
        sl_err err = sl_prefix_match(&self->bed->engine, self->look, &out, there, NULL);
        self->missed += err != SL_OK || out.prefix_count < STABLE;
        self->looks++;
    }
    return NULL;
}

static const uint32_t crowds[] = {1, 2, 4, 8};

/* Other blocks are added and removed meanwhile, as fast as the writer can. */
START_TEST(threads_miss_no_block_that_stays)
    {
        static struct bed bed;
        struct reader readers[THREADS_MAX];
        _Atomic bool stop = false;
        bed_open(&bed, HOLD_NS);
        for (uint32_t i = 0; i < STABLE; i++) {
            (void)block_put(&bed, i, HASH_BYTES, false);
        }
        struct sl_prefix_query look = look_of(STABLE + SIDE_BY, HASH_BYTES);
        look.hold_ns = _i % 2 == 0 ? 0 : SL_NS_PER_MS;
        for (uint32_t i = 0; i < crowds[_i / 2]; i++) {
            readers[i] = (struct reader){.bed = &bed, .look = &look, .stop = &stop};
            ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, reader_run, &readers[i]), 0);
        }

        for (uint32_t round = 0; round < ROUNDS; round++) {
            sl_ref refs[SIDE_BY];
            for (uint32_t i = 0; i < SIDE_BY; i++) {
                refs[i] = block_put(&bed, STABLE + i, HASH_BYTES, true);
            }
            for (uint32_t i = 0; i < SIDE_BY; i++) {
                sl_index_group_drop(bed.index, refs[i]);
                sl_index_unlink(bed.index, refs[i], SL_RECORD_FREE);
            }
        }
        atomic_store(&stop, true);

        for (uint32_t i = 0; i < crowds[_i / 2]; i++) {
            (void)pthread_join(readers[i].thread, NULL);
            ck_assert_uint_eq(readers[i].missed, 0);
        }
        bed_close(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tcase = tcase_create("blocks");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_prefix_ends_where_a_block_is_missing, 0, (int)SL_COUNT(widths));
    tcase_add_loop_test(tcase, a_window_wants_its_last_blocks_only, 0, (int)SL_COUNT(windows));
    tcase_add_loop_test(tcase, what_a_prefix_needs_is_held, 0, 2);
    tcase_add_test(tcase, a_node_without_holds_holds_nothing);
    tcase_add_loop_test(tcase, a_look_up_that_is_wrong_is_named, 0, (int)SL_COUNT(wrong));
    tcase_add_test(tcase, a_node_that_was_stopped_has_no_blocks);
    tcase_add_test(tcase, a_prefix_of_classes_is_the_longest_that_suits_all);
    tcase_add_loop_test(tcase, a_prefix_of_many_blocks_is_found_in_time, 0,
                        (int)SL_COUNT(patient_windows));
    tcase_add_loop_test(tcase, threads_miss_no_block_that_stays, 0, 2 * (int)SL_COUNT(crowds));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
