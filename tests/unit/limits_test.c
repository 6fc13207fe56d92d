/* tests/unit/limits_test.c - limits of containers and shells: cgroups of both versions in trees made
 * here, and what a node of given settings makes of them. */
#include "runtime/sl_limits.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
        put("proc/self/status", "CapEff:\t000001ffffffffff\n");

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

static struct sl_config *settings(const char *const pairs[][2], size_t count)
{
    struct sl_config *config = NULL;
    ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
    for (size_t i = 0; i < count && pairs[i][0] != NULL; i++) {
        ck_assert_int_eq(sl_config_set(config, pairs[i][0], pairs[i][1], "test", NULL), SL_OK);
    }
    return config;
}

static const struct sl_limits unlimited = {
    .memory = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
    .cores = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
    .processes = {.most = SL_NO_LIMIT, .left = SL_NO_LIMIT},
    .file_bytes = SL_NO_LIMIT,
    .locked_bytes = SL_NO_LIMIT,
    .data_bytes = SL_NO_LIMIT,
    .address_bytes = SL_NO_LIMIT,
    .descriptors = SL_NO_LIMIT,
};

/* The worst of all checks; what it found is put behind a check's name. */
static enum sl_limits_level all_checks(const struct sl_config *config,
                                       const struct sl_limits *limits, char *out, size_t room)
{
    enum sl_limits_level worst = SL_LIMITS_FINE;
    struct sl_limits_case at = {config, limits, false, ""};
    out[0] = '\0';
    for (size_t i = 0; i < SL_LIMITS_CHECKS; i++) {
        enum sl_limits_level level = sl_limits_checks[i].check(&at);
        ck_assert_uint_gt(strlen(at.text), 0);
        if (level > worst) {
            worst = level;
            (void)snprintf(out, room, "%s: %s", sl_limits_checks[i].name, at.text);
        }
    }
    return worst;
}

#define MEMORY(bytes)                                             \
    {                                                             \
        .most = (bytes), .left = (bytes), .file = "/x/memory.max" \
    }

