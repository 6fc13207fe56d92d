/* tests/unit/runtime/base/limits_test.c - limits of containers: cgroups of both versions in trees
 * made here, and their effect on a node with given settings. */
#include "runtime/base/sl_limits.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sl_tmpdir tmpdir;
static char root[96];

static void setup(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_tmpdir_at(&tmpdir, "root", root, sizeof root);
}

static void teardown(void)
{
    sl_tmpdir_remove(&tmpdir);
}

static void put(const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    sl_tmpdir_write(path, text, strlen(text));
}

#define V2 "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1(name) \
    "33 32 0:29 / /sys/fs/cgroup/" name " rw,nosuid shared:9 - cgroup cgroup rw," name "\n"

struct file {
    const char *name, *text;
};

static const struct {
    const char *what;
    struct file files[9];
    uint64_t memory, left, cores, processes, kills; /* 0: no limit (of kills: none) */
    const char *file;                               /* where memory is tightest */
} trees[] = {
    {"nothing is mounted", {{"proc/self/cgroup", "0::/a\n"}}, 0, 0, 0, 0, 0, ""},
    {"no limit",
     {{"proc/self/cgroup", "0::/a\n"},
      {"proc/self/mountinfo", V2},
      {"sys/fs/cgroup/a/memory.max", "max\n"},
      {"sys/fs/cgroup/a/memory.high", "max\n"},
      {"sys/fs/cgroup/a/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/pids.max", "max\n"}},
     0,
     0,
     0,
     0,
     0,
     ""},
    {"its own",
     {{"proc/self/cgroup", "0::/a/b\n"},
      {"proc/self/mountinfo", V2},
      {"sys/fs/cgroup/a/b/memory.max", "1000\n"},
      {"sys/fs/cgroup/a/b/memory.current", "700\n"},
      {"sys/fs/cgroup/a/b/memory.stat", "anon 300\ninactive_file 100\nactive_file 50\n"},
      {"sys/fs/cgroup/a/b/memory.events", "low 0\noom 9\noom_kill 4\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"},
      {"sys/fs/cgroup/a/b/pids.max", "64\n"}},
     1000,
     450,
     1500,
     64,
     4,
     "/a/b/memory.max"},
    {"one above is tighter, and another one fuller",
     {{"proc/self/cgroup", "0::/a/b/c\n"},
      {"proc/self/mountinfo", "29 1 8:1 / / rw - ext4 /dev/sda rw\n" V2},
      {"sys/fs/cgroup/a/b/c/memory.max", "5000\n"},
      {"sys/fs/cgroup/a/b/memory.max", "4000\n"},
      {"sys/fs/cgroup/a/memory.max", "4500\n"},
      {"sys/fs/cgroup/a/memory.current", "4400\n"},
      {"sys/fs/cgroup/a/cpu.max", "50000 100000\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
      {"sys/fs/cgroup/a/pids.max", "32\n"}},
     4000,
     100,
     500,
     32,
     0,
     "/a/b/memory.max"},
    {"memory.high, at the root of a namespace",
     {{"proc/self/cgroup", "0::/\n"},
      {"proc/self/mountinfo", V2},
      {"sys/fs/cgroup/memory.max", "3000\n"},
      {"sys/fs/cgroup/memory.high", "2000\n"},
      {"sys/fs/cgroup/memory.current", "2500\n"}},
     2000,
     0,
     0,
     0,
     0,
     "/cgroup/memory.high"},
    {"a path of outside the namespace",
     {{"proc/self/cgroup", "0::/../b\n"},
      {"proc/self/mountinfo", V2},
      {"sys/fs/cgroup/memory.max", "3000\n"}},
     3000,
     3000,
     0,
     0,
     0,
     "/cgroup/memory.max"},
    {"a part of the hierarchy is mounted, as in a container without a namespace",
     {{"proc/self/cgroup", "4:memory:/docker/1/x\n3:cpu,cpuacct:/docker/1\n2:pids:/docker/12\n"},
      {"proc/self/mountinfo",
       "31 30 0:29 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
       "32 30 0:28 /docker/1 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
       "33 30 0:27 /docker/1 /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n"},
      {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "800\n"},
      {"sys/fs/cgroup/memory/x/memory.usage_in_bytes", "300\n"},
      {"sys/fs/cgroup/memory/x/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/pids/pids.max", "77\n"}},
     800,
     500,
     2500,
     77,
     2,
     "/memory/x/memory.limit_in_bytes"},
    {"version 1 without limits beside version 2 without controllers",
     {{"proc/self/cgroup", "4:memory:/a\n3:cpu:/\n1:name=systemd:/a\n0::/\n"},
      {"proc/self/mountinfo", V1("memory") V1("cpu") V2},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     0,
     0,
     0,
     0,
     0,
     ""},
    {"version 1, of a level that is not shown",
     {{"proc/self/cgroup", "4:memory:/a\n"},
      {"proc/self/mountinfo", V1("memory")},
      {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/a/memory.usage_in_bytes", "300\n"},
      {"sys/fs/cgroup/memory/a/memory.stat",
       "cache 1\ninactive_file 9\nhierarchical_memory_limit 700\ntotal_inactive_file 60\n"
       "total_active_file 40\n"}},
     700,
     500,
     0,
     0,
     0,
     "/a/memory.stat"},
    {"hostile contents",
     {{"proc/self/cgroup", "\n:\n::\n0:/a\n0::a\n0::/" /* no newline */},
      {"proc/self/mountinfo", " - \n - cgroup2\n1 2 - cgroup2 x y\n" V2},
      {"sys/fs/cgroup/memory.max", "-5\n"},
      {"sys/fs/cgroup/memory.high", "99999999999999999999\n"},
      {"sys/fs/cgroup/cpu.max", "100000 0\n"},
      {"sys/fs/cgroup/pids.max", ""}},
     0,
     0,
     0,
     0,
     0,
     ""},
};

START_TEST(tightest_limit_of_all_levels_counts)
    {
        struct sl_limits limits;
        for (size_t i = 0; i < SL_COUNT(trees[_i].files) && trees[_i].files[i].name != NULL; i++) {
            put(trees[_i].files[i].name, trees[_i].files[i].text);
        }

        sl_limits_read(root, 0, &limits);

        bool none = trees[_i].memory == 0;
        ck_assert_msg(limits.memory.most == (none ? SL_NO_LIMIT : trees[_i].memory), "%s: %" PRIu64,
                      trees[_i].what, limits.memory.most);
        ck_assert_msg(limits.memory.left == (none ? SL_NO_LIMIT : trees[_i].left), "%s: %" PRIu64,
                      trees[_i].what, limits.memory.left);
        ck_assert_uint_eq(limits.cores.most, trees[_i].cores == 0 ? SL_NO_LIMIT : trees[_i].cores);
        ck_assert_uint_eq(limits.processes.most,
                          trees[_i].processes == 0 ? SL_NO_LIMIT : trees[_i].processes);
        ck_assert_uint_eq(limits.oom_kills, trees[_i].kills);
        size_t end = strlen(limits.memory.file), want = strlen(trees[_i].file);
        ck_assert_msg(end >= want && strcmp(limits.memory.file + end - want, trees[_i].file) == 0,
                      "%s: %s", trees[_i].what, limits.memory.file);
        ck_assert_int_eq(none, limits.memory.file[0] == '\0');
    }
END_TEST

/* ---- what a node makes of them ---- */

static const struct sl_limits unlimited = {
    .memory = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
    .cores = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
    .processes = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
};

#define MEMORY(bytes)                                             \
    {                                                             \
        .most = (bytes), .left = (bytes), .file = "/x/memory.max" \
    }

static const struct {
    uint64_t most, left, shm_free, want; /* MiB; 0: no limit */
    bool contributions;
} standards[] = {
    {0, 0, 1 << 20, 1024, false},          /* as in the table */
    {0, 0, 64, 51, false},                 /* 80 % of what is free */
    {0, 0, 0, 1, false},                   /* refused later, by name */
    {1 << 20, 1 << 20, 2000, 1024, false}, /* 1600 */
    {1 << 20, 1500, 1 << 20, 750, false},  /* half of what others left */
    {1600, 1600, 1 << 20, 800, false},     /* half */
    {1000, 1000, 1 << 20, 500, false},     /* half of it, beside 128 of index and 320 of actors */
    {800, 800, 1 << 20, 352, false},       /* no more fits beside these */
    {300, 300, 1 << 20, 1, false},
    {0, 0, 2000, 1600, true}, /* a ceiling, which has no standard */
    {1600, 1600, 1 << 20, 800, true},
};

START_TEST(standard_memory_follows_from_what_is_there)
    {
        struct sl_config *config = NULL;
        struct sl_limits limits = unlimited;
        ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
        const char *contributions = standards[_i].contributions ? "true" : "false";
        ck_assert_int_eq(sl_config_set(config, "contributions", contributions, "test", NULL),
                         SL_OK);
        if (standards[_i].most > 0) {
            limits.memory = (struct sl_limit)MEMORY(standards[_i].most * SL_MIB);
            limits.memory.left = standards[_i].left * SL_MIB;
        }
        uint64_t got = sl_limits_memory_default(config, &limits, standards[_i].shm_free * SL_MIB);
        ck_assert_uint_eq(got, standards[_i].want * SL_MIB);
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(limits_of_another_process_are_its_own)
    {
        struct sl_limits limits;
        put("proc/self/cgroup", "0::/shell\n");
        put("proc/self/mountinfo", V2);
        put("proc/4711/cgroup", "0::/unit\n");
        put("sys/fs/cgroup/unit/memory.max", "1000\n");

        sl_limits_read(root, 4711, &limits);

        ck_assert_uint_eq(limits.memory.most, 1000);
        sl_limits_read(root, 0, &limits);
        ck_assert_uint_eq(limits.memory.most, SL_NO_LIMIT);
    }
END_TEST

START_TEST(file_that_may_not_grow_is_an_error_and_no_signal)
    {
        const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
        int fd = memfd_create("limits", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        ck_assert_int_eq(sl_file_resize(fd, 4096), 0);
        ck_assert_int_eq(sl_file_resize(fd, 4097), -1);
        ck_assert_int_eq(errno, EFBIG);
        (void)close(fd);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, tightest_limit_of_all_levels_counts, 0, (int)SL_COUNT(trees));
    tcase_add_loop_test(tcase, standard_memory_follows_from_what_is_there, 0,
                        (int)SL_COUNT(standards));
    tcase_add_test(tcase, limits_of_another_process_are_its_own);
    tcase_add_test(tcase, file_that_may_not_grow_is_an_error_and_no_signal);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
