/* tests/unit/runtime/base/copy_test.c - non-temporal copies: every residue and alignment, no byte
 * outside the range, and the same digests as the plain code. */
#include "runtime/base/sl_copy.h"
#include "runtime/base/sl_digest.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#define GUARD       64u
#define GUARD_BYTE  0xa5
#define ROUTINES    8
#define LARGE_BYTES (SL_COPY_STREAM_BYTES + 2 * (uint64_t)SL_DIGEST_CHUNK_BYTES)

/* A source and a target with room for any alignment and guards on both sides. */
struct bed {
    unsigned char *from, *to;
    uint64_t room_bytes;
};

static struct bed bed_make(uint64_t bytes)
{
    struct bed bed = {.room_bytes = sl_align_up(bytes + 4 * GUARD, 64)};
    bed.from = aligned_alloc(64, bed.room_bytes);
    bed.to = aligned_alloc(64, bed.room_bytes);
    ck_assert_ptr_nonnull(bed.from);
    ck_assert_ptr_nonnull(bed.to);
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i < bed.room_bytes; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bed.from[i] = (unsigned char)(state >> 32);
    }
    memset(bed.to, GUARD_BYTE, bed.room_bytes);
    return bed;
}

static void bed_free(struct bed *bed)
{
    free(bed->from);
    free(bed->to);
}

/* Checks that the range holds the copy and that the guards around it are intact. Clears it. */
static void bed_check(struct bed *bed, uint64_t to_at, uint64_t from_at, uint64_t length)
{
    ck_assert_int_eq(memcmp(bed->to + to_at, bed->from + from_at, length), 0);
    for (uint64_t i = 0; i < GUARD; i++) {
        ck_assert_uint_eq(bed->to[to_at - GUARD + i], GUARD_BYTE);
        ck_assert_uint_eq(bed->to[to_at + length + i], GUARD_BYTE);
    }
    memset(bed->to + to_at, GUARD_BYTE, length);
}

/* NULL: not built, or not for this processor. */
static const struct sl_copy_routine *routine_here(uint32_t index)
{
    const struct sl_copy_routine *routine = sl_copy_routine_at(index);
    return routine != NULL && routine->usable() ? routine : NULL;
}

START_TEST(routine_copies_every_count_of_lines_from_every_alignment)
    {
        const struct sl_copy_routine *routine = routine_here((uint32_t)_i);
        if (routine == NULL) {
            return;
        }
        struct bed bed = bed_make(64 * UINT64_C(64));
        for (uint64_t lines = 0; lines <= 40; lines++) {
            for (uint64_t shift = 0; shift < 64; shift++) {
                routine->stream(bed.to + GUARD, bed.from + shift, lines * 64);
                routine->finish();
                bed_check(&bed, GUARD, shift, lines * 64);
            }
        }
        bed_free(&bed);
    }
END_TEST

START_TEST(routine_hashes_a_chunk_as_the_library_does_from_every_alignment)
    {
        const struct sl_copy_routine *routine = routine_here((uint32_t)_i);
        if (routine == NULL) {
            return;
        }
        struct bed bed = bed_make(SL_DIGEST_CHUNK_BYTES);
        for (uint64_t shift = 0; shift < 64; shift++) {
            uint64_t hash = routine->stream_hash(bed.to + GUARD, bed.from + shift);
            routine->finish();

            ck_assert_uint_eq(hash, XXH3_64bits(bed.from + shift, SL_DIGEST_CHUNK_BYTES));
            bed_check(&bed, GUARD, shift, SL_DIGEST_CHUNK_BYTES);
        }
        bed_free(&bed);
    }
END_TEST

START_TEST(best_usable_routine_is_chosen)
    {
        const struct sl_copy_routine *best = NULL;
        for (uint32_t i = 0; best == NULL && sl_copy_routine_at(i) != NULL; i++) {
            best = routine_here(i);
        }

        ck_assert_ptr_eq(sl_copy_streaming(), best);
    }
END_TEST