static const struct {
    const char *settings[4][2];
    size_t field;   /* of struct sl_limits */
    uint64_t value; /* of it */
    enum sl_limits_level want;
    const char *says;
} nodes[] = {
    {{{"memory", "256MiB"}},
     offsetof(struct sl_limits, memory.most),
     640 * SL_MIB,
     SL_LIMITS_FINE,
     ""},
    {{{"memory", "256MiB"}},
     offsetof(struct sl_limits, memory.most),
     640 * SL_MIB - 1,
     SL_LIMITS_BROKEN,
     "memory_limit: memory 256 MiB, indexes 64 MiB and 320 MiB for actors are 640 MiB; "},
    {{{"memory", "256MiB"}, {"ranks", "2"}},
     offsetof(struct sl_limits, memory.most),
     640 * SL_MIB,
     SL_LIMITS_BROKEN,
     "384 MiB for actors are 704 MiB"},
    {{{"memory", "256MiB"}, {"index_memory", "128MiB"}},
     offsetof(struct sl_limits, memory.most),
     640 * SL_MIB,
     SL_LIMITS_BROKEN,
     "indexes 128 MiB"},
    {{{"memory", "1GiB"}, {"disk", "1TiB"}},
     offsetof(struct sl_limits, memory.most),
     2 * SL_GIB,
     SL_LIMITS_BROKEN,
     "indexes 1152 MiB"},
    {{{"memory", "256MiB"}, {"trace_events", "16777216"}},
     offsetof(struct sl_limits, memory.most),
     5740 * SL_MIB - 1,
     SL_LIMITS_BROKEN,
     "5420 MiB for actors are 5740 MiB"}, /* five actors, 1020 MiB more each */
    {{{"memory", "256MiB"}, {"trace_events", "16777216"}},
     offsetof(struct sl_limits, address_bytes),
     5 * SL_GIB,
     SL_LIMITS_BROKEN,
     "addresses: memory and indexes want 5740 MiB"},
    {{{"memory", "256MiB"}, {"trace_events", "64"}},
     offsetof(struct sl_limits, memory.most),
     640 * SL_MIB,
     SL_LIMITS_FINE,
     ""},
    {{{"memory", "256MiB"}, {"disk", "1GiB"}, {"disk_path", "/a,/b"}, {"disk_staging", "4GiB"}},
     offsetof(struct sl_limits, memory.most),
     8 * SL_GIB,
     SL_LIMITS_BROKEN,
     "8384 MiB for actors"},
    {{{"memory", "256MiB"}, {"ranks", "2"}, {"swap_staging", "4GiB"}},
     offsetof(struct sl_limits, memory.most),
     8 * SL_GIB,
     SL_LIMITS_BROKEN,
     "8512 MiB for actors"},
    {{{"memory", "256MiB"}, {"ghosts_max", "16777216"}},
     offsetof(struct sl_limits, memory.most),
     SL_GIB,
     SL_LIMITS_BROKEN,
     "1085 MiB for actors"},
    {{{"memory", "256MiB"}, {"reservations_max", "16777216"}},
     offsetof(struct sl_limits, memory.most),
     4 * SL_GIB,
     SL_LIMITS_BROKEN,
     "4400 MiB for actors"},
    {{{"clients_max", "4"}},
     offsetof(struct sl_limits, descriptors),
     SL_NO_LIMIT,
     SL_LIMITS_BROKEN,
     "clients_max: 4 processes may be attached, actors are 4 of them"},
    {{{"clients_max", "5"}},
     offsetof(struct sl_limits, descriptors),
     SL_NO_LIMIT,
     SL_LIMITS_FINE,
     ""},
    {{{"clients_max", "9"}, {"ranks", "4"}, {"disk", "1GiB"}, {"disk_path", "/a,/b"}},
     offsetof(struct sl_limits, descriptors),
     SL_NO_LIMIT,
     SL_LIMITS_BROKEN,
     "actors are 9 of them"},
    {{{"ranks", "1"}}, offsetof(struct sl_limits, processes.most), 64, SL_LIMITS_FINE, ""},
    {{{"ranks", "1"}},
     offsetof(struct sl_limits, processes.left),
     63,
     SL_LIMITS_BROKEN,
     "processes: the node wants 64 threads"},
    {{{"ranks", "2"}},
     offsetof(struct sl_limits, processes.most),
     64,
     SL_LIMITS_BROKEN,
     "the node wants 72 threads"},
    {{{"disk", "1GiB"}, {"disk_path", "/a,/b"}},
     offsetof(struct sl_limits, processes.most),
     79,
     SL_LIMITS_BROKEN,
     "wants 80 threads"},
    {{{"ranks", "1"}},
     offsetof(struct sl_limits, descriptors),
     79,
     SL_LIMITS_BROKEN,
     "descriptors: RLIMIT_NOFILE allows a process 79 descriptors; the node wants 80"},
    {{{"ranks", "1"}}, offsetof(struct sl_limits, descriptors), 80, SL_LIMITS_TIGHT, "up to 2624"},
    {{{"ranks", "2"}}, offsetof(struct sl_limits, descriptors), 87, SL_LIMITS_BROKEN, "wants 88"},
    {{{NULL}}, offsetof(struct sl_limits, cores.most), 1000, SL_LIMITS_FINE, ""},
    {{{NULL}},
     offsetof(struct sl_limits, cores.most),
     250,
     SL_LIMITS_TIGHT,
     "core_limit:  allows 0.25 cores"},
    {{{"memory", "256MiB"}},
     offsetof(struct sl_limits, file_bytes),
     260 * SL_MIB,
     SL_LIMITS_FINE,
     ""},
    {{{"memory", "256MiB"}},
     offsetof(struct sl_limits, file_bytes),
     256 * SL_MIB,
     SL_LIMITS_BROKEN,
     "file_size: memory is a file of 260 MiB, RLIMIT_FSIZE allows 256 MiB"},
    {{{"memory", "1MiB"}},
     offsetof(struct sl_limits, file_bytes),
     0,
     SL_LIMITS_BROKEN,
     "the index is a file of 68 MiB"},
    {{{"memory", "8MiB"}, {"index_memory", "8MiB"}},
     offsetof(struct sl_limits, file_bytes),
     20 * SL_MIB,
     SL_LIMITS_BROKEN,
     "the segment of counts is a file of 40 MiB"},
    {{{"memory", "1MiB"}, {"trace_events", "16777216"}},
     offsetof(struct sl_limits, file_bytes),
     SL_GIB,
     SL_LIMITS_BROKEN,
     "trace_events is a file of 1025 MiB"},
    {{{"memory", "1MiB"}, {"disk", "2GiB"}, {"disk_segment", "512MiB"}},
     offsetof(struct sl_limits, file_bytes),
     500 * SL_MIB,
     SL_LIMITS_BROKEN,
     "disk_segment is a file of 512 MiB"},
    {{{"memory", "1MiB"}, {"record", "/r"}},
     offsetof(struct sl_limits, file_bytes),
     200 * SL_MIB,
     SL_LIMITS_BROKEN,
     "record_max is"},
    {{{"memory", "1MiB"}, {"log_bytes_max", "1GiB"}},
     offsetof(struct sl_limits, file_bytes),
     200 * SL_MIB,
     SL_LIMITS_BROKEN,
     "log_bytes_max is"},
    {{{NULL}}, offsetof(struct sl_limits, locked_bytes), 0, SL_LIMITS_FINE, ""},
    {{{"fabric", "verbs"}},
     offsetof(struct sl_limits, locked_bytes),
     SL_GIB - 1,
     SL_LIMITS_BROKEN,
     "memlock: the fabric locks 1024 MiB, RLIMIT_MEMLOCK allows 1024 MiB"},
    {{{NULL}},
     offsetof(struct sl_limits, address_bytes),
     SL_GIB,
     SL_LIMITS_BROKEN,
     "RLIMIT_AS allows 1024 MiB"},
    {{{"ranks", "8"}},
     offsetof(struct sl_limits, data_bytes),
     191 * SL_MIB,
     SL_LIMITS_BROKEN,
     "data: an actor wants 192 MiB, RLIMIT_DATA allows 191 MiB"},
    {{{"ranks", "8"}}, offsetof(struct sl_limits, data_bytes), 192 * SL_MIB, SL_LIMITS_FINE, ""},
};

