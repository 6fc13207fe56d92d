/* tests/unit/tests/linear_test.c - the checker of histories: known linearizable ones pass, known
 * others fail, and small histories get the verdict of a search through all orders. */
#include "tests/support/linear.h"
#include "tests/unit/ipc/shm/shm_support.h"

#include <stdlib.h>
#include <string.h>

#define OPS_MAX 8u
enum { PUT, REPLACE, REMOVE, GET, MISS, EXISTS, CRASH };
#define NEVER LINEAR_NEVER
#define OP(k, ...)               \
    {                            \
        .kind = (k), __VA_ARGS__ \
    }
#define AT(from, to) .call = (from), .back = (to)

struct history {
    const char *name;
    bool wrong;
    struct linear_op ops[OPS_MAX]; /* up to the first without times */
};
/* clang-format off */
static const struct history histories[] = {
    {"a put is found", false, {OP(PUT, AT(1, 2), .value = 1), OP(GET, AT(3, 4), .value = 1)}},
    {"nothing was put", true, {OP(GET, AT(3, 4), .value = 1)}},
    {"there was no value", false, {OP(MISS, AT(1, 2))}},
    {"a committed value is missed", true, {OP(PUT, AT(1, 2), .value = 1), OP(MISS, AT(3, 4))}},
    {"a value under way may be missed", false, {OP(PUT, AT(1, 5), .value = 1), OP(MISS, AT(3, 4))}},
    {"a value under way was seen, then missed", true,
     {OP(PUT, AT(1, 9), .value = 1), OP(GET, AT(2, 3), .value = 1), OP(MISS, AT(4, 5))}},
    {"a put changes nothing", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(PUT, AT(3, 4), .value = 2), OP(GET, AT(5, 6), .value = 1)}},
    {"a put changed the value", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(PUT, AT(3, 4), .value = 2), OP(GET, AT(5, 6), .value = 2)}},
    {"of two puts one won", false,
     {OP(PUT, AT(1, 9), .value = 1), OP(PUT, AT(2, 8), .value = 2), OP(GET, AT(10, 11), .value = 2),
      OP(GET, AT(12, 13), .value = 2)}},
    {"of two puts both won", true,
     {OP(PUT, AT(1, 9), .value = 1), OP(PUT, AT(2, 8), .value = 2), OP(GET, AT(10, 11), .value = 2),
      OP(GET, AT(12, 13), .value = 1)}},
    {"the older value after the newer", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 9), .value = 2), OP(GET, AT(4, 5), .value = 2),
      OP(GET, AT(6, 7), .value = 1)}},
    {"the newer value after the older", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 9), .value = 2), OP(GET, AT(4, 5), .value = 1),
      OP(GET, AT(6, 7), .value = 2)}},
    {"overlapping gets see both", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 9), .value = 2), OP(GET, AT(4, 8), .value = 2),
      OP(GET, AT(5, 7), .value = 1)}},
    {"two replacements, both orders seen", true,
     {OP(REPLACE, AT(1, 5), .value = 1), OP(REPLACE, AT(2, 6), .value = 2),
      OP(GET, AT(7, 8), .value = 1), OP(GET, AT(9, 10), .value = 2)}},
    {"a value after its removal", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 4)), OP(GET, AT(5, 6), .value = 1)}},
    {"a value exists after its removal", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 4)), OP(EXISTS, AT(5, 6))}},
    {"a value during its removal", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 8)), OP(GET, AT(5, 6), .value = 1),
      OP(MISS, AT(9, 10))}},
    {"a put during a removal", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 9)), OP(PUT, AT(4, 8), .value = 2),
      OP(GET, AT(10, 11), .value = 2)}},
    {"a put during a removal was first", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 9)), OP(PUT, AT(4, 8), .value = 2),
      OP(MISS, AT(10, 11))}},
    {"a put during a removal lets the old one stay", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 9)), OP(PUT, AT(4, 8), .value = 2),
      OP(GET, AT(10, 11), .value = 1)}},
    {"a removal that is not yet over was seen, then the value", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 9)), OP(MISS, AT(4, 5)),
      OP(GET, AT(6, 7), .value = 1)}},
    {"no answer, no effect", false,
     {OP(PUT, AT(1, NEVER), .value = 1, .maybe = true), OP(MISS, AT(3, 4)), OP(MISS, AT(5, 6))}},
    {"no answer, a late effect", false,
     {OP(PUT, AT(1, NEVER), .value = 1, .maybe = true), OP(MISS, AT(3, 4)), OP(GET, AT(5, 6), .value = 1)}},
    {"no answer, an effect that went", true,
     {OP(PUT, AT(1, NEVER), .value = 1, .maybe = true), OP(GET, AT(3, 4), .value = 1), OP(MISS, AT(5, 6))}},
    {"no answer, an effect after its end", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 10), .value = 2, .maybe = true),
      OP(GET, AT(11, 12), .value = 1), OP(GET, AT(13, 14), .value = 2)}},
    {"no answer, an effect right at its end", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 10), .value = 2, .maybe = true),
      OP(GET, AT(9, 11), .value = 1), OP(GET, AT(13, 14), .value = 2)}},
    {"a removal without an answer takes effect once", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, NEVER), .maybe = true), OP(MISS, AT(4, 5)),
      OP(PUT, AT(6, 7), .value = 2), OP(GET, AT(8, 9), .value = 2), OP(MISS, AT(10, 11))}},
    {"evicted", false, {OP(PUT, AT(1, 2), .value = 1), OP(MISS, AT(3, 4), .loses = true)}},
    {"evicted and back", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(MISS, AT(3, 4), .loses = true), OP(GET, AT(5, 6), .value = 1)}},
    {"evicted, so the put is real", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(PUT, AT(3, 4), .value = 2, .loses = true),
      OP(GET, AT(5, 6), .value = 2)}},
    {"evicted, so the put is real, and both are seen", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(PUT, AT(3, 4), .value = 2, .loses = true),
      OP(GET, AT(5, 6), .value = 2), OP(GET, AT(7, 8), .value = 1)}},
    {"the power went, and the value", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(CRASH, AT(3, 3)), OP(MISS, AT(4, 5)), OP(PUT, AT(6, 7), .value = 2),
      OP(GET, AT(8, 9), .value = 2)}},
    {"the power went, the value stayed", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(CRASH, AT(3, 3)), OP(GET, AT(4, 5), .value = 1)}},
    {"removed, and back with the power", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, 4)), OP(CRASH, AT(5, 5)),
      OP(GET, AT(6, 7), .value = 1)}},
    {"replaced, and back with the power", true,
     {OP(PUT, AT(1, 2), .value = 1), OP(REPLACE, AT(3, 4), .value = 2), OP(CRASH, AT(5, 5)),
      OP(GET, AT(6, 7), .value = 1)}},
    {"a removal without an answer, and back with the power", false,
     {OP(PUT, AT(1, 2), .value = 1), OP(REMOVE, AT(3, NEVER), .maybe = true), OP(MISS, AT(4, 5)),
      OP(CRASH, AT(6, 6)), OP(GET, AT(7, 8), .value = 1)}},
    {"what was under way takes no effect after the power went", true,
     {OP(PUT, AT(1, NEVER), .value = 1, .maybe = true), OP(CRASH, AT(6, 6)), OP(MISS, AT(7, 8)),
      OP(GET, AT(9, 10), .value = 1)}},
    /* Porcupine's own two examples of a register */
    {"porcupine: fine", false,
     {OP(REPLACE, AT(1, 101), .value = 100), OP(GET, AT(26, 76), .value = 100), OP(MISS, AT(31, 61))}},
    {"porcupine: not", true,
     {OP(REPLACE, AT(1, 101), .value = 200), OP(GET, AT(11, 31), .value = 200), OP(MISS, AT(41, 91))}},
};
/* clang-format on */

