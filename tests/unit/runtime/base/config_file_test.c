/* tests/unit/runtime/base/config_file_test.c - the syntax of a settings file: accepted files and
 * error texts. */
#include "runtime/base/sl_config.h"
#include "tests/support/tmpdir.h"

#include <check.h>
#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sl_tmpdir tmpdir;
static char path[128];

static void setup(void)
{
    sl_tmpdir_make(&tmpdir, "/tmp");
    sl_tmpdir_at(&tmpdir, "node.conf", path, sizeof path);
}

static void teardown(void)
{
    sl_tmpdir_remove(&tmpdir);
}

static sl_err load(const char *text, struct sl_config **config, struct sl_error *why)
{
    sl_tmpdir_write(path, text, strlen(text));
    ck_assert_int_eq(sl_config_create(config, NULL), SL_OK);
    return sl_config_load(*config, path, 0, NULL, NULL, why);
}

static const struct {
    const char *text;
    uint32_t ranks;      /* 1: the default */
    uint32_t line;       /* where ranks was set */
    const char *log_dir; /* NULL: not set */
} good[] = {
    {"", 1, 0, NULL},
    {"ranks = 3", 3, 1, NULL},
    {"\xef\xbb\xbf"
     "ranks = 3",
     3, 1, NULL}, /* Windows begins a file with this mark */
    {"\xef\xbb\xbf# c\nranks = 3", 3, 2, NULL},
    {"\n\n  ranks\t=\t3  \n", 3, 3, NULL},
    {"memory=2GiB\nranks=3\nlog_dir=/x\n", 3, 2, "/x"},
    {"ranks = 3\r\nlog_dir = /x\r\n", 3, 1, "/x"},
    {"ranks = 3\nranks = 4\n", 4, 2, NULL},
    {"op-timeout = 3s\nranks = 3\n", 3, 2, NULL},
    /* comments */
    {"# c\n## c\n#c\n\nranks = 3", 3, 5, NULL},
    {"ranks = 3 # c\nlog_dir = /a # c\n", 3, 1, "/a"},
    {"log_dir = /a#b\n#c\n\t# c\nranks = 3\t#c", 3, 4, "/a#b"},
    {"ranks = 3 # \\\nlog_dir = /x", 3, 1, "/x"},
    /* a value is the rest of its line, as after SLUICE_NAME= */
    {"log_dir = /a,/b rankz = 3", 1, 0, "/a,/b rankz = 3"},
    {"log_dir = /a  b # c", 1, 0, "/a  b"},
    {"log_dir = /a=b{c}(d) 'f' + * =x", 1, 0, "/a=b{c}(d) 'f' + * =x"},
    {"log_dir = /a ranks", 1, 0, "/a ranks"},
    {"log_dir = /it's \"so\"", 1, 0, "/it's \"so\""},
    {"log_dir = /a//b/*c", 1, 0, "/a//b/*c"},
    {"log_dir = '/a // c' # d", 1, 0, "/a // c"},
    {"log_dir =\nranks = 3", 3, 2, ""},
    /* words */
    {"log_dir = /a//b", 1, 0, "/a//b"},
    {"log_dir = /a\\b", 1, 0, "/a\\b"},
    {"log_dir = /\xc3\xbc", 1, 0, "/\xc3\xbc"},
    /* quotes */
    {"ranks = \"3\"\nlog_dir='/a b' # c", 3, 1, "/a b"},
    {"log_dir = \"/a # b // c /* d\" # e\nranks = 3", 3, 2, "/a # b // c /* d"},
    {"log_dir = '/a \\' \\\\ \\n ${HOME}'", 1, 0, "/a ' \\ \\n ${HOME}"},
    {"log_dir = \"/\\\"\\\\\\${HOME}\"", 1, 0, "/\"\\${HOME}"},
    /* the environment */
    {"log_dir = ${SL_HERE}\nranks = 3", 3, 2, "/here"},
    {"log_dir = \"${SL_HERE}/x\"", 1, 0, "/here/x"},
    {"log_dir = \"${SL_NOT_SET:-/there}/x${SL_NOT_SET}\"", 1, 0, "/there/x"},
    {"log_dir = \"/$x ${y\"", 1, 0, "/$x ${y"},
    {"log_dir = ${SL_HERE}/x,${SL_HERE}", 1, 0, "/here/x,${SL_HERE}"},
};

