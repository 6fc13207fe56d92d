/* tests/unit/runtime/base/runtime_test.c - errors, clocks, processes, digest, settings, log,
 * metrics and the event loop. */
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_digest.h"
#include "runtime/base/sl_log.h"
#include "runtime/base/sl_loop.h"
#include "runtime/base/sl_metrics.h"
#include "tests/support/own_id.h"

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

static char directory[] = "/tmp/sl-runtime-XXXXXX";

static void make_directory(void)
{
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_directory(void)
{
    char command[80];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    ck_assert_int_eq(system(command), 0);
}

/* ---------------------------------------------------------------- errors, clocks, processes */

static const struct {
    int os_code;
    sl_err want;
} os_codes[] = {
    {ENOMEM, SL_ERR_NO_MEMORY}, {ENOSPC, SL_ERR_NO_SPACE},  {EACCES, SL_ERR_PERMISSION},
    {EPERM, SL_ERR_PERMISSION}, {ENOENT, SL_ERR_NOT_FOUND}, {EEXIST, SL_ERR_EXISTS},
    {EIO, SL_ERR_IO},           {EBADF, SL_ERR_OS},
};

START_TEST(os_code_becomes_code_and_text)
    {
        struct sl_error why = {0};

        sl_err got = sl_fail_os(&why, os_codes[_i].os_code, "open '%s'", "x");

        ck_assert_int_eq(got, os_codes[_i].want);
        ck_assert_int_eq(why.os_code, os_codes[_i].os_code);
        ck_assert_ptr_nonnull(strstr(why.text, "open 'x': "));
    }
END_TEST

START_TEST(a_file_system_that_a_unit_may_not_write_says_what_opens_it)
    {
        struct sl_error why = {0};

        (void)sl_fail_os(&why, EROFS, "make directory '%s'", "/nvme0/sluice");

        ck_assert_ptr_nonnull(strstr(why.text, "'/nvme0/sluice': Read-only file system"));
        ck_assert_ptr_nonnull(strstr(why.text, "ReadWritePaths"));
    }
END_TEST

START_TEST(every_code_has_name_text_and_class)
    {
        for (int code = 0; code < SL_ERR_COUNT; code++) {
            ck_assert_str_ne(sl_err_name((sl_err)code), "SL_ERR_?");
            ck_assert_uint_gt(strlen(sl_err_text((sl_err)code)), 0);
        }
        ck_assert_str_eq(sl_err_name((sl_err)9999), "SL_ERR_?");
        ck_assert_int_ne(sl_err_class((sl_err)9999), SL_CLASS_NONE);
    }
END_TEST

START_TEST(failed_assertion_aborts)
    {
        SL_ASSERT(directory[0] == 'x');
    }
END_TEST

START_TEST(deadlines_saturate)
    {
        ck_assert_uint_eq(sl_deadline_ns(5, SL_NEVER_NS), SL_NEVER_NS);
        ck_assert_uint_eq(sl_deadline_ns(5, 7), 12);
        ck_assert_uint_eq(sl_budget_ns(12, 12), 0);
        ck_assert_uint_eq(sl_budget_ns(13, 12), 0);
        ck_assert_uint_eq(sl_budget_ns(5, 12), 7);
        ck_assert_uint_eq(sl_budget_ns(5, SL_NEVER_NS), SL_NEVER_NS);
        ck_assert_uint_eq(sl_clock_next_ns(0, 10), 10);
        ck_assert_uint_eq(sl_clock_next_ns(9, 10), 10);
        ck_assert_uint_eq(sl_clock_next_ns(10, 10), 20); /* never now: it would be done twice */
        ck_assert_uint_eq(sl_clock_next_ns(SL_NEVER_NS - 1, 10), SL_NEVER_NS);
    }
END_TEST

START_TEST(ended_process_is_not_found_also_while_a_zombie)
    {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        siginfo_t info;
        struct sl_proc_id id;
        int fd = -1;
        ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT),
                         0); /* ended, not reaped */

        ck_assert_int_eq(sl_proc_id_of((uint32_t)child, &id, NULL), SL_ERR_NOT_FOUND);
        ck_assert_int_eq(
            sl_proc_open((struct sl_proc_id){.pid = (uint32_t)child, .start_time = 1}, &fd, NULL),
            SL_ERR_NOT_FOUND);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
    }
END_TEST

START_TEST(pidfd_is_refused_for_another_start_time)
    {
        struct sl_proc_id self = own_id();
        int fd = -1;
        ck_assert_int_eq(sl_proc_open(self, &fd, NULL), SL_OK);
        (void)close(fd);
        self.start_time++;

        ck_assert_int_eq(sl_proc_open(self, &fd, NULL), SL_ERR_NOT_FOUND);
    }
END_TEST

/* ---------------------------------------------------------------- digest */