static size_t length_of(const struct linear_op *ops)
{
    size_t count = 0;
    while (count < OPS_MAX && ops[count].call != 0) {
        count++;
    }
    return count;
}

START_TEST(known_histories_are_judged_right)
    {
        const struct history *history = &histories[_i];
        struct linear_op ops[OPS_MAX];
        struct linear_result result;
        memcpy(ops, history->ops, sizeof(ops));
        linear_check(ops, length_of(ops), &(struct linear_limits){.states_max = 2000}, &result);
        ck_assert_msg(result.violations == (history->wrong ? 1 : 0), "%s", history->name);
        ck_assert_uint_eq(result.undecided, 0);
        ck_assert_uint_eq(result.keys, 1);
    }
END_TEST

/* ---- against a search through all orders ---- */

struct naive {
    const struct linear_op *ops;
    size_t count;
};

/* Whether the rest can be ordered, starting with this value. An op that may be without effect is
 * left out or included; both are tried. */
static bool naive_search(const struct naive *all, uint32_t done, uint32_t value)
{
    if (done == (1u << all->count) - 1) {
        return true;
    }
    for (size_t i = 0; i < all->count; i++) {
        const struct linear_op *op = &all->ops[i];
        bool may = (done >> i & 1) == 0;
        for (size_t k = 0; k < all->count; k++) {
            may = may && ((done >> k & 1) != 0 || all->ops[k].back >= op->call || k == i);
        }
        if (!may) {
            continue;
        }
        uint32_t next = done | 1u << i;
        bool fits = op->kind == GET      ? value == op->value
                    : op->kind == MISS   ? value == 0 || op->loses
                    : op->kind == EXISTS ? value != 0
                                         : true;
        uint32_t then = op->kind == REPLACE                      ? op->value
                        : op->kind == REMOVE || op->kind == MISS ? 0
                        : op->kind == PUT && value == 0          ? op->value
                                                                 : value;
        if ((op->maybe && naive_search(all, next, value)) ||
            (fits && naive_search(all, next, then)) ||
            (op->kind == PUT && op->loses && naive_search(all, next, op->value))) {
            return true;
        }
    }
    return false;
}

