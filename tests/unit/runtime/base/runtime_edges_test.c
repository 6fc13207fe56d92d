/* tests/unit/runtime/base/runtime_edges_test.c - the runtime under hostile conditions: hostile
 * files and names, readers that stop, writers that die halfway, directories that another user
 * prepared. */
#include "runtime/base/metrics_page.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_log.h"
#include "runtime/base/sl_text.h"
#include "tests/support/own_id.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sl_tmpdir tmpdir;

static void make_directory(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
}

static void remove_directory(void)
{
    sl_tmpdir_remove(&tmpdir);
}

static struct sl_config *defaults(void)
{
    struct sl_config *config = NULL;
    ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
    return config;
}

/* ---------------------------------------------------------------- settings */

#define TEXT(literal) literal, sizeof(literal) - 1

static const struct {
    const char *text;
    size_t length;
    const char *complaint;
} hostile_files[] = {
    {TEXT("ranks = 2\n/* none */\nranks = 3\n"), "node.conf:2: unknown setting '/*'"},
    {TEXT("ranks = 2 /* one */\n"),
     "node.conf:1: '/*' is part of a value: put the value in quotes"},
    {TEXT("ranks = 2\0memory = 1\n"), "zero byte at offset 9"},
    {TEXT("ranks\n"), "in 'ranks'"},
    {TEXT("\nranks = {2}\n"), "node.conf:2: ranks: '{2}' is no number"},
    {TEXT("ranks += 2\n"), "node.conf:1: "},
    {TEXT("sl_probe = 1\n"), "node.conf:1: unknown setting 'sl_probe'"},
    {TEXT("log_level = infoo\n"), "node.conf:1: log_level: 'infoo' is none of error warn info"},
    {TEXT("device = cpus\n"), "node.conf:1: device: 'cpus' is none of auto cuda host"},
    {TEXT("evict_policy = lfu\n"), "node.conf:1: evict_policy: 'lfu' is none of density lru"},
    {TEXT("disk_admission = some\n"), "disk_admission: 'some' is none of all reuse second"},
    {TEXT("contribution_strategy = free\n"), "the setting 'contribution_strategy' was removed: "},
    {TEXT("swap_kernels = often\n"), "swap_kernels: 'often' is none of auto always never"},
    {TEXT("load_verify = some\n"), "load_verify: 'some' is none of auto sample all off"},
    {TEXT("nic_by = gpus\n"), "nic_by: 'gpus' is none of gpu rank"},
    {TEXT("fabric = vrb\n"), "fabric: 'vrb' is none of off tcp verbs"},
    {TEXT("directory = zooey\n"), "directory: 'zooey' is none of embedded redis"},
    {TEXT("log_dir = \"/a\001b\"\n"), "node.conf:1: log_dir: control character 0x01"},
};

