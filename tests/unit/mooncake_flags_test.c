/* tests/unit/mooncake_flags_test.c - how mooncake_master and mooncake_client are told what to do.
 */
#include "client/mooncake/daemons/client_flags.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 8

static struct mc_flags *master_flags(void)
{
    struct mc_flags *flags = NULL;
    ck_assert_int_eq(mc_flags_create(mc_master_flags, MASTER_COUNT, &flags, NULL), SL_OK);
    return flags;
}

/* words: what follows the program's name, up to a NULL. */
static sl_err parse(struct mc_flags *flags, const char *const *words, struct sl_error *why)
{
    char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "mooncake_master"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    }
    return mc_flags_parse(flags, argc, argv, why);
}

START_TEST(defaults_are_those_of_the_tables)
    {
        struct mc_flags *flags = master_flags();
        struct mc_flags *client = NULL;
        ck_assert_int_eq(mc_flags_create(mc_client_flags, CLIENT_COUNT, &client, NULL), SL_OK);

        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_port), 50051);
        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_metrics_port), 9003);
        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_default_kv_lease_ttl), 10 * SL_NS_PER_S);
        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_max_kv_soft_pin_ttl), 86400 * SL_NS_PER_S);
        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_put_start_discard_timeout_sec),
                          30 * SL_NS_PER_S);
        ck_assert_double_eq(mc_flags_real(flags, MASTER_eviction_high_watermark_ratio), 0.9);
        ck_assert(!mc_flags_bool(flags, MASTER_enable_offload));
        ck_assert(!mc_flags_given(flags, MASTER_port));
        ck_assert_uint_eq(mc_flags_u64(client, CLIENT_global_segment_size), 4 * SL_GIB);

        mc_flags_destroy(&client);
        mc_flags_destroy(&flags);
    }
END_TEST

