/* tests/unit/ipc/msg/trust_test.c - files that contain secrets or grant rights: their owner, and
 * which other users can write to them or to a directory above them. */
#include "ipc/msg/sl_curve.h"
#include "runtime/base/sl_trust.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER 65534u

/* BASE/above/in/file; all other files there belong to this user and are closed to others. */
static struct sl_tmpdir base;
static char above[128], in[160], file[192], elsewhere[128];

static void place_make(void)
{
    sl_tmpdir_make(&base, "/tmp");
    (void)sl_tmpdir_at(&base, "above", above, sizeof(above));
    (void)sl_tmpdir_at(&base, "elsewhere", elsewhere, sizeof(elsewhere));
    (void)snprintf(in, sizeof(in), "%s/in", above);
    (void)snprintf(file, sizeof(file), "%s/file", in);
    ck_assert_int_eq(mkdir(above, 0700) | mkdir(in, 0700) | mkdir(elsewhere, 0700), 0);
    sl_tmpdir_write(file, "text", 4);
}

enum what { THE_FILE, ITS_DIRECTORY, ABOVE, A_LINK, LINK_TO_ELSEWHERE };

/* USER: of another user; GROUP: of another group: only root can make those. NOT_ROOTS: files of
 * root follow another rule. */
enum whose { OWN, USER, GROUP, NOT_ROOTS };

/* mode 0: unchanged. */
static const struct {
    enum what what;
    mode_t mode;
    enum whose whose;
    uint32_t refused;
    const char *why; /* NULL: it is read */
} places[] = {
    {THE_FILE, 0600, OWN, SL_TRUST_SECRET, NULL},
    {THE_FILE, 0400, OWN, SL_TRUST_SECRET, NULL},
    {THE_FILE, 0640, NOT_ROOTS, SL_TRUST_SECRET, "0640"},
    {THE_FILE, 0660, OWN, SL_TRUST_SECRET, "0660"},
    {THE_FILE, 0620, OWN, SL_TRUST_SECRET, "0620"},
    {THE_FILE, 0650, OWN, SL_TRUST_SECRET, "0650"},
    {THE_FILE, 0604, OWN, SL_TRUST_SECRET, "0604"},
    {THE_FILE, 0644, OWN, SL_TRUST_RIGHT, NULL},
    {THE_FILE, 0664, OWN, SL_TRUST_RIGHT, NULL}, /* umask 002 */
    {THE_FILE, 0664, GROUP, SL_TRUST_RIGHT, "0664"},
    {THE_FILE, 0646, OWN, SL_TRUST_RIGHT, "0646"},
    {THE_FILE, 0644, USER, SL_TRUST_RIGHT, "belongs to uid 65534"},
    {THE_FILE, 0600, USER, SL_TRUST_SECRET, "belongs to uid 65534"},
    {ITS_DIRECTORY, 0755, OWN, SL_TRUST_SECRET, NULL},
    {ITS_DIRECTORY, 01777, OWN, SL_TRUST_SECRET, NULL},
    {ITS_DIRECTORY, 0777, OWN, SL_TRUST_SECRET, "0777"},
    {ITS_DIRECTORY, 0775, OWN, SL_TRUST_RIGHT, NULL},
    {ITS_DIRECTORY, 02775, GROUP, SL_TRUST_RIGHT, "2775"},
    {ITS_DIRECTORY, 03777, GROUP, SL_TRUST_RIGHT, NULL}, /* a mounted secret, with fsGroup */
    {ITS_DIRECTORY, 0702, OWN, SL_TRUST_RIGHT, "0702"},
    {ITS_DIRECTORY, 0, USER, SL_TRUST_RIGHT, "belongs to uid 65534"},
    {ABOVE, 01777, OWN, SL_TRUST_RIGHT, NULL},
    {ABOVE, 0777, OWN, SL_TRUST_RIGHT, "0777"},
    {ABOVE, 0770, OWN, SL_TRUST_SECRET, NULL},
    {ABOVE, 0770, GROUP, SL_TRUST_SECRET, "0770"},
    {ABOVE, 0, USER, SL_TRUST_SECRET, "belongs to uid 65534"},
    {A_LINK, 0, OWN, SL_TRUST_SECRET, NULL},
    {A_LINK, 0, USER, SL_TRUST_SECRET, "belongs to uid 65534"},
    {LINK_TO_ELSEWHERE, 0700, OWN, SL_TRUST_SECRET, NULL},
    {LINK_TO_ELSEWHERE, 0777, OWN, SL_TRUST_SECRET, "elsewhere"},
};

