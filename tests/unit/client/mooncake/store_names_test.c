/* tests/unit/client/mooncake/store_names_test.c - which keys serve as their own names, and how the
 * others are named. */
#include "client/mooncake/store/names.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct sl_object_key key_of(const char *text)
{
    return (struct sl_object_key){.at = text, .length = (uint32_t)strlen(text)};
}

static struct sl_store_prefix tenant_of(const char *text)
{
    return (struct sl_store_prefix){.at = text, .length = (uint32_t)strlen(text)};
}

/* A special byte is detected at any position, including after the last whole word. */
START_TEST(one_odd_byte_is_seen_anywhere)
    {
        static const char odd[] = {'\0', '\x80', '\xff'};
        for (uint32_t length = 1; length <= 40; length++) {
            for (uint32_t at = 0; at < length; at++) {
                char text[40];
                memset(text, 'a', sizeof text);
                const struct sl_object_key key = {.at = text, .length = length};
                ck_assert(sl_store_key_plain(tenant_of(""), key));
                ck_assert(sl_key_valid(key));
                text[at] = odd[_i];
                ck_assert(!sl_store_key_plain(tenant_of(""), key));
                ck_assert(!sl_key_valid(key));
            }
        }
    }
END_TEST

START_TEST(utf8_is_plain_and_lengths_count_with_the_prefix)
    {
        char text[1025];
        memset(text, '\x7f', sizeof text);
        ck_assert(sl_store_key_plain(tenant_of(""), key_of("gr\xc3\xbcn \x01\x1f")));
        ck_assert(!sl_store_key_plain(tenant_of(""), key_of("\xc3")));
        ck_assert(sl_store_key_plain(tenant_of(""), (struct sl_object_key){text, 1024}));
        ck_assert(!sl_store_key_plain(tenant_of(""), (struct sl_object_key){text, 1025}));
        ck_assert(sl_store_key_plain(tenant_of("\1t\1"), (struct sl_object_key){text, 1021}));
        ck_assert(!sl_store_key_plain(tenant_of("\1t\1"), (struct sl_object_key){text, 1022}));
        ck_assert(!sl_key_valid((struct sl_object_key){text, 1025}));
        ck_assert(!sl_key_valid((struct sl_object_key){text, 0}));
        ck_assert(!sl_key_valid((struct sl_object_key){NULL, 1}));
    }
END_TEST

/* NIST's vector. */
START_TEST(a_digest_is_sha256)
    {
        static const char wanted[] =
            "\1t\3"
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
            "-3";
        char name[16 + SL_STORE_DIGEST_NAME_BYTES];
        uint32_t length = sl_store_digest_name(tenant_of("\1t\1"), key_of("abc"), name);
        ck_assert_uint_eq(length, sizeof wanted - 1);
        ck_assert_mem_eq(name, wanted, length);
        const struct sl_object_key key = {.at = name, .length = length};
        ck_assert(sl_store_name_is_digest(tenant_of("\1t\1"), key));
        ck_assert(!sl_store_name_is_digest(tenant_of(""), key));
        ck_assert(!sl_store_name_is_digest(tenant_of("\1u\1"), key));
        struct sl_object_key own;
        ck_assert(!sl_store_name_own(tenant_of("\1t\1"), key, &own));
        ck_assert(!sl_store_name_own(tenant_of(""), key, &own));
    }
END_TEST

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char *const no_names[] = {
    "",
    "k",
    "\1\3",
    "\1\3" HEX "-5x",
    "\1\3" HEX ".5",
    "\1\2" HEX "-5",          /* of values with the key in front */
    "\1\3" HEX "\3" HEX "-5", /* of a tenant called so */
    "\1\1" HEX "-5",
    "\3\3" HEX "-5",
    "\1\3G123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef-5",
    "\1t\3" HEX "-5",
};

START_TEST(what_is_no_name_of_a_digest)
    {
        ck_assert(!sl_store_name_is_digest(tenant_of(""), key_of(no_names[_i])));
    }
END_TEST

/* A key that looks like another kind of name is distinguished by its own prefix. */
START_TEST(own_names_are_found_again)
    {
        static const char *const keys[] = {"k", "\1", "\1\1k", "\1t\1k", "\1\3" HEX "-5"};
        static const char *const tenants[] = {"", "\1t\1"};
        for (uint32_t t = 0; t < SL_COUNT(tenants); t++) {
            for (uint32_t i = 0; i < SL_COUNT(keys); i++) {
                const struct sl_object_key key = key_of(keys[i]);
                const struct sl_store_prefix tenant = tenant_of(tenants[t]);
                const struct sl_store_prefix prefix = sl_store_prefix_of(tenant, key);
                char name[200];
                memcpy(name, prefix.at, prefix.length);
                memcpy(name + prefix.length, key.at, key.length);
                struct sl_object_key own = {.at = name, .length = prefix.length + key.length};
                ck_assert(!sl_store_name_is_digest(tenant, own));
                ck_assert(!sl_store_name_own(tenant_of(tenants[1 - t]), own, &own));
                own = (struct sl_object_key){.at = name, .length = prefix.length + key.length};
                ck_assert(sl_store_name_own(tenant, own, &own));
                ck_assert_uint_eq(own.length, key.length);
                ck_assert_mem_eq(own.at, key.at, key.length);
            }
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_names");
    TCase *tcase = tcase_create("store_names");
    tcase_add_loop_test(tcase, one_odd_byte_is_seen_anywhere, 0, 3);
    tcase_add_test(tcase, utf8_is_plain_and_lengths_count_with_the_prefix);
    tcase_add_test(tcase, a_digest_is_sha256);
    tcase_add_loop_test(tcase, what_is_no_name_of_a_digest, 0, (int)SL_COUNT(no_names));
    tcase_add_test(tcase, own_names_are_found_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
