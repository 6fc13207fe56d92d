/* tests/unit/ipc/shm/huge_test.c - whether the system's files allow huge pages in shared memory. */
#include "ipc/shm/sl_huge.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#define LINES                                                                          \
    "22 1 0:19 / / rw,relatime - ext4 /dev/vda rw,huge=advise\n"                       \
    "23 22 0:20 / /dev/shm rw,nosuid shared:4 - tmpfs shm rw,size=1048576k\n"          \
    "24 22 0:21 / /mnt/a rw,relatime - tmpfs tmpfs rw,size=1g,huge=advise,mode=1777\n" \
    "25 22 0:22 / /mnt/b rw,relatime shared:1 master:2 - tmpfs none rw,huge=never\n"   \
    "26 22 0:23 / /mnt/c rw - tmpfs tmpfs rw,huge=within_size\n"                       \
    "27 22 0:24 / /mnt/d rw - tmpfs tmpfs rw,shuge=always\n"                           \
    "29 22 0:26 / /mnt/f rw - tmpfs  rw,huge=always\n"                                 \
    "28 22 0:25 / /mnt/e rw"

static const struct {
    const char *policy;
    uint32_t device_minor;
    bool want;
    const char *says;
} cases[] = {
    {"always within_size advise [never] deny force\n", 21, true, "huge=advise"},
    {"always within_size advise [never] deny force\n", 23, true, "huge=within_size"},
    {"always within_size advise [never] deny force\n", 26, true, "huge=always"}, /* no source */
    {"always within_size advise [never] deny force\n", 20, false, "without huge=advise"},
    {"always within_size advise [never] deny force\n", 22, false, "without huge=advise"},
    {"always within_size advise [never] deny force\n", 24, false, "without huge=advise"},
    {"always within_size advise [never] deny force\n", 19, false, "not a tmpfs"},
    {"always within_size advise [never] deny force\n", 25, false, "not a tmpfs"}, /* cut off */
    {"always within_size advise [never] deny force\n", 99, false, "not listed"},
    {"always within_size advise never [deny] force\n", 21, false, "denies"},
    {"always within_size advise never deny [force]\n", 20, true, "forces"},
    {"", 21, false, "has none"},
};

START_TEST(mount_and_policy_decide)
    {
        char why[SL_HUGE_TEXT_BYTES] = "";
        char lines[] = LINES;
        FILE *mounts = fmemopen(lines, strlen(lines), "r");
        ck_assert_ptr_nonnull(mounts);

        ck_assert_int_eq(
            sl_huge_from(mounts, cases[_i].policy, makedev(0, cases[_i].device_minor), why),
            cases[_i].want);

        (void)fclose(mounts);

        ck_assert_msg(strstr(why, cases[_i].says) != NULL, "%s", why);
    }
END_TEST

START_TEST(every_directory_has_an_answer_with_a_reason)
    {
        char why[SL_HUGE_TEXT_BYTES] = "";
        (void)sl_huge_pages("/dev/shm", why);
        ck_assert_str_ne(why, "");
        ck_assert(!sl_huge_pages("/nonexistent/directory", why));
        ck_assert_msg(strstr(why, "looked at") != NULL, "%s", why);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("huge");
    TCase *tcase = tcase_create("huge");
    tcase_add_loop_test(tcase, mount_and_policy_decide, 0, (int)SL_COUNT(cases));
    tcase_add_test(tcase, every_directory_has_an_answer_with_a_reason);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
