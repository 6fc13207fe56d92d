/* tests/unit/runtime/net/aead_test.c - AES-GCM by libipsec-mb and by libcrypto: known answers, and
 * each against the other. Where libipsec-mb is not used, libcrypto is compared with itself. */
#include "runtime/net/fabric/core/aead.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 16385u /* a record and its type */

static const enum sl_aead_by bys[] = {SL_AEAD_BEST, SL_AEAD_LIBCRYPTO};
static unsigned char plain[LONGEST], sealed[2][LONGEST], opened[LONGEST];

struct record {
    const uint8_t *key, *nonce, *head;
    size_t head_bytes;
    uint64_t seed; /* of where it is cut; 0: one part */
};

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static struct sl_aead made(uint16_t suite, bool seals, enum sl_aead_by by)
{
    struct sl_aead aead;
    struct sl_error why = {0};
    ck_assert_msg(sl_aead_init(&aead, suite, seals, by, &why) == SL_OK, "%s", why.text);
    return aead;
}

static void parts(struct sl_aead *aead, const struct record *record, unsigned char *to,
                  const unsigned char *from, size_t length_bytes)
{
    uint64_t seed = record->seed;
    ck_assert(sl_aead_key(aead, record->key));
    ck_assert(sl_aead_begin(aead, record->nonce, record->head, record->head_bytes));
    for (size_t at = 0; at < length_bytes;) {
        size_t left = length_bytes - at, bytes = left;
        if (seed != 0) { /* small ones and large ones */
            bytes = 1 + next(&seed) % (next(&seed) % 4 == 0 ? 5000 : 40);
            bytes = SL_MIN(bytes, left);
        }
        ck_assert(sl_aead_part(aead, to + at, from + at, bytes));
        at += bytes;
    }
}

/* Test case 4 of the specification of GCM (McGrew and Viega). */
static const uint8_t case_key[16] = {0xfe, 0xff, 0xe9, 0x92, 0x86, 0x65, 0x73, 0x1c,
                                     0x6d, 0x6a, 0x8f, 0x94, 0x67, 0x30, 0x83, 0x08};
static const uint8_t case_nonce[12] = {0xca, 0xfe, 0xba, 0xbe, 0xfa, 0xce,
                                       0xdb, 0xad, 0xde, 0xca, 0xf8, 0x88};
static const uint8_t case_head[20] = {0xfe, 0xed, 0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xfe, 0xed,
                                      0xfa, 0xce, 0xde, 0xad, 0xbe, 0xef, 0xab, 0xad, 0xda, 0xd2};
static const uint8_t case_plain[60] = {
    0xd9, 0x31, 0x32, 0x25, 0xf8, 0x84, 0x06, 0xe5, 0xa5, 0x59, 0x09, 0xc5, 0xaf, 0xf5, 0x26,
    0x9a, 0x86, 0xa7, 0xa9, 0x53, 0x15, 0x34, 0xf7, 0xda, 0x2e, 0x4c, 0x30, 0x3d, 0x8a, 0x31,
    0x8a, 0x72, 0x1c, 0x3c, 0x0c, 0x95, 0x95, 0x68, 0x09, 0x53, 0x2f, 0xcf, 0x0e, 0x24, 0x49,
    0xa6, 0xb5, 0x25, 0xb1, 0x6a, 0xed, 0xf5, 0xaa, 0x0d, 0xe6, 0x57, 0xba, 0x63, 0x7b, 0x39};
static const uint8_t case_sealed[60] = {
    0x42, 0x83, 0x1e, 0xc2, 0x21, 0x77, 0x74, 0x24, 0x4b, 0x72, 0x21, 0xb7, 0x84, 0xd0, 0xd4,
    0x9c, 0xe3, 0xaa, 0x21, 0x2f, 0x2c, 0x02, 0xa4, 0xe0, 0x35, 0xc1, 0x7e, 0x23, 0x29, 0xac,
    0xa1, 0x2e, 0x21, 0xd5, 0x14, 0xb2, 0x54, 0x66, 0x93, 0x1c, 0x7d, 0x8f, 0x6a, 0x5a, 0xac,
    0x84, 0xaa, 0x05, 0x1b, 0xa3, 0x0b, 0x39, 0x6a, 0x0a, 0xac, 0x97, 0x3d, 0x58, 0xe0, 0x91};
static const uint8_t case_tag[16] = {0x5b, 0xc9, 0x4f, 0xbc, 0x32, 0x21, 0xa5, 0xdb,
                                     0x94, 0xfa, 0xe9, 0x5a, 0xe7, 0x12, 0x1a, 0x47};
static const struct record known = {case_key, case_nonce, case_head, sizeof(case_head), 0};

START_TEST(answers_are_those_of_the_specification)
    {
        uint8_t tag[SL_AEAD_TAG_BYTES];
        struct sl_aead seals = made(SL_SUITE_AES_128_GCM, true, bys[_i]);
        struct sl_aead opens = made(SL_SUITE_AES_128_GCM, false, bys[_i]);

        parts(&seals, &known, sealed[0], case_plain, sizeof(case_plain));
        ck_assert(sl_aead_seal_end(&seals, tag));
        parts(&opens, &known, opened, case_sealed, sizeof(case_sealed));

        ck_assert_mem_eq(sealed[0], case_sealed, sizeof(case_sealed));
        ck_assert_mem_eq(tag, case_tag, sizeof(case_tag));
        ck_assert_mem_eq(opened, case_plain, sizeof(case_plain));
        ck_assert(sl_aead_open_end(&opens, case_tag));
        sl_aead_fini(&seals);
        sl_aead_fini(&opens);
    }
