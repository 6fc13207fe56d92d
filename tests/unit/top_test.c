/* tests/unit/top_test.c - what sluicectl top makes of figures: differences, times, groups, lines. */
#include "client/top/uses.h"
#include "client/top/views.h"
#include "ipc/sl_pins.h"
#include "runtime/sl_clock.h"
#include "tests/unit/index_support.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct top_state *state_made(void)
{
    struct top_state *state = calloc(1, sizeof *state);
    ck_assert_ptr_nonnull(state);
    (void)snprintf(state->instance, sizeof state->instance, "here");
    state->ascii = true;
    return state;
}

static struct top_lines *drawn(const struct top_state *state, uint32_t width)
{
    struct top_lines *lines = calloc(1, sizeof *lines);
    ck_assert_ptr_nonnull(lines);
    lines->width = width;
    top_view_draw(state, lines);
    return lines;
}

/* The first line that has the text; NULL: none. */
static const char *line_with(const struct top_lines *lines, const char *text)
{
    for (uint32_t i = 0; i < lines->count; i++) {
        if (strstr(lines->lines[i].text, text) != NULL) {
            return lines->lines[i].text;
        }
    }
    return NULL;
}

static struct top_figures *figures_made(uint64_t at_ns)
{
    struct top_figures *figures = calloc(1, sizeof *figures);
    ck_assert_ptr_nonnull(figures);
    figures->at_ns = at_ns;
    return figures;
}

static void actor_add(struct top_figures *figures, const char *name, const char *state,
                      uint64_t cpu_ns)
{
    struct top_actor *actor = &figures->actors[figures->actor_count++];
    (void)snprintf(actor->name, sizeof actor->name, "%s", name);
    (void)snprintf(actor->state, sizeof actor->state, "%s", state);
    actor->up = strcmp(state, "dead") != 0;
    actor->cpu_ns = cpu_ns;
}

START_TEST(an_interval_has_what_came_in_it)
    {
        struct top_figures *then = figures_made(SL_NS_PER_S);
        struct top_figures *now = figures_made(3 * SL_NS_PER_S);
        struct top_figures *out = figures_made(0);
        then->get_keys[TOP_MEMORY] = 100;
        now->get_keys[TOP_MEMORY] = 160;
        then->memory_used_bytes = 5;
        now->memory_used_bytes = 7;
        then->get[TOP_MEMORY].buckets[3] = 10;
        now->get[TOP_MEMORY].buckets[3] = 14;

        top_figures_between(then, now, out);

        ck_assert_uint_eq(out->get_keys[TOP_MEMORY], 60);
        ck_assert_uint_eq(out->memory_used_bytes, 7); /* a gauge */
        ck_assert_uint_eq(out->get[TOP_MEMORY].buckets[3], 4);
        ck_assert_uint_eq(out->at_ns, 2 * SL_NS_PER_S);
        free(then);
        free(now);
        free(out);
    }
END_TEST

START_TEST(members_of_several_series_are_taken_off_once)
    {
        struct top_figures *then = figures_made(1);
        struct top_figures *now = figures_made(2);
        struct top_figures *out = figures_made(0);
        then->look_found = 40;
        now->look_found = 100;

        top_figures_between(then, now, out);

        ck_assert_uint_eq(out->look_found, 60);
        free(then);
        free(now);
        free(out);
    }
END_TEST

START_TEST(counters_of_a_node_that_began_anew_are_what_came_since)
    {
        struct top_figures *then = figures_made(1);
        struct top_figures *now = figures_made(2);
        struct top_figures *out = figures_made(0);
        then->load_blocks[TOP_DISK] = 500;
        now->load_blocks[TOP_DISK] = 20;

        top_figures_between(then, now, out);

        ck_assert_uint_eq(out->load_blocks[TOP_DISK], 20);
        free(then);
        free(now);
        free(out);
    }
END_TEST

START_TEST(actors_are_compared_by_their_names)
    {
        struct top_figures *then = figures_made(1);
        struct top_figures *now = figures_made(2);
        struct top_figures *out = figures_made(0);
        actor_add(then, "registrar", "ready", 700);
        actor_add(now, "keyer", "ready", 50); /* new, and before it in the order */
        actor_add(now, "registrar", "ready", 900);

        top_figures_between(then, now, out);

        ck_assert_uint_eq(out->actors[0].cpu_ns, 50);
        ck_assert_uint_eq(out->actors[1].cpu_ns, 200);
        free(then);
        free(now);
        free(out);
    }