START_TEST(copy_of_any_length_and_alignment_is_exact)
    {
        struct bed bed = bed_make(SL_COPY_STREAM_BYTES + 512);
        const uint64_t small[] = {0, 1, 63, 64, 65, 4096};
        for (uint64_t i = 0; i < SL_COUNT(small); i++) {
            sl_copy(bed.to + GUARD + 3, bed.from + 5, small[i]);
            bed_check(&bed, GUARD + 3, 5, small[i]);
        }
        for (uint64_t shift = 0; shift < 64; shift++) { /* of the target, the source, the length */
            uint64_t length = SL_COPY_STREAM_BYTES - 1 + 3 * shift;
            uint64_t from_at = shift * 7 % 64;
            sl_copy(bed.to + GUARD + shift, bed.from + from_at, length);
            bed_check(&bed, GUARD + shift, from_at, length);
        }
        for (uint64_t length = 0; length < 400; length++) {
            uint64_t shift = length * 11 % 64;
            sl_copy_uncached(bed.to + GUARD + shift, bed.from + 64 - shift, length);
            bed_check(&bed, GUARD + shift, 64 - shift, length);
        }
        bed_free(&bed);
    }
END_TEST

static void check_digest_copy(struct bed *bed, uint64_t to_at, uint64_t from_at, uint64_t length)
{
    struct sl_digest want = sl_digest_of(bed->from + from_at, length);

    struct sl_digest got = sl_digest_copy(bed->to + to_at, bed->from + from_at, length);

    ck_assert_msg(sl_digest_equal(got, want), "length %llu, from +%llu, to +%llu",
                  (unsigned long long)length, (unsigned long long)from_at,
                  (unsigned long long)to_at);
    bed_check(bed, to_at, from_at, length);
}

/* Tests every length of the last chunk near its limits, and many between. */
START_TEST(digest_of_a_copy_is_the_plain_one_for_every_residue)
    {
        struct bed bed = bed_make(LARGE_BYTES);
        for (uint64_t rest = 0; rest < SL_DIGEST_CHUNK_BYTES;
             rest += rest < 130 || rest >= SL_DIGEST_CHUNK_BYTES - 130 ? 1 : 251) {
            check_digest_copy(&bed, GUARD, rest % 64, rest == 0 ? 1 : rest); /* no whole chunk */
            check_digest_copy(&bed, GUARD, rest % 64, SL_DIGEST_CHUNK_BYTES + rest);
            check_digest_copy(&bed, GUARD, rest % 64, 3 * SL_DIGEST_CHUNK_BYTES + rest);
        }
        bed_free(&bed);
    }
END_TEST

START_TEST(digest_of_a_copy_is_the_plain_one_for_every_alignment)
    {
        struct bed bed = bed_make(LARGE_BYTES);
        for (uint64_t shift = 0; shift < 64; shift++) {
            check_digest_copy(&bed, GUARD, shift, SL_COPY_STREAM_BYTES + 4097);
            check_digest_copy(&bed, GUARD + shift, 0, SL_COPY_STREAM_BYTES + 4097);
            check_digest_copy(&bed, GUARD + shift, 64 - shift, SL_COPY_STREAM_BYTES - 1);
        }
        bed_free(&bed);
    }
END_TEST

START_TEST(digest_of_a_copy_is_of_what_was_stored_while_the_source_changes)
    {
        struct bed bed = bed_make(LARGE_BYTES);
        unsigned char *shared =
            mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(shared, MAP_FAILED);
        pid_t writer = fork();
        ck_assert_int_ge(writer, 0);
        uint64_t n = 0;
        while (writer == 0) { /* until it is killed */
            ((volatile unsigned char *)shared)[n % LARGE_BYTES] ^= 0xff;
            n += 4099;
        }
        for (uint32_t round = 0; round < 30; round++) {
            struct sl_digest got = sl_digest_copy(bed.to + GUARD, shared, LARGE_BYTES);
            ck_assert(sl_digest_equal(got, sl_digest_of(bed.to + GUARD, LARGE_BYTES)));
        }
        ck_assert_int_eq(kill(writer, SIGKILL), 0);
        ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
        (void)munmap(shared, LARGE_BYTES);
        bed_free(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("copy");
    TCase *copies = tcase_create("copies");
    tcase_set_timeout(copies, 120);
    tcase_add_loop_test(copies, routine_copies_every_count_of_lines_from_every_alignment, 0,
                        ROUTINES);
    tcase_add_loop_test(copies, routine_hashes_a_chunk_as_the_library_does_from_every_alignment, 0,
                        ROUTINES);
    tcase_add_test(copies, best_usable_routine_is_chosen);
    tcase_add_test(copies, copy_of_any_length_and_alignment_is_exact);
    tcase_add_test(copies, digest_of_a_copy_is_the_plain_one_for_every_residue);
    tcase_add_test(copies, digest_of_a_copy_is_the_plain_one_for_every_alignment);
    tcase_add_test(copies, digest_of_a_copy_is_of_what_was_stored_while_the_source_changes);
    suite_add_tcase(suite, copies);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