static const uint64_t digest_sizes[] = {
    0, 1, 4096, 16383, 16384, 16385, 100000, 64 * 16384, 64 * 16384 + 1, 3 * 1024 * 1024 + 7};

/* The format, written a second time in the simplest way. */
static struct sl_digest digest_by_the_book(const unsigned char *value, uint64_t length)
{
    uint64_t *hashes = calloc(length / 16384 + 1, sizeof(*hashes));
    size_t count = 0;
    for (uint64_t at = 0; at < length; at += 16384) {
        hashes[count++] = XXH3_64bits(value + at, (size_t)SL_MIN(UINT64_C(16384), length - at));
    }
    XXH128_hash_t hash = XXH3_128bits(hashes, count * sizeof(*hashes));
    free(hashes);
    return (struct sl_digest){hash.low64, hash.high64};
}

START_TEST(digest_has_one_value_whichever_way_it_is_made)
    {
        uint64_t length = digest_sizes[_i];
        unsigned char *value = malloc(length + 1);
        unsigned char *copy = calloc(1, length + 1);
        for (uint64_t i = 0; i < length; i++) {
            value[i] = (unsigned char)(i * 2654435761u >> 13);
        }
        struct sl_digest want = digest_by_the_book(value, length);
        struct sl_digest_stream stream;
        sl_digest_start(&stream);
        for (uint64_t at = 0, step = 1; at < length; at += step, step = step * 3 % 20011 + 1) {
            sl_digest_feed(&stream, value + at, SL_MIN(step, length - at));
        }

        ck_assert(sl_digest_equal(sl_digest_of(value, length), want));
        ck_assert(sl_digest_equal(sl_digest_copy(copy, value, length), want));
        ck_assert(sl_digest_equal(sl_digest_finish(&stream), want));
        ck_assert_int_eq(memcmp(copy, value, length), 0);
        free(value);
        free(copy);
    }
END_TEST

/* ---------------------------------------------------------------- settings */

static const struct {
    const char *name, *text;
    uint64_t want;
} good_values[] = {
    {"memory", "4GiB", UINT64_C(4) << 30},
    {"memory", "3mb", 3000000},
    {"memory", "2097152", 2097152},
    {"disk_direct", "Off", 0},
    {"disk_direct", "yes", 1},
    {"op-timeout", "1.5s", 1500000000},
    {"op_timeout", "2min", UINT64_C(120000000000)},
    {"disk_staging_usable", "0.25", 250000},
    {"ranks", "64", 64},
    {"io_grace", "0", 0},
};

START_TEST(good_value_is_understood)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);

        ck_assert_msg(sl_config_set(config, good_values[_i].name, good_values[_i].text, "test",
                                    &why) == SL_OK,
                      "%s", why.text);

        for (int i = 0; i < SL_SETTING_COUNT_OF; i++) {
            if (strcmp(sl_config_source(config, (enum sl_setting)i), "test") == 0) {
                uint64_t got = i == SL_SET_disk_direct ? sl_config_bool(config, SL_SET_disk_direct)
                                                       : sl_config_u64(config, (enum sl_setting)i);
                ck_assert_uint_eq(got, good_values[_i].want);
            }
        }
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *name, *text, *complaint;
} bad_values[] = {
    {"memory", "", "no number"},
    {"memory", "-1", "no number"},
    {"memory", "4 parsecs", "unknown unit"},
    {"memory", "1", "out of range"},
    {"memory", "99999999999999999999", "too large"},
    {"memory", "20000000TiB", "too large"},
    {"ranks", "0", "out of range"},
    {"ranks", "2.0", "no whole number"},
    {"ranks", "0x2", "no whole number"},
    {"disk_direct", "flase", "boolean"},
    {"disk_direct", "", "boolean"},
    {"op_timeout", "2", "needs a unit"},
    {"op_timeout", "2 parsecs", "needs a unit"},
    {"op_timeout", "1ns", "out of range"},
    {"disk_staging_usable", "1.1", "no ratio"},
    {"disk_staging_usable", "-0.5", "no number"},
    {"instance", "", "out of range"},
    {"memroy", "1GiB", "unknown setting 'memroy'"},
};

START_TEST(bad_value_is_refused_by_name_and_changes_nothing)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);

        ck_assert_int_eq(
            sl_config_set(config, bad_values[_i].name, bad_values[_i].text, "node.conf:7", &why),
            SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, "node.conf:7") == why.text, "%s", why.text);
        ck_assert_msg(strstr(why.text, bad_values[_i].name) != NULL, "%s", why.text);
        ck_assert_msg(strstr(why.text, bad_values[_i].complaint) != NULL, "%s", why.text);
        for (int i = 0; i < SL_SETTING_COUNT_OF; i++) {
            ck_assert_str_eq(sl_config_source(config, (enum sl_setting)i), "default");
        }
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *text;
    const char *complaint; /* NULL: fine */
} files[] = {
    {"memory = 2GiB # comment\nranks = 3\n", NULL},
    {"# nothing\n\n\nmemory = lots\n", "node.conf:4: memory: 'lots'"},
    {"ranks = 2\nrankz = 2\n", "node.conf:2: "},
    {"ranks 2\n", "node.conf:1: "},
    {"ranks = 65\n", "node.conf:1: ranks: '65' is out of range"},
    {"ranks = \"unterminated\nmemory = 1GiB", "node.conf:"},
};