static size_t history_make(uint64_t *seed, struct linear_op *ops, size_t room)
{
    size_t count = 2 + random_next(seed) % (room - 1);
    for (size_t i = 0; i < count; i++) {
        uint64_t call = 1 + random_next(seed) % 20;
        struct linear_op op = {.kind = (uint8_t)(random_next(seed) % 6),
                               .call = call,
                               .back = call + random_next(seed) % 8,
                               .value = (uint32_t)i + 1};
        op.loses = random_next(seed) % 6 == 0;
        op.maybe = op.kind < GET && random_next(seed) % 4 == 0;
        op.back = op.maybe && random_next(seed) % 2 == 0 ? NEVER : op.back;
        if (op.kind == GET) {
            op.value = 1 + (uint32_t)(random_next(seed) % count);
        }
        ops[i] = op;
    }
    return count;
}

#define NAIVE_HISTORIES 5000u
#define THIN_HISTORIES  1000u
#define NAIVE_OPS       7u
/* For small histories; under a sanitizer, the usual bound would cost a millisecond. */
static const struct linear_limits few = {.states_max = 2000};
START_TEST(small_histories_are_judged_as_by_all_orders)
    {
        uint64_t seed = random_seed("linear");
        uint32_t fine = 0;
        for (uint32_t i = 0; i < NAIVE_HISTORIES; i++) {
            struct linear_op ops[NAIVE_OPS], copy[NAIVE_OPS];
            struct linear_result result;
            const struct naive naive = {ops, history_make(&seed, ops, NAIVE_OPS)};
            bool wrong = !naive_search(&naive, 0, 0);
            memcpy(copy, ops, sizeof(copy));
            linear_check(copy, naive.count, &few, &result);
            ck_assert_msg(result.undecided == 0 && result.violations == wrong,
                          "history %u: %s by all orders", i, wrong ? "wrong" : "fine");
            fine += !wrong;
        }
        ck_assert_uint_gt(fine, NAIVE_HISTORIES / 20);
        ck_assert_uint_lt(fine, NAIVE_HISTORIES * 19 / 20);
    }
END_TEST

/* ---- reads that need not be kept (tests/fault/thrash_contest.c) ---- */

/* Leaves out each get between two others of its value. */
static size_t thin(const struct linear_op *ops, size_t count, struct linear_op *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool after = false, before = false;
        for (size_t k = 0; k < count && ops[i].kind == GET; k++) {
            bool same = ops[k].kind == GET && ops[k].value == ops[i].value;
            after = after || (same && ops[k].back < ops[i].call);
            before = before || (same && ops[k].call > ops[i].back);
        }
        if (!after || !before) {
            out[kept++] = ops[i];
        }
    }
    return kept;
}

START_TEST(reads_between_two_of_the_same_value_change_no_verdict)
    {
        uint64_t seed = random_seed("linear_thin");
        uint32_t fine = 0, wrong = 0;
        for (uint32_t i = 0; i < THIN_HISTORIES; i++) {
            struct linear_op ops[NAIVE_OPS], thinned[NAIVE_OPS];
            struct linear_result whole, result;
            size_t count = history_make(&seed, ops, NAIVE_OPS);
            ops[0] = (struct linear_op){.kind = PUT, .call = 1, .back = 3, .value = 1};
            for (size_t k = 1; k < count; k++) {
                if (random_next(&seed) % 4 != 0) {
                    ops[k].kind = GET;
                    ops[k].maybe = false;
                    ops[k].value = 1 + (random_next(&seed) % 6 == 0);
                    ops[k].back = ops[k].call + random_next(&seed) % 4;
                }
            }
            size_t kept = thin(ops, count, thinned);

            linear_check(ops, count, &few, &whole);
            linear_check(thinned, kept, &few, &result);

            ck_assert_msg(whole.violations == result.violations, "history %u", i);
            fine += kept < count && whole.violations == 0;
            wrong += kept < count && whole.violations != 0;
        }
        ck_assert_uint_gt(fine, THIN_HISTORIES / 100);
        ck_assert_uint_gt(wrong, THIN_HISTORIES / 100);
    }
