/* tests/unit/runtime/base/parse_test.c - parsing numbers, sizes, durations and addresses. */
#include "runtime/base/sl_address.h"
#include "runtime/base/sl_parse.h"

#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED UINT64_C(4711)

static const struct {
    const char *text;
    uint64_t want;
    sl_err err;
    const char *rest;
} digits[] = {
    {"0", 0, SL_OK, ""},
    {"007", 7, SL_OK, ""},
    {"18446744073709551615", UINT64_MAX, SL_OK, ""},
    {"18446744073709551616", UNTOUCHED, SL_ERR_LIMIT, ""},
    {"99999999999999999999999x", UNTOUCHED, SL_ERR_LIMIT, "x"},
    {"12ab", 12, SL_OK, "ab"},
    {"", UNTOUCHED, SL_ERR_INVALID, ""},
    {"-1", UNTOUCHED, SL_ERR_INVALID, "-1"},
    {"+1", UNTOUCHED, SL_ERR_INVALID, "+1"},
    {" 1", UNTOUCHED, SL_ERR_INVALID, " 1"},
    {"x", UNTOUCHED, SL_ERR_INVALID, "x"},
};

START_TEST(digits_are_read_up_to_what_follows)
    {
        uint64_t got = UNTOUCHED;
        const char *rest = NULL;

        sl_err err = sl_parse_digits(digits[_i].text, &got, &rest);

        ck_assert_int_eq(err, digits[_i].err);
        ck_assert_uint_eq(got, digits[_i].want);
        ck_assert_str_eq(rest, digits[_i].rest);
    }
END_TEST

START_TEST(whole_numbers_are_all_of_their_text)
    {
        uint64_t got = UNTOUCHED;
        ck_assert(!sl_parse_whole("12", 0, &got));
        ck_assert(!sl_parse_whole("12x", 3, &got));
        ck_assert(!sl_parse_whole("18446744073709551616", 20, &got));
        ck_assert(!sl_parse_within("", 0, 9, &got));
        ck_assert(!sl_parse_within("10", 0, 9, &got));
        ck_assert(!sl_parse_within("0", 1, 9, &got));
        ck_assert(!sl_parse_within("5 ", 1, 9, &got));
        ck_assert_int_eq(sl_parse_count("5.0", &got, NULL), SL_ERR_INVALID);
        ck_assert_uint_eq(got, UNTOUCHED);

        ck_assert(sl_parse_whole("12x", 2, &got));
        ck_assert_uint_eq(got, 12);
        ck_assert(sl_parse_within("9", 9, 9, &got));
        ck_assert_uint_eq(got, 9);
        ck_assert_int_eq(sl_parse_count("65", &got, NULL), SL_OK);
        ck_assert_uint_eq(got, 65);
    }
END_TEST

START_TEST(hexadecimal_numbers_have_at_most_16_digits)
    {
        uint64_t got = UNTOUCHED;
        ck_assert(!sl_parse_hex("", &got));
        ck_assert(!sl_parse_hex("0x1", &got));
        ck_assert(!sl_parse_hex("12345678901234567", &got));
        ck_assert(!sl_parse_hex("1g", &got));
        ck_assert_uint_eq(got, UNTOUCHED);

        ck_assert(sl_parse_hex("Ff", &got));
        ck_assert_uint_eq(got, 255);
    }
END_TEST

static const struct {
    const char *text;
    bool fine;
    double want;
} reals[] = {
    {"0.25", true, 0.25}, {"1e3", true, 1000}, {"-2", true, -2},    {"", false, 0},
    {"nan", false, 0},    {"inf", false, 0},   {"1e999", false, 0}, {" 1", false, 0},
    {"1 ", false, 0},     {"1x", false, 0},
};

START_TEST(reals_are_finite_and_without_blanks)
    {
        double got = 0;
        ck_assert_int_eq(sl_parse_real(reals[_i].text, &got), reals[_i].fine);
        ck_assert_double_eq(got, reals[_i].want);
    }
END_TEST