START_TEST(hostile_file_is_refused_and_leaves_nothing_behind)
    {
        char path[96];
        struct sl_config *config = defaults();
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "node.conf", path, sizeof(path));
        sl_tmpdir_write(path, hostile_files[_i].text, hostile_files[_i].length);

        ck_assert_int_eq(sl_config_load(config, path, 0, NULL, NULL, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, hostile_files[_i].complaint) != NULL, "%s", why.text);
        sl_config_destroy(&config);
        config = defaults();
        sl_tmpdir_write(path, TEXT("# fine\n ranks = 4\n"));
        ck_assert_msg(sl_config_load(config, path, 0, NULL, NULL, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 4);
        ck_assert_msg(strstr(sl_config_source(config, SL_SET_ranks), "node.conf:2") != NULL, "%s",
                      sl_config_source(config, SL_SET_ranks));
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(endless_file_directory_and_fifo_are_refused)
    {
        struct sl_config *config = defaults();
        struct sl_error why = {0};
        char fifo[128];
        sl_tmpdir_at(&tmpdir, "fifo", fifo, sizeof fifo);
        ck_assert_int_eq(mkfifo(fifo, 0600), 0);

        ck_assert_int_eq(sl_config_load(config, "/dev/zero", 0, NULL, NULL, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "'/dev/zero' is larger than") != NULL, "%s", why.text);
        ck_assert_int_eq(sl_config_load(config, tmpdir.path, 0, NULL, NULL, &why), SL_ERR_OS);
        ck_assert_int_eq(why.os_code, EISDIR);
        ck_assert_int_eq(sl_config_load(config, fifo, 0, NULL, NULL, &why), SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, "/fifo' is no plain file") != NULL, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(long_names_do_not_hide_what_is_wrong)
    {
        char source[900];
        char text[1024];
        struct sl_config *config = defaults();
        struct sl_error why = {0};
        memset(source, 's', sizeof(source));
        memset(text, '9', sizeof(text));
        (void)snprintf(source + sizeof(source) - 16, 16, "/node.conf:12");
        text[sizeof(text) - 1] = '\0';

        ck_assert_int_eq(sl_config_set(config, "op_timeout", text, source, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, "/node.conf:12: op_timeout: '999") != NULL, "%s", why.text);
        ck_assert_msg(strstr(why.text, "' is too large") != NULL, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

static char *const shortened_words[] = {"--disk-s=1MiB", "--conf=/x", "--instanc=a", "--hel", "-h"};

START_TEST(shortened_option_is_refused)
    {
        char *arguments[] = {"program", shortened_words[_i], NULL};
        struct sl_config *config = defaults();
        struct sl_error why = {0};

        ck_assert_int_eq(sl_config_load(config, NULL, 2, arguments, NULL, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, shortened_words[_i]) == why.text, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

static void *load_often(void *context)
{
    const char *path = context;
    for (int i = 0; i < 200; i++) {
        struct sl_config *config = defaults();
        char *arguments[] = {"program", "--ranks", "5", NULL};
        ck_assert_int_eq(sl_config_load(config, path, 3, arguments, NULL, NULL), SL_OK);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_memory), 3 * SL_MIB);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 5);
        sl_config_destroy(&config);
    }
    return NULL;
}

START_TEST(threads_load_side_by_side)
    {
        char path[96];
        pthread_t other;
        sl_tmpdir_at(&tmpdir, "node.conf", path, sizeof(path));
        sl_tmpdir_write(path, TEXT("# of two threads\nmemory = \"3MiB\"\nranks = 4\n"));

        ck_assert_int_eq(pthread_create(&other, NULL, load_often, path), 0);
        (void)load_often(path);

        ck_assert_int_eq(pthread_join(other, NULL), 0);
    }
END_TEST

/* ---------------------------------------------------------------- places */

static const char *const place_names[] = {
    "runtime_dir", "shm_dir",      "log_dir",    "disk_path",
    "record",      "cluster_keys", "peers_file", "directory_password_file"};

START_TEST(relative_place_is_refused_by_name)
    {
        struct sl_config *config = defaults();
        struct sl_paths paths;
        struct sl_error why = {0};
        char want[64];
        ck_assert_int_eq(sl_config_set(config, place_names[_i], "here/x", "node.conf:3", &why),
                         SL_OK);

        ck_assert_int_eq(sl_paths_from(config, &paths, &why), SL_ERR_CONFIG);

        (void)snprintf(want, sizeof(want), "node.conf:3: %s: 'here/x'", place_names[_i]);
        ck_assert_msg(strstr(why.text, want) == why.text, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *text;
    uint32_t count;           /* 0: refused */
    const char *first, *last; /* of the refusal: what it says */
} disk_lists[] = {
    {"", 1, NULL, NULL},
    {"/a", 1, "/a", "/a"},
    {"/a/,/b//,/c", 3, "/a", "/c"},
    {"/,/a", 2, "/", "/a"},
    {"/1,/2,/3,/4,/5,/6,/7,/8", 8, "/1", "/8"},
    {"/1,/2,/3,/4,/5,/6,/7,/8,/9", 0, "9 directories, at most 8", NULL},
    {"/a, /b b ,  /c ", 3, "/a", "/c"},
    {"/a,,/b", 0, "entry 2 is empty", NULL},
    {"/a, ,/b", 0, "entry 2 is empty", NULL},
    {",/b", 0, "entry 1 is empty", NULL},
    {"/a,", 0, "entry 2 is empty", NULL},
    {"/a,/b,/a/", 0, "'/a' is listed twice", NULL},
    {"/a,b", 0, "'b' must begin with /", NULL},
    {"/a/, /b:/ ,/c:d/e", 3, "/a", "/c:d/e"},
    {"tape:/a", 0, "'tape:/a': there is no kind 'tape:'", NULL},
    {"/a,:/b", 0, "':/b': there is no kind ':'", NULL},
    {"b,x:/c", 0, "'b' must begin with /", NULL},
    {"x:a/b", 0, "'x:a/b' must begin with /", NULL},
};

START_TEST(disk_path_is_a_list_whose_faults_are_named)
    {
        struct sl_config *config = defaults();
        struct sl_paths paths;
        struct sl_error why = {0};
        uint32_t count = disk_lists[_i].count;
        ck_assert_int_eq(sl_config_set(config, "disk_path", disk_lists[_i].text, "x.conf:3", &why),
                         SL_OK);

        sl_err err = sl_paths_from(config, &paths, &why);

        ck_assert_msg(err == (count > 0 ? SL_OK : SL_ERR_CONFIG), "%s", why.text);
        if (count == 0) {
            ck_assert_msg(strstr(why.text, "x.conf:3: disk_path: ") == why.text, "%s", why.text);
            ck_assert_msg(strstr(why.text, disk_lists[_i].first) != NULL, "%s", why.text);
        } else {
            ck_assert_uint_eq(paths.disk_count, count);
            ck_assert_uint_eq(sl_config_disk_count(config), count);
        }
        if (count > 0 && disk_lists[_i].first != NULL) {
            ck_assert_str_eq(paths.disk_paths[0], disk_lists[_i].first);
            ck_assert_str_eq(paths.disk_paths[count - 1], disk_lists[_i].last);
        }
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *index_memory, *memory, *disk;
    uint64_t want;
} index_sizes[] = {
    {"0", "64MiB", "0", SL_INDEX_MEMORY_MIN},
    {"0", "4GiB", "0", 512 * SL_MIB}, /* an eighth */
    {"0", "4GiB", "64GiB", 512 * SL_MIB + 4 * SL_GIB},
    {"0", "64MiB", "900GiB",
     8 * SL_MIB + SL_GIB}, /* of a disk at most as much as memory, or this */
    {"0", "4GiB", "900GiB", 512 * SL_MIB + 4 * SL_GIB},
    {"1MiB", "4GiB", "900GiB", SL_MIB}, /* as it was set */
};

START_TEST(index_follows_from_memory_and_disk_where_it_is_not_set)
    {
        struct sl_config *config = defaults();
        ck_assert_int_eq(
            sl_config_set(config, "index_memory", index_sizes[_i].index_memory, "x", NULL), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "memory", index_sizes[_i].memory, "x", NULL), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "disk", index_sizes[_i].disk, "x", NULL), SL_OK);

        uint64_t got = sl_config_index_memory(config);

        ck_assert_uint_eq(got, index_sizes[_i].want);
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *text;
    sl_err want;
} process_files[] = {
    {"4711 99\n", SL_OK},       {"4711 99", SL_ERR_INVALID}, /* it is being written */
    {"", SL_ERR_INVALID},       {"4711\n", SL_ERR_INVALID},  {"4711 99 1\n", SL_ERR_INVALID},
    {"0 99\n", SL_ERR_INVALID}, {"-1 99\n", SL_ERR_INVALID}, {"4294967295 99\n", SL_ERR_INVALID},
    {"x 99\n", SL_ERR_INVALID},
};

START_TEST(a_file_names_a_process_or_nobody)
    {
        char path[128], link[128];
        struct sl_proc_id got = {0};
        sl_tmpdir_at(&tmpdir, "supervisor.pid", path, sizeof(path));
        sl_tmpdir_at(&tmpdir, "link", link, sizeof(link));
        ck_assert_int_eq(sl_proc_id_read(path, &got, NULL), SL_ERR_NOT_FOUND);
        sl_tmpdir_write(path, process_files[_i].text, strlen(process_files[_i].text));

        ck_assert_int_eq(sl_proc_id_read(path, &got, NULL), process_files[_i].want);

        bool right = process_files[_i].want == SL_OK;
        ck_assert_uint_eq(got.pid, right ? 4711 : 0);
        ck_assert_uint_eq(got.start_time, right ? 99 : 0);
        ck_assert_int_eq(symlink(path, link), 0);
        ck_assert_int_ne(sl_proc_id_read(link, &got, NULL), SL_OK);
    }
END_TEST

START_TEST(directory_is_made_with_its_parents_closed_to_others)
    {
        char path[96];
        struct stat status;
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "a//b/./c/", path, sizeof(path));

        ck_assert_msg(sl_dir_make(path, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(sl_dir_make(path, &why) == SL_OK, "%s", why.text);

        sl_tmpdir_at(&tmpdir, "a/b", path, sizeof(path));
        ck_assert_int_eq(stat(path, &status), 0);
        ck_assert_uint_eq(status.st_mode & 07777, 0700);
        ck_assert_int_eq(sl_dir_make("", &why), SL_ERR_INVALID);
        sl_tmpdir_at(&tmpdir, "file", path, sizeof(path));
        sl_tmpdir_write(path, TEXT("x"));
        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);
        sl_tmpdir_at(&tmpdir, "file/below", path, sizeof(path));
        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);
    }
END_TEST

START_TEST(link_in_a_shared_directory_is_refused_elsewhere_followed)
    {
        char shared[96];
        char own[96];
        char link[128];
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "own", own, sizeof(own));
        sl_tmpdir_at(&tmpdir, "shared", shared, sizeof(shared));
        ck_assert_int_eq(mkdir(own, 0700), 0);
        ck_assert_int_eq(mkdir(shared, 0700), 0);
        (void)snprintf(link, sizeof(link), "%s/link", shared);
        ck_assert_int_eq(symlink(own, link), 0);
        (void)snprintf(link, sizeof(link), "%s/link/node", shared);

        ck_assert_msg(sl_dir_make(link, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(chmod(shared, 01777), 0);
        ck_assert_int_eq(sl_dir_make(link, &why), SL_ERR_FOREIGN);
        ck_assert_msg(strstr(why.text, "'link' is no directory") != NULL, "%s", why.text);
    }
END_TEST

/* A directory of a group, mode 0775: other members may write there, but this user's links are
 * trusted. */
START_TEST(link_of_a_group_member_is_refused_an_own_one_followed)
    {
        char group[96], own[96], link[128], path[160];
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "own", own, sizeof(own));
        sl_tmpdir_at(&tmpdir, "group", group, sizeof(group));
        ck_assert_int_eq(mkdir(own, 0700), 0);
        ck_assert_int_eq(mkdir(group, 0700), 0);
        ck_assert_int_eq(chmod(group, 0775), 0);
        (void)snprintf(link, sizeof(link), "%s/link", group);
        (void)snprintf(path, sizeof(path), "%s/link/node", group);
        ck_assert_int_eq(symlink("../own", link), 0);

        if (geteuid() != 0) {
            ck_assert_int_eq(sl_dir_make(path, &why),
                             getegid() == geteuid() ? SL_OK : SL_ERR_PERMISSION);
            return; /* only root can give a link away */
        }
        ck_assert_msg(sl_dir_make(path, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(lchown(link, 4711, 4711), 0);
        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);
        ck_assert_msg(strstr(why.text, "'link' is no directory") != NULL, "%s", why.text);
        /* The owner of the directory above may change it, today and later. */
        ck_assert_int_eq(chown(group, 4711, 4711), 0);
        ck_assert_msg(sl_dir_make_for(path, 0077, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);
        ck_assert_int_eq(sl_dir_check(path, &why), SL_ERR_FOREIGN);
        ck_assert_msg(strstr(why.text, "'group' belongs to uid 4711, who could replace it") != NULL,
                      "%s", why.text);
    }
END_TEST

START_TEST(check_of_a_directory_makes_nothing)
    {
        char parent[96], path[128];
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "parent", parent, sizeof(parent));
        (void)snprintf(path, sizeof(path), "%s/node", parent);

        ck_assert_int_eq(sl_dir_check(path, &why), SL_ERR_NOT_FOUND);
        ck_assert_int_ne(access(parent, F_OK), 0);
        ck_assert_msg(sl_dir_make(path, &why) == SL_OK, "%s", why.text);
        ck_assert_msg(sl_dir_check(path, &why) == SL_OK, "%s", why.text);
        ck_assert_int_eq(chmod(path, 0755), 0);
        ck_assert_int_eq(sl_dir_check(path, &why), SL_OK);
        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_PERMISSION);
        ck_assert_int_eq(chmod(path, 0775), 0);
        ck_assert_int_eq(sl_dir_check(path, &why), SL_ERR_PERMISSION);
    }
END_TEST

/* A user who may write in a directory above without the sticky bit can replace anything below
 * it. */
static const struct {
    mode_t above, above_that;
    gid_t group; /* where the test may choose it */
    sl_err want;
} writable_above[] = {
    {.above = 0777, .above_that = 0700, .want = SL_ERR_PERMISSION},  /* as emptyDir of Kubernetes */
    {.above = 02777, .above_that = 0700, .want = SL_ERR_PERMISSION}, /* the same with an fsGroup */
    {.above = 0700, .above_that = 0777, .want = SL_ERR_PERMISSION},
    {.above = 0757, .above_that = 0755, .want = SL_ERR_PERMISSION},
    {.above = 0775, .above_that = 0755, .group = 4711, .want = SL_ERR_PERMISSION},
    {.above = 0775, .above_that = 0755, .group = 100, .want = SL_ERR_PERMISSION}, /* users */
    {.above = 01777, .above_that = 0755, .want = SL_OK},
    {.above = 01775, .above_that = 0755, .group = 4711, .want = SL_OK},
    {.above = 0755, .above_that = 01777, .want = SL_OK},
};
START_TEST(directory_below_one_that_others_may_write_is_refused)
    {
        char above_that[96], above[128], path[160];
        struct sl_error why = {0};
        sl_tmpdir_at(&tmpdir, "far", above_that, sizeof(above_that));
        (void)snprintf(above, sizeof(above), "%s/near", above_that);
        (void)snprintf(path, sizeof(path), "%s/node", above);
        ck_assert_msg(sl_dir_make(path, &why) == SL_OK, "%s", why.text);
        ck_assert(geteuid() != 0 || chown(above, 0, writable_above[_i].group) == 0);
        ck_assert_int_eq(chmod(above, writable_above[_i].above), 0);
        ck_assert_int_eq(chmod(above_that, writable_above[_i].above_that), 0);

        /* Only root can give it to another group than the owner's own. */
        bool own = geteuid() != 0 && getegid() == geteuid() && writable_above[_i].group != 0;
        sl_err want = own ? SL_OK : writable_above[_i].want;
        ck_assert_int_eq(sl_dir_make(path, &why), want);
        ck_assert_int_eq(sl_dir_check(path, &why), want);
        if (want != SL_OK) {
            ck_assert_msg(strstr(why.text, "chmod +t") != NULL, "%s", why.text);
            ck_assert_int_eq(rmdir(path), 0); /* one made there is not removed either */
            ck_assert_int_eq(sl_dir_make(path, &why), want);
            ck_assert_int_ne(access(path, F_OK), 0);
        }
    }
END_TEST

/* Every directory on a link's path counts, and so does the link's own. */
static const struct {
    const char *target; /* of near/link, which lies in a directory of 0700 */
    const char *path;
    sl_err want;
} linked[] = {
    {"../open/node", "near/link", SL_ERR_PERMISSION},
    {"../open/node", "near/link/new/below", SL_ERR_PERMISSION},
    {"../near/other/node", "near/link", SL_OK},
    {"../near/./other/../other/node", "near/link/new", SL_OK},
    {"other/way/node", "near/link", SL_ERR_PERMISSION}, /* way leads to open */
    {"other/gone/node", "near/link", SL_ERR_NOT_FOUND}, /* nothing is made where a link leads */
    {"link", "near/link", SL_ERR_OS},
};
START_TEST(directory_behind_a_link_is_looked_at_as_if_it_was_named)
    {
        static const char *const made[] = {"near", "near/other", "near/other/node", "open",
                                           "open/node"};
        char path[160], target[160];
        struct sl_error why = {0};
        for (size_t i = 0; i < SL_COUNT(made); i++) {
            sl_tmpdir_at(&tmpdir, made[i], path, sizeof(path));
            ck_assert_int_eq(mkdir(path, 0700), 0);
        }
        sl_tmpdir_at(&tmpdir, "open", target, sizeof(target));
        ck_assert_int_eq(chmod(target, 0777), 0);
        sl_tmpdir_at(&tmpdir, "near/other/way", path, sizeof(path));
        ck_assert_int_eq(symlink(target, path), 0); /* by its whole path */
        sl_tmpdir_at(&tmpdir, "near/link", path, sizeof(path));
        ck_assert_int_eq(symlink(linked[_i].target, path), 0);
        sl_tmpdir_at(&tmpdir, linked[_i].path, path, sizeof(path));

        ck_assert_msg(sl_dir_make(path, &why) == linked[_i].want, "%s", why.text);
        if (linked[_i].want == SL_OK) {
            ck_assert_int_eq(sl_dir_check(path, &why), SL_OK);
            ck_assert_int_eq(access(path, W_OK), 0);
        }
        sl_tmpdir_at(&tmpdir, "near/other/gone", path, sizeof(path));
        ck_assert_int_ne(access(path, F_OK), 0);
    }
END_TEST

START_TEST(directory_of_a_group_member_is_refused)
    {
        char member[96];
        char path[96];
        struct sl_error why = {0};
        if (geteuid() != 0) {
            return; /* only root can give a directory to others */
        }
        ck_assert_int_eq(chmod(tmpdir.path, 0775), 0);
        sl_tmpdir_at(&tmpdir, "member", member, sizeof(member));
        sl_tmpdir_at(&tmpdir, "member/node", path, sizeof(path));
        ck_assert_int_eq(mkdir(member, 0755), 0);
        ck_assert_int_eq(chown(member, 4711, 4711), 0);

        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);

        ck_assert_msg(strstr(why.text, "belongs to uid 4711, not 0") != NULL, "%s", why.text);
    }
