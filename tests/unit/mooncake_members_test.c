/* tests/unit/mooncake_members_test.c - what a host keeps of its cluster, over power cuts at any
 * moment: its name, its keys, and who else is there. */
#include "client/mooncake/daemons/members.h"
#include "tests/support/power_files.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct mc_member other = {.name = "other-1",
                                       .key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
                                       .control = "10.0.0.2:7400"};

struct life {
    const char *into;
    uint32_t known,
        joined; /* calls after which name and keys, and the other host, were acknowledged */
    char name[32], key[41];
};

static uint32_t keys_in(const char *path)
{
    uint32_t count = 0;
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *end = strrchr(entry->d_name, '.');
        count += end != NULL && strcmp(end, ".pub") == 0 ? 1 : 0;
    }
    (void)closedir(directory);
    return count;
}

/* The host starts again with what the cut has left. */
static void starts_again(void *context, uint32_t calls)
{
    const struct life *life = context;
    struct mc_members *members = NULL;
    struct mc_member list[MC_MEMBERS_MAX];
    struct sl_error why = {0};

    sl_err err = mc_members_open(life->into, &members, &why);

    ck_assert_msg(err == SL_OK, "cut after %u calls: %s", calls, why.text);
    if (calls >= life->known) {
        ck_assert_str_eq(mc_members_name(members), life->name);
        ck_assert_msg(strcmp(mc_members_key(members), life->key) == 0,
                      "cut after %u calls: it has other keys", calls);
    }
    if (calls >= life->joined) {
        ck_assert_msg(mc_members_list(members, list) == 1 && strcmp(list[0].key, other.key) == 0 &&
                          strcmp(list[0].control, other.control) == 0,
                      "cut after %u calls: who joined is not known any more", calls);
    }
    /* A key opens something here, and one of nobody would never make room. */
    ck_assert_msg(calls < life->known || keys_in(life->into) <= mc_members_list(members, list) + 1,
                  "cut after %u calls: there are %u keys", calls, keys_in(life->into));
    mc_members_close(&members);
}

START_TEST(a_host_is_the_same_after_any_power_cut)
    {
        struct sl_tmpdir directory, into;
        struct mc_members *members = NULL;
        struct sl_error why = {0};
        struct life life = {.known = UINT32_MAX};
        sl_tmpdir_make(&directory, "/tmp");
        sl_tmpdir_make(&into, "/tmp");
        power_files_watch(directory.path);
        life.into = into.path;

        ck_assert_msg(mc_members_open(directory.path, &members, &why) == SL_OK, "%s", why.text);
        life.known = power_files_calls();
        (void)snprintf(life.name, sizeof(life.name), "%s", mc_members_name(members));
        (void)snprintf(life.key, sizeof(life.key), "%s", mc_members_key(members));
        ck_assert_int_eq(mc_members_add(members, &other, NULL, &why), SL_OK);
        life.joined = power_files_calls();
        mc_members_close(&members);

        ck_assert_uint_gt(power_files_cut(into.path, starts_again, &life), life.joined);
        sl_tmpdir_remove(&directory);
        sl_tmpdir_remove(&into);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("mooncake_members");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_host_is_the_same_after_any_power_cut);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
