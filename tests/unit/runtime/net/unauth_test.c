/* tests/unit/runtime/net/unauth_test.c - which unauthenticated connection is closed first. */
#include "runtime/net/sl_unauth.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

static struct sl_unauth *unauth;

static void make(uint32_t place_count, uint32_t of_one_max)
{
    ck_assert_int_eq(sl_unauth_create(place_count, of_one_max, &unauth, NULL), SL_OK);
}

static void teardown(void)
{
    sl_unauth_destroy(&unauth);
    ck_assert_ptr_null(unauth);
}

static struct sockaddr_storage from(const char *text)
{
    struct sockaddr_storage out = {.ss_family = AF_INET};
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&out)->sin_addr) != 1) {
        out.ss_family = AF_INET6;
        ck_assert_int_eq(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&out)->sin6_addr), 1);
    }
    return out;
}

static uint32_t add(uint32_t place, const char *text)
{
    const struct sockaddr_storage at = from(text);
    return sl_unauth_add(unauth, place, &at);
}

START_TEST(the_oldest_of_an_address_makes_room_for_its_next)
    {
        make(8, 2);
        ck_assert_uint_eq(add(5, "10.0.0.1"), SL_UNAUTH_NONE);
        ck_assert_uint_eq(add(2, "10.0.0.2"), SL_UNAUTH_NONE);
        ck_assert_uint_eq(add(3, "10.0.0.1"), SL_UNAUTH_NONE);
        ck_assert_uint_eq(add(0, "10.0.0.1"), 5);
        ck_assert_uint_eq(add(5, "10.0.0.1"), 3);
    }
END_TEST

START_TEST(the_oldest_of_the_address_with_the_most_is_pushed_out)
    {
        make(8, 8);
        (void)add(0, "10.0.0.1");
        (void)add(1, "10.0.0.2");
        (void)add(2, "10.0.0.3");
        (void)add(3, "10.0.0.2");
        (void)add(4, "10.0.0.3");
        (void)add(5, "10.0.0.3");
        static const uint32_t order[] = {2, 1, 4, 0, 3, 5};
        for (size_t i = 0; i < SL_COUNT(order); i++) {
            ck_assert_uint_eq(sl_unauth_displace(unauth), order[i]);
        }
        ck_assert_uint_eq(sl_unauth_displace(unauth), SL_UNAUTH_NONE);
    }
END_TEST

START_TEST(who_proved_who_it_is_is_not_pushed_out)
    {
        make(4, 1);
        (void)add(0, "10.0.0.1");
        sl_unauth_remove(unauth, 0);
        sl_unauth_remove(unauth, 0); /* again: without effect */
        ck_assert_uint_eq(add(1, "10.0.0.1"), SL_UNAUTH_NONE);
        ck_assert_uint_eq(sl_unauth_displace(unauth), 1);
        ck_assert_uint_eq(sl_unauth_displace(unauth), SL_UNAUTH_NONE);
    }
END_TEST

static const struct {
    const char *one, *other;
    bool same;
} pairs[] = {
    {"10.0.0.1", "10.0.0.1", true},
    {"10.0.0.1", "10.0.1.1", false},
    {"10.0.0.1", "::ffff:10.0.0.1", true},
    {"2001:db8::1", "2001:db8::ffff:1:2", true},
    {"2001:db8::1", "2001:db8:0:1::1", false},
    {"10.0.0.1", "a00:1::", false},
    {"::1", "0.0.0.0", false},
};
START_TEST(who_is_about_to_prove_who_it_is_goes_last)
    {
        make(8, 8);
        (void)add(0, "10.0.0.1");
        (void)add(1, "10.0.0.1");
        (void)add(2, "10.0.0.1");
        (void)add(3, "10.0.0.2");
        sl_unauth_named(unauth, 0);
        sl_unauth_named(unauth, 7); /* there is none */
        static const uint32_t order[] = {1, 2, 3, 0};
        for (size_t i = 0; i < SL_COUNT(order); i++) {
            ck_assert_uint_eq(sl_unauth_displace(unauth), order[i]);
        }
    }
END_TEST

START_TEST(an_address_is_that_of_a_host)
    {
        make(2, 1);
        (void)add(0, pairs[_i].one);
        ck_assert_uint_eq(add(1, pairs[_i].other), pairs[_i].same ? 0 : SL_UNAUTH_NONE);
    }
END_TEST

START_TEST(no_address_pays_for_another)
    {
        enum { PLACES = 16, TURNS = 200 };
        char text[32];
        for (unsigned turn = 0; turn < TURNS; turn++) {
            make(PLACES, 1);
            for (uint32_t i = 0; i < PLACES; i++) {
                (void)snprintf(text, sizeof(text), "10.0.%u.%u", turn, i);
                ck_assert_uint_eq(add(i, text), SL_UNAUTH_NONE);
            }
            sl_unauth_remove(unauth, 3);
            ck_assert_uint_eq(add(3, "10.1.0.1"),
                              SL_UNAUTH_NONE); /* in the room of that which went */
            sl_unauth_destroy(&unauth);
        }
    }
END_TEST

START_TEST(the_list_holds_over_any_order)
    {
        enum { PLACES = 64, STEPS = 20000 };
        bool here[PLACES] = {false};
        uint32_t count = 0;
        char text[32];
        make(PLACES, 5);
        srandom(7);
        for (unsigned i = 0; i < STEPS; i++) {
            uint32_t place = (uint32_t)random() % PLACES, gone = SL_UNAUTH_NONE;
            (void)snprintf(text, sizeof(text), "127.0.0.%ld", 1 + random() % 20);
            if (!here[place] && random() % 4 != 0) {
                gone = add(place, text);
                here[place] = true;
                count++;
            } else if (random() % 2 == 0) {
                sl_unauth_remove(unauth, place);
                count -= here[place];
                here[place] = false;
            } else {
                gone = sl_unauth_displace(unauth);
                ck_assert_int_eq(gone == SL_UNAUTH_NONE, count == 0);
            }
            if (gone != SL_UNAUTH_NONE) {
                ck_assert(here[gone] && (gone != place || count > 0));
                here[gone] = false;
                count--;
            }
        }
    }
END_TEST

START_TEST(bounds_are_checked)
    {
        ck_assert_int_eq(sl_unauth_create(0, 1, &unauth, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_unauth_create(1, 0, &unauth, NULL), SL_ERR_INVALID);
        ck_assert_int_eq(sl_unauth_create(SL_UNAUTH_PLACES_MAX + 1, 1, &unauth, NULL),
                         SL_ERR_INVALID);
        make(1, 1);
        const struct sockaddr_storage unknown = {.ss_family = AF_UNSPEC};
        ck_assert_uint_eq(sl_unauth_add(unauth, 0, &unknown), SL_UNAUTH_NONE);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("unauth");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, teardown);
    tcase_add_test(all, the_oldest_of_an_address_makes_room_for_its_next);
    tcase_add_test(all, the_oldest_of_the_address_with_the_most_is_pushed_out);
    tcase_add_test(all, who_proved_who_it_is_is_not_pushed_out);
    tcase_add_test(all, who_is_about_to_prove_who_it_is_goes_last);
    tcase_add_loop_test(all, an_address_is_that_of_a_host, 0, SL_COUNT(pairs));
    tcase_add_test(all, no_address_pays_for_another);
    tcase_add_test(all, the_list_holds_over_any_order);
    tcase_add_test(all, bounds_are_checked);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