/* Places the file, or a link to it in `in`. */
static const char *place_set(enum what what, mode_t mode, enum whose whose)
{
    static char link[224], target[160];
    const char *changed = what == THE_FILE ? file : what == ITS_DIRECTORY ? in : above;
    if (what == A_LINK || what == LINK_TO_ELSEWHERE) {
        (void)snprintf(link, sizeof(link), "%s/link", in);
        (void)snprintf(target, sizeof(target), "%s/file", elsewhere);
        sl_tmpdir_write(target, "text", 4);
        ck_assert_int_eq(symlink(what == A_LINK ? file : target, link), 0);
        changed = what == A_LINK ? link : elsewhere;
    }
    ck_assert_int_eq(whose == USER    ? lchown(changed, OTHER, OTHER)
                     : whose == GROUP ? lchown(changed, (uid_t)-1, OTHER)
                                      : 0,
                     0);
    ck_assert_int_eq(mode != 0 ? chmod(changed, mode) : 0, 0);
    return what == A_LINK || what == LINK_TO_ELSEWHERE ? link : file;
}

START_TEST(what_another_user_could_have_put_there_is_not_read)
    {
        struct sl_error why = {0};
        char text[8] = "";
        enum whose whose = places[_i].whose;
        bool group_matters = (places[_i].mode & S_IWGRP) != 0 && getegid() != geteuid();
        if (geteuid() == 0 ? whose == NOT_ROOTS
                           : whose == USER || whose == GROUP || group_matters) {
            return;
        }
        place_make();
        const char *path = place_set(places[_i].what, places[_i].mode, whose);

        sl_err err = sl_trust_read(path, places[_i].refused, false, text, sizeof(text), &why);

        if (places[_i].why == NULL) {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_str_eq(text, "text");
        } else {
            ck_assert_int_eq(err, SL_ERR_CONFIG);
            ck_assert_msg(strstr(why.text, places[_i].why) != NULL, "%s", why.text);
            ck_assert_msg(strstr(why.text, path) != NULL, "%s", why.text);
        }
        sl_tmpdir_remove(&base);
    }
END_TEST

/* As the user of a container who reads files that kubelet mounts: NAME -> ..data/NAME, ..data ->
 * ..VERSION. With fsGroup a secret is 0440; the directory of a ConfigMap is 0777, without the
 * sticky bit. */
static const struct {
    mode_t mode, above;
    uid_t file, link; /* whose they are */
    uint32_t refused;
    sl_err want;
} mounted[] = {{0440, 03777, 0, 0, SL_TRUST_SECRET, SL_OK},
               {0640, 03777, 0, 0, SL_TRUST_SECRET, SL_OK},
               {0460, 03777, 0, 0, SL_TRUST_SECRET, SL_ERR_CONFIG},
               {0444, 03777, 0, 0, SL_TRUST_SECRET, SL_ERR_CONFIG},
               {0440, 03777, OTHER, 0, SL_TRUST_SECRET, SL_ERR_CONFIG},
               {0644, 0777, 0, 0, SL_TRUST_RIGHT, SL_OK},
               {0644, 02777, 0, 0, SL_TRUST_RIGHT, SL_OK},
               {0644, 0777, 0, OTHER, SL_TRUST_RIGHT, SL_ERR_CONFIG},
               {0644, 0777, 1, 0, SL_TRUST_RIGHT, SL_ERR_CONFIG}};