END_TEST

START_TEST(parent_that_another_user_made_in_a_shared_directory_is_refused)
    {
        char parent[96];
        char path[96];
        struct sl_error why = {0};
        if (geteuid() != 0) {
            return; /* only root can give a directory to others */
        }
        ck_assert_int_eq(chmod(tmpdir.path, 01777), 0);
        sl_tmpdir_at(&tmpdir, "sluice-0", parent, sizeof(parent));
        sl_tmpdir_at(&tmpdir, "sluice-0/default", path, sizeof(path));
        ck_assert_int_eq(mkdir(parent, 0777), 0);
        ck_assert_int_eq(chown(parent, 4711, 4711), 0);

        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_FOREIGN);

        ck_assert_msg(strstr(why.text, "belongs to uid 4711, not 0: root may remove it") != NULL,
                      "%s", why.text);
    }
END_TEST

/* ---------------------------------------------------------------- processes */

static void *outlive_the_first_thread(void *context)
{
    (void)context;
    (void)pause(); /* until the test kills the process */
    return NULL;
}

START_TEST(process_whose_first_thread_ended_lives)
    {
        struct sl_proc_id id = {0};
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, outlive_the_first_thread, NULL) != 0) {
                _exit(1);
            }
            pthread_exit(NULL);
        }
        char path[48];
        char stat[256] = "";
        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)child);
        for (int i = 0; i < 5000 && strstr(stat, ") Z ") == NULL; i++) {
            FILE *file = fopen(path, "re");
            ck_assert_ptr_nonnull(file);
            ck_assert_ptr_nonnull(fgets(stat, sizeof(stat), file));
            (void)fclose(file);
            (void)usleep(1000);
        }
        ck_assert_msg(strstr(stat, ") Z ") != NULL, "%s", stat);

        ck_assert_int_eq(sl_proc_id_of((uint32_t)child, &id, NULL), SL_OK);
        ck_assert(sl_proc_alive(id));

        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert(!sl_proc_alive(id));
    }