static const struct {
    const char *text;
    uint64_t ours;    /* UNTOUCHED: refused */
    uint64_t engines; /* the same text in an engine's configuration */
} sizes[] = {
    {"0", 0, 0},
    {"1024", 1024, 1024},
    {"5b", 5, 5},
    {"4 GiB", 4 * SL_GIB, UNTOUCHED},
    {"4gb", 4000000000, 4 * SL_GIB},
    {"4G", 4 * SL_GIB, 4 * SL_GIB},
    {"3  kB", 3000, 3072},
    {" 1GB ", 1000000000, SL_GIB}, /* as Mooncake's configuration takes it */
    {"\t1 gb\r\n", 1000000000, SL_GIB},
    {" 7 ", 7, 7},
    {"1 G B", UNTOUCHED, UNTOUCHED},
    {"  ", UNTOUCHED, UNTOUCHED},
    {"2t", 2048 * SL_GIB, 2048 * SL_GIB},
    {"5XB", UNTOUCHED, UNTOUCHED},
    {"1.5G", 1536 * SL_MIB, 1536 * SL_MIB},
    {"1.5 GB", 1500000000, 1536 * SL_MIB},
    {"0.1GiB", 107374182, UNTOUCHED}, /* fractions of a byte are dropped */
    {"0.000000000001TB", 1, 1},
    {"0.5b", 0, 0},
    {"18446744073709551615.9", UINT64_MAX, UINT64_MAX},
    {"17179869183.9999999999GiB", UINT64_MAX, UNTOUCHED},
    {"16777216t", UNTOUCHED, UNTOUCHED},
    {"1.", UNTOUCHED, UNTOUCHED},
    {"1.gb", UNTOUCHED, UNTOUCHED},
    {".5gb", UNTOUCHED, UNTOUCHED},
    {"1.5.5gb", UNTOUCHED, UNTOUCHED},
    {"1,5gb", UNTOUCHED, UNTOUCHED},
    {"", UNTOUCHED, UNTOUCHED},
    {"-1", UNTOUCHED, UNTOUCHED},
    {"20000000TB", UNTOUCHED, UNTOUCHED},
    {"18446744073709551616", UNTOUCHED, UNTOUCHED},
};

START_TEST(sizes_have_units_of_settings_or_of_engines)
    {
        uint64_t ours = UNTOUCHED, engines = UNTOUCHED;
        struct sl_error why = {0};

        sl_err err = sl_parse_size(sizes[_i].text, &ours, &why);
        sl_err wrong = sl_parse_size_1024(sizes[_i].text, &engines, NULL);

        ck_assert_uint_eq(ours, sizes[_i].ours);
        ck_assert_uint_eq(engines, sizes[_i].engines);
        ck_assert_int_eq(err, ours == UNTOUCHED ? SL_ERR_INVALID : SL_OK);
        ck_assert_int_eq(wrong, engines == UNTOUCHED ? SL_ERR_INVALID : SL_OK);
        ck_assert_int_eq(why.text[0] != '\0', ours == UNTOUCHED);
    }
END_TEST

static const struct {
    const char *text;
    uint64_t want;
} durations[] = {
    {"0", 0},         {"0.0", 0},        {"1.5s", 1500000000},       {"250ms", 250000000},
    {"3 us", 3000},   {"7ns", 7},        {"0.5min", 30000000000},    {"1h", 3600000000000},
    {"5", UNTOUCHED}, {"5S", UNTOUCHED}, {"1.s", UNTOUCHED},         {"-1s", UNTOUCHED},
    {"", UNTOUCHED},  {"5m", UNTOUCHED}, {"9999999999h", UNTOUCHED}, {".5s", UNTOUCHED},
};

START_TEST(durations_need_a_unit)
    {
        uint64_t got = UNTOUCHED;
        sl_err err = sl_parse_duration(durations[_i].text, &got, NULL);
        ck_assert_uint_eq(got, durations[_i].want);
        ck_assert_int_eq(err, got == UNTOUCHED ? SL_ERR_INVALID : SL_OK);
    }
END_TEST

