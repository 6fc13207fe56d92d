/* tests/support/linear.c - see the header.
 *
 * A state of the search records which ops of a window have taken effect and which value the key
 * then has. Ops with an answer ("musts") are sorted by call. All before number `next` have taken
 * effect, except `holes`, which can only be ops that overlap one that has: at most as many as there
 * are callers, however long one of them takes. Ops without an answer ("maybes") have a bit each
 * from `maybe` on: taken, or too late to be. All maybes before `maybe` are one or the other.
 *
 * Three rules keep the number of states low without losing a history. An op that only reads is
 * taken at once. A maybe is never taken "without effect": it is too late once an op called after
 * its end has been taken. A maybe whose value no get returns is taken only while the key has no
 * value, since any other value serves as well. */
#include "tests/support/linear.h"

#include <stdlib.h>
#include <string.h>

#define HOLES_MAX        24u
#define MAYBES_MAX       64u
#define STATES_STANDARD  400000u
#define PRINTS_STANDARD  3u
#define STARTS_MAX       4096u
#define ABSENT           0u
#define ANYTHING         UINT32_MAX /* the key's value is unknown */
#define MINIMISE_TRIES   2000u
#define MINIMISE_STATES  20000u
#define MINIMISE_OPS_MAX 400u

struct state {
    uint64_t maybes;
    uint32_t next, value, maybe, hole_count;
    uint32_t holes[HOLES_MAX]; /* ascending; 0 from hole_count on */
};
struct search {
    const struct linear_op *all[2]; /* musts by call, maybes by call */
    uint32_t count[2];
    struct state *states; /* found, in this order; each is visited once */
    uint32_t state_count, state_max;
    uint32_t *table;  /* number + 1; 0: none */
    uint32_t *places; /* of each state in the table */
    uint32_t table_mask;
    uint32_t ends[STARTS_MAX]; /* values in which the window may end */
    uint32_t end_count;
    bool over; /* the search exceeded its bound */
};
enum verdict { FINE, WRONG, UNDECIDED };
/* The values that the key may have before a window. */
struct starts {
    uint32_t values[STARTS_MAX];
    uint32_t count;
};