static const struct {
    const char *words[WORDS_MAX];
    uint32_t flag;
    uint64_t want;
} good[] = {
    {{"--port=1234"}, MASTER_port, 1234},
    {{"--memory", "1.5 GB"}, MASTER_memory, 1536 * SL_MIB},
    {{"-port", "1234"}, MASTER_port, 1234},
    {{"--metrics-port", "1234"}, MASTER_metrics_port, 1234},
    {{"-metrics_port=7", "--metrics-port=8"}, MASTER_metrics_port, 8}, /* the last one wins */
    {{"--enable_offload"}, MASTER_enable_offload, 1},
    {{"-enable-offload=TRUE"}, MASTER_enable_offload, 1},
    {{"--enable_offload=n"}, MASTER_enable_offload, 0},
    {{"--enable_offload", "--noenable_offload"}, MASTER_enable_offload, 0},
    {{"--noenable-offload", "--enable_offload=1"}, MASTER_enable_offload, 1},
    {{"--default_kv_lease_ttl=500"}, MASTER_default_kv_lease_ttl, 500 * SL_NS_PER_MS},
    {{"--default_kv_lease_ttl=500ms"}, MASTER_default_kv_lease_ttl, 500 * SL_NS_PER_MS},
    {{"--default_kv_lease_ttl", "5s"}, MASTER_default_kv_lease_ttl, 5 * SL_NS_PER_S},
    {{"--default_kv_lease_ttl=2m"}, MASTER_default_kv_lease_ttl, 120 * SL_NS_PER_S},
    {{"--default_kv_lease_ttl=1h"}, MASTER_default_kv_lease_ttl, 3600 * SL_NS_PER_S},
    {{"--default_kv_lease_ttl=0"}, MASTER_default_kv_lease_ttl, 0},
    {{"--put_start_discard_timeout_sec=2"}, MASTER_put_start_discard_timeout_sec, 2 * SL_NS_PER_S},
    {{"--put_start_discard_timeout_sec=1500ms"},
     MASTER_put_start_discard_timeout_sec,
     1500 * SL_NS_PER_MS},
    {{"--memory=16"}, MASTER_memory, 16},
    {{"--memory=16 MB"}, MASTER_memory, 16 * SL_MIB},
    {{"--memory", "2g"}, MASTER_memory, 2 * SL_GIB},
    {{"--port=1", "--rpc-port=2"}, MASTER_rpc_port, 2},
};
START_TEST(values_come_in_every_form)
    {
        struct mc_flags *flags = master_flags();
        struct sl_error why = {0};

        sl_err err = parse(flags, good[_i].words, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        uint64_t got = mc_master_flags[good[_i].flag].kind == MC_BOOL
                           ? mc_flags_bool(flags, good[_i].flag)
                           : mc_flags_u64(flags, good[_i].flag);
        ck_assert_uint_eq(got, good[_i].want);
        ck_assert(mc_flags_given(flags, good[_i].flag));
        mc_flags_destroy(&flags);
    }
END_TEST

static const struct {
    const char *words[WORDS_MAX];
    const char *text; /* what the error says */
} bad[] = {
    {{"--metrcs_port=1"}, "unknown flag 'metrcs_port'; the nearest known one is --metrics_port"},
    {{"--evict_ratio=1"}, "--eviction_ratio"},
    {{"--nometrics_port"}, "unknown flag"},
    {{"--port"}, "--port needs a value"},
    {{"--port="}, "'' is not a whole number"},
    {{"--port=-1"}, "not a whole number"},
    {{"--port= 1"}, "not a whole number"},
    {{"--port=1x"}, "not a whole number"},
    {{"--port=0"}, "'0' is not in 1..65535"},
    {{"--port=65536"}, "not in 1..65535"},
    {{"--port=99999999999999999999999"}, "not a whole number"},
    {{"--enable_offload=flase"}, "'flase' is not true or false"},
    {{"--enable_offload", "false"}, "'false' is no flag"},
    {{"--eviction_ratio=1.5"}, "not in 0..1"},
    {{"--eviction_ratio=nan"}, "not a number"},
    {{"--eviction_ratio=0.5x"}, "not a number"},
    {{"--default_kv_lease_ttl=5 s"}, "not a duration"},
    {{"--default_kv_lease_ttl=5d"}, "not a duration"},
    {{"--default_kv_lease_ttl=18446744073709551615h"}, "not a duration"},
    {{"--memory=50%"}, "is not bytes"},
    {{"--memory=18446744073709551615k"}, "is not bytes"},
    {{"--allocation_strategy=fastest"}, "'fastest' is none of: random"},
    {{"--rpc_interface=a-name-that-is-too-long"}, "longer than 15 bytes"},
    {{"word"}, "'word' is no flag"},
    {{"--"}, "'--' is no flag"},
    {{"---port=1"}, "is no flag"},
    {{"--a_name_that_is_so_long_that_no_flag_of_any_program_could_ever_have_it=1"}, "unknown flag"},
    {{"--config_path=/nowhere/x.json"}, "/nowhere/x.json"},
    {{"--config_path=/nowhere/x.toml"}, "must end in .json, .yaml or .yml"},
};
START_TEST(what_is_wrong_is_named)
    {
        struct mc_flags *flags = master_flags();
        struct sl_error why = {0};

        sl_err err = parse(flags, bad[_i].words, &why);

        ck_assert_int_ne(err, SL_OK);
        ck_assert_msg(strstr(why.text, bad[_i].text) != NULL, "%s", why.text);
        mc_flags_destroy(&flags);
    }
END_TEST

START_TEST(help_and_version_are_left_to_the_caller)
    {
        static const char *const words[][2] = {{"--help"}, {"-h"}, {"-help"}, {"--version"}};
        for (size_t i = 0; i < SL_COUNT(words); i++) {
            struct mc_flags *flags = master_flags();
            struct sl_error why = {0};
            ck_assert_int_eq(parse(flags, words[i], &why), SL_ERR_CANCELLED);
            ck_assert_str_eq(why.text, i == 3 ? "version" : "help");
            mc_flags_destroy(&flags);
        }
    }
END_TEST

START_TEST(help_lists_every_flag)
    {
        struct mc_flags *flags = master_flags();
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);

        mc_flags_print_help(flags, out);

        (void)fclose(out);
        for (uint32_t i = 0; i < MASTER_COUNT; i++) {
            char line[200];
            (void)snprintf(line, sizeof line, "--%s=", mc_master_flags[i].name);
            ck_assert_msg(strstr(text, line) != NULL, "%s", line);
        }
        free(text);
        mc_flags_destroy(&flags);
    }
END_TEST

static void count_ignored(void *context, const struct mc_flag *flag, const char *value)
{
    uint32_t *count = context;
    (void)value;
    ck_assert_str_eq(flag->name, *count == 0 ? "max_threads" : "enable_ha");
    *count += 1;
}

START_TEST(what_means_nothing_is_told_when_it_is_not_the_default)
    {
        static const char *const words[] = {
            "--enable_ha", "--max_threads=8",
            "--client_ttl=10000ms", /* the default, written otherwise */
            "--port=7", NULL};
        struct mc_flags *flags = master_flags();
        uint32_t count = 0;
        ck_assert_int_eq(parse(flags, words, NULL), SL_OK);

        mc_flags_ignored(flags, count_ignored, &count);

        ck_assert_uint_eq(count, 2);
        mc_flags_destroy(&flags);
    }
END_TEST

/* ---- files ---- */

