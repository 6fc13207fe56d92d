/* tests/unit/doctor_logout_test.c - when systemd removes the shared memory of a user who logs out. */
#include "client/ctl/doctor.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct sl_tmpdir root;

static void set_up(void)
{
    sl_tmpdir_make(&root, "/tmp");
}

static void tear_down(void)
{
    sl_tmpdir_remove(&root);
}

/* A file below root with the directories on the way; "" of text: a directory. */
static void put(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s%s", root.path, name);
    for (char *at = path + strlen(root.path) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    if (text[0] == '\0') {
        ck_assert_int_eq(mkdir(path, 0700), 0);
    } else {
        sl_tmpdir_write(path, text, strlen(text));
    }
}

#define SEATS                    \
    {                            \
        "/run/systemd/seats", "" \
    }
static const struct {
    struct {
        const char *name, *text;
    } files[4];
    uint32_t uid;
    bool removes;
} cases[] = {
    {{SEATS}, 1000, true},
    {{{"/etc/x", "x"}}, 1000, false}, /* no logind */
    {{SEATS}, 0, false},
    {{SEATS}, 999, false},
    {{SEATS, {"/var/lib/systemd/linger/ada", "x"}}, 1000, false},
    {{SEATS, {"/var/lib/systemd/linger/bob", "x"}}, 1000, true},
    {{SEATS, {"/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n"}}, 1000, true},
    {{SEATS, {"/etc/systemd/logind.conf", "[Login]\nRemoveIPC=no\n"}}, 1000, false},
    {{SEATS, {"/etc/systemd/logind.conf.d/a.conf", "[Login]\n RemoveIPC = false\n"}}, 1000, false},
    {{SEATS, {"/etc/systemd/logind.conf.d/a", "[Login]\nRemoveIPC=no\n"}}, 1000, true},
    {{SEATS,
      {"/etc/systemd/logind.conf", "RemoveIPC=no\n"},
      {"/usr/lib/systemd/logind.conf.d/b.conf", "RemoveIPC=yes\n"}},
     1000,
     true},
    {{SEATS,
      {"/etc/systemd/logind.conf.d/1.conf", "RemoveIPC=yes\n"},
      {"/etc/systemd/logind.conf.d/2.conf", "RemoveIPC=off\n"}},
     1000,
     false},
};

START_TEST(a_logout_removes_memory_where_systemd_is_told_nothing_else)
    {
        for (size_t i = 0; i < 4 && cases[_i].files[i].name != NULL; i++) {
            put(cases[_i].files[i].name, cases[_i].files[i].text);
        }

        ck_assert_int_eq(ctl_logout_removes(root.path, "ada", cases[_i].uid), cases[_i].removes);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("doctor_logout");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_loop_test(all, a_logout_removes_memory_where_systemd_is_told_nothing_else, 0,
                        (int)SL_COUNT(cases));
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