static void *room(size_t bytes)
{
    void *at = malloc(bytes);
    if (at == NULL) {
        (void)fputs("linear: out of memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    return at;
}

/* ---- the model ---- */

/* Computes the values that may follow; returns their number (0: the op cannot take effect now). */
static uint32_t step(const struct linear_op *op, uint32_t value, uint32_t out[2])
{
    bool there = value != ABSENT; /* ANYTHING includes absent */
    switch ((enum linear_kind)op->kind) {
    case LINEAR_PUT:
        out[0] = there ? value : op->value;
        out[1] = op->value;
        return there && (op->loses || value == ANYTHING) ? 2 : 1;
    case LINEAR_REPLACE:
        out[0] = op->value;
        return 1;
    case LINEAR_REMOVE:
        out[0] = ABSENT;
        return 1;
    case LINEAR_GET:
        out[0] = op->value;
        return value == op->value || value == ANYTHING;
    case LINEAR_MISS:
        out[0] = ABSENT;
        return value == ABSENT || value == ANYTHING || op->loses;
    case LINEAR_EXISTS:
        out[0] = value;
        return there;
    case LINEAR_CRASH:
        break;
    }
    return 0;
}

/* A miss that may evict does not only read: its effect may be needed later. */
static bool only_reads(const struct linear_op *op, uint32_t value)
{
    uint32_t out[2];
    return op->kind >= LINEAR_GET && !op->loses && step(op, value, out) == 1 && out[0] == value;
}

/* ---- states that were found ---- */

static uint64_t state_hash(const struct state *state)
{
    uint64_t hash = (uint64_t)state->next << 32 | state->value;
    for (uint32_t i = 0; i < state->hole_count; i++) {
        hash = (hash ^ state->holes[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    hash = (hash ^ state->maybes ^ (uint64_t)state->maybe << 40) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ (hash >> 31);
}

static void state_add(struct search *search, const struct state *state)
{
    uint32_t at = (uint32_t)state_hash(state) & search->table_mask;
    for (; search->table[at] != 0; at = (at + 1) & search->table_mask) {
        if (memcmp(&search->states[search->table[at] - 1], state, sizeof(*state)) == 0) {
            return;
        }
    }
    if (search->state_count == search->state_max) {
        search->over = true;
        return;
    }
    search->places[search->state_count] = at;
    search->states[search->state_count++] = *state;
    search->table[at] = search->state_count;
}

static void states_clear(struct search *search)
{
    for (uint32_t i = 0; i < search->state_count; i++) {
        search->table[search->places[i]] = 0;
    }
    search->state_count = 0;
}

/* The musts that have not taken effect, in order: the holes, then all from `next` on. */
static uint32_t left_at(const struct state *state, uint32_t i)
{
    return i < state->hole_count ? state->holes[i] : state->next + i - state->hole_count;
}

/* Lets the i-th of them take effect. False: too many overlap. */
static bool left_take(struct state *state, uint32_t i)
{
    if (i < state->hole_count) {
        memmove(&state->holes[i], &state->holes[i + 1],
                (state->hole_count - i - 1) * sizeof(state->holes[0]));
        state->holes[--state->hole_count] = 0;
        return true;
    }
    uint32_t must = left_at(state, i);
    if (state->hole_count + must - state->next > HOLES_MAX) {
        return false;
    }
    while (state->next < must) {
        state->holes[state->hole_count++] = state->next++;
    }
    state->next++;
    return true;
}

/* ---- one step of the search ---- */

static void maybe_set(struct search *search, struct state *state, uint32_t number)
{
    if (number - state->maybe >= MAYBES_MAX) {
        search->over = true;
        return;
    }
    state->maybes |= UINT64_C(1) << (number - state->maybe);
}

static void maybe_advance(struct state *state)
{
    for (; (state->maybes & 1) != 0; state->maybes >>= 1) {
        state->maybe++;
    }
}

/* Maybes that ended before the call of an op that has taken effect are too late. */
static void maybes_end(struct search *search, struct state *state, uint64_t called)
{
    for (uint32_t i = state->maybe; i < search->count[1] && search->all[1][i].call < called; i++) {
        if (search->all[1][i].back < called) {
            maybe_set(search, state, i);
        }
    }
}

/* number: of a maybe, or of a must among those not yet taken. */
static void take(struct search *search, const struct state *from, bool maybe, uint32_t number)
{
    const struct linear_op *op = &search->all[maybe][maybe ? number : left_at(from, number)];
    uint32_t out[2];
    uint32_t count = step(op, from->value, out);
    for (uint32_t i = 0; i < count; i++) {
        struct state next = *from;
        next.value = out[i];
        if (maybe) {
            maybe_set(search, &next, number);
        } else if (!left_take(&next, number)) {
            search->over = true;
            return;
        }
        maybes_end(search, &next, op->call);
        maybe_advance(&next);
        state_add(search, &next);
    }
}

static bool would_end_a_maybe(struct search *search, const struct state *state, uint64_t called)
{
    struct state then = *state;
    maybes_end(search, &then, called);
    return then.maybes != state->maybes;
}

static void end_add(struct search *search, uint32_t value)
{
    for (uint32_t i = 0; i < search->end_count; i++) {
        if (search->ends[i] == value) {
            return;
        }
    }
    if (search->end_count == STARTS_MAX) {
        search->over = true;
        return;
    }
    search->ends[search->end_count++] = value;
}

static void look(struct search *search, struct state state)
{
    const struct linear_op *musts = search->all[0];
    uint32_t left = search->count[0] - state.next + state.hole_count, end = 0;
    uint64_t first_back = LINEAR_NEVER; /* an op that takes effect now was called before this */
    for (; end < left && musts[left_at(&state, end)].call <= first_back; end++) {
        uint64_t back = musts[left_at(&state, end)].back;
        first_back = back < first_back ? back : first_back;
    }
    for (uint32_t i = 0; i < end; i++) {
        const struct linear_op *op = &musts[left_at(&state, i)];
        if (only_reads(op, state.value) && !would_end_a_maybe(search, &state, op->call)) {
            take(search, &state, false, i);
            return;
        }
    }
    if (left == 0) {
        end_add(search, state.value);
    }
    for (uint32_t i = 0; i < end; i++) {
        take(search, &state, false, i);
    }
    for (uint32_t i = state.maybe;
         i < search->count[1] && search->all[1][i].call <= first_back && !search->over; i++) {
        uint32_t at = i - state.maybe;
        if (at >= MAYBES_MAX) {
            search->over = true;
        } else if ((state.maybes >> at & 1) == 0 &&
                   (!search->all[1][i].unread || state.value == ABSENT)) {
            take(search, &state, true, i);
        }
    }
}

/* ---- a window ---- */

struct checker {
    struct linear_limits limits;
    struct linear_result *result;
    struct search search;
    struct linear_op *split[2]; /* space for musts and maybes */
    size_t split_room;
    uint64_t states_tried; /* by the last search */
};

static void checker_split(struct checker *checker, const struct linear_op *ops, size_t count)
{
    struct search *search = &checker->search;
    if (count > checker->split_room) {
        for (uint32_t i = 0; i < 2; i++) {
            free(checker->split[i]);
            checker->split[i] = room(count * sizeof(*ops));
        }
        checker->split_room = count;
    }
    search->count[0] = search->count[1] = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t which = ops[i].maybe;
        checker->split[which][search->count[which]++] = ops[i];
    }
    search->all[0] = checker->split[0];
    search->all[1] = checker->split[1];
}

/* *ends: the values that the key may have afterwards, if the verdict is FINE. */
static enum verdict window_search(struct checker *checker, const struct linear_op *ops,
                                  size_t count, const struct starts *starts, struct starts *ends)
{
    struct search *search = &checker->search;
    checker_split(checker, ops, count);
    search->over = false;
    search->end_count = 0;
    states_clear(search);
    for (uint32_t i = 0; i < starts->count && !search->over; i++) {
        struct state state = {.value = starts->values[i]};
        state_add(search, &state);
    }
    for (uint32_t i = 0; i < search->state_count && !search->over; i++) {
        look(search, search->states[i]);
    }
    checker->states_tried = search->state_count;
    if (search->over) {
        return UNDECIDED;
    }
    ends->count = search->end_count;
    memcpy(ends->values, search->ends, search->end_count * sizeof(search->ends[0]));
    return search->end_count > 0 ? FINE : WRONG;
}

/* ---- the smallest history that shows a violation ---- */

/* The ops that were called by then; one that was still in progress may have taken effect. */
static size_t prefix(const struct linear_op *ops, size_t count, uint64_t until,
                     struct linear_op *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < count && ops[i].call <= until; i++) {
        struct linear_op op = ops[i];
        if (op.back > until) {
            if (op.kind >= LINEAR_GET) {
                continue;
            }
            op.maybe = true;
            op.back = LINEAR_NEVER;
        }
        out[kept++] = op;
    }
    return kept;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The shortest prefix that fits no register: more ops do not make it right. */
static size_t shortest_prefix(struct checker *checker, const struct linear_op *ops, size_t count,
                              const struct starts *starts, struct linear_op *out)
{
    static struct starts ends;
    uint64_t *times = room(count * sizeof(*times));
    size_t low = 0, high = count - 1;
    for (size_t i = 0; i < count; i++) {
        times[i] = ops[i].back;
    }
    qsort(times, count, sizeof(*times), by_number);
    while (low < high) {
        size_t middle = (low + high) / 2;
        size_t kept = prefix(ops, count, times[middle], out);
        if (window_search(checker, out, kept, starts, &ends) == WRONG) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    size_t kept = prefix(ops, count, times[high], out);
    free(times);
    if (window_search(checker, out, kept, starts, &ends) != WRONG) { /* too many maybes for it */
        memcpy(out, ops, count * sizeof(*ops));
        kept = count;
    }
    return kept;
}

/* Whether the history is wrong without this op as well. A read is left out; a write counts as in
 * progress for all the time, and may take effect at any moment or never. */
static bool needless(struct checker *checker, struct linear_op *ops, size_t *count, size_t at,
                     const struct starts *starts)
{
    static struct starts ends;
    struct linear_op op = ops[at];
    bool write = op.kind < LINEAR_GET;
    if (write && op.maybe && op.call == 0 && op.back == LINEAR_NEVER) {
        return false; /* is so already */
    }
    memmove(&ops[at], &ops[at + 1], (*count - at - 1) * sizeof(op));
    (*count)--;
    if (write) { /* in front: by call */
        struct linear_op loose = op;
        loose.maybe = true;
        loose.call = 0;
        loose.back = LINEAR_NEVER;
        memmove(&ops[1], &ops[0], *count * sizeof(op));
        ops[0] = loose;
        (*count)++;
    }
    if (window_search(checker, ops, *count, starts, &ends) == WRONG) {
        return true;
    }
    if (write) {
        memmove(&ops[0], &ops[1], (*count - 1) * sizeof(op));
        (*count)--;
    }
    memmove(&ops[at + 1], &ops[at], (*count - at) * sizeof(op));
    ops[at] = op;
    (*count)++;
    return false;
}

static void minimise(struct checker *checker, struct linear_op *ops, size_t *count,
                     const struct starts *starts)
{
    uint32_t tries = 0, states_max = checker->search.state_max;
    bool again = *count <= MINIMISE_OPS_MAX;
    if (states_max > MINIMISE_STATES) {
        checker->search.state_max = MINIMISE_STATES;
    }
    while (again) {
        again = false;
        for (size_t i = *count; i > 0 && tries < MINIMISE_TRIES; i--) {
            size_t before = *count;
            bool gone = i <= before && needless(checker, ops, count, i - 1, starts);
            tries++;
            again = again || gone;
            i += gone && *count == before; /* a write went to the front, the rest moved up */
        }
    }
    checker->search.state_max = states_max;
}

static void op_print(const struct linear_limits *limits, const struct linear_op *op, uint64_t began)
{
    static const char *const names[] = {"put",  "replace", "remove", "get",
                                        "miss", "exists",  "crash"};
    double ms = (limits->ns_of_time > 0 ? limits->ns_of_time : 1) / 1e6;
    double from = ((double)op->call - (double)began) * ms;
    (void)fprintf(limits->print, "  %3u  %-8s", op->who, names[op->kind]);
    if (op->kind == LINEAR_PUT || op->kind == LINEAR_REPLACE || op->kind == LINEAR_GET) {
        (void)fprintf(limits->print, "%-8u", op->value);
    } else {
        (void)fprintf(limits->print, "%-8s", "");
    }
    if (op->back == LINEAR_NEVER) {
        (void)fprintf(limits->print, "[%.6f ms, ...", from);
    } else {
        (void)fprintf(limits->print, "[%.6f ms, %.6f ms]", from,
                      ((double)op->back - (double)began) * ms);
    }
    (void)fprintf(limits->print, "%s%s\n", op->maybe ? "  no answer" : "",
                  op->loses ? "  may be evicted" : "");
}

static void violation_print(struct checker *checker, const struct linear_op *ops, size_t count,
                            const struct starts *starts)
{
    const struct linear_limits *limits = &checker->limits;
    uint64_t began = ops[0].call;
    struct linear_op *small = room((count + 1) * sizeof(*small));
    size_t kept = shortest_prefix(checker, ops, count, starts, small), loose = 0;
    minimise(checker, small, &kept, starts);
    (void)fprintf(limits->print,
                  "not linearizable: key %u, a window of %zu ops; before:", ops[0].key, count);
    for (uint32_t i = 0; i < starts->count && i < 16; i++) {
        if (starts->values[i] == ABSENT || starts->values[i] == ANYTHING) {
            (void)fprintf(limits->print, " %s",
                          starts->values[i] == ABSENT ? "absent" : "anything");
        } else {
            (void)fprintf(limits->print, " value %u", starts->values[i]);
        }
    }
    (void)fprintf(limits->print, "%s. From %.6f ms on no order explains\n",
                  starts->count > 16 ? " ..." : "",
                  (double)began * (limits->ns_of_time > 0 ? limits->ns_of_time : 1) / 1e6);
    for (size_t i = 0; i < kept; i++) {
        if (small[i].maybe && small[i].call == 0 && small[i].back == LINEAR_NEVER) {
            loose++;
        } else {
            op_print(limits, &small[i], began);
        }
    }
    (void)fprintf(limits->print, "  whenever %zu other writes took effect\n", loose);
    if (limits->print_all) {
        (void)fprintf(limits->print, "all of the window:\n");
        for (size_t i = 0; i < count; i++) {
            op_print(limits, &ops[i], began);
        }
    }
    free(small);
}

/* ---- a key ---- */

static int by_key_and_call(const void *a, const void *b)
{
    const struct linear_op *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    if (x->call != y->call) {
        return x->call < y->call ? -1 : 1;
    }
    return (x->back > y->back) - (x->back < y->back);
}

/* Whether an acknowledged op on the key began after this write had ended and before the crash. */
static bool superseded(const struct linear_op *ops, size_t count, const struct linear_op *write)
{
    for (size_t i = 0; i < count; i++) {
        bool ends = ops[i].kind == LINEAR_REPLACE || ops[i].kind == LINEAR_REMOVE;
        if (ends && !ops[i].maybe && ops[i].call > write->back) {
            return true;
        }
    }
    return false;
}

/* The values that the key may have after a crash; ops are all of the key's before it. */
static void starts_after_crash(const struct linear_op *ops, size_t count, struct starts *starts)
{
    starts->values[0] = ABSENT;
    starts->count = 1;
    for (size_t i = 0; i < count; i++) {
        bool write = ops[i].kind == LINEAR_PUT || ops[i].kind == LINEAR_REPLACE;
        if (!write || superseded(ops, count, &ops[i])) {
            continue;
        }
        if (starts->count == STARTS_MAX) {
            starts->values[0] = ANYTHING;
            starts->count = 1;
            return;
        }
        starts->values[starts->count++] = ops[i].value;
    }
}

static size_t window_end(const struct linear_op *ops, size_t first, size_t count)
{
    uint64_t back = ops[first].back;
    size_t at = first + 1;
    while (at < count && ops[at].kind != LINEAR_CRASH && ops[at].call <= back) {
        back = ops[at].back > back ? ops[at].back : back;
        at++;
    }
    return at;
}

/* Ops in progress at a crash ended with it. */
static void crash_cuts(struct linear_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; ops[i].kind == LINEAR_CRASH && k < i; k++) {
            if (ops[k].back > ops[i].call) {
                ops[k].back = ops[i].call;
            }
        }
    }
}

static void window_judge(struct checker *checker, const struct linear_op *ops, size_t count,
                         struct starts *starts, bool *wrong)
{
    static struct starts ends;
    struct linear_result *result = checker->result;
    enum verdict verdict = window_search(checker, ops, count, starts, &ends);
    result->windows++;
    result->window_max = count > result->window_max ? count : result->window_max;
    result->states_max =
        checker->states_tried > result->states_max ? checker->states_tried : result->states_max;
    if (verdict == WRONG) {
        *wrong = true;
        if (result->violations++ < checker->limits.prints_max && checker->limits.print != NULL) {
            violation_print(checker, ops, count, starts);
        }
    } else if (verdict == UNDECIDED) {
        result->undecided++;
        starts->count = 1;
        starts->values[0] = ANYTHING;
    } else {
        *starts = ends;
        for (size_t i = 0; i < count; i++) {
            result->values_judged += ops[i].kind >= LINEAR_GET;
        }
    }
}

/* Marks the values that no get returns. */
static void unread_mark(struct linear_op *ops, size_t count)
{
    uint64_t *seen = room((count + 1) * sizeof(*seen));
    size_t seen_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == LINEAR_GET) {
            seen[seen_count++] = ops[i].value;
        }
    }
    qsort(seen, seen_count, sizeof(*seen), by_number);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = ops[i].value;
        bool writes = ops[i].kind == LINEAR_PUT || ops[i].kind == LINEAR_REPLACE;
        ops[i].unread =
            writes && bsearch(&value, seen, seen_count, sizeof(*seen), by_number) == NULL;
    }
    free(seen);
}

