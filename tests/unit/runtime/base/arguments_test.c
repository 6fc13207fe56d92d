/* tests/unit/runtime/base/arguments_test.c - the walk over a command line, in the three styles of
 * its users. */
#include "runtime/base/sl_arguments.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum sl_option_takes option_find(const void *table, const char *name, size_t length,
                                        int *option)
{
    static const struct {
        const char *name;
        enum sl_option_takes takes;
    } rows[] = {
        {"disk_path", SL_OPTION_VALUE}, {"json", SL_OPTION_NOTHING}, {"on", SL_OPTION_MAYBE}};
    ck_assert_str_eq(table, "table");
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        if (sl_option_is(rows[i].name, name, length)) {
            *option = (int)i;
            return rows[i].takes;
        }
    }
    return SL_OPTION_UNKNOWN;
}

/* Formats the walk as text: a letter for the kind, the number of an option, the value or word. */
static void walk_text(enum sl_dash dash, char *words, char *out, size_t room)
{
    static const char kinds[] = "EWOUNX"; /* end, word, option, unknown, no value, unwanted */
    char *argv[16] = {(char[]){"program"}};
    int argc = 1;
    for (char *save = NULL, *at = strtok_r(words, " ", &save); at != NULL;
         at = strtok_r(NULL, " ", &save)) {
        argv[argc++] = at;
    }
    struct sl_arguments walk = {
        .argc = argc, .argv = argv, .dash = dash, .find = option_find, .table = "table", .at = 1};
    struct sl_argument got;
    enum sl_argument_kind kind;
    size_t length = 0;
    out[0] = '\0';
    while ((kind = sl_arguments_next(&walk, &got)) != SL_ARGUMENT_END) {
        const char *text = kind == SL_ARGUMENT_OPTION ? got.value : got.word;
        char number[8] = "";
        if (kind == SL_ARGUMENT_OPTION) {
            (void)snprintf(number, sizeof number, "%d", got.option);
        }
        length += (size_t)snprintf(out + length, room - length, "%s%c%s%s%s",
                                   length == 0 ? "" : " ", kinds[kind], number,
                                   text != NULL ? ":" : "", text != NULL ? text : "");
    }
}

static const struct {
    enum sl_dash dash;
    const char *words, *want;
} rows[] = {
    {SL_DASH_WORD, "", ""},
    {SL_DASH_WORD, "a --disk-path /x b", "W:a O0:/x W:b"},
    {SL_DASH_WORD, "--disk_path=/x=y --disk-path=", "O0:/x=y O0:"},
    {SL_DASH_WORD, "--disk-path --json", "O0:--json"},
    {SL_DASH_WORD, "--disk-path -- a", "O0:-- W:a"},
    {SL_DASH_WORD, "--disk-path", "N:--disk-path"},
    {SL_DASH_WORD, "--disk /x", "U:--disk W:/x"}, /* no beginnings of names */
    {SL_DASH_WORD, "--disk-paths=/x", "U:--disk-paths=/x"},
    {SL_DASH_WORD, "--json --json=1", "O1 X:--json=1"},
    {SL_DASH_WORD, "--on --on=no a", "O2 O2:no W:a"},
    {SL_DASH_WORD, "-json - -x", "W:-json W:- W:-x"},
    {SL_DASH_WORD, "--json -- --json -- a", "O1 W:--json W:-- W:a"},
    {SL_DASH_WORD, "--=5 ---json", "U:--=5 U:---json"},
    {SL_DASH_UNKNOWN, "-json - --json", "U:-json W:- O1"},
    {SL_DASH_UNKNOWN, "--json -- -x", "O1 W:-x"},
    {SL_DASH_OPTION, "-json --json ---json", "O1 O1 W:---json"},
    {SL_DASH_OPTION, "-disk-path /x -disk_path=/y", "O0:/x O0:/y"},
    {SL_DASH_OPTION, "- -- a --json", "W:- W:-- W:a O1"},
};

START_TEST(words_are_what_they_are_in_their_style)
    {
        char words[80], got[160];
        (void)snprintf(words, sizeof words, "%s", rows[_i].words);

        walk_text(rows[_i].dash, words, got, sizeof got);

        ck_assert_str_eq(got, rows[_i].want);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("arguments");
    TCase *tcase = tcase_create("arguments");
    tcase_add_loop_test(tcase, words_are_what_they_are_in_their_style, 0, (int)SL_COUNT(rows));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