END_TEST

START_TEST(process_of_another_start_time_is_not_alive)
    {
        struct sl_proc_id self = own_id();
        ck_assert(sl_proc_alive(self));
        self.start_time++;
        ck_assert(!sl_proc_alive(self));
        ck_assert(!sl_proc_alive((struct sl_proc_id){.pid = 0}));
    }
END_TEST

START_TEST(living_process_counts_as_living_without_descriptors)
    {
        struct sl_proc_id self = own_id();
        int last = -1;
        for (int fd = 0; fd >= 0; fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) {
            last = SL_MAX(last, fd);
        }
        ck_assert_int_eq(errno, EMFILE);
        bool alive = sl_proc_alive(self);
        ck_assert_int_eq(close_range(3, (unsigned)last, 0), 0); /* the test itself needs some */
        ck_assert(alive);
    }
END_TEST

/* ---------------------------------------------------------------- log */

static const struct {
    const char *bytes, *want;
} odd_texts[] = {
    {"gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x8c\x8a",
     "gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x8c\x8a"},
    {"cut \xe2\x82", "cut \\ufffd\\ufffd"},
    {"\xff\xfe", "\\ufffd\\ufffd"},
    {"\xc0\xaf", "\\ufffd\\ufffd"},                       /* overlong '/' */
    {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},            /* surrogate */
    {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, /* above U+10FFFF */
    {"a\"b\\c\nd\x7f", "a\\\"b\\\\c\\u000ad\\u007f"},
};

static const struct {
    const char *text, *clean, *json;
} texts[] = {
    {"plain \303\274 \342\202\254 \360\237\230\200", "plain \303\274 \342\202\254 \360\237\230\200",
     "plain \303\274 \342\202\254 \360\237\230\200"},
    {"\033[2J\177\b", "?[2J??", "\\u001b[2J\\u007f\\u0008"},
    {"\n\ta", "\n\ta", "\\u000a\\u0009a"},
    {"\302\233"
     "31m\302\200\302\237\302\240",
     "??31m????\302\240", "\\u009b31m\\u0080\\u009f\302\240"},
    {"\233"
     "31m",
     "?31m", "\\ufffd31m"}, /* C1 of eight bits */
    {"\342\200\256gpj.exe", "???gpj.exe", "\\u202egpj.exe"},
    {"\342\200\213\342\200\216\342\200\217\342\200\250\342\200\257",
     "\342\200\213?????????\342\200\257", "\342\200\213\\u200e\\u200f\\u2028\342\200\257"},
    {"\330\234\342\201\246\342\201\251\342\201\252", "????????\342\201\252",
     "\\u061c\\u2066\\u2069\342\201\252"},
    {"\300\200\355\240\200\364\220\200\200\340\200\200\342\202", "??????????????",
     "\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd"},
};
START_TEST(what_a_terminal_obeys_is_in_no_error_and_no_log)
    {
        char text[128], json[256];
        struct sl_error why = {0};
        (void)snprintf(text, sizeof(text), "%s", texts[_i].text);
        sl_text_clean(text);
        ck_assert_str_eq(text, texts[_i].clean);
        (void)sl_fail(&why, SL_ERR_INVALID, "%s", texts[_i].text);
        ck_assert_str_eq(why.text, texts[_i].clean);
        (void)sl_json_escape(json, sizeof(json), texts[_i].text);
        ck_assert_str_eq(json, texts[_i].json);
    }
END_TEST

START_TEST(log_line_is_valid_whatever_the_text_holds)
    {
        char path[96];
        char line[4096] = "";
        char want[256];
        struct sl_log *log = NULL;
        sl_tmpdir_at(&tmpdir, "test.jsonl", path, sizeof(path));
        const struct sl_log_options options = {
            .path = path, .actor = "tester", .level = SL_LOG_INFO, .lines_per_s = 5};
        ck_assert_int_eq(sl_log_open(&options, &log, NULL), SL_OK);

        sl_log_write(log, SL_LOG_INFO, 0, "%s", odd_texts[_i].bytes);

        sl_log_close(&log);
        FILE *file = fopen(path, "re");
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), file));
        (void)fclose(file);
        (void)snprintf(want, sizeof(want), "\"msg\":\"%s\"}\n", odd_texts[_i].want);
        ck_assert_msg(strstr(line, want) != NULL, "%s", line);
    }