START_TEST(what_kubelet_mounts_is_read)
    {
        struct sl_error why = {0};
        char text[8] = "", data[224], link[224];
        if (geteuid() != 0) {
            return;
        }
        place_make();
        (void)snprintf(data, sizeof(data), "%s/..data", above);
        (void)snprintf(link, sizeof(link), "%s/file", above);
        ck_assert_int_eq(symlink("in", data) | symlink("..data/file", link), 0);
        ck_assert_int_eq(lchown(data, mounted[_i].link, OTHER), 0);
        ck_assert_int_eq(chown(file, mounted[_i].file, OTHER), 0);
        ck_assert_int_eq(chown(in, 0, OTHER) | chown(above, 0, OTHER), 0);
        ck_assert_int_eq(chmod(file, mounted[_i].mode) | chmod(in, 02755) |
                             chmod(above, mounted[_i].above) | chmod(base.path, 0755),
                         0);
        ck_assert_int_eq(setegid(OTHER) | seteuid(OTHER), 0);

        sl_err err = sl_trust_read(link, mounted[_i].refused, false, text, sizeof(text), &why);

        ck_assert_int_eq(seteuid(0) | setegid(0), 0);
        ck_assert_msg(err == mounted[_i].want, "%s", why.text);
        ck_assert_str_eq(text, err == SL_OK ? "text" : "");
        sl_tmpdir_remove(&base);
    }
END_TEST

START_TEST(what_is_no_file_is_not_read)
    {
        struct sl_error why = {0};
        char text[5], path[224];
        place_make();
        (void)snprintf(path, sizeof(path), "%s/pipe", in);
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        ck_assert_int_eq(sl_trust_read(path, SL_TRUST_SECRET, false, text, 5, &why), SL_ERR_CONFIG);
        ck_assert_int_eq(sl_trust_read(in, SL_TRUST_SECRET, false, text, 5, &why), SL_ERR_CONFIG);
        ck_assert_int_eq(sl_trust_read(file, SL_TRUST_SECRET, false, text, 4, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "3 bytes") != NULL, "%s", why.text);
        ck_assert_int_eq(sl_trust_read(file, SL_TRUST_SECRET, false, text, 5, &why), SL_OK);
        (void)snprintf(path, sizeof(path), "%s/none", in);
        ck_assert_int_eq(sl_trust_read(path, SL_TRUST_SECRET, false, text, 5, &why),
                         SL_ERR_NOT_FOUND);
        sl_tmpdir_remove(&base);
    }
END_TEST

/* Keys that others could have put there give no access, and none of ours is used from there. */
static const struct {
    enum what what;
    mode_t mode;
    bool owner, pair; /* pair: whether ours is used */
} keys[] = {{ITS_DIRECTORY, 0777, false, false}, {ITS_DIRECTORY, 0, true, false},
            {ABOVE, 0777, false, false},         {THE_FILE, 0666, false, true},
            {THE_FILE, 0644, true, true},        {THE_FILE, 0644, false, true}};
START_TEST(a_key_that_another_user_could_have_put_there_is_none)
    {
        struct sl_curve_pair pair = {0}, peer = {0};
        struct sl_error why = {0};
        char name[32], text[SL_CURVE_TEXT_BYTES];
        bool good = _i == SL_COUNT(keys) - 1;
        if (keys[_i].owner && geteuid() != 0) {
            return;
        }
        place_make();
        ck_assert_int_eq(sl_curve_make(in, "a", NULL), SL_OK);
        ck_assert_int_eq(sl_curve_make(in, "b", NULL), SL_OK);
        ck_assert_int_eq(sl_curve_load(in, "b", &peer, NULL), SL_OK);
        (void)snprintf(file, sizeof(file), "%s/b.pub", in);
        (void)place_set(keys[_i].what, keys[_i].mode, keys[_i].owner ? USER : OWN);

        ck_assert_int_eq(sl_curve_load(in, "a", &pair, &why),
                         keys[_i].pair ? SL_OK : SL_ERR_CONFIG);
        ck_assert_int_eq(sl_curve_load_public(in, "b", text, &why), good ? SL_OK : SL_ERR_CONFIG);
        ck_assert_int_eq(sl_curve_who(in, peer.public_text, name),
                         good ? SL_OK : SL_ERR_PERMISSION);
        sl_tmpdir_remove(&base);
    }
END_TEST

int main(void)
{
    Suite *all = suite_create("trust");
    TCase *tests = tcase_create("trust");
    tcase_add_loop_test(tests, what_another_user_could_have_put_there_is_not_read, 0,
                        SL_COUNT(places));
    tcase_add_loop_test(tests, what_kubelet_mounts_is_read, 0, SL_COUNT(mounted));
    tcase_add_test(tests, what_is_no_file_is_not_read);
    tcase_add_loop_test(tests, a_key_that_another_user_could_have_put_there_is_none, 0,
                        SL_COUNT(keys));
    suite_add_tcase(all, tests);
    SRunner *runner = srunner_create(all);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