START_TEST(config_file_errors_name_file_line_and_key)
    {
        char path[80];
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        (void)snprintf(path, sizeof(path), "%s/node.conf", directory);
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        (void)fputs(files[_i].text, file);
        (void)fclose(file);
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);

        sl_err err = sl_config_load(config, path, 0, NULL, NULL, &why);

        if (files[_i].complaint == NULL) {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_uint_eq(sl_config_u64(config, SL_SET_memory), UINT64_C(2) << 30);
            ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 3);
            ck_assert_ptr_nonnull(strstr(sl_config_source(config, SL_SET_ranks), "node.conf:2"));
        } else {
            ck_assert_int_eq(err, SL_ERR_CONFIG);
            ck_assert_msg(strstr(why.text, files[_i].complaint) != NULL, "%s", why.text);
        }
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(command_line_beats_environment_beats_default)
    {
        char *arguments[] = {"program", "--ranks", "4", "--disk-segment=1MiB", "word", NULL};
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        int rest = 0;
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);
        ck_assert_int_eq(setenv("SLUICE_RANKS", "3", 1), 0);
        ck_assert_int_eq(setenv("SLUICE_MEMORY", "2GiB", 1), 0);

        ck_assert_msg(sl_config_load(config, NULL, 5, arguments, &rest, &why) == SL_OK, "%s",
                      why.text);

        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 4);
        ck_assert_str_eq(sl_config_source(config, SL_SET_memory), "SLUICE_MEMORY");
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_disk_segment), 1 << 20);
        ck_assert_int_eq(rest, 4);
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(engines_names_are_understood_and_give_way)
    {
        char *arguments[] = {"program", "--disk-path", "/ours", NULL};
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(setenv("VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO", "0.75", 1), 0);
        ck_assert_int_eq(setenv("MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", "1342177280", 1), 0);
        ck_assert_int_eq(setenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "/theirs", 1), 0);
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);
        ck_assert_msg(sl_config_load(config, NULL, 3, arguments, NULL, &why) == SL_OK, "%s",
                      why.text);

        ck_assert_uint_eq(sl_config_u64(config, SL_SET_disk_staging_usable), 750000);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_disk_staging), UINT64_C(1342177280));
        ck_assert_str_eq(sl_config_text(config, SL_SET_disk_path), "/ours");
        static const char *const one_gib[] = {"1GB", "1024 mb", "1GiB"};
        for (size_t i = 0; i < SL_COUNT(one_gib); i++) {
            ck_assert_int_eq(setenv("MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", one_gib[i], 1), 0);
            ck_assert_int_eq(sl_config_load(config, NULL, 3, arguments, NULL, &why), SL_OK);
            ck_assert_uint_eq(sl_config_u64(config, SL_SET_disk_staging), SL_GIB);
        }

        ck_assert_int_eq(setenv("VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO", "90 percent", 1), 0);
        ck_assert_int_eq(sl_config_load(config, NULL, 3, arguments, NULL, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO"));
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    char *word, *value;
    const char *complaint;
} bad_words[] = {
    {"--flase", "1", "--flase: unknown option 'flase'"},
    {"--ranks", NULL, "--ranks: a value is missing"},
    {"--ranks", "x", "--ranks: ranks: 'x'"},
    {"stray", NULL, "unexpected argument 'stray'"},
    {"--directory-url", "redis://:sesame@10.0.0.9:6379", "--directory-url: no password on a"},
    {"--directory-url", "redis://user:a%40b@10.0.0.9/3", "SLUICE_DIRECTORY_URL"},
};

START_TEST(bad_command_line_is_refused_by_name)
    {
        char *arguments[] = {"program", bad_words[_i].word, bad_words[_i].value, NULL};
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);

        ck_assert_int_eq(sl_config_load(config, NULL, bad_words[_i].value != NULL ? 3 : 2,
                                        arguments, NULL, &why),
                         SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, bad_words[_i].complaint) != NULL, "%s", why.text);
        ck_assert_ptr_null(strstr(why.text, "sesame"));
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(unknown_variable_of_ours_is_refused_by_name)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);
        ck_assert_int_eq(setenv("SLUICE_MEMROY", "2GiB", 1), 0);

        ck_assert_int_eq(sl_config_load(config, NULL, 0, NULL, NULL, &why), SL_ERR_CONFIG);

        ck_assert_ptr_nonnull(strstr(why.text, "SLUICE_MEMROY"));
        sl_config_destroy(&config);
    }
END_TEST