START_TEST(file_is_accepted)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        char line[24];
        ck_assert_int_eq(setenv("SL_HERE", "/here", 1), 0);

        sl_err err = load(good[_i].text, &config, &why);

        ck_assert_msg(err == SL_OK, "%s", why.text);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), good[_i].ranks);
        (void)snprintf(line, sizeof line, "node.conf:%u", good[_i].line);
        ck_assert_ptr_nonnull(
            strstr(sl_config_source(config, SL_SET_ranks), good[_i].line != 0 ? line : "default"));
        ck_assert_str_eq(sl_config_text(config, SL_SET_log_dir),
                         good[_i].log_dir != NULL ? good[_i].log_dir : "");
        sl_config_destroy(&config);
    }
END_TEST

static const struct {
    const char *text;
    const char *complaint;
} bad[] = {
    {"\n\nrankz = 3 # c\n", "node.conf:3: unknown setting 'rankz'"},
    {"# c\nmemory = 5XB\n", "node.conf:2: memory: '5XB': unknown unit 'XB'"},
    {"# c\n\nranks 3\n", "node.conf:3: missing equal sign after option 'ranks' in 'ranks 3'"},
    {"ranks += 3\n", "node.conf:1: missing equal sign after option 'ranks'"},
    {"ranks\n= 3\n", "node.conf:1: missing equal sign after option 'ranks' in 'ranks'"},
    {"ranks =\nmemory = 2GiB\n", "node.conf:1: ranks: '' is no number"},
    {"ranks = # 3\n", "node.conf:1: ranks: '' is no number"},
    {"ranks = = 3\n", "node.conf:1: ranks: '= 3' is no number"},
    {"ranks = {3}\n", "node.conf:1: ranks: '{3}' is no number"},
    {"ranks = 3 rankz = 4\n", "node.conf:1: ranks: '3 rankz = 4' is no whole number"},
    {"ranks = '3' rankz = 4\n", "node.conf:1: 'rankz = 4' follows the value's quotes"},
    {"log_dir = \"/a\"b\n", "node.conf:1: 'b' follows the value's quotes"},
    {"ranks = 3\n}\n", "node.conf:2: unknown setting '}'"},
    {"[node]\n", "node.conf:1: unknown setting '[node]'"},
    {"ranks = 3;\n", "node.conf:1: ranks: '3;' is no whole number"},
    {"/* c */\n", "node.conf:1: unknown setting '/*'"},
    {"log_dir = /a // c\n", "node.conf:1: '//' is part of a value: put the value in quotes"},
    {"log_dir = // c\n", "node.conf:1: '//' is part of a value: put the value in quotes"},
    {"log_dir = /a /* c */\n", "node.conf:1: '/*' is part of a value: put the value in quotes"},
    {"log_dir = /a  ranks = 3\n", "node.conf:1: 'ranks' is part of a value: put the value in"},
    {"log_dir = /a op-timeout\t=3s\n", "node.conf:1: 'op-timeout' is part of a value: put the"},
    {"ranks = \"3\nmemory = 2GiB\"\n",
     "node.conf:1: unterminated string constant in 'ranks = \"3'"},
    {"ranks = '3\n", "node.conf:1: unterminated string constant"},
    {"log_dir = \"/a\\", "node.conf:1: unterminated string constant"},
    {"log_dir = \"/\\x41\"", "node.conf:1: bad escape sequence '\\x'"},
    {"log_dir = \"/\\t\"", "node.conf:1: bad escape sequence '\\t'"},
    {"log_dir = \"/\t\"", "node.conf:1: log_dir: control character 0x09"},
};

START_TEST(file_is_refused_with_line_and_reason)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};

        sl_err err = load(bad[_i].text, &config, &why);

        ck_assert_int_eq(err, SL_ERR_CONFIG);
        ck_assert_msg(strstr(why.text, bad[_i].complaint) != NULL, "%s", why.text);
        sl_config_destroy(&config);
    }
