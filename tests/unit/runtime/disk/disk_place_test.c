/* tests/unit/runtime/disk/disk_place_test.c - where a disk is located for an operator's directory,
 * and which directories are refused. */
#include "runtime/disk/sl_disk.h"
#include "runtime/disk/sl_disk_place.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FOREIGN_UID 4711u
#define DISK_TEXT   "1MiB"

static struct sl_tmpdir tmpdir;
static char dir[96], below[128], lock_itself[128], lock_below[160];

static void make_directory(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_tmpdir_at(&tmpdir, "dir", dir, sizeof dir);
    (void)snprintf(below, sizeof below, "%s/sluice-disk-%u", dir, (unsigned)geteuid());
    (void)snprintf(lock_itself, sizeof lock_itself, "%s/lock", dir);
    (void)snprintf(lock_below, sizeof lock_below, "%s/lock", below);
}

static void remove_directory(void)
{
    sl_tmpdir_remove(&tmpdir);
}

static void made(const char *path, mode_t mode)
{
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

/* ---- the rule ---- */

enum what { NOTHING = 0, LOCK = 1, BELOW = 2, FOREIGN = 4, FILE_THERE = 8 };

static const struct {
    mode_t mode; /* 0: the directory is missing */
    int what;
    bool is_below; /* where the disk is to be */
    sl_err err;
    const char *text;
} places[] = {
    {.mode = 0},
    {.mode = 0700},
    {.mode = 0700, .what = LOCK},
    {.mode = 0755, .is_below = true},
    {.mode = 0755, .what = BELOW, .is_below = true},
    /* A mode that is changed later moves no disk. */
    {.mode = 0755, .what = LOCK},
    {.mode = 0700, .what = BELOW, .is_below = true},
    {.mode = 01777, .is_below = true},
    {.mode = 0777, .err = SL_ERR_PERMISSION, .text = "mode 0777): chmod go-w or chmod +t"},
    {.mode = 0775, .err = SL_ERR_PERMISSION, .text = "others may write there"},
    {.mode = 0777, .what = BELOW, .err = SL_ERR_PERMISSION, .text = "others may write there"},
    {.mode = 0777, .what = LOCK, .err = SL_ERR_PERMISSION, .text = "open to others (mode 0777)"},
    {.mode = 0700, .what = LOCK | BELOW, .err = SL_ERR_CONFIG, .text = "two disks are in"},
    {.mode = 0755, .what = FOREIGN, .err = SL_ERR_FOREIGN, .text = "belongs to uid 4711"},
    {.mode = 01777, .what = FOREIGN, .err = SL_ERR_FOREIGN, .text = "belongs to uid 4711"},
    {.what = FILE_THERE, .err = SL_ERR_CONFIG, .text = "is no directory"},
};

/* False: this user cannot prepare it. */
static bool prepare(int what, mode_t mode)
{
    if (mode != 0) {
        made(dir, 0700);
    }
    if ((what & FILE_THERE) != 0) {
        sl_tmpdir_write(dir, "x", 1);
    }
    if ((what & LOCK) != 0) {
        sl_tmpdir_write(lock_itself, "", 0);
    }
    if ((what & BELOW) != 0) {
        made(below, 0700);
    }
    if ((what & FOREIGN) != 0 && (geteuid() != 0 || chown(dir, FOREIGN_UID, FOREIGN_UID) != 0)) {
        return false;
    }
    ck_assert(mode == 0 || chmod(dir, mode) == 0);
    return true;
}

START_TEST(place_follows_from_what_is_there)
    {
        struct sl_error why = {0};
        char found[SL_DISK_PLACE_BYTES] = "";
        char again[SL_DISK_PLACE_BYTES] = "";
        struct stat status;
        if (!prepare(places[_i].what, places[_i].mode)) {
            return; /* only root can give a directory away */
        }

        sl_err err = sl_disk_place_make(dir, found, &why);

        ck_assert_msg(err == places[_i].err, "case %d: %s: %s", _i, sl_err_name(err), why.text);
        if (err != SL_OK) {
            ck_assert_msg(strstr(why.text, places[_i].text) != NULL, "%s", why.text);
            ck_assert_msg(strstr(why.text, dir) != NULL, "%s", why.text);
            return;
        }
        ck_assert_str_eq(found, places[_i].is_below ? below : dir);
        ck_assert_int_eq(stat(found, &status), 0);
        ck_assert(places[_i].what != 0 || !places[_i].is_below || (status.st_mode & 07777) == 0700);
        ck_assert_int_eq(sl_disk_place_make(dir, again, &why), SL_OK);
        ck_assert_str_eq(again, found);
    }
END_TEST

START_TEST(link_in_the_place_of_the_directory_below_is_refused)
    {
        char elsewhere[128];
        char found[SL_DISK_PLACE_BYTES] = "";
        struct sl_error why = {0};
        made(dir, 0755);
        sl_tmpdir_at(&tmpdir, "elsewhere", elsewhere, sizeof elsewhere);
        made(elsewhere, 0700);
        ck_assert_int_eq(symlink(elsewhere, below), 0);

        ck_assert_int_eq(sl_disk_place_make(dir, found, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, "is a link") != NULL, "%s", why.text);
    }
END_TEST

/* Another user's empty file `lock` in /tmp is no disk. */
START_TEST(file_named_lock_in_a_directory_of_another_user_is_no_disk)
    {
        struct sl_error why = {0};
        char found[SL_DISK_PLACE_BYTES] = "";
        if (geteuid() != 0) {
            return; /* only root can become another user */
        }
        ck_assert_int_eq(chmod(tmpdir.path, 0711), 0);
        made(dir, 01777);
        ck_assert_int_eq(seteuid(FOREIGN_UID), 0);
        sl_tmpdir_write(lock_itself, "", 0);

        sl_err err = sl_disk_place_make(dir, found, &why);

        ck_assert_int_eq(seteuid(0), 0);
        ck_assert_msg(err == SL_OK, "%s", why.text);
        (void)snprintf(below, sizeof below, "%s/sluice-disk-%u", dir, FOREIGN_UID);
        ck_assert_str_eq(found, below);
    }
END_TEST

/* Files that existed before the first disk. */
static const struct {
    const char *name, *text;
    sl_err want;
} files[] = {
    {"segment.0000000001", "what somebody wrote", SL_ERR_FOREIGN},
    {"members", "alice, bob", SL_ERR_FOREIGN},
    {"members", "", SL_ERR_FOREIGN},
    {"members", "SLUIMBR1 of a disk whose lock is gone", SL_OK},
    {"segment.txt", "what somebody wrote", SL_OK},
    {"notes", "what somebody wrote", SL_OK},
};
START_TEST(files_with_the_names_of_a_disk_that_are_none_are_refused)
    {
        char out[SL_DISK_PLACE_BYTES], path[192];
        struct sl_error why = {0};
        made(dir, 0700);
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[_i].name);
        sl_tmpdir_write(path, files[_i].text, strlen(files[_i].text));

        ck_assert_msg(sl_disk_place_find(dir, out, &why) == files[_i].want, "%s", why.text);
        if (files[_i].want != SL_OK) {
            ck_assert_msg(strstr(why.text, files[_i].name) != NULL, "%s", why.text);
            ck_assert_int_ne(sl_disk_place_make(dir, out, &why), SL_OK);
        }
        ck_assert_int_ne(access(lock_itself, F_OK), 0);
        sl_tmpdir_write(lock_itself, "", 0); /* they belong to a tierer then */
        ck_assert_int_eq(sl_disk_place_find(dir, out, &why), SL_OK);
    }