START_TEST(ratios_and_booleans_are_strict)
    {
        uint64_t got = UNTOUCHED;
        bool yes = false;
        ck_assert_int_eq(sl_parse_ratio("1.000001", &got, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_parse_ratio("50%", &got, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_parse_bool("flase", &yes, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_parse_bool("", &yes, NULL), SL_ERR_INVALID);
        ck_assert_uint_eq(got, UNTOUCHED);
        ck_assert(!yes);

        ck_assert_int_eq(sl_parse_ratio("0.25", &got, NULL), SL_OK);
        ck_assert_uint_eq(got, 250000);
        ck_assert_int_eq(sl_parse_bool("YES", &yes, NULL), SL_OK);
        ck_assert(yes);
        ck_assert_int_eq(sl_parse_bool("0", &yes, NULL), SL_OK);
        ck_assert(!yes);
    }
END_TEST

static const struct {
    const char *text;
    const char *host;             /* NULL: refused */
    const char *port;             /* NULL: none */
    const char *host_before_port; /* where the port is needed; NULL: refused */
} addresses[] = {
    {"a", "a", NULL, NULL},
    {"a:5", "a", "5", "a"},
    {"a:", "a", "", "a"},
    {"1.2.3.4:5", "1.2.3.4", "5", "1.2.3.4"},
    {"::1", "::1", NULL, ":"},
    {"::1:5", "::1:5", NULL, "::1"},
    {"[::1]", "::1", NULL, NULL},
    {"[::1]:5", "::1", "5", "::1"},
    {"[::1", NULL, NULL, NULL},
    {"[::1]5", NULL, NULL, NULL},
    {":5", "", "5", ""},
    {"0123456789abcde:5", "0123456789abcde", "5", "0123456789abcde"},
    {"0123456789abcdef:5", NULL, NULL, NULL}, /* does not fit */
};

START_TEST(addresses_are_cut_at_their_port)
    {
        char host[16];
        const char *port = NULL;
        bool fine =
            sl_address_split(addresses[_i].text, SL_PORT_OPTIONAL, host, sizeof host, &port);
        ck_assert_int_eq(fine, addresses[_i].host != NULL);
        if (fine) {
            ck_assert_str_eq(host, addresses[_i].host);
            ck_assert_pstr_eq(port, addresses[_i].port);
        }

        fine = sl_address_split(addresses[_i].text, SL_PORT_NEEDED, host, sizeof host, &port);

        ck_assert_int_eq(fine, addresses[_i].host_before_port != NULL);
        if (fine) {
            ck_assert_str_eq(host, addresses[_i].host_before_port);
        }
    }
END_TEST

START_TEST(address_needs_a_host_and_a_port)
    {
        static const char *const bad[] = {"a",    "a:",   "a:0", "a:65536",
                                          "a:+5", "a:5 ", ":5",  "[]:5"};
        char host[16];
        uint16_t port = 0;
        for (size_t i = 0; i < SL_COUNT(bad); i++) {
            ck_assert_msg(!sl_address_parse(bad[i], host, sizeof host, &port), "%s", bad[i]);
        }

        ck_assert(sl_address_parse("a:65535", host, sizeof host, &port));

        ck_assert_str_eq(host, "a");
        ck_assert_uint_eq(port, 65535);
    }
END_TEST

START_TEST(ip_addresses_become_socket_addresses)
    {
        struct sockaddr_storage at;
        socklen_t length = 0;
        ck_assert(!sl_address_ip("localhost", 5, &at, &length));
        ck_assert(sl_address_ip("127.0.0.1", 5, &at, &length));
        ck_assert_int_eq(at.ss_family, AF_INET);
        ck_assert_uint_eq(length, sizeof(struct sockaddr_in));
        ck_assert(sl_address_ip("::1", 5, &at, &length));
        ck_assert_int_eq(at.ss_family, AF_INET6);
        ck_assert_uint_eq(length, sizeof(struct sockaddr_in6));
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("parse");
    TCase *tcase = tcase_create("parse");
    tcase_add_loop_test(tcase, digits_are_read_up_to_what_follows, 0, (int)SL_COUNT(digits));
    tcase_add_test(tcase, whole_numbers_are_all_of_their_text);
    tcase_add_test(tcase, hexadecimal_numbers_have_at_most_16_digits);
    tcase_add_loop_test(tcase, reals_are_finite_and_without_blanks, 0, (int)SL_COUNT(reals));
    tcase_add_loop_test(tcase, sizes_have_units_of_settings_or_of_engines, 0, (int)SL_COUNT(sizes));
    tcase_add_loop_test(tcase, durations_need_a_unit, 0, (int)SL_COUNT(durations));
    tcase_add_test(tcase, ratios_and_booleans_are_strict);
    tcase_add_loop_test(tcase, addresses_are_cut_at_their_port, 0, (int)SL_COUNT(addresses));
    tcase_add_test(tcase, address_needs_a_host_and_a_port);
    tcase_add_test(tcase, ip_addresses_become_socket_addresses);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