END_TEST

/* Every length up to some blocks, and those around a record, cut anywhere; always the same object,
 * with a different key each time. */
START_TEST(both_libraries_make_the_same)
    {
        uint8_t key[16], nonce[12], head[5], tags[2][SL_AEAD_TAG_BYTES];
        uint64_t seed = 1 + (uint64_t)_i;
        struct sl_aead seals[2], opens[2];
        for (uint32_t i = 0; i < 2; i++) {
            seals[i] = made(SL_SUITE_AES_128_GCM, true, bys[i]);
            opens[i] = made(SL_SUITE_AES_128_GCM, false, bys[i]);
        }
        for (uint32_t i = 0; i < LONGEST; i++) {
            plain[i] = (unsigned char)next(&seed);
        }
        for (size_t length = 0; length <= LONGEST;
             length += length < 600 ? 1 : 1 + next(&seed) % 900) {
            for (uint32_t i = 0; i < 16; i++) {
                key[i] = (uint8_t)next(&seed);
                nonce[i % 12] = (uint8_t)next(&seed);
                head[i % 5] = (uint8_t)next(&seed);
            }
            struct record record = {key, nonce, head, sizeof(head), 0};
            for (uint32_t i = 0; i < 2; i++) {
                record.seed = next(&seed) % 3 == 0 ? 0 : next(&seed) | 1;
                parts(&seals[i], &record, sealed[i], plain, length);
                ck_assert(sl_aead_seal_end(&seals[i], tags[i]));
            }
            ck_assert_mem_eq(tags[0], tags[1], sizeof(tags[0]));
            ck_assert(memcmp(sealed[0], sealed[1], length) == 0);
            for (uint32_t i = 0; i < 2; i++) { /* in place as well */
                record.seed = next(&seed) | 1;
                parts(&opens[i], &record, i == 0 ? opened : sealed[1], sealed[1], length);
                ck_assert(sl_aead_open_end(&opens[i], tags[0]));
            }
            ck_assert(memcmp(opened, plain, length) == 0 && memcmp(sealed[1], plain, length) == 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            sl_aead_fini(&seals[i]);
            sl_aead_fini(&opens[i]);
        }
    }
END_TEST

/* Changes each bit of the sealed bytes, of their head, the nonce and the tag. */
START_TEST(a_bit_that_was_changed_is_found)
    {
        struct changed {
            uint8_t nonce[12], head[20], text[60], tag[16];
        } changed;
        struct sl_aead opens = made(SL_SUITE_AES_128_GCM, false, bys[_i]);
        uint32_t found = 0;
        for (uint32_t bit = 0; bit < 8 * sizeof(changed); bit++) {
            memcpy(changed.nonce, case_nonce, sizeof(changed.nonce));
            memcpy(changed.head, case_head, sizeof(changed.head));
            memcpy(changed.text, case_sealed, sizeof(changed.text));
            memcpy(changed.tag, case_tag, sizeof(changed.tag));
            ((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << bit % 8);
            const struct record record = {case_key, changed.nonce, changed.head,
                                          sizeof(changed.head), 0};

            parts(&opens, &record, opened, changed.text, sizeof(changed.text));

            found += !sl_aead_open_end(&opens, changed.tag);
        }
        ck_assert_uint_eq(found, 8 * sizeof(changed));
        parts(&opens, &known, opened, case_sealed, sizeof(case_sealed));
        ck_assert(sl_aead_open_end(&opens, case_tag)); /* the right one, after all of them */
        sl_aead_fini(&opens);
    }
END_TEST

START_TEST(chacha_is_libcryptos)
    {
        const uint8_t key[32] = "as long as it has to be";
        uint8_t tag[SL_AEAD_TAG_BYTES];
        const struct record record = {key, case_nonce, case_head, 5, 77};
        struct sl_aead seals = made(SL_SUITE_CHACHA20_POLY1305, true, SL_AEAD_BEST);
        struct sl_aead opens = made(SL_SUITE_CHACHA20_POLY1305, false, SL_AEAD_BEST);
        parts(&seals, &record, sealed[0], plain, 3000);
        ck_assert(sl_aead_seal_end(&seals, tag));
        parts(&opens, &record, opened, sealed[0], 3000);
        ck_assert(sl_aead_open_end(&opens, tag));
        ck_assert_mem_eq(opened, plain, 3000);
        ck_assert_uint_eq(sl_aead_key_bytes(SL_SUITE_CHACHA20_POLY1305), sizeof(key));
        sl_aead_fini(&seals);
        sl_aead_fini(&opens);
    }
END_TEST

START_TEST(another_suite_is_refused)
    {
        struct sl_aead aead;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_aead_init(&aead, 0x1302, true, SL_AEAD_BEST, &why), SL_ERR_UNSUPPORTED);
        sl_aead_fini(&aead);
    }
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("aead");
    TCase *tests = tcase_create("aead");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, answers_are_those_of_the_specification, 0, SL_COUNT(bys));
    tcase_add_loop_test(tests, both_libraries_make_the_same, 0, 4);
    tcase_add_loop_test(tests, a_bit_that_was_changed_is_found, 0, SL_COUNT(bys));
    tcase_add_test(tests, chacha_is_libcryptos);
    tcase_add_test(tests, another_suite_is_refused);
    suite_add_tcase(all, tests);
    return all;
}

int main(void)
{
    printf("AES by %s\n", sl_aead_library(SL_AEAD_BEST));
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