END_TEST

START_TEST(looking_for_the_place_changes_nothing)
    {
        char found[SL_DISK_PLACE_BYTES] = "";
        made(dir, 0755);

        ck_assert_int_eq(sl_disk_place_find(dir, found, NULL), SL_OK);

        ck_assert_str_eq(found, below);
        ck_assert_int_ne(access(below, F_OK), 0);
    }
END_TEST

/* Every start finds the previous one's disk, whatever has happened to the directory's mode. */
START_TEST(opened_disk_stays_where_it_was_when_the_mode_changes)
    {
        static const mode_t modes[] = {0755, 0700, 0755};
        for (size_t i = 0; i < SL_COUNT(modes); i++) {
            struct sl_error why = {0};
            struct sl_disk *disk = NULL;
            int event_fd = -1;
            if (i == 0) {
                made(dir, modes[_i]); /* the first one decides */
            }
            ck_assert_int_eq(chmod(dir, modes[((size_t)_i + i) % SL_COUNT(modes)]), 0);

            sl_err err = sl_disk_uring_open(dir, 8, true, &disk, &event_fd, &why);

            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_str_eq(disk->place, modes[_i] == 0700 ? dir : below);
            disk->ops->destroy(disk);
            ck_assert_int_eq(access(modes[_i] == 0700 ? lock_itself : lock_below, F_OK), 0);
            ck_assert_int_ne(access(modes[_i] == 0700 ? lock_below : lock_itself, F_OK), 0);
        }
    }