START_TEST(open_directory_and_bad_instance_are_refused)
    {
        char path[80];
        struct sl_config *config = NULL;
        struct sl_paths paths;
        struct sl_error why = {0};
        (void)snprintf(path, sizeof(path), "%s/open", directory);
        ck_assert_int_eq(mkdir(path, 0755), 0);
        ck_assert_int_eq(sl_config_create(&config, &why), SL_OK);
        ck_assert_int_eq(sl_config_set(config, "instance", "../up", "test", &why), SL_OK);

        ck_assert_int_eq(sl_dir_make(path, &why), SL_ERR_PERMISSION);
        ck_assert_int_eq(sl_paths_from(config, &paths, &why), SL_ERR_CONFIG);

        sl_config_destroy(&config);
    }
END_TEST

/* ---------------------------------------------------------------- log */

START_TEST(log_lines_are_json_limited_in_rate_and_errors_get_through)
    {
        char path[80];
        char line[4096];
        struct sl_log *log = NULL;
        int quiet = 0;
        int loud = 0;
        (void)snprintf(path, sizeof(path), "%s/test.jsonl", directory);
        struct sl_log_options options = {
            .path = path, .actor = "tester", .level = SL_LOG_INFO, .lines_per_s = 5};
        ck_assert_int_eq(sl_log_open(&options, &log, NULL), SL_OK);

        for (int i = 0; i < 50; i++) {
            sl_log_write(log, SL_LOG_INFO, 0, "chatter \"%d\"\n", i);
        }
        sl_log_write(log, SL_LOG_DEBUG, 0, "below the level");
        sl_log_write(log, SL_LOG_ERROR, 0xabc, "someone should act");
        sl_log_close(&log);

        FILE *file = fopen(path, "r");
        while (fgets(line, sizeof(line), file) != NULL) {
            ck_assert(line[0] == '{' && strcmp(line + strlen(line) - 2, "}\n") == 0);
            quiet += strstr(line, "chatter \\\"") != NULL;
            if (strstr(line, "someone should act") != NULL) {
                loud++;
                ck_assert_ptr_nonnull(strstr(line, "\"trace\":\"0000000000000abc\""));
                ck_assert_ptr_nonnull(strstr(line, "\"dropped\":"));
            }
        }
        (void)fclose(file);
        ck_assert_int_ge(quiet, 5);
        ck_assert_int_le(quiet, 7);
        ck_assert_int_eq(loud, 1);
    }
END_TEST