END_TEST

/* One text, in any position. */
static const struct {
    const char *name, *text, *want;
} everywhere[] = {
    {"disk_path", "/a,/b", "/a,/b"},
    {"disk_path", "/a#b", "/a#b"},
    {"disk_path", "\"/a # b\"", "/a # b"},
    {"disk_path", "'/a // b'", "/a // b"},
    {"disk_path", "\"/a \\\"b\\\"\"", "/a \"b\""},
    {"disk_path", "${SL_HERE}/disk", "/here/disk"},
    {"disk_path", "  /a  ", "/a"},
    {"peers", "a@10.0.0.1:1, b@[::1]:2", "a@10.0.0.1:1, b@[::1]:2"},
    {"directory_url", "unix:///run/x?db=2", "unix:///run/x?db=2"},
    {"nic", "mlx5_0,mlx5_1", "mlx5_0,mlx5_1"},
    {"op_timeout", "2 s", "2000000000"},
    {"op_timeout", "\"2 s\"", "2000000000"},
    {"memory", "1.5 GiB", "1610612736"},
    {"memory", "'2 GB'", "2000000000"},
    {"disk_direct", "\"off\"", "0"},
    {"evict_ratio", "'0.25'", "250000"},
    {"ranks", "\"8\"", "8"},
    /* refused alike */
    {"disk_path", "\"/a", NULL},
    {"disk_path", "'/a' b", NULL},
    {"ranks", "8 ranks", NULL},
    {"memory", "", NULL},
    {"memory", "1.5 GiB 2", NULL},
};

static void value_check(const struct sl_config *config, enum sl_setting setting, const char *want)
{
    char number[32];
    static const char *const texts[] = {"disk_path", "peers", "directory_url", "nic"};
    for (size_t i = 0; i < SL_COUNT(texts); i++) {
        if (strcmp(sl_setting_name(setting), texts[i]) == 0) {
            ck_assert_str_eq(sl_config_text(config, setting), want);
            return;
        }
    }
    uint64_t value = setting == SL_SET_disk_direct ? sl_config_bool(config, setting)
                                                   : sl_config_u64(config, setting);
    (void)snprintf(number, sizeof number, "%" PRIu64, value);
    ck_assert_str_eq(number, want);
}

START_TEST(value_reads_alike_in_file_environment_and_command_line)
    {
        enum sl_setting setting;
        const char *name = everywhere[_i].name, *want = everywhere[_i].want;
        char line[256], variable[64] = "SLUICE_", option[128], file[160];
        ck_assert(sl_setting_find(name, strlen(name), &setting));
        for (size_t i = 0; i <= strlen(name); i++) {
            variable[7 + i] = (char)toupper((unsigned char)name[i]);
        }
        (void)snprintf(option, sizeof option, "--%s=%s", name, everywhere[_i].text);
        (void)snprintf(line, sizeof line, "\n%s = %s\nrank = 1\n", name, everywhere[_i].text);
        (void)snprintf(file, sizeof file, "--config=%s", path);
        sl_tmpdir_write(path, line, strlen(line));
        char *arguments[][2] = {{"program", file}, {"program", option}, {"program", NULL}};
        for (size_t i = 0; i < SL_COUNT(arguments); i++) {
            struct sl_config *config = NULL;
            struct sl_error why = {0};
            ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
            ck_assert_int_eq(setenv("SL_HERE", "/here", 1), 0);
            if (i == 2) {
                ck_assert_int_eq(setenv(variable, everywhere[_i].text, 1), 0);
            }

            sl_err err = sl_config_load(config, NULL, i == 2 ? 1 : 2, arguments[i], NULL, &why);

            ck_assert_msg(err == (want != NULL ? SL_OK : SL_ERR_CONFIG), "%s %zu: %s", name, i,
                          why.text);
            if (want != NULL) {
                value_check(config, setting, want);
            }
            sl_config_destroy(&config);
        }
    }
END_TEST