END_TEST

START_TEST(reader_that_stopped_does_not_stop_the_writer)
    {
        int ends[2];
        int kept = dup(STDERR_FILENO);
        char junk[4096] = "";
        char line[4096] = "";
        struct sl_log *log = NULL;
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
        const struct sl_log_options options = {
            .path = NULL, .actor = "tester", .level = SL_LOG_INFO, .lines_per_s = 1000};
        ck_assert_int_eq(sl_log_open(&options, &log, NULL), SL_OK);
        ck_assert_int_eq(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
        ck_assert_int_eq(write(ends[1], junk, sizeof(junk)), (ssize_t)sizeof(junk));

        for (int i = 0; i < 3; i++) {
            sl_log_write(log, SL_LOG_INFO, 0, "nobody reads"); /* must come back */
        }
        ck_assert_int_eq(read(ends[0], junk, sizeof(junk)), (ssize_t)sizeof(junk));
        sl_log_write(log, SL_LOG_INFO, 0, "somebody reads");

        ck_assert_int_eq(dup2(kept, STDERR_FILENO), STDERR_FILENO);
        ck_assert_int_gt(read(ends[0], line, sizeof(line) - 1), 0);
        ck_assert_msg(strstr(line, "\"dropped\":3,\"msg\":\"somebody reads\"") != NULL, "%s", line);
        sl_log_close(&log);
    }
END_TEST

/* ---------------------------------------------------------------- metrics */

static struct sl_metrics *open_page(const char *path, uint32_t events)
{
    struct sl_metrics *metrics = NULL;
    const struct sl_metrics_options options = {
        .path = path, .actor = "tester", .self = own_id(), .trace_events = events};
    ck_assert_int_eq(sl_metrics_open(&options, &metrics, NULL), SL_OK);
    return metrics;
}

static struct metrics_page *map_page(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &status), 0);
    void *page = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(page, MAP_FAILED);
    (void)close(fd);
    return page;
}