START_TEST(node_that_would_not_live_is_named_with_its_sum)
    {
        struct sl_config *config = settings(nodes[_i].settings, SL_COUNT(nodes[_i].settings));
        struct sl_limits limits = unlimited;
        char said[SL_LIMITS_TEXT_BYTES + 64];
        memcpy((char *)&limits + nodes[_i].field, &nodes[_i].value, sizeof nodes[_i].value);

        enum sl_limits_level level = all_checks(config, &limits, said, sizeof said);

        ck_assert_msg(level == nodes[_i].want, "%d: %s", level, said);
        ck_assert_msg(strstr(said, nodes[_i].says) != NULL, "%s", said);
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(kills_for_want_of_memory_are_told)
    {
        struct sl_config *config = settings(NULL, 0);
        struct sl_limits limits = unlimited;
        char said[SL_LIMITS_TEXT_BYTES + 64];
        limits.memory = (struct sl_limit)MEMORY(64 * SL_GIB);
        limits.oom_kills = 13;
        ck_assert_int_eq(all_checks(config, &limits, said, sizeof said), SL_LIMITS_TIGHT);
        ck_assert_ptr_nonnull(strstr(said, "/x/memory.max allows 65536 MiB"));
        ck_assert_ptr_nonnull(strstr(said, "the kernel has killed 13 processes there"));
        sl_config_destroy(&config);
    }
END_TEST

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
        struct sl_config *config = settings(NULL, 0);
        struct sl_limits limits = unlimited;
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

/* ---- this process ---- */

START_TEST(limits_of_the_shell_are_seen)
    {
        struct sl_limits limits;
        const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
        const struct rlimit few = {.rlim_cur = 1000, .rlim_max = 1000};
        put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
        ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &small), 0);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &few), 0);

        sl_limits_read(root, 0, &limits);

        ck_assert_uint_eq(limits.locked_bytes, 1 << 20);
        ck_assert_uint_eq(limits.file_bytes, 1 << 20);
        ck_assert_uint_eq(limits.processes.most, 1000);
        ck_assert_str_eq(limits.processes.file, "RLIMIT_NPROC");
        put("proc/self/status", "CapEff:\t0000000001004000\n"); /* SYS_RESOURCE, IPC_LOCK */
        sl_limits_read(root, 0, &limits);
        ck_assert_uint_eq(limits.locked_bytes, SL_NO_LIMIT);
        ck_assert_uint_eq(limits.processes.most, SL_NO_LIMIT);
    }