END_TEST

START_TEST(a_quantile_is_the_end_of_its_bucket)
    {
        struct top_times times = {0};
        ck_assert_uint_eq(top_times_quantile(&times, 0.5), 0);
        times.buckets[0] = 98;
        times.buckets[4] = 1;
        times.buckets[SL_COUNTS_BUCKETS - 1] = 1;

        ck_assert_uint_eq(top_times_quantile(&times, 0.5), sl_counts_bucket_ends_ns[0]);
        ck_assert_uint_eq(top_times_quantile(&times, 0.99), sl_counts_bucket_ends_ns[4]);
        ck_assert_uint_eq(top_times_quantile(&times, 1), UINT64_MAX);
    }
END_TEST

static const struct {
    const char *key, *model, *prefix;
} keys[] = {
    {"0123456789abcdef0123456789abcdef/f00d/3/pool0", "0123456789abcdef0123456789abcdef",
     "0123456789ab/*/3/pool0"},
    {"Qwen/Qwen3-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@beef", "Qwen/Qwen3-8B",
     "Qwen/Qwen3-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1"},
    {"vllm@meta/Llama@2@1@f3de", "meta/Llama", "vllm@meta/Llama@2@1"},
    {"images/cats/1", "images", "images/cats"},
    {"lonely", "(keys without a prefix)", "(keys without a prefix)"},
    {"/lonely", "(keys without a prefix)", "(keys without a prefix)"},
    {"vllm@only", "vllm", "vllm"},
    {"0123456789abcdef0123456789abcdeX/f00d", "0123456789abcdef0123456789abcdeX",
     "0123456789abcdef0123456789abcdeX"},
    {"a\a[2Jb/c", "a?[2Jb", "a?[2Jb"},
};

START_TEST(keys_have_a_model_and_a_prefix)
    {
        char model[TOP_GROUP_BYTES];
        char prefix[TOP_GROUP_BYTES];

        top_group_of(keys[_i].key, (uint32_t)strlen(keys[_i].key), TOP_BY_MODEL, model);
        top_group_of(keys[_i].key, (uint32_t)strlen(keys[_i].key), TOP_BY_PREFIX, prefix);

        ck_assert_str_eq(model, keys[_i].model);
        ck_assert_str_eq(prefix, keys[_i].prefix);
    }
END_TEST

START_TEST(names_of_any_length_fit)
    {
        char key[1024];
        char out[TOP_GROUP_BYTES];
        memset(key, 'k', sizeof key);
        key[1000] = '/';

        top_group_of(key, sizeof key, TOP_BY_PREFIX, out);

        ck_assert_uint_eq(strlen(out), TOP_GROUP_BYTES - 1);
        for (uint32_t length = 0; length < 50; length++) { /* keys that end anywhere */
            for (size_t i = 0; i < SL_COUNT(keys); i++) {
                uint32_t bytes = SL_MIN(length, (uint32_t)strlen(keys[i].key));
                top_group_of(keys[i].key, bytes, TOP_BY_PREFIX, out);
                ck_assert_uint_gt(strlen(out), 0);
                top_group_of(keys[i].key, bytes, TOP_BY_MODEL, out);
                ck_assert_uint_gt(strlen(out), 0);
            }
        }
    }
END_TEST

START_TEST(counts_and_times_are_short)
    {
        char text[32];
        ck_assert_str_eq(top_count_text(0, text), "0");
        ck_assert_str_eq(top_count_text(7.5, text), "7.5");
        ck_assert_str_eq(top_count_text(999, text), "999");
        ck_assert_str_eq(top_count_text(12345, text), "12.3k");
        ck_assert_str_eq(top_count_text(4.5e8, text), "450M");
        ck_assert_str_eq(top_time_text(0, text), "-");
        ck_assert_str_eq(top_time_text(20000, text), "<20us");
        ck_assert_str_eq(top_time_text(5000000, text), "<5ms");
        ck_assert_str_eq(top_time_text(UINT64_MAX, text), ">10s");
    }
END_TEST