/* The length of the file, -1: it does not exist. All of its lines are complete. */
static long lines_whole(const char *path)
{
    char line[4096];
    long bytes = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        ck_assert(line[0] == '{' && strcmp(line + strlen(line) - 2, "}\n") == 0);
        bytes += (long)strlen(line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return file != NULL ? bytes : -1;
}

START_TEST(logs_of_several_processes_stay_under_their_bound)
    {
        enum { WRITERS = 4, LINES = 1000, BOUND = 65536 };
        char path[80];
        char old[96];
        (void)snprintf(path, sizeof(path), "%s/bound.jsonl", directory);
        (void)snprintf(old, sizeof(old), "%s.1", path);
        struct sl_log_options options = {.path = path,
                                         .actor = "tester",
                                         .level = SL_LOG_INFO,
                                         .lines_per_s = 100000,
                                         .bytes_max = BOUND};
        pid_t writers[WRITERS];
        for (int i = 0; i < WRITERS; i++) {
            writers[i] = fork();
            if (writers[i] == 0) {
                struct sl_log *log = NULL;
                bool opened = sl_log_open(&options, &log, NULL) == SL_OK;
                for (int k = 0; opened && k < LINES; k++) {
                    sl_log_write(log, SL_LOG_INFO, 0, "line %d of writer %d", k, i);
                }
                _exit(opened ? 0 : 1);
            }
        }
        for (int i = 0; i < WRITERS; i++) {
            int status = 1;
            ck_assert_int_eq(waitpid(writers[i], &status, 0), writers[i]);
            ck_assert_int_eq(status, 0);
        }

        ck_assert_int_gt(lines_whole(path), 0);
        ck_assert_int_ge(lines_whole(old), BOUND / 2);
        /* Some lines more: writers do not wait for the one that renames the file. Half a megabyte
         * is logged. */
        ck_assert_int_le(lines_whole(path) + lines_whole(old), 2 * BOUND);
    }
END_TEST

START_TEST(a_log_without_a_bound_goes_on_in_its_file)
    {
        char path[80];
        char old[96];
        struct sl_log *log = NULL;
        (void)snprintf(path, sizeof(path), "%s/long.jsonl", directory);
        (void)snprintf(old, sizeof(old), "%s.1", path);
        struct sl_log_options options = {
            .path = path, .actor = "tester", .level = SL_LOG_INFO, .lines_per_s = 100000};
        ck_assert_int_eq(sl_log_open(&options, &log, NULL), SL_OK);

        for (int i = 0; i < 1000; i++) {
            sl_log_write(log, SL_LOG_INFO, 0, "line %d", i);
        }

        sl_log_close(&log);
        ck_assert_int_gt(lines_whole(path), 65536);
        ck_assert_int_eq(lines_whole(old), -1);
    }
END_TEST

/* ---------------------------------------------------------------- metrics */

static struct sl_metrics *open_page(const char *path, uint32_t events)
{
    struct sl_metrics *metrics = NULL;
    struct sl_error why = {0};
    struct sl_metrics_options options = {
        .path = path, .actor = "tester", .self = own_id(), .trace_events = events};
    ck_assert_msg(sl_metrics_open(&options, &metrics, &why) == SL_OK, "%s", why.text);
    return metrics;
}

START_TEST(counters_survive_the_process_and_are_read_by_others)
    {
        char path[80];
        char name[SL_METRIC_NAME_BYTES];
        uint64_t value = 0;
        struct sl_metrics_view *view = NULL;
        struct sl_metrics_summary summary;
        struct sl_histogram_summary histogram;
        (void)snprintf(path, sizeof(path), "%s/metrics.tester", directory);
        struct sl_metrics *metrics = open_page(path, 64);
        sl_metric_add(metrics, sl_metric_define(metrics, "puts"), 2);
        sl_metrics_close(&metrics);

        metrics = open_page(path, 64);
        sl_metric_add(metrics, sl_metric_define(metrics, "puts"), 3);
        for (uint64_t i = 1; i <= 1000; i++) {
            sl_histogram_add(metrics, sl_histogram_define(metrics, "put_ns"), i);
        }
        sl_metrics_health(metrics, SL_HEALTH_DEGRADED, "disk full");

        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        sl_metrics_view_summary(view, &summary);
        ck_assert_uint_eq(summary.incarnation, 2);
        ck_assert_int_eq(summary.health, SL_HEALTH_DEGRADED);
        ck_assert_str_eq(summary.reason, "disk full");
        ck_assert(sl_metrics_view_metric(view, 0, name, &value));
        ck_assert_str_eq(name, "puts");
        ck_assert_uint_eq(value, 5);
        ck_assert(!sl_metrics_view_metric(view, 1, name, &value));
        ck_assert(sl_metrics_view_histogram(view, 0, &histogram));
        ck_assert_uint_eq(histogram.count, 1000);
        ck_assert_uint_ge(histogram.p50, 500);
        ck_assert_uint_le(histogram.p50, 563); /* buckets are at most 12.5 % wide */
        ck_assert_uint_ge(histogram.p99, 990);
        ck_assert_uint_eq(histogram.max, 1000);

        /* 1 to 1000 in buckets of others' ends: a value counts as at most 12.5 % more. */
        const uint64_t ends[] = {7, 100, 1023, UINT64_MAX};
        uint64_t buckets[SL_COUNT(ends)];
        uint64_t bucket_sum;
        char bucket_name[SL_METRIC_NAME_BYTES];
        ck_assert(sl_metrics_view_buckets(view, 0, ends, SL_COUNT(ends), bucket_name, buckets,
                                          &bucket_sum));
        ck_assert(!sl_metrics_view_buckets(view, 1, ends, SL_COUNT(ends), bucket_name, buckets,
                                           &bucket_sum));
        ck_assert_str_eq(bucket_name, "put_ns");
        ck_assert_uint_eq(bucket_sum, 500500);
        ck_assert_uint_eq(buckets[0], 7);
        ck_assert_uint_le(buckets[1], 93);
        ck_assert_uint_ge(buckets[1], 88);
        ck_assert_uint_eq(buckets[0] + buckets[1] + buckets[2], 1000);
        ck_assert_uint_eq(buckets[3], 0);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

START_TEST(recorder_keeps_the_newest_events_in_order)
    {
        char path[80];
        struct sl_metrics_view *view = NULL;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        (void)snprintf(path, sizeof(path), "%s/metrics.ring", directory);
        struct sl_metrics *metrics = open_page(path, 64);

        for (uint32_t i = 0; i < 100; i++) {
            sl_trace_event(metrics, i, 1 + i % 2, "event", "peer", i);
        }

        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_OK);
        ck_assert_int_eq(sl_metrics_view_events(view, 2, &records, &count, NULL), SL_OK);
        ck_assert_uint_eq(count, 32);
        for (size_t i = 0; i < count; i++) {
            ck_assert_uint_eq(records[i].value, 37 + 2 * i);
            ck_assert_str_eq(records[i].what, "event");
        }
        free(records);
        sl_metrics_view_close(&view);
        sl_metrics_close(&metrics);
    }
END_TEST

START_TEST(foreign_or_short_page_is_refused)
    {
        char path[80];
        struct sl_metrics_view *view = NULL;
        (void)snprintf(path, sizeof(path), "%s/metrics.bad", directory);
        FILE *file = fopen(path, "w");
        (void)fputs("short", file);
        (void)fclose(file);
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_ERR_CORRUPT);
        ck_assert_int_eq(truncate(path, 1 << 20), 0);
        ck_assert_int_eq(sl_metrics_view_open(path, &view, NULL), SL_ERR_FOREIGN);
        ck_assert_int_eq(sl_metrics_view_open("/nonexistent/page", &view, NULL), SL_ERR_NOT_FOUND);
    }