END_TEST

/* ---- the check before a start ---- */

static sl_err check(const char *disk, const char *list, uint32_t *bad, struct sl_error *why)
{
    struct sl_config *config = NULL;
    struct sl_paths paths;
    ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
    ck_assert_int_eq(sl_config_set(config, "disk", disk, "test", NULL), SL_OK);
    ck_assert_int_eq(sl_config_set(config, "disk_path", list, "test", NULL), SL_OK);
    sl_err err = sl_paths_from(config, &paths, why);
    err = err == SL_OK ? sl_disk_paths_check(config, &paths, bad, why) : err;
    sl_config_destroy(&config);
    return err;
}

START_TEST(check_passes_what_can_work_and_frees_it_again)
    {
        struct sl_error why = {0};
        uint32_t bad = 0;
        made(dir, 0755);
        for (int i = 0; i < 2; i++) {
            ck_assert_msg(check(DISK_TEXT, dir, &bad, &why) == SL_OK, "%s", why.text);
            ck_assert_uint_eq(bad, UINT32_MAX);
        }
        ck_assert_int_eq(check("0", "/proc/nothing", &bad, &why), SL_OK);
    }
END_TEST

START_TEST(an_unknown_kind_is_refused_before_anything_is_made)
    {
        struct sl_error why = {0};
        uint32_t bad = UINT32_MAX;
        char path[256], place[SL_DISK_PLACE_BYTES];
        (void)snprintf(path, sizeof path, "tape:%s", dir);

        sl_err found = sl_disk_place_find(path, place, &why);
        sl_err err = check(DISK_TEXT, path, &bad, &why);

        ck_assert_int_eq(found, SL_OK);
        ck_assert_str_eq(place, dir);
        ck_assert_int_eq(err, SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "there is no kind 'tape:'") != NULL, "%s", why.text);
        ck_assert_int_ne(access(dir, F_OK), 0);
    }
END_TEST