START_TEST(a_sparkline_has_the_newest_and_its_highest)
    {
        const double values[] = {9, 0, 5, 10};
        char text[32];

        top_spark(values, 4, 3, true, text);
        ck_assert_str_eq(text, "_=@");
        top_spark(values, 4, 8, false, text);
        ck_assert_uint_eq(strlen(text), 4 * 3); /* cells of UTF-8 */
        top_spark(values, 0, 8, true, text);
        ck_assert_str_eq(text, "");
    }
END_TEST

START_TEST(an_overview_shows_tiers_and_what_is_wrong)
    {
        struct top_state *state = state_made();
        struct top_figures *now = figures_made(SL_NS_PER_S);
        actor_add(now, "registrar", "dead", 0);
        top_state_take(state, now);
        now->at_ns = 3 * SL_NS_PER_S;
        now->load_blocks[TOP_MEMORY] = 30;
        now->load_blocks[TOP_NONE] = 10;
        top_state_take(state, now);

        struct top_lines *lines = drawn(state, 80);

        ck_assert_ptr_nonnull(line_with(lines, "0/1 actors ready"));
        ck_assert_ptr_nonnull(line_with(lines, "registrar: dead"));
        ck_assert_ptr_nonnull(line_with(lines, " 15   75.0%        30   75.0%"));
        ck_assert_ptr_nonnull(line_with(lines, "  5   25.0%        10   25.0%"));
        ck_assert_ptr_nonnull(line_with(lines, "75.0% _@"));
        for (uint32_t i = 0; i < lines->count; i++) {
            ck_assert_uint_le(strlen(lines->lines[i].text), 80);
        }
        free(lines);
        free(now);
        free(state);
    }
END_TEST

START_TEST(lines_are_cut_at_characters)
    {
        struct top_state *state = state_made();
        (void)snprintf(state->problem, sizeof state->problem,
                       "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88");

        struct top_lines *lines = drawn(state, 2);

        ck_assert_str_eq(lines->lines[1].text, "\xe2\x96\x88\xe2\x96\x88");
        free(lines);
        free(state);
    }
END_TEST

START_TEST(names_of_peers_give_a_terminal_no_orders)
    {
        struct top_state *state = state_made();
        state->view = TOP_VIEW_PEERS;
        state->peers.asked = true;
        state->peers.count = 1;
        (void)snprintf(state->peers.nodes[0].name, sizeof state->peers.nodes[0].name,
                       "a\033[2J\177\302\233\233\342\200\256");
        (void)snprintf(state->peers.nodes[0].state, sizeof state->peers.nodes[0].state, "alive");

        struct top_lines *lines = drawn(state, 80);

        ck_assert_ptr_nonnull(line_with(lines, "a\\x1b[2J\\x7f\\xc2\\x9b\\x9b\\xe2\\x80\\xae"));
        for (uint32_t i = 0; i < lines->count; i++) {
            ck_assert_uint_le(strlen(lines->lines[i].text), 80);
            ck_assert_ptr_null(strchr(lines->lines[i].text, '\033'));
        }
        free(lines);
        free(state);
    }
END_TEST

START_TEST(rows_are_sorted_and_left_out)
    {
        static const struct top_group groups[] = {
            {"b", 1, 300, 0, 0.5}, {"a", 9, 200, 0, 0}, {"x", 5, 100, 0, 1200}};
        struct top_state *state = state_made();
        state->view = TOP_VIEW_MEMORY;
        state->groups = groups;
        state->group_count = 3;
        state->groups_whole = true;
        state->sort = 3; /* objects */

        struct top_lines *lines = drawn(state, 80);
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "  a"));
        ck_assert_ptr_nonnull(strstr(lines->lines[4].text, "  x"));
        ck_assert_ptr_nonnull(strstr(lines->lines[5].text, "  b"));
        free(lines);
        state->reverse = true;
        lines = drawn(state, 80);
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "  b"));
        free(lines);
        state->sort = 0;
        state->reverse = false;
        (void)snprintf(state->filter, sizeof state->filter, "X");
        lines = drawn(state, 80);
        ck_assert_uint_eq(lines->count, 4);
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "  x"));
        free(lines);
        free(state);
    }
END_TEST