END_TEST

/* ---------------------------------------------------------------- loop */

struct seen {
    struct sl_loop *loop;
    int fds, timers, deaths, signals, wakes;
    uint64_t stepped_ns;
};

static void on_fd(void *context, int fd, uint32_t events)
{
    struct seen *seen = context;
    char byte = 0;
    ck_assert((events & SL_LOOP_READ) != 0);
    ck_assert_int_eq(read(fd, &byte, 1), 1);
    seen->fds++;
    sl_loop_fd_remove(seen->loop, fd); /* its own source, while it is called */
}

static void on_timer(void *context, uint64_t now_ns)
{
    (void)now_ns;
    ((struct seen *)context)->timers++;
}

static void on_death(void *context, struct sl_proc_id proc)
{
    (void)proc;
    ((struct seen *)context)->deaths++;
}

static void on_signal(void *context, int number)
{
    ck_assert_int_eq(number, SIGUSR1);
    ((struct seen *)context)->signals++;
}

static void on_wake(void *context)
{
    ((struct seen *)context)->wakes++;
}

static uint64_t stepped(void *context)
{
    return ((struct seen *)context)->stepped_ns;
}

static struct sl_loop *loop_for(struct seen *seen, bool step)
{
    struct sl_loop_options options = {.fds_max = 4,
                                      .timers_max = 2,
                                      .processes_max = 2,
                                      .now_ns = step ? stepped : NULL,
                                      .now_context = seen};
    ck_assert_int_eq(sl_loop_create(&options, &seen->loop, NULL), SL_OK);
    return seen->loop;
}

START_TEST(loop_reports_descriptors_signals_and_wakes)
    {
        struct seen seen = {0};
        struct sl_loop *loop = loop_for(&seen, false);
        int signals[] = {SIGUSR1};
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(sl_loop_fd_add(loop, ends[0], SL_LOOP_READ, on_fd, &seen, NULL), SL_OK);
        ck_assert_int_eq(sl_loop_fd_add(loop, ends[0], SL_LOOP_READ, on_fd, &seen, NULL),
                         SL_ERR_EXISTS);
        ck_assert_int_eq(sl_loop_signals(loop, signals, 1, on_signal, &seen, NULL), SL_OK);
        sl_loop_on_wake(loop, on_wake, &seen);

        ck_assert_int_eq(write(ends[1], "ab", 2), 2);
        ck_assert_int_eq(raise(SIGUSR1), 0);
        sl_loop_wake(loop);
        ck_assert_int_eq(sl_loop_turn(loop, SL_NS_PER_S, NULL), SL_OK);
        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);

        ck_assert_int_eq(seen.fds, 1);
        ck_assert_int_eq(seen.signals, 1);
        ck_assert_int_eq(seen.wakes, 1);
        sl_loop_destroy(&loop);
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
END_TEST

/* Stands for a mailbox: one epoll that contains the loop's descriptor. */
struct outer {
    struct sl_loop *loop;
    int epoll_fd;
    uint64_t wait_ns; /* of the last wait */
    uint32_t waits;
};

static bool outer_wait(void *context, uint64_t wait_ns)
{
    struct outer *outer = context;
    struct epoll_event event;
    outer->wait_ns = wait_ns;
    outer->waits++;
    return epoll_wait(outer->epoll_fd, &event, 1, (int)(wait_ns / SL_NS_PER_MS)) == 1;
}

START_TEST(loop_that_others_wait_for_hears_what_is_its_own)
    {
        struct seen seen = {0};
        struct outer outer = {.loop = loop_for(&seen, false), .epoll_fd = epoll_create1(0)};
        struct epoll_event event = {.events = EPOLLIN};
        struct sl_loop *loop = outer.loop;
        int ends[2];
        ck_assert_int_eq(epoll_ctl(outer.epoll_fd, EPOLL_CTL_ADD, sl_loop_fd(loop), &event), 0);
        sl_loop_set_wait(loop, outer_wait, &outer);
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(sl_loop_fd_add(loop, ends[0], SL_LOOP_READ, on_fd, &seen, NULL), SL_OK);
        sl_loop_on_wake(loop, on_wake, &seen);

        ck_assert_int_eq(sl_loop_turn(loop, 3 * SL_NS_PER_MS, NULL), SL_OK); /* no event arrives */
        ck_assert_int_eq(seen.fds, 0);
        ck_assert_uint_le(outer.wait_ns, 3 * SL_NS_PER_MS);
        ck_assert_uint_gt(outer.wait_ns, 0);
        ck_assert_int_eq(write(ends[1], "a", 1), 1);
        sl_loop_wake(loop);
        ck_assert_int_eq(sl_loop_turn(loop, 5 * SL_NS_PER_S, NULL), SL_OK);

        ck_assert_int_eq(seen.fds, 1);
        ck_assert_int_eq(seen.wakes, 1);
        ck_assert_uint_eq(outer.waits, 2);
        sl_loop_destroy(&loop);
        (void)close(outer.epoll_fd);
        (void)close(ends[0]);
        (void)close(ends[1]);
    }