static const struct {
    const char *name, *text;
    const char *error; /* NULL: port 7, offload, lease of 5 s */
} files[] = {
    {"a.json", "{\"port\": 7, \"enable_offload\": true, \"default_kv_lease_ttl\": \"5s\"}", NULL},
    {"a.json", "{\"port\": \"7\", \"enable-offload\": \"yes\", \"default_kv_lease_ttl\": 5000}",
     NULL},
    {"a.json", "{\"prt\": 7}", "unknown flag 'prt'; the nearest known one is --port"},
    {"a.json", "{\"port\": 70000}", "'70000' is not in"},
    {"a.json", "{\"port\": [7]}", "port: neither text, number nor boolean"},
    {"a.json", "{\"port\": null}", "port: neither"},
    {"a.json", "{\"port\": 1, \"port\": 2}", "duplicate"},
    {"a.json", "[7]", "no JSON object"},
    {"a.json", "{\"port\": 7", "a.json:1"},
    {"a.json", "", "a.json:1"},
    {"a.json", "{\"root_fs_dir\": \"a\\u0000b\"}", "zero byte"},
#ifdef SL_HAVE_YAML
    {"a.yaml", "# a comment\nport: 7\nenable_offload: true\ndefault_kv_lease_ttl: 5s\n", NULL},
    {"a.yml", "{port: 7, enable_offload: on, default_kv_lease_ttl: 5000}", NULL},
    {"a.yaml", "port: 7\nprt: 8\n", "a.yaml:2: unknown flag 'prt'"},
    {"a.yaml", "port: [7]\n", "a.yaml:1: neither text"},
    {"a.yaml", "port:\n  deep: 7\n", "neither text"},
    {"a.yaml", "a: &x 1\nport: *x\n", "unknown flag 'a'"},
    {"a.yaml", "port: 7\n\t- x: [\n", "a.yaml:2"},
    {"a.yaml", "just a text\n", "`name: value`"},
#else
    {"a.yaml", "port: 7\n", "without libyaml"},
#endif
};
START_TEST(files_are_read_strictly)
    {
        struct sl_tmpdir tmp;
        char path[128], word[160];
        sl_tmpdir_make(&tmp, "/tmp");
        sl_tmpdir_write(sl_tmpdir_at(&tmp, files[_i].name, path, sizeof path), files[_i].text,
                        strlen(files[_i].text));
        (void)snprintf(word, sizeof word, "--config_path=%s", path);
        const char *const words[] = {word, NULL};
        struct mc_flags *flags = master_flags();
        struct sl_error why = {0};

        sl_err err = parse(flags, words, &why);

        if (files[_i].error != NULL) {
            ck_assert_int_ne(err, SL_OK);
            ck_assert_msg(strstr(why.text, files[_i].error) != NULL, "%s", why.text);
        } else {
            ck_assert_msg(err == SL_OK, "%s", why.text);
            ck_assert_uint_eq(mc_flags_u64(flags, MASTER_port), 7);
            ck_assert(mc_flags_bool(flags, MASTER_enable_offload));
            ck_assert_uint_eq(mc_flags_u64(flags, MASTER_default_kv_lease_ttl), 5 * SL_NS_PER_S);
        }
        mc_flags_destroy(&flags);
        sl_tmpdir_remove(&tmp);
    }
END_TEST

START_TEST(the_command_line_wins_over_the_file)
    {
        struct sl_tmpdir tmp;
        char path[128], word[160];
        static const char text[] = "{\"port\": 7, \"metrics_port\": 8}";
        sl_tmpdir_make(&tmp, "/tmp");
        sl_tmpdir_write(sl_tmpdir_at(&tmp, "a.json", path, sizeof path), text, strlen(text));
        (void)snprintf(word, sizeof word, "--config-path=%s", path);
        const char *const words[] = {"--port=9", word, NULL};
        struct mc_flags *flags = master_flags();

        ck_assert_int_eq(parse(flags, words, NULL), SL_OK);

        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_port), 9);
        ck_assert_uint_eq(mc_flags_u64(flags, MASTER_metrics_port), 8);
        mc_flags_destroy(&flags);
        sl_tmpdir_remove(&tmp);
    }
END_TEST

START_TEST(a_file_that_is_too_large_is_refused)
    {
        struct sl_tmpdir tmp;
        char path[128], word[160];
        size_t length = (1u << 20) + 1;
        char *text = malloc(length);
        ck_assert_ptr_nonnull(text);
        memset(text, ' ', length);
        sl_tmpdir_make(&tmp, "/tmp");
        sl_tmpdir_write(sl_tmpdir_at(&tmp, "a.json", path, sizeof path), text, length);
        (void)snprintf(word, sizeof word, "--config_path=%s", path);
        const char *const words[] = {word, NULL};
        struct mc_flags *flags = master_flags();
        struct sl_error why = {0};

        ck_assert_int_eq(parse(flags, words, &why), SL_ERR_CONFIG);

        ck_assert_msg(strstr(why.text, "larger than 1 MiB") != NULL, "%s", why.text);
        mc_flags_destroy(&flags);
        sl_tmpdir_remove(&tmp);
        free(text);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("mooncake_flags");
    TCase *cases = tcase_create("flags");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, defaults_are_those_of_the_tables);
    tcase_add_loop_test(cases, values_come_in_every_form, 0, SL_COUNT(good));
    tcase_add_loop_test(cases, what_is_wrong_is_named, 0, SL_COUNT(bad));
    tcase_add_test(cases, help_and_version_are_left_to_the_caller);
    tcase_add_test(cases, help_lists_every_flag);
    tcase_add_test(cases, what_means_nothing_is_told_when_it_is_not_the_default);
    tcase_add_loop_test(cases, files_are_read_strictly, 0, SL_COUNT(files));
    tcase_add_test(cases, the_command_line_wins_over_the_file);
    tcase_add_test(cases, a_file_that_is_too_large_is_refused);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