static void model_add(struct top_figures *figures, const char *id, const char *name, uint64_t found,
                      uint64_t missed)
{
    struct top_model *model = &figures->models[figures->model_count++];
    (void)snprintf(model->id, sizeof model->id, "%s", id);
    (void)snprintf(model->name, sizeof model->name, "%s", name);
    model->load_blocks[TOP_DISK] = found;
    model->load_blocks[TOP_NONE] = missed;
}

START_TEST(engines_have_a_row_for_each_model)
    {
        struct top_state *state = state_made();
        struct top_figures *now = figures_made(SL_NS_PER_S);
        model_add(now, "0123", "small", 5, 5);
        top_state_take(state, now);
        now->at_ns = 3 * SL_NS_PER_S;
        now->model_count = 0;
        model_add(now, "0012", "", 3,
                  0); /* new, before it in the order, and nobody knows its name */
        model_add(now, "0123", "small", 35, 15);
        top_state_take(state, now);
        state->view = TOP_VIEW_ENGINES;
        state->sort = 1; /* loads */

        struct top_lines *lines = drawn(state, 80);

        ck_assert_ptr_nonnull(line_with(lines, "sorted by loads"));
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "      20   75.0% "));
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "  small"));
        ck_assert_ptr_nonnull(line_with(lines, "0123: all loads 50 (70.0% found), stores 0"));
        ck_assert_ptr_nonnull(strstr(lines->lines[5].text, "     1.5  100.0% "));
        ck_assert_ptr_nonnull(strstr(lines->lines[5].text, "  0012"));
        free(lines);
        (void)snprintf(state->filter, sizeof state->filter, "SMALL");
        lines = drawn(state, 80);
        ck_assert_ptr_null(line_with(lines, "0012"));
        ck_assert_ptr_nonnull(line_with(lines, "0123: "));
        free(lines);
        (void)snprintf(state->filter, sizeof state->filter, "0012");
        lines = drawn(state, 80);
        ck_assert_ptr_null(line_with(lines, "small"));
        ck_assert_ptr_nonnull(line_with(lines, "  0012"));
        free(lines);
        free(now);
        free(state);
    }
END_TEST

/* ---- uses ---- */

static struct sl_pins *reader_made(const struct bed *bed, const char *name, uint32_t ring)
{
    struct sl_pins_options options = {.shm_dir = bed->dir,
                                      .name = name,
                                      .slot_count = 1,
                                      .access_count = ring,
                                      .self = sl_proc_id_self(),
                                      .pinned_bytes_max = 1};
    struct sl_pins *pins = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(sl_pins_create(&options, &pins, &why), why);
    return pins;
}

static void note(struct sl_pins *pins, sl_ref ref, uint64_t number, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        sl_pins_note_access(pins, ref, 1000 + number); /* as entry_of makes them */
    }
}

static struct top_uses *uses_made(const struct bed *bed)
{
    struct top_uses *uses = NULL;
    struct sl_error why = {0};
    ck_assert_sl_ok(top_uses_create(bed->dir, &uses, &why), why);
    ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);
    return uses;
}

/* Uses a second of a group in the next reading; 0: it is not among them. */
struct hot {
    const struct top_group *groups;
    uint32_t count;
};

static struct hot hot_read(struct top_uses *uses)
{
    struct hot hot = {.count = 0};
    struct sl_error why = {0};
    ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);
    hot.groups = top_uses_join(uses, NULL, 0, &hot.count);
    return hot;
}

static double hot_of(const struct hot *hot, const char *name)
{
    for (uint32_t i = 0; i < hot->count; i++) {
        if (strcmp(hot->groups[i].name, name) == 0) {
            return hot->groups[i].uses;
        }
    }
    return 0;
}