/* A disk in an earlier release's format is refused before a tierer repeatedly fails on it. */
START_TEST(check_refuses_a_disk_of_another_format)
    {
        static const struct {
            const char *name;
            uint32_t version;
            bool whole;
            sl_err want;
        } formats[] = {
            {"segment.0000000007", 3, true, SL_ERR_VERSION},
            {"segment.0000000007", 5, true, SL_ERR_VERSION},
            {"segment.0000000007", 4, true, SL_OK},
            {"segment.0000000007", 3, false, SL_OK}, /* damaged: left to the tierer to judge */
            {"other.0000000007", 3, true, SL_OK}};
        static const uint64_t magic = SL_DISK_SEGMENT_MAGIC;
        unsigned char page[SL_PAGE_BYTES] = {0};
        struct sl_error why = {0};
        uint32_t bad = 0;
        char path[256];
        made(dir, 0700);
        memcpy(page, &magic, 8);
        memcpy(page + 8, &formats[_i].version, 4);
        XXH128_hash_t hash = XXH3_128bits(page, sizeof page);
        uint64_t digest[2] = {hash.low64 ^ !formats[_i].whole, hash.high64};
        memcpy(page + SL_DISK_DIGEST_AT, digest, sizeof digest);
        (void)snprintf(path, sizeof path, "%s/%s", dir, formats[_i].name);
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(page, 1, sizeof page, file), sizeof page);
        ck_assert_int_eq(fclose(file), 0);

        sl_err err = check(DISK_TEXT, dir, &bad, &why);

        ck_assert_msg(err == formats[_i].want, "%s", why.text);
        ck_assert(err == SL_OK || strstr(why.text, "empty the disk's directory") != NULL);
    }
END_TEST

START_TEST(check_refuses_what_is_no_file_where_a_disk_has_one)
    {
        struct sl_error why = {0};
        uint32_t bad = 0;
        char path[256];
        made(dir, 0700);
        ck_assert_msg(check(DISK_TEXT, dir, &bad, &why) == SL_OK, "%s", why.text); /* its lock */
        (void)snprintf(path, sizeof path, "%s/members", dir);
        ck_assert_int_eq(_i == 0 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);

        ck_assert_int_eq(check(DISK_TEXT, dir, &bad, &why), SL_ERR_FOREIGN);

        ck_assert_msg(strstr(why.text, path) != NULL, "%s", why.text);
    }
END_TEST

static const struct {
    const char *disk, *list, *segment;
    uint64_t want; /* 0: refused */
} sizes[] = {
    {"1GiB", "/a", "64MiB", 64 * SL_MIB},
    {"64MiB", "/a", "64MiB", 16 * SL_MIB},
    {"500GiB", "/a", "64MiB", 64 * SL_MIB},
    {"1000GiB", "/a,/b", "64MiB", 64 * SL_MIB},
    {"1000GiB", "/a", "64MiB", 128 * SL_MIB},
    {"4TiB", "/a", "64MiB", 549756928},
    {"4TiB", "/a", "1GiB", SL_GIB},
    {"8000GiB", "/a", "1MiB", SL_GIB},
    {"8001GiB", "/a", "64MiB", 0},
    {"16000GiB", "/a,/b", "64MiB", SL_GIB},
};

START_TEST(segments_of_a_large_disk_fill_it)
    {
        struct sl_config *config = NULL;
        struct sl_disk_sizes got;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "disk", sizes[_i].disk, "test", NULL), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "disk_path", sizes[_i].list, "test", NULL), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "disk_segment", sizes[_i].segment, "test", NULL),
                         SL_OK);

        sl_err err = sl_disk_sizes(config, &got, &why);

        ck_assert_int_eq(err, sizes[_i].want != 0 ? SL_OK : SL_ERR_CONFIG);
        if (err == SL_OK) {
            ck_assert_uint_eq(got.segment_bytes, sizes[_i].want);
            ck_assert_uint_ge(got.segment_bytes * SL_DISK_SEGMENTS_MAX, got.share_bytes);
        } else {
            ck_assert_ptr_nonnull(strstr(why.text, "8000 GiB a path"));
        }
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *disk, *second; /* of the paths; the first is fine */
    const char *text;
} refusals[] = {
    {DISK_TEXT, "/dev/null", "is no directory"},
    {DISK_TEXT, "%s/dir/sluice-disk-%u", "lead to the same directory"},
    {DISK_TEXT, "%s/link", "lead to the same directory"},
    {"256KiB", "%s/other", "256 KiB at least"},
};