START_TEST(removed_setting_is_refused_by_name_with_advice)
    {
        char line[] = "clients_window = 16MiB\n", file[160];
        char *arguments[][3] = {{"program", file, NULL},
                                {"program", "--clients-window=16MiB", NULL},
                                {"program", "--clients_window", "16MiB"},
                                {"program", NULL, NULL}};
        (void)snprintf(file, sizeof file, "--config=%s", path);
        sl_tmpdir_write(path, line, strlen(line));
        for (size_t i = 0; i < SL_COUNT(arguments); i++) {
            struct sl_config *config = NULL;
            struct sl_error why = {0};
            ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
            if (i == 3) {
                ck_assert_int_eq(setenv("SLUICE_CLIENTS_WINDOW", "16MiB", 1), 0);
            }

            sl_err err = sl_config_load(config, NULL,
                                        i == 3   ? 1
                                        : i == 2 ? 3
                                                 : 2,
                                        arguments[i], NULL, &why);

            ck_assert_int_eq(err, SL_ERR_CONFIG);
            ck_assert_msg(
                strstr(why.text,
                       "the setting 'clients_window' was removed: an engine of another user") !=
                    NULL,
                "%zu: %s", i, why.text);
            sl_config_destroy(&config);
        }
    }
END_TEST

/* Libraries for ini files cut lines, at 200 or at 1,024 bytes. */
START_TEST(longest_setting_fits_and_a_longer_one_is_named)
    {
        struct sl_config *config = NULL;
        struct sl_error why = {0};
        char text[6000] = "log_dir = \"/";
        size_t start = strlen(text);
        memset(text + start, 'x', SL_SETTING_TEXT_BYTES_MAX - 1);
        (void)strcpy(text + start + SL_SETTING_TEXT_BYTES_MAX - 1, "\"\nranks = 3");
        ck_assert_msg(load(text, &config, &why) == SL_OK, "%s", why.text);
        ck_assert_uint_eq(strlen(sl_config_text(config, SL_SET_log_dir)),
                          SL_SETTING_TEXT_BYTES_MAX);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 3);
        sl_config_destroy(&config);

        (void)strcpy(text + start + SL_SETTING_TEXT_BYTES_MAX - 1, "x\"");
        ck_assert_int_eq(load(text, &config, &why), SL_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(why.text, "out of range: 0 to 1023 characters"));
        sl_config_destroy(&config);

        memset(text + start, 'x', sizeof text - 1 - start);
        text[sizeof text - 1] = '\0';
        ck_assert_int_eq(load(text, &config, &why), SL_ERR_CONFIG);
        sl_config_destroy(&config);
    }
END_TEST

static void *load_often(void *context)
{
    char *arguments[] = {"program", "--ranks", "4", NULL};
    for (int i = 0; i < 200; i++) {
        struct sl_config *config = NULL;
        ck_assert_int_eq(sl_config_create(&config, NULL), SL_OK);
        ck_assert_int_eq(sl_config_load(config, context, 3, arguments, NULL, NULL), SL_OK);
        ck_assert_uint_eq(sl_config_u64(config, SL_SET_ranks), 4);
        ck_assert_str_eq(sl_config_text(config, SL_SET_log_dir), "/a \"b\"");
        sl_config_destroy(&config);
    }
    return NULL;
}

START_TEST(threads_load_without_a_lock)
    {
        struct sl_config *config = NULL;
        pthread_t threads[4];
        ck_assert_int_eq(load("# c\nlog_dir = \"/a \\\"b\\\"\"\nranks = 3\n", &config, NULL),
                         SL_OK);
        sl_config_destroy(&config);
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            ck_assert_int_eq(pthread_create(&threads[i], NULL, load_often, path), 0);
        }
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        }
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("config_file");
    TCase *tcase = tcase_create("config_file");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, file_is_accepted, 0, (int)SL_COUNT(good));
    tcase_add_loop_test(tcase, file_is_refused_with_line_and_reason, 0, (int)SL_COUNT(bad));
    tcase_add_loop_test(tcase, value_reads_alike_in_file_environment_and_command_line, 0,
                        (int)SL_COUNT(everywhere));
    tcase_add_test(tcase, removed_setting_is_refused_by_name_with_advice);
    tcase_add_test(tcase, longest_setting_fits_and_a_longer_one_is_named);
    tcase_add_test(tcase, threads_load_without_a_lock);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