START_TEST(uses_are_those_since_the_last_reading)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "early", 64);
        note(pins, b, 2, 40);
        struct top_uses *uses = uses_made(&bed);
        struct sl_pins *late = reader_made(&bed, "late", 64);
        note(pins, a, 1, 2);
        note(late, a, 1, 1);
        note(late, b, 2, 1);
        sl_pins_note_access(late, b, 1002 | SL_ACCESS_STORED); /* no use */

        struct hot hot = hot_read(uses);

        ck_assert_uint_eq(hot.count, 2);
        ck_assert_double_gt(hot_of(&hot, "b"), 0);
        ck_assert_double_eq_tol(hot_of(&hot, "a") / hot_of(&hot, "b"), 3, 1e-9);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        sl_pins_destroy(&late);
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_stand_for_those_that_were_lost)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *quick = reader_made(&bed, "quick", 8);
        struct sl_pins *slow = reader_made(&bed, "slow", 8);
        struct top_uses *uses = uses_made(&bed);
        note(quick, a, 1, 80); /* eight are left */
        note(slow, b, 2, 4);

        struct hot hot = hot_read(uses);

        ck_assert_double_eq_tol(hot_of(&hot, "a") / hot_of(&hot, "b"), 20, 1e-9);
        top_uses_destroy(&uses);
        sl_pins_destroy(&quick);
        sl_pins_destroy(&slow);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_reader_that_is_gone_counts_once_more)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "reader", 8);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 1);
        sl_pins_destroy(&pins);
        pins = reader_made(&bed, "reader", 8); /* the next process of that name */
        note(pins, b, 2, 2);

        struct hot hot = hot_read(uses);

        ck_assert_double_gt(hot_of(&hot, "a"), 0);
        ck_assert_double_eq_tol(hot_of(&hot, "b") / hot_of(&hot, "a"), 2, 1e-9);
        sl_pins_destroy(&pins);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_of_what_is_gone_or_made_up_have_no_prefix)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        sl_ref a = bed_insert(&bed, "a/1", 1);
        struct sl_pins *pins = reader_made(&bed, "reader", 64);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 1);
        sl_index_unlink(bed.index, a, SL_RECORD_FREE);
        for (uint32_t i = 0; i < 32; i++) {
            sl_pins_note_access(pins, UINT32_C(1) << i, UINT64_MAX >> (1 + i));
        }

        struct hot hot = hot_read(uses);

        ck_assert_uint_eq(hot.count, 1);
        ck_assert_double_gt(hot_of(&hot, "(keys gone since)"), 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(a_segment_that_is_cut_short_harms_nothing)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        char path[128];
        sl_ref a = bed_insert(&bed, "a/1", 1);
        struct sl_pins *pins = reader_made(&bed, "reader", 4096);
        struct top_uses *uses = uses_made(&bed);
        note(pins, a, 1, 3);
        (void)snprintf(path, sizeof path, "%s/pins.reader", bed.dir);
        ck_assert_int_eq(truncate(path, SL_PAGE_BYTES), 0); /* behind the header, which says 3 */

        struct hot hot = hot_read(uses); /* zeros are no accesses */

        ck_assert_double_eq(hot_of(&hot, "a"), 0);
        hot = hot_read(uses);
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

START_TEST(readers_and_prefixes_are_bounded)
    {
        struct bed bed = bed_make(4 * SL_MIB, 2000);
        struct sl_pins *pins[TOP_READERS_MAX + 1];
        sl_ref refs[TOP_GROUPS_MAX + 100];
        char name[32];
        for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
            (void)snprintf(name, sizeof name, "prefix%u/1", i);
            refs[i] = bed_insert(&bed, name, i);
        }
        for (uint32_t i = 0; i < SL_COUNT(pins); i++) {
            (void)snprintf(name, sizeof name, "reader%u", i);
            pins[i] = reader_made(&bed, name, 64);
        }
        struct top_uses *uses = uses_made(&bed);
        for (uint32_t i = 0; i < SL_COUNT(refs); i++) {
            note(pins[i % SL_COUNT(pins)], refs[i], i, 1);
        }

        struct hot hot = hot_read(uses);

        double all = 0;
        double one = 0; /* each was used once */
        for (uint32_t i = 0; i < hot.count; i++) {
            all += hot.groups[i].uses;
            one = strcmp(hot.groups[i].name, "(others)") != 0 ? hot.groups[i].uses : one;
        }
        ck_assert_uint_eq(hot.count, TOP_GROUPS_MAX + 1);
        ck_assert_double_gt(hot_of(&hot, "(others)"), 50 * one);
        ck_assert_double_gt(all, (TOP_GROUPS_MAX + 90) * one); /* a reader found no place */
        ck_assert_double_lt(all, (TOP_GROUPS_MAX + 99.5) * one);
        sl_pins_destroy(&pins[0]);
        hot = hot_read(
            uses); /* the one that found a place now is not counted for what it noted before */
        ck_assert_uint_eq(hot.count, 0);
        top_uses_destroy(&uses);
        for (uint32_t i = 0; i < SL_COUNT(pins); i++) {
            sl_pins_destroy(&pins[i]);
        }
        bed_remove(&bed);
    }