END_TEST

/* ---- long histories of a register that keeps its word ---- */

#define LONG_OPS    20000u
#define LONG_WHO    8u
#define LONG_KEYS   3u
#define LONG_SETTLE 300u
struct played {
    struct linear_op ops[LONG_OPS];
    size_t count;
};

/* Ops of `LONG_WHO` callers overlap; each takes effect at some time between its two times. lie: the
 * number of a get that returns an earlier value. */
static void play(struct played *all, uint64_t *seed, size_t lie)
{
    uint32_t value[LONG_KEYS] = {0}, older[LONG_KEYS] = {0};
    uint64_t free_at[LONG_WHO] = {0}, now = 10;
    for (all->count = 0; all->count < LONG_OPS; all->count++) {
        uint32_t who = (uint32_t)(random_next(seed) % LONG_WHO);
        uint32_t key = (uint32_t)(random_next(seed) % LONG_KEYS);
        now += random_next(seed) % 12 + 1; /* the moment of the effect */
        uint64_t call = now - random_next(seed) % 9;
        call = call <= free_at[who] ? now : call;
        struct linear_op op = {.key = key,
                               .who = (uint16_t)who,
                               .call = call,
                               .back = now + random_next(seed) % 40,
                               .kind = (uint8_t)(random_next(seed) % 6),
                               .value = (uint32_t)all->count + 1};
        op.maybe = op.kind < GET && random_next(seed) % 20 == 0;
        bool effect = !op.maybe || random_next(seed) % 2 == 0;
        if (op.kind < GET && effect && (op.kind != PUT || value[key] == 0)) {
            older[key] = value[key] != 0 ? value[key] : older[key];
            value[key] = op.kind == REMOVE ? 0 : op.value;
        } else if (op.kind >= GET) {
            bool lies = all->count >= lie && older[key] != 0 && value[key] != 0;
            lie = lies ? SIZE_MAX : lie;
            op.kind = lies || value[key] != 0 ? (op.kind == EXISTS && !lies ? EXISTS : GET) : MISS;
            op.value = lies ? older[key] : value[key];
            op.call = lies ? now : op.call; /* and long after that was gone */
        }
        free_at[who] = op.back;
        op.back = op.maybe ? now + LONG_SETTLE : op.back;
        all->ops[all->count] = op;
    }
}

START_TEST(a_register_that_keeps_its_word_passes)
    {
        uint64_t seed = random_seed("linear_long");
        struct played *all = malloc(sizeof(*all));
        struct linear_result result;
        ck_assert_ptr_nonnull(all);
        play(all, &seed, SIZE_MAX);
        linear_check(all->ops, all->count, &(struct linear_limits){.print = stderr}, &result);
        ck_assert_uint_eq(result.violations, 0);
        ck_assert_uint_eq(result.undecided, 0);
        ck_assert_uint_eq(result.keys, LONG_KEYS);
        ck_assert_uint_gt(result.windows, 100);
        free(all);
    }
END_TEST

START_TEST(one_old_value_in_a_long_history_is_found)
    {
        uint64_t seed = random_seed("linear_lie");
        struct played *all = malloc(sizeof(*all));
        struct linear_result result;
        ck_assert_ptr_nonnull(all);
        uint32_t found = 0;
        for (uint32_t i = 0; i < 20; i++) {
            play(all, &seed, LONG_OPS / 2);
            linear_check(all->ops, all->count, NULL, &result);
            found += result.violations == 1;
            ck_assert_uint_le(result.violations, 1);
        }
        ck_assert_uint_ge(found, 10); /* an overlapping write may explain the others */
        free(all);
    }
END_TEST

/* A caller may be stopped in the middle of a call, or never return, while others go on for long:
 * that costs no more than necessary. */