END_TEST

/* Acts like filters of containers that are older than the call. */
static bool pwait2_refuse(int code)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = SL_COUNT(rules), .filter = rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* 0: a wait without events lasts its time, and one with events returns them; else the number of the
 * failed check. */
static int waits_check(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7}, got = {0};
    int epoll_fd = epoll_create1(0), bell = eventfd(0, EFD_NONBLOCK);
    uint64_t one = 1, began_ns = sl_clock_monotonic_ns();
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell, &event) != 0) {
        return 1;
    }
    for (uint64_t wait_ns = 0; wait_ns <= 2 * SL_NS_PER_MS; wait_ns += SL_NS_PER_MS) {
        if (sl_epoll_wait(epoll_fd, &got, 1, wait_ns) != 0) {
            return 2;
        }
    }
    if (sl_clock_monotonic_ns() - began_ns < 3 * SL_NS_PER_MS) {
        return 3;
    }
    for (uint64_t wait_ns = 0; wait_ns <= SL_NS_PER_S; wait_ns += SL_NS_PER_S) {
        if (write(bell, &one, sizeof(one)) != sizeof(one) ||
            sl_epoll_wait(epoll_fd, &got, 1, wait_ns) != 1 || got.data.u32 != 7) {
            return 4;
        }
    }
    return sl_clock_monotonic_ns() - began_ns < SL_NS_PER_S ? 0 : 5;
}

START_TEST(epoll_waits_where_its_newest_call_is_refused)
    {
        static const int codes[] = {0, ENOSYS, EPERM};
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            bool refused = codes[_i] == 0 || pwait2_refuse(codes[_i]);
            _exit(refused ? waits_check() : 77);
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    }
END_TEST

START_TEST(clients_of_one_process_are_known_by_it_and_a_fork_is_another)
    {
        const struct sl_proc_id one = sl_proc_id_client(), other = sl_proc_id_client();
        struct sl_proc_id of_child = {0};
        int pair[2];
        ck_assert_int_eq(pipe(pair), 0);
        pid_t child = fork();
        if (child == 0) {
            of_child = sl_proc_id_client();
            _exit(write(pair[1], &of_child, sizeof(of_child)) == (ssize_t)sizeof(of_child) ? 0 : 1);
        }
        ck_assert_int_eq(read(pair[0], &of_child, sizeof(of_child)), sizeof(of_child));
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        (void)close(pair[0]);
        (void)close(pair[1]);

        ck_assert_uint_eq(sl_proc_id_process(one), sl_proc_id_process(other));
        ck_assert_uint_ne(one.start_time, other.start_time);
        ck_assert_uint_ne(sl_proc_id_process(one), sl_proc_id_process(of_child));
        ck_assert_uint_eq(sl_proc_id_process(own_id()), 0);
        ck_assert(sl_proc_id_is_client(one) && sl_proc_id_is_client(of_child));
    }
END_TEST

START_TEST(loop_notices_deaths_late_and_early)
    {
        struct seen seen = {0};
        struct sl_loop *loop = loop_for(&seen, false);
        struct sl_proc_id id = {.pid = 0};
        pid_t child = fork();
        if (child == 0) {
            (void)pause();
            _exit(0);
        }
        ck_assert_int_eq(sl_proc_id_of((uint32_t)child, &id, NULL), SL_OK);
        ck_assert_int_eq(sl_loop_process_watch(loop, id, on_death, &seen, NULL), SL_OK);
        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);
        ck_assert_int_eq(seen.deaths, 0);

        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(sl_loop_turn(loop, 5 * SL_NS_PER_S, NULL), SL_OK);
        ck_assert_int_eq(seen.deaths, 1);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_int_eq(sl_loop_process_watch(loop, id, on_death, &seen, NULL),
                         SL_OK); /* gone already */
        ck_assert_int_eq(sl_loop_turn(loop, 5 * SL_NS_PER_S, NULL), SL_OK);
        ck_assert_int_eq(seen.deaths, 2);
        sl_loop_destroy(&loop);
    }
END_TEST