START_TEST(check_refuses_one_wrong_path_of_two_by_name)
    {
        struct sl_error why = {0};
        char second[160], link[128], list[320];
        uint32_t bad = UINT32_MAX;
        made(dir, 0755);
        sl_tmpdir_at(&tmpdir, "link", link, sizeof link);
        ck_assert_int_eq(symlink(dir, link), 0);
        (void)snprintf(second, sizeof second, refusals[_i].second, tmpdir.path,
                       (unsigned)geteuid());
        (void)snprintf(list, sizeof list, "%s,%s", dir, second);

        sl_err err = check(refusals[_i].disk, list, &bad, &why);

        ck_assert_int_ne(err, SL_OK);
        ck_assert_msg(strstr(why.text, refusals[_i].text) != NULL, "%s", why.text);
        ck_assert(strstr(refusals[_i].text, "KiB") != NULL || bad == 1);
    }
END_TEST

START_TEST(check_goes_on_while_one_path_of_two_works)
    {
        struct sl_error why = {0};
        char list[320];
        uint32_t bad = UINT32_MAX;
        made(dir, 0755);
        (void)snprintf(list, sizeof list, _i == 0 ? "/proc/nothing,%s" : "%s,/proc/nothing", dir);

        ck_assert_int_eq(check(DISK_TEXT, list, &bad, &why), SL_OK);

        ck_assert_msg(strstr(why.text, "/proc/nothing") != NULL, "%s", why.text);
        ck_assert_uint_eq(bad, (uint32_t)_i);
        ck_assert_int_ne(check(DISK_TEXT, "/proc/nothing", &bad, NULL), SL_OK);
        ck_assert_int_ne(check(DISK_TEXT, "/proc/nothing,/proc/neither", &bad, NULL), SL_OK);
    }
END_TEST

START_TEST(check_goes_on_with_a_disk_that_another_process_has)
    {
        struct sl_error why = {0};
        struct sl_disk *disk = NULL;
        int event_fd = -1;
        uint32_t bad = UINT32_MAX;
        made(dir, 0700);
        ck_assert_int_eq(sl_disk_uring_open(dir, 8, true, &disk, &event_fd, &why), SL_OK);

        ck_assert_int_eq(check(DISK_TEXT, dir, &bad, &why), SL_OK);

        ck_assert_int_eq(why.code, SL_ERR_BUSY);
        ck_assert_uint_eq(bad, 0);
        ck_assert_msg(strstr(why.text, "in use by another process") != NULL, "%s", why.text);
        disk->ops->destroy(disk);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("disk_place");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 30);
    tcase_add_checked_fixture(all, make_directory, remove_directory);
    tcase_add_loop_test(all, place_follows_from_what_is_there, 0, (int)SL_COUNT(places));
    tcase_add_test(all, link_in_the_place_of_the_directory_below_is_refused);
    tcase_add_test(all, file_named_lock_in_a_directory_of_another_user_is_no_disk);
    tcase_add_loop_test(all, files_with_the_names_of_a_disk_that_are_none_are_refused, 0,
                        (int)SL_COUNT(files));
    tcase_add_test(all, looking_for_the_place_changes_nothing);
    tcase_add_loop_test(all, opened_disk_stays_where_it_was_when_the_mode_changes, 0, 2);
    tcase_add_test(all, check_passes_what_can_work_and_frees_it_again);
    tcase_add_test(all, an_unknown_kind_is_refused_before_anything_is_made);
    tcase_add_loop_test(all, check_refuses_a_disk_of_another_format, 0, 5);
    tcase_add_loop_test(all, check_refuses_what_is_no_file_where_a_disk_has_one, 0, 2);
    tcase_add_loop_test(all, segments_of_a_large_disk_fill_it, 0, SL_COUNT(sizes));
    tcase_add_loop_test(all, check_refuses_one_wrong_path_of_two_by_name, 0,
                        (int)SL_COUNT(refusals));
    tcase_add_loop_test(all, check_goes_on_while_one_path_of_two_works, 0, 2);
    tcase_add_test(all, check_goes_on_with_a_disk_that_another_process_has);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