START_TEST(event_keeps_the_bytes_it_promises)
    {
        char path[96];
        struct sl_metrics_view *view = NULL;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        sl_tmpdir_at(&tmpdir, "metrics.tester", path, sizeof(path));
        struct sl_metrics *metrics = open_page(path, 4);

        sl_trace_event(metrics, 1, 2, "12345678901234567890123-cut", "transporter.63x-cut", 3);

        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        ck_assert_int_eq(sl_metrics_view_events(view, 0, &records, &count, NULL), SL_OK);
        ck_assert_uint_eq(count, 1);
        ck_assert_str_eq(records[0].what, "12345678901234567890123");
        ck_assert_str_eq(records[0].peer, "transporter.63x");
        ck_assert_uint_eq(records[0].value, 3);
        free(records);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

START_TEST(torn_event_is_left_out)
    {
        char path[96];
        struct sl_metrics_view *view = NULL;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        sl_tmpdir_at(&tmpdir, "metrics.tester", path, sizeof(path));
        struct sl_metrics *metrics = open_page(path, 8);
        for (uint32_t i = 0; i < 4; i++) {
            sl_trace_event(metrics, i, 1, "event", "", i);
        }
        struct metrics_page *page = map_page(path);
        atomic_store(&metrics_events(page)[1].sequence, 0);  /* died while it wrote */
        atomic_store(&metrics_events(page)[2].sequence, 99); /* overwritten meanwhile */

        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        ck_assert_int_eq(sl_metrics_view_events(view, 0, &records, &count, NULL), SL_OK);

        ck_assert_uint_eq(count, 2);
        ck_assert_uint_eq(records[0].value, 0);
        ck_assert_uint_eq(records[1].value, 3);
        free(records);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

START_TEST(reason_is_whole_again_after_a_death_in_its_middle)
    {
        char path[96];
        sl_tmpdir_at(&tmpdir, "metrics.tester", path, sizeof(path));
        struct sl_metrics *metrics = open_page(path, 8);
        struct metrics_page *page = map_page(path);
        (void)atomic_fetch_add(&page->reason_sequence, 1); /* died while it wrote */
        sl_metrics_close(&metrics);

        metrics = open_page(path, 8);
        sl_metrics_health(metrics, SL_HEALTH_READY, "fine");

        ck_assert_uint_eq(atomic_load(&page->reason_sequence) & 1, 0);
        sl_metrics_close(&metrics);
    }
END_TEST

START_TEST(page_of_another_format_is_begun_anew)
    {
        char path[96];
        struct sl_metrics_view *view = NULL;
        struct sl_metrics_summary summary;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        sl_tmpdir_at(&tmpdir, "metrics.tester", path, sizeof(path));
        struct sl_metrics *metrics = open_page(path, 8);
        sl_trace_event(metrics, 1, 1, "old", "", 1);
        struct metrics_page *page = map_page(path);
        page->version = METRICS_VERSION + 1;
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_ERR_VERSION);
        sl_metrics_close(&metrics);

        metrics = open_page(path, 8);
        atomic_store(&page->event_next, 1); /* as if the first new event was torn */

        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        sl_metrics_view_summary(view, &summary);
        ck_assert_uint_eq(summary.incarnation, 1);
        ck_assert_int_eq(sl_metrics_view_events(view, 0, &records, &count, NULL), SL_OK);
        ck_assert_uint_eq(count, 0);
        free(records);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

static void *write_events(void *context)
{
    for (uint32_t i = 0; i < 200000; i++) {
        char what[8];
        (void)snprintf(what, sizeof(what), "%u", i % 10000);
        sl_trace_event(context, i, i, what, what, i);
    }
    return NULL;
}

START_TEST(reader_beside_the_writer_sees_whole_events_alone)
    {
        char path[96];
        struct sl_metrics_view *view = NULL;
        pthread_t writer;
        sl_tmpdir_at(&tmpdir, "metrics.tester", path, sizeof(path));
        struct sl_metrics *metrics = open_page(path, 64);
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        ck_assert_int_eq(pthread_create(&writer, NULL, write_events, metrics), 0);

        for (int round = 0; round < 300; round++) {
            struct sl_trace_record *records = NULL;
            size_t count = 0;
            char want[8];
            ck_assert_int_eq(sl_metrics_view_events(view, 0, &records, &count, NULL), SL_OK);
            for (size_t i = 0; i < count; i++) {
                (void)snprintf(want, sizeof(want), "%u", records[i].value % 10000);
                ck_assert_uint_eq(records[i].at_ns, records[i].value);
                ck_assert_uint_eq(records[i].trace_id, records[i].value);
                ck_assert_str_eq(records[i].what, want);
                ck_assert_str_eq(records[i].peer, want);
                ck_assert(i == 0 || records[i].value > records[i - 1].value);
            }
            free(records);
        }
        ck_assert_int_eq(pthread_join(writer, NULL), 0);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("runtime_edges");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 30);
    tcase_add_checked_fixture(all, make_directory, remove_directory);
    tcase_add_loop_test(all, hostile_file_is_refused_and_leaves_nothing_behind, 0,
                        (int)SL_COUNT(hostile_files));
    tcase_add_test(all, endless_file_directory_and_fifo_are_refused);
    tcase_add_loop_test(all, a_file_names_a_process_or_nobody, 0, (int)SL_COUNT(process_files));
    tcase_add_test(all, long_names_do_not_hide_what_is_wrong);
    tcase_add_loop_test(all, shortened_option_is_refused, 0, (int)SL_COUNT(shortened_words));
    tcase_add_test(all, threads_load_side_by_side);
    tcase_add_loop_test(all, relative_place_is_refused_by_name, 0, (int)SL_COUNT(place_names));
    tcase_add_loop_test(all, disk_path_is_a_list_whose_faults_are_named, 0,
                        (int)SL_COUNT(disk_lists));
    tcase_add_loop_test(all, index_follows_from_memory_and_disk_where_it_is_not_set, 0,
                        (int)SL_COUNT(index_sizes));
    tcase_add_test(all, directory_is_made_with_its_parents_closed_to_others);
    tcase_add_test(all, link_in_a_shared_directory_is_refused_elsewhere_followed);
    tcase_add_test(all, parent_that_another_user_made_in_a_shared_directory_is_refused);
    tcase_add_test(all, link_of_a_group_member_is_refused_an_own_one_followed);
    tcase_add_test(all, check_of_a_directory_makes_nothing);
    tcase_add_test(all, directory_of_a_group_member_is_refused);
    tcase_add_loop_test(all, directory_below_one_that_others_may_write_is_refused, 0,
                        (int)SL_COUNT(writable_above));
    tcase_add_loop_test(all, directory_behind_a_link_is_looked_at_as_if_it_was_named, 0,
                        (int)SL_COUNT(linked));
    tcase_add_test(all, process_whose_first_thread_ended_lives);
    tcase_add_test(all, process_of_another_start_time_is_not_alive);
    tcase_add_test(all, living_process_counts_as_living_without_descriptors);
    tcase_add_loop_test(all, log_line_is_valid_whatever_the_text_holds, 0,
                        (int)SL_COUNT(odd_texts));
    tcase_add_loop_test(all, what_a_terminal_obeys_is_in_no_error_and_no_log, 0, SL_COUNT(texts));
    tcase_add_test(all, reader_that_stopped_does_not_stop_the_writer);
    tcase_add_test(all, event_keeps_the_bytes_it_promises);
    tcase_add_test(all, torn_event_is_left_out);
    tcase_add_test(all, reason_is_whole_again_after_a_death_in_its_middle);
    tcase_add_test(all, page_of_another_format_is_begun_anew);
    tcase_add_test(all, reader_beside_the_writer_sees_whole_events_alone);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