START_TEST(timers_run_when_due_and_once)
    {
        struct seen seen = {.stepped_ns = 100};
        struct sl_loop *loop = loop_for(&seen, true);
        sl_loop_timer timer = 0;
        ck_assert_int_eq(sl_loop_timer_create(loop, on_timer, &seen, &timer, NULL), SL_OK);
        sl_loop_timer_set(loop, timer, 200);

        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);
        ck_assert_int_eq(seen.timers, 0);
        seen.stepped_ns = 200;
        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);
        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);
        ck_assert_int_eq(seen.timers, 1);
        sl_loop_timer stale = timer;
        sl_loop_timer_destroy(loop, &timer);
        sl_loop_timer_set(loop, stale, 1); /* harmless */
        ck_assert_int_eq(sl_loop_turn(loop, 0, NULL), SL_OK);
        ck_assert_int_eq(seen.timers, 1);
        sl_loop_destroy(&loop);
    }
END_TEST

START_TEST(full_loop_says_so)
    {
        struct seen seen = {0};
        struct sl_loop *loop = loop_for(&seen, false);
        sl_loop_timer timers[3] = {0};
        int fds[5];
        ck_assert_int_eq(sl_loop_timer_create(loop, on_timer, &seen, &timers[0], NULL), SL_OK);
        ck_assert_int_eq(sl_loop_timer_create(loop, on_timer, &seen, &timers[1], NULL), SL_OK);
        ck_assert_int_eq(sl_loop_timer_create(loop, on_timer, &seen, &timers[2], NULL),
                         SL_ERR_LIMIT);
        for (int i = 0; i < 5; i++) {
            int ends[2];
            ck_assert_int_eq(pipe(ends), 0);
            fds[i] = ends[0];
            ck_assert_int_eq(sl_loop_fd_add(loop, fds[i], SL_LOOP_READ, on_fd, &seen, NULL),
                             i < 4 ? SL_OK : SL_ERR_LIMIT);
            (void)close(ends[1]);
        }
        sl_loop_destroy(&loop);
        for (int i = 0; i < 5; i++) {
            (void)close(fds[i]);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("runtime");
    TCase *basics = tcase_create("basics");
    tcase_add_loop_test(basics, os_code_becomes_code_and_text, 0, (int)SL_COUNT(os_codes));
    tcase_add_test(basics, a_file_system_that_a_unit_may_not_write_says_what_opens_it);
    tcase_add_test(basics, every_code_has_name_text_and_class);
    tcase_add_test_raise_signal(basics, failed_assertion_aborts, SIGABRT);
    tcase_add_test(basics, deadlines_saturate);
    tcase_add_test(basics, ended_process_is_not_found_also_while_a_zombie);
    tcase_add_test(basics, clients_of_one_process_are_known_by_it_and_a_fork_is_another);
    tcase_add_test(basics, pidfd_is_refused_for_another_start_time);
    tcase_add_loop_test(basics, digest_has_one_value_whichever_way_it_is_made, 0,
                        (int)SL_COUNT(digest_sizes));
    suite_add_tcase(suite, basics);
    TCase *config = tcase_create("config");
    tcase_add_checked_fixture(config, make_directory, remove_directory);
    tcase_add_loop_test(config, good_value_is_understood, 0, (int)SL_COUNT(good_values));
    tcase_add_loop_test(config, bad_value_is_refused_by_name_and_changes_nothing, 0,
                        (int)SL_COUNT(bad_values));
    tcase_add_loop_test(config, config_file_errors_name_file_line_and_key, 0, (int)SL_COUNT(files));
    tcase_add_test(config, engines_names_are_understood_and_give_way);
    tcase_add_test(config, command_line_beats_environment_beats_default);
    tcase_add_loop_test(config, bad_command_line_is_refused_by_name, 0, (int)SL_COUNT(bad_words));
    tcase_add_test(config, unknown_variable_of_ours_is_refused_by_name);
    tcase_add_test(config, open_directory_and_bad_instance_are_refused);
    tcase_add_test(config, log_lines_are_json_limited_in_rate_and_errors_get_through);
    tcase_add_test(config, logs_of_several_processes_stay_under_their_bound);
    tcase_add_test(config, a_log_without_a_bound_goes_on_in_its_file);
    tcase_add_test(config, counters_survive_the_process_and_are_read_by_others);
    tcase_add_test(config, recorder_keeps_the_newest_events_in_order);
    tcase_add_test(config, foreign_or_short_page_is_refused);
    suite_add_tcase(suite, config);
    TCase *loop = tcase_create("loop");
    tcase_set_timeout(loop, 20);
    tcase_add_test(loop, loop_reports_descriptors_signals_and_wakes);
    tcase_add_test(loop, loop_that_others_wait_for_hears_what_is_its_own);
    tcase_add_loop_test(loop, epoll_waits_where_its_newest_call_is_refused, 0, 3);
    tcase_add_test(loop, loop_notices_deaths_late_and_early);
    tcase_add_test(loop, timers_run_when_due_and_once);
    tcase_add_test(loop, full_loop_says_so);
    suite_add_tcase(suite, loop);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