START_TEST(long_calls_do_not_make_a_window_undecided)
    {
        enum { PAIRS = 2000, LONG = 200 };
        struct linear_op *ops = calloc(2 * PAIRS + LONG, sizeof(*ops));
        struct linear_result result;
        size_t count = 0;
        ck_assert_ptr_nonnull(ops);
        for (uint32_t i = 0; i < LONG; i++) { /* one without an answer after the other */
            ops[count++] = (struct linear_op){.kind = REPLACE,
                                              .call = 1 + 200 * i,
                                              .back = 1 + 200 * i + 900,
                                              .value = 1000000 + i,
                                              .maybe = i > 0};
        }
        ops[0].back = 100000; /* and one that is stopped */
        for (uint32_t i = 0; i < PAIRS; i++) {
            uint64_t at = 10 + 20 * i;
            ops[count++] =
                (struct linear_op){.kind = REPLACE, .call = at, .back = at + 5, .value = i + 1};
            ops[count++] =
                (struct linear_op){.kind = GET, .call = at + 6, .back = at + 9, .value = i + 1};
        }
        linear_check(ops, count, NULL, &result);
        ck_assert_uint_eq(result.undecided, 0);
        ck_assert_uint_eq(result.violations, 0);
        ck_assert_uint_eq(result.windows, 1);
        free(ops);
    }
END_TEST

/* ---- what is printed ---- */

START_TEST(a_window_beyond_the_bound_is_undecided_and_said_so)
    {
        struct linear_op ops[40];
        struct linear_result result;
        for (uint32_t i = 0; i < 40; i++) { /* all of them overlap */
            ops[i] = (struct linear_op){
                .kind = REPLACE, .call = 1 + i, .back = 1000 + i, .value = i + 1};
        }
        linear_check(ops, 40, &(struct linear_limits){.states_max = 1000}, &result);
        ck_assert_uint_eq(result.undecided, 1);
        ck_assert_uint_eq(result.violations, 0);
    }
END_TEST

START_TEST(after_an_undecided_window_the_search_goes_on)
    {
        struct linear_op ops[43];
        struct linear_result result;
        for (uint32_t i = 0; i < 40; i++) {
            ops[i] = (struct linear_op){
                .kind = REPLACE, .call = 1 + i, .back = 1000 + i, .value = i + 1};
        }
        ops[40] = (struct linear_op){.kind = GET, .call = 2000, .back = 2001, .value = 7};
        ops[41] = (struct linear_op){.kind = REMOVE, .call = 2002, .back = 2003};
        ops[42] = (struct linear_op){.kind = GET, .call = 2004, .back = 2005, .value = 7};
        linear_check(ops, 43, &(struct linear_limits){.states_max = 1000}, &result);
        ck_assert_uint_eq(result.undecided, 1);
        ck_assert_uint_eq(result.violations, 1);
    }
END_TEST

START_TEST(a_violation_is_printed_as_short_as_it_gets)
    {
        struct linear_op ops[60];
        struct linear_result result;
        char text[4096] = "";
        uint32_t count = 0;
        for (; count < 50; count++) { /* much that has nothing to do with it */
            ops[count] = (struct linear_op){.kind = count % 2 == 0 ? REPLACE : GET,
                                            .call = 10 + 10 * count,
                                            .back = 10 + 10 * count + 15,
                                            .value = count / 2 + 1};
        }
        ops[count++] = (struct linear_op){.kind = REPLACE, .call = 600, .back = 610, .value = 100};
        ops[count++] = (struct linear_op){.kind = REPLACE, .call = 605, .back = 640, .value = 101};
        ops[count++] = (struct linear_op){.kind = GET, .call = 615, .back = 620, .value = 101};
        ops[count++] = (struct linear_op){.kind = GET, .call = 625, .back = 630, .value = 100};
        FILE *print = fmemopen(text, sizeof(text), "w");
        ck_assert_ptr_nonnull(print);
        linear_check(ops, count, &(struct linear_limits){.print = print}, &result);
        ck_assert_int_eq(fclose(print), 0);
        ck_assert_uint_eq(result.violations, 1);
        uint32_t lines = 0;
        for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
            lines++;
        }
        ck_assert_msg(lines == 5 || lines == 6, "%s",
                      text); /* three ops or four, two lines around */
        ck_assert_ptr_nonnull(strstr(text, "get     101"));
        ck_assert_ptr_nonnull(strstr(text, "get     100"));
    }
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("linear");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, known_histories_are_judged_right, 0, SL_COUNT(histories));
    tcase_add_test(tcase, small_histories_are_judged_as_by_all_orders);
    tcase_add_test(tcase, reads_between_two_of_the_same_value_change_no_verdict);
    tcase_add_test(tcase, a_register_that_keeps_its_word_passes);
    tcase_add_test(tcase, one_old_value_in_a_long_history_is_found);
    tcase_add_test(tcase, long_calls_do_not_make_a_window_undecided);
    tcase_add_test(tcase, a_window_beyond_the_bound_is_undecided_and_said_so);
    tcase_add_test(tcase, after_an_undecided_window_the_search_goes_on);
    tcase_add_test(tcase, a_violation_is_printed_as_short_as_it_gets);
    return suite_run(tcase, "linear");
}