static void key_check(struct checker *checker, struct linear_op *ops, size_t count)
{
    static struct starts starts;
    bool wrong = false;
    starts.count = 1;
    starts.values[0] = ABSENT;
    checker->result->keys++;
    crash_cuts(ops, count);
    unread_mark(ops, count);
    for (size_t at = 0; at < count && !wrong;) {
        if (ops[at].kind == LINEAR_CRASH) {
            starts_after_crash(ops, at, &starts);
            at++;
            continue;
        }
        size_t end = window_end(ops, at, count);
        window_judge(checker, &ops[at], end - at, &starts, &wrong);
        at = end;
    }
}

void linear_check(struct linear_op *ops, size_t count, const struct linear_limits *limits,
                  struct linear_result *result)
{
    struct checker checker = {.result = result};
    uint32_t slots = 1;
    if (limits != NULL) {
        checker.limits = *limits;
    }
    if (checker.limits.states_max == 0) {
        checker.limits.states_max = STATES_STANDARD;
    }
    if (checker.limits.prints_max == 0) {
        checker.limits.prints_max = PRINTS_STANDARD;
    }
    while (slots < 2 * checker.limits.states_max) {
        slots *= 2;
    }
    checker.search.state_max = checker.limits.states_max;
    checker.search.states = room(checker.limits.states_max * sizeof(struct state));
    checker.search.places = room(checker.limits.states_max * sizeof(uint32_t));
    checker.search.table = room(slots * sizeof(uint32_t));
    memset(checker.search.table, 0, slots * sizeof(uint32_t));
    checker.search.table_mask = slots - 1;
    *result = (struct linear_result){.ops = count};
    if (count > 0) {
        qsort(ops, count, sizeof(*ops), by_key_and_call);
    }
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        while (end < count && ops[end].key == ops[first].key) {
            end++;
        }
        key_check(&checker, &ops[first], end - first);
        first = end;
    }
    free(checker.search.states);
    free(checker.search.places);
    free(checker.search.table);
    free(checker.split[0]);
    free(checker.split[1]);
}
