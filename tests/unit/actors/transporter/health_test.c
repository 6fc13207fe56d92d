/* tests/unit/actors/transporter/health_test.c - when a peer is queried, and for which keys; key
 * files. */
#include "actors/transporter/control/health.h"
#include "ipc/msg/sl_curve.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define S SL_NS_PER_S

static struct sl_peer_health made(void)
{
    struct sl_peer_health health;
    const struct sl_peer_health_limits limits = {
        .silence_ns = 2 * S, .failures_max = 3, .backoff_min_ns = 4 * S, .backoff_max_ns = 10 * S};
    sl_peer_health_init(&health, &limits);
    return health;
}

/* The event at each second, and the state right after it. */
enum step { HEARD, WORKED, FAILED, ASKED, OVER, NOTHING };
static const struct {
    const char *story;
    struct {
        uint64_t at_s;
        enum step step;
        enum sl_peer_state state;
        bool usable;
    } steps[10];
} stories[] = {
    {"a peer that never answered is unreachable", {{5, NOTHING, SL_PEER_AWAY, false}}},
    {"an answered greeting makes it alive until it falls silent",
     {{1, HEARD, SL_PEER_ALIVE, true},
      {2, NOTHING, SL_PEER_ALIVE, true},
      {3, NOTHING, SL_PEER_AWAY, false},
      {9, HEARD, SL_PEER_ALIVE, true}}},
    {"failures in a row break it, others do not",
     {{1, HEARD, SL_PEER_ALIVE, true},
      {1, FAILED, SL_PEER_ALIVE, true},
      {1, FAILED, SL_PEER_ALIVE, true},
      {1, WORKED, SL_PEER_ALIVE, true},
      {1, FAILED, SL_PEER_ALIVE, true},
      {1, FAILED, SL_PEER_ALIVE, true},
      {1, FAILED, SL_PEER_BROKEN, false}}},
    {"after its pause one trial is sent, and ends it when it works",
     {{1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {2, HEARD, SL_PEER_BROKEN, false}, /* HELLO replies repair nothing */
      {3, HEARD, SL_PEER_BROKEN, true},  /* half of 4 s, without jitter */
      {3, ASKED, SL_PEER_BROKEN, false},
      {3, WORKED, SL_PEER_ALIVE, true}}},
    {"a trial that fails doubles the pause",
     {{1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {3, HEARD, SL_PEER_BROKEN, true},
      {3, ASKED, SL_PEER_BROKEN, false},
      {3, FAILED, SL_PEER_BROKEN, false},
      {6, HEARD, SL_PEER_BROKEN, false},
      {7, HEARD, SL_PEER_BROKEN, true}}},
    {"a trial that fails long after the last pause begins with a short one",
     {{1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {3, HEARD, SL_PEER_BROKEN, true},
      {3, FAILED, SL_PEER_BROKEN, false},
      {7, FAILED, SL_PEER_AWAY, false}, /* to 12: half of 10 s */
      {22, HEARD, SL_PEER_BROKEN, true},
      {22, FAILED, SL_PEER_BROKEN, false},
      {23, HEARD, SL_PEER_BROKEN, false},
      {24, HEARD, SL_PEER_BROKEN, true}}},
    {"a trial that says nothing is followed by another",
     {{1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {1, FAILED, SL_PEER_AWAY, false},
      {3, HEARD, SL_PEER_BROKEN, true},
      {3, ASKED, SL_PEER_BROKEN, false},
      {3, OVER, SL_PEER_BROKEN, true}}},
};

START_TEST(a_peer_is_asked_while_it_pays)
    {
        struct sl_peer_health health = made();
        for (size_t i = 0; i < SL_COUNT(stories[_i].steps) && stories[_i].steps[i].at_s != 0; i++) {
            uint64_t now_ns = stories[_i].steps[i].at_s * S;
            switch (stories[_i].steps[i].step) {
            case HEARD:
                sl_peer_health_heard(&health, now_ns);
                break;
            case WORKED:
                sl_peer_health_worked(&health);
                break;
            case FAILED:
                sl_peer_health_failed(&health, now_ns, 0);
                break;
            case ASKED:
                sl_peer_health_asked(&health);
                break;
            case OVER:
                sl_peer_health_over(&health);
                break;
            case NOTHING:
                break;
            }
            ck_assert_msg(sl_peer_health_state(&health, now_ns) == stories[_i].steps[i].state,
                          "%s: step %zu", stories[_i].story, i);
            ck_assert_msg(sl_peer_health_usable(&health, now_ns) == stories[_i].steps[i].usable,
                          "%s: step %zu", stories[_i].story, i);
        }
    }
END_TEST

START_TEST(pauses_are_bounded_and_jittered)
    {
        struct sl_peer_health health = made();
        uint64_t now_ns = S;
        for (uint32_t i = 0; i < 40; i++) {
            sl_peer_health_failed(&health, now_ns, UINT64_MAX / (i + 1));
            ck_assert_uint_le(health.closed_until_ns, now_ns + 10 * S);
            if (health.closed_until_ns > now_ns) {
                ck_assert_uint_ge(health.closed_until_ns, now_ns + 2 * S);
                now_ns = health.closed_until_ns;
            }
        }
    }
END_TEST

START_TEST(what_a_peer_lacks_is_remembered_for_a_while)
    {
        struct sl_missing *missing = NULL;
        ck_assert_int_eq(sl_missing_create(64, 10 * S, &missing, NULL), SL_OK);

        sl_missing_note(missing, 77, 1, S);
        sl_missing_note(missing, 77, 4, 5 * S);

        ck_assert_uint_eq(sl_missing_at(missing, 77, 6 * S), 5);
        ck_assert_uint_eq(sl_missing_at(missing, 78, 6 * S), 0);
        ck_assert_uint_eq(sl_missing_at(missing, 77, 11 * S), 0); /* the first note's time counts */
        sl_missing_note(missing, 77, 6, 11 * S);
        sl_missing_forget_peer(missing, 1);
        ck_assert_uint_eq(sl_missing_at(missing, 77, 12 * S), 4);
        sl_missing_forget_key(missing, 77);
        ck_assert_uint_eq(sl_missing_at(missing, 77, 12 * S), 0);
        sl_missing_destroy(&missing);
    }
END_TEST

START_TEST(what_is_missing_is_bounded)
    {
        struct sl_missing *missing = NULL;
        uint64_t known = 0;
        ck_assert_int_eq(sl_missing_create(64, 10 * S, &missing, NULL), SL_OK);

        for (uint64_t i = 0; i < 10000; i++) {
            sl_missing_note(missing, i, 1, S + i);
            ck_assert_uint_eq(sl_missing_at(missing, i, S + i), 1); /* the newest entry exists */
        }

        for (uint64_t i = 0; i < 10000; i++) {
            known += sl_missing_at(missing, i, S + 10000);
        }
        ck_assert_uint_le(known, 64);
        sl_missing_destroy(&missing);
        ck_assert_int_eq(sl_missing_create(64, 0, &missing, NULL), SL_OK);
        sl_missing_note(missing, 77, 1, S);
        ck_assert_uint_eq(sl_missing_at(missing, 77, S), 0);
        sl_missing_destroy(&missing);
    }
END_TEST

/* ---- key files ---- */

static char keys[64];

static void keys_setup(void)
{
    strcpy(keys, "/tmp/sluice-test-keys-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(keys));
}

static void keys_teardown(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", keys);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_node_is_known_by_its_key)
    {
        struct sl_curve_pair a, b;
        char text[SL_CURVE_TEXT_BYTES], name[32], path[128];
        ck_assert_int_eq(sl_curve_make(keys, "a", NULL), SL_OK);
        ck_assert_int_eq(sl_curve_make(keys, "b.1", NULL), SL_OK);
        ck_assert_int_eq(sl_curve_load(keys, "a", &a, NULL), SL_OK);
        ck_assert_int_eq(sl_curve_load(keys, "b.1", &b, NULL), SL_OK);

        ck_assert_int_eq(sl_curve_load_public(keys, "b.1", text, NULL), SL_OK);
        ck_assert_str_eq(text, b.public_text);
        ck_assert_str_ne(a.public_text, b.public_text);
        ck_assert_int_eq(sl_curve_who(keys, b.public_text, name), SL_OK);
        ck_assert_str_eq(name, "b.1");
        ck_assert_int_eq(sl_curve_who(keys, a.secret_text, name), SL_ERR_PERMISSION);
        snprintf(path, sizeof(path), "%s/b.1.pub", keys);
        ck_assert_int_eq(unlink(path), 0); /* removed from the list */
        ck_assert_int_eq(sl_curve_who(keys, b.public_text, name), SL_ERR_PERMISSION);
    }
END_TEST

START_TEST(a_secret_is_kept)
    {
        struct sl_curve_pair before, after;
        struct sl_error why = {0};
        struct stat status;
        char path[128];
        ck_assert_int_eq(sl_curve_make(keys, "a", NULL), SL_OK);
        ck_assert_int_eq(sl_curve_load(keys, "a", &before, NULL), SL_OK);
        snprintf(path, sizeof(path), "%s/a.secret", keys);
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_uint_eq(status.st_mode & 0777, 0600);

        ck_assert_int_eq(sl_curve_make(keys, "a", NULL), SL_ERR_EXISTS);

        ck_assert_int_eq(sl_curve_load(keys, "a", &after, NULL), SL_OK);
        ck_assert_mem_eq(&before, &after, sizeof(before));
        ck_assert_int_eq(chmod(path, 0644), 0); /* others could read it */
        ck_assert_int_eq(sl_curve_load(keys, "a", &after, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "0600"));
    }
END_TEST

static const struct {
    const char *text; /* of a.secret and a.pub; NULL: there is none */
    const char *node;
    sl_err secret, pub;
} bad_files[] = {
    {NULL, "a", SL_ERR_CONFIG, SL_ERR_CONFIG},
    {"", "a", SL_ERR_CONFIG, SL_ERR_CONFIG},
    {"public = short\nsecret = short\n", "a", SL_ERR_CONFIG, SL_ERR_CONFIG},
    {"public = 0123456789012345678901234567890123456789\n", "a", SL_ERR_CONFIG, SL_OK},
    {"public = 012345678901234567890123456789012345678\"\n", "a", SL_ERR_CONFIG, SL_ERR_CONFIG},
    {"", "../a", SL_ERR_INVALID, SL_ERR_INVALID},
    {"", "", SL_ERR_INVALID, SL_ERR_INVALID},
};
START_TEST(bad_key_files_are_refused)
    {
        struct sl_curve_pair pair;
        char text[SL_CURVE_TEXT_BYTES];
        for (int i = 0; bad_files[_i].text != NULL && i < 2; i++) {
            char path[128];
            snprintf(path, sizeof(path), "%s/a.%s", keys, i == 0 ? "secret" : "pub");
            FILE *file = fopen(path, "w");
            ck_assert_ptr_nonnull(file);
            fputs(bad_files[_i].text, file);
            ck_assert_int_eq(fclose(file), 0);
            ck_assert_int_eq(chmod(path, 0600), 0);
        }
        ck_assert_int_eq(sl_curve_load(keys, bad_files[_i].node, &pair, NULL),
                         bad_files[_i].secret);
        ck_assert_int_eq(sl_curve_load_public(keys, bad_files[_i].node, text, NULL),
                         bad_files[_i].pub);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("health");
    TCase *tests = tcase_create("peers");
    tcase_add_loop_test(tests, a_peer_is_asked_while_it_pays, 0, SL_COUNT(stories));
    tcase_add_test(tests, pauses_are_bounded_and_jittered);
    tcase_add_test(tests, what_a_peer_lacks_is_remembered_for_a_while);
    tcase_add_test(tests, what_is_missing_is_bounded);
    suite_add_tcase(all, tests);
    TCase *files = tcase_create("keys");
    tcase_add_checked_fixture(files, keys_setup, keys_teardown);
    tcase_add_test(files, a_node_is_known_by_its_key);
    tcase_add_test(files, a_secret_is_kept);
    tcase_add_loop_test(files, bad_key_files_are_refused, 0, SL_COUNT(bad_files));
    suite_add_tcase(all, files);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
