/* tests/unit/runtime/base/traceparent_test.c - W3C trace contexts: which texts are valid, and their
 * event in a recorder. */
#include "runtime/base/sl_traceparent.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static const struct {
    const char *text;
    bool is;
} texts[] = {
    {"00-" TRACE "-" SPAN "-01", true},
    {"00-" TRACE "-" SPAN "-00", true},
    {"cc-" TRACE "-" SPAN "-01-what-a-later-version-has", true},
    {"cc-" TRACE "-" SPAN "-01", true},
    {"00-" TRACE "-" SPAN "-01-more", false},
    {"cc-" TRACE "-" SPAN "-01more", false},
    {"ff-" TRACE "-" SPAN "-01", false},
    {"00-00000000000000000000000000000000-" SPAN "-01", false},
    {"00-" TRACE "-0000000000000000-01", false},
    {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", false},
    {"00-" TRACE "-" SPAN "-0g", false},
    {"00_" TRACE "-" SPAN "-01", false},
    {"00-" TRACE "-" SPAN "-0", false},
    {"", false},
};

START_TEST(only_what_the_standard_says_is_one)
    {
        struct sl_traceparent out;
        bool is = sl_traceparent_parse(texts[_i].text, strlen(texts[_i].text), &out);
        ck_assert_msg(is == texts[_i].is, "%s", texts[_i].text);
    }
END_TEST

START_TEST(an_event_gives_it_back)
    {
        struct sl_traceparent in, out;
        struct sl_trace_record record = {.at_ns = 1};
        char text[SL_TRACEPARENT_BYTES + 1];
        struct sl_metrics *page = NULL;
        struct sl_metrics_view *view = NULL;
        struct sl_trace_record *records = NULL;
        size_t count = 0;
        struct sl_error why = {0};
        char path[] = "/tmp/sl-traceparent-XXXXXX";
        ck_assert_ptr_nonnull(mkdtemp(path));
        char file[64];
        (void)snprintf(file, sizeof(file), "%s/metrics.a", path);
        struct sl_metrics_options options = {
            .path = file, .actor = "a", .self = {.pid = 1, .start_time = 1}, .trace_events = 8};
        ck_assert_msg(sl_metrics_open(&options, &page, &why) == SL_OK, "%s", why.text);
        ck_assert(sl_traceparent_parse(texts[0].text, strlen(texts[0].text), &in));

        sl_traceparent_event(page, 5, 77, &in);
        sl_trace_event(page, 6, 77, "load begins", "", 3);

        ck_assert_int_eq(sl_metrics_view_open(file, &view, &why), SL_OK);
        ck_assert_int_eq(sl_metrics_view_events(view, 77, &records, &count, &why), SL_OK);
        ck_assert_uint_eq(count, 2);
        ck_assert(sl_traceparent_of(&records[0], &out));
        sl_traceparent_text(&out, text);
        ck_assert_str_eq(text, texts[0].text);
        ck_assert(!sl_traceparent_of(&records[1], &out));
        ck_assert(!sl_traceparent_of(&record, &out));
        free(records);
        sl_metrics_view_close(&view);
        sl_metrics_close(&page);
        (void)remove(file);
        (void)remove(path);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("traceparent");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, only_what_the_standard_says_is_one, 0, SL_COUNT(texts));
    tcase_add_test(all, an_event_gives_it_back);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