END_TEST

START_TEST(uses_stand_beside_what_is_held)
    {
        struct bed bed = bed_make(2 * SL_MIB, 100);
        const struct top_group held[] = {{"cold", 3, 300, 0, 0}, {"a", 1, 200, 0, 0}};
        sl_ref a = bed_insert(&bed, "a/1", 1);
        sl_ref b = bed_insert(&bed, "b/1", 2);
        struct sl_pins *pins = reader_made(&bed, "reader", 64);
        struct top_uses *uses = uses_made(&bed);
        struct top_state *state = state_made();
        struct sl_error why = {0};
        note(pins, a, 1, 1);
        note(pins, b, 2, 2);
        ck_assert_sl_ok(top_uses_read(uses, TOP_BY_PREFIX, &why), why);
        state->view = TOP_VIEW_MEMORY;
        state->groups_whole = true;
        state->sort = 4; /* uses */

        state->groups = top_uses_join(uses, held, 2, &state->group_count);
        struct top_lines *lines = drawn(state, 80);

        ck_assert_uint_eq(state->group_count, 3);
        ck_assert_double_eq(state->groups[0].uses, 0);
        ck_assert_uint_eq(state->groups[1].memory_bytes, 200);
        ck_assert_double_eq_tol(state->groups[2].uses / state->groups[1].uses, 2, 1e-9);
        ck_assert_ptr_nonnull(strstr(lines->lines[1].text, "sorted by uses"));
        ck_assert_ptr_nonnull(strstr(lines->lines[3].text, "  b"));
        ck_assert_ptr_nonnull(
            strstr(lines->lines[3].text, "      -          -      -          - "));
        ck_assert_ptr_nonnull(strstr(lines->lines[4].text, "  a"));
        ck_assert_ptr_nonnull(strstr(lines->lines[5].text, "     0  cold"));
        free(lines);
        free(state);
        top_uses_destroy(&uses);
        sl_pins_destroy(&pins);
        bed_remove(&bed);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("top");
    TCase *figures = tcase_create("figures");
    tcase_add_test(figures, an_interval_has_what_came_in_it);
    tcase_add_test(figures, members_of_several_series_are_taken_off_once);
    tcase_add_test(figures, counters_of_a_node_that_began_anew_are_what_came_since);
    tcase_add_test(figures, actors_are_compared_by_their_names);
    tcase_add_test(figures, a_quantile_is_the_end_of_its_bucket);
    suite_add_tcase(suite, figures);
    TCase *lines = tcase_create("lines");
    tcase_add_loop_test(lines, keys_have_a_model_and_a_prefix, 0, SL_COUNT(keys));
    tcase_add_test(lines, names_of_any_length_fit);
    tcase_add_test(lines, counts_and_times_are_short);
    tcase_add_test(lines, a_sparkline_has_the_newest_and_its_highest);
    tcase_add_test(lines, an_overview_shows_tiers_and_what_is_wrong);
    tcase_add_test(lines, lines_are_cut_at_characters);
    tcase_add_test(lines, names_of_peers_give_a_terminal_no_orders);
    tcase_add_test(lines, rows_are_sorted_and_left_out);
    tcase_add_test(lines, engines_have_a_row_for_each_model);
    suite_add_tcase(suite, lines);
    TCase *uses = tcase_create("uses");
    tcase_add_test(uses, uses_are_those_since_the_last_reading);
    tcase_add_test(uses, uses_stand_for_those_that_were_lost);
    tcase_add_test(uses, a_reader_that_is_gone_counts_once_more);
    tcase_add_test(uses, uses_of_what_is_gone_or_made_up_have_no_prefix);
    tcase_add_test(uses, a_segment_that_is_cut_short_harms_nothing);
    tcase_add_test(uses, readers_and_prefixes_are_bounded);
    tcase_add_test(uses, uses_stand_beside_what_is_held);
    suite_add_tcase(suite, uses);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