END_TEST

START_TEST(limits_of_another_process_are_its_own)
    {
        struct sl_limits limits;
        char name[64];
        const pid_t child = fork();
        if (child == 0) {
            (void)pause();
            _exit(0);
        }
        ck_assert_int_gt(child, 0); /* else the kill below is everybody's */
        const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
        int failed = prlimit(child, RLIMIT_FSIZE, &small, NULL);
        failed += prlimit(child, RLIMIT_DATA, &small, NULL);
        put("proc/self/cgroup", "0::/shell\n");
        put("proc/self/mountinfo", V2);
        (void)snprintf(name, sizeof name, "proc/%d/cgroup", (int)child);
        put(name, "0::/unit\n");
        put("sys/fs/cgroup/unit/memory.max", "1000\n");

        sl_limits_read(root, (uint32_t)child, &limits);

        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        ck_assert_int_eq(failed, 0);
        ck_assert_uint_eq(limits.memory.most, 1000);
        ck_assert_uint_eq(limits.file_bytes, 4096);
        ck_assert_uint_eq(limits.data_bytes, 4096);
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

/* As a seccomp profile of a container does, in this forked test alone. */
static void refuse(uint32_t call)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = SL_COUNT(rules), .filter = rules};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* io_uring is for who wants it. */
static const struct {
    uint32_t call;
    const char *settings[1][2];
    const char *says;
} profiles[] = {
    {SYS_pidfd_open, {{NULL}}, "pidfd: Operation not permitted"},
    {SYS_io_uring_setup, {{NULL}}, ""},
    {SYS_io_uring_setup, {{"disk", "1GiB"}}, "io_uring: Operation not permitted"},
    {SYS_io_uring_setup, {{"fabric", "tcp"}}, "io_uring: Operation not permitted"},
};
START_TEST(profile_that_refuses_what_a_node_needs_is_seen)
    {
        struct sl_config *config = settings(profiles[_i].settings, 1);
        char said[SL_LIMITS_TEXT_BYTES + 64];
        ck_assert_int_eq(all_checks(config, &unlimited, said, sizeof said), SL_LIMITS_FINE);
        refuse(profiles[_i].call);
        ck_assert_int_eq(all_checks(config, &unlimited, said, sizeof said),
                         profiles[_i].says[0] == '\0' ? SL_LIMITS_FINE : SL_LIMITS_BROKEN);
        ck_assert_str_eq(said, profiles[_i].says);
        sl_config_destroy(&config);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, tightest_limit_of_all_levels_counts, 0, (int)SL_COUNT(trees));
    tcase_add_loop_test(tcase, node_that_would_not_live_is_named_with_its_sum, 0,
                        (int)SL_COUNT(nodes));
    tcase_add_test(tcase, kills_for_want_of_memory_are_told);
    tcase_add_loop_test(tcase, standard_memory_follows_from_what_is_there, 0,
                        (int)SL_COUNT(standards));
    tcase_add_test(tcase, limits_of_the_shell_are_seen);
    tcase_add_test(tcase, limits_of_another_process_are_its_own);
    tcase_add_test(tcase, file_that_may_not_grow_is_an_error_and_no_signal);
    tcase_add_loop_test(tcase, profile_that_refuses_what_a_node_needs_is_seen, 0,
                        (int)SL_COUNT(profiles));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
