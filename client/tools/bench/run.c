/* client/tools/bench/run.c - runs the rounds of a benchmark. */
#include "client/tools/bench/bench.h"
#include "runtime/base/sl_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL_NS (10 * SL_NS_PER_S)

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_median(const double *rates, const double *divisors, uint32_t count)
{
    SL_AUTO(free) double *values = calloc(SL_MAX(count, 1), sizeof *values);
    if (values == NULL || count == 0) {
        return 0; /* NOLINT(clang-analyzer-unix.Malloc): its clean-up frees it */
    }
    for (uint32_t i = 0; i < count; i++) {
        values[i] = divisors != NULL ? rates[i] / SL_MAX(divisors[i], 1e-9) : rates[i];
    }
    qsort(values, count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void bench_key_write(uint64_t number, char text[BENCH_KEY_BYTES])
{
    (void)snprintf(text, BENCH_KEY_BYTES, "bench/%010u/%022" PRIu64, (uint32_t)getpid(), number);
}

/* Splits the value of one key into equal pieces; the last one takes the remainder. */
static void pieces_prepare(const struct bench *bench, uint32_t index)
{
    struct sl_iov *pieces = &bench->piece_room[index * bench->pieces];
    uint64_t share = bench->size_bytes / bench->pieces;
    unsigned char *at = bench->buffers[index].at;
    for (uint64_t i = 0; i < bench->pieces; i++) {
        bool last = i + 1 == bench->pieces;
        pieces[i] = (struct sl_iov){.at = at + i * share,
                                    .length_bytes = last ? bench->size_bytes - i * share : share,
                                    .offset_bytes = i * share};
    }
    bench->items[index] = (struct sl_iov_list){
        .key = bench->asked[index], .at = pieces, .count = (uint32_t)bench->pieces};
}

/* Fills the arrays of one call with keys first .. first + count. */
static void call_prepare(struct bench *bench, uint64_t first, uint32_t count)
{
    uint64_t slots = SL_MAX(bench->walk_bytes / bench->size_bytes, 1);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t number = first + i;
        char *text = &bench->key_texts[i * BENCH_KEY_BYTES];
        if (bench->kind == BENCH_EXISTS) {
            text = &bench->key_texts[number * BENCH_KEY_BYTES];
        } else {
            bench_key_write(number, text);
        }
        bench->asked[i] = (struct sl_object_key){.at = text, .length = BENCH_KEY_BYTES - 1};
        bench->buffers[i] =
            (struct sl_buffer){.at = bench->user + number % slots * bench->size_bytes,
                               .length_bytes = bench->size_bytes};
        if (bench->pieces > 0) {
            pieces_prepare(bench, i);
        }
    }
}

static sl_err call_make(struct bench *bench, enum bench_kind kind, uint32_t count,
                        struct sl_error *why)
{
    switch (kind) {
    case BENCH_GET:
        if (bench->pieces > 0) {
            return sl_getv(bench->client, bench->items, count, true, bench->lengths, bench->codes,
                           CALL_NS, why);
        }
        return sl_get_batch(bench->client, bench->asked, bench->buffers, count, bench->lengths,
                            bench->codes, CALL_NS, why);
    case BENCH_PUT:
        if (bench->pieces > 0) {
            return sl_putv(bench->client, bench->items, count, NULL, bench->codes, CALL_NS, why);
        }
        return sl_put_batch(bench->client, bench->asked, bench->buffers, count, bench->codes,
                            CALL_NS, why);
    default:
        return sl_exists_batch(bench->client, bench->asked, count, bench->codes);
    }
}

static sl_err codes_check(const struct bench *bench, enum bench_kind kind, uint32_t count,
                          struct sl_error *why)
{
    static const char *const names[] = {"get", "put", "exists"};
    for (uint32_t i = 0; i < count; i++) {
        if (bench->codes[i] == SL_ERR_NOT_FOUND) {
            return sl_fail(why, SL_ERR_NOT_FOUND,
                           "%" PRIu64 " keys of %" PRIu64
                           " bytes: some are evicted already; use fewer keys or more memory "
                           "(also index_memory, 384 bytes for each key)",
                           bench->keys, bench->size_bytes);
        }
        if (bench->codes[i] != SL_OK) {
            return sl_fail(why, bench->codes[i], "%s of key %u of %u: %s", names[kind], i, count,
                           sl_err_text(bench->codes[i]));
        }
    }
    return SL_OK;
}

static sl_err call_checked(struct bench *bench, enum bench_kind kind, uint64_t first,
                           uint32_t count, uint64_t *took_ns, struct sl_error *why)
{
    call_prepare(bench, first, count);
    uint64_t started_ns = sl_clock_monotonic_ns();
    sl_err err = call_make(bench, kind, count, why);
    *took_ns = sl_clock_monotonic_ns() - started_ns;
    return err == SL_OK ? codes_check(bench, kind, count, why) : err;
}

/* Removes keys first .. next. Evicted keys are no error. */
static sl_err keys_remove(struct bench *bench, struct sl_error *why)
{
    sl_err err = SL_OK;
    while (err == SL_OK && bench->first < bench->next) {
        uint32_t count = (uint32_t)SL_MIN(bench->bulk, bench->next - bench->first);
        call_prepare(bench, bench->first, count);
        err = sl_remove_batch(bench->client, bench->asked, count, NULL, bench->codes, CALL_NS, why);
        bench->first += count;
    }
    return err;
}

/* Puts all keys; evicting: writes the whole arena twice, so that later puts find it full and its
 * pages mapped. */
static sl_err fill(struct bench *bench, struct sl_error *why)
{
    uint64_t until = bench->evicting ? 2 * bench->keys : bench->keys;
    sl_err err = SL_OK;
    while (err == SL_OK && bench->next < until) {
        uint64_t took_ns;
        uint32_t count = (uint32_t)SL_MIN(bench->bulk, until - bench->next);
        err = call_checked(bench, BENCH_PUT, bench->next, count, &took_ns, why);
        bench->next += count;
    }
    return err;
}

/* Chooses the keys of the operation's next call. */
static sl_err op_advance(struct bench *bench, uint64_t *cursor, uint32_t *count,
                         struct sl_error *why)
{
    *count = (uint32_t)bench->batch;
    if (bench->kind == BENCH_PUT) {
        if (!bench->evicting && bench->next + *count > bench->first + bench->keys) {
            sl_err err = keys_remove(bench, why);
            if (err != SL_OK) {
                return err;
            }
        }
        *cursor = bench->next;
        bench->next += *count;
        /* Keys that were put this long ago are evicted and need not be removed at the end. */
        bench->first = bench->evicting ? SL_MAX(bench->first,
                                                bench->next - SL_MIN(bench->next, 2 * bench->keys))
                                       : bench->first;
        return SL_OK;
    }
    if (*cursor + *count > bench->keys) {
        *cursor = 0;
    }
    return SL_OK;
}

static sl_err op_round(struct bench *bench, uint64_t *cursor, bool timed, struct bench_round *out,
                       struct sl_error *why)
{
    sl_err err = SL_OK;
    *out = (struct bench_round){0};
    while (err == SL_OK && out->busy_ns < BENCH_ROUND_NS) {
        uint32_t count = 0;
        uint64_t took_ns = 0;
        err = op_advance(bench, cursor, &count, why);
        if (err == SL_OK) {
            err = call_checked(bench, bench->kind, *cursor, count, &took_ns, why);
        }
        *cursor += count;
        out->ops += count;
        out->busy_ns += took_ns;
        if (timed) {
            ctl_histogram_add(&bench->calls_ns[BENCH_SIDE_OP], took_ns);
        }
    }
    return err;
}

static sl_err side_round(struct bench *bench, enum bench_side side, uint64_t *cursor,
                         struct sl_error *why)
{
    struct bench_round round = {0};
    sl_err err = side == BENCH_SIDE_OP ? op_round(bench, cursor, true, &round, why)
                                       : bench_limit_round(bench, side, &round, why);
    bench->rates[side][bench->round_count] =
        (double)round.ops * 1e9 / (double)SL_MAX(round.busy_ns, 1);
    return err;
}

static sl_err rounds_run(struct bench *bench, uint64_t *cursor, struct sl_error *why)
{
    uint32_t sides = bench_copy_name(bench) != NULL ? BENCH_SIDES : BENCH_SIDES - 1;
    uint64_t until_ns = sl_clock_monotonic_ns() + bench->measure_ns;
    sl_err err = SL_OK;
    do {
        for (uint32_t i = 0; i < sides && err == SL_OK; i++) { /* the order rotates */
            enum bench_side side = (enum bench_side)((bench->round_count + i) % sides);
            err = side_round(bench, side, cursor, why);
        }
        bench->round_count++;
    } while (err == SL_OK && bench->round_count < BENCH_ROUNDS_MAX &&
             sl_clock_monotonic_ns() < until_ns);
    return err;
}

/* Walks once before the measurement, so that pages are mapped and caches in their usual state. */
static sl_err warm_up(struct bench *bench, uint64_t *cursor, struct sl_error *why)
{
    struct bench_round round;
    uint64_t done = 0;
    sl_err err = SL_OK;
    uint64_t until_ns = sl_clock_monotonic_ns() + bench->measure_ns;
    while (err == SL_OK && done < bench->keys && sl_clock_monotonic_ns() < until_ns) {
        err = op_round(bench, cursor, false, &round, why);
        done += round.ops;
    }
    return err;
}

sl_err bench_measure(struct bench *bench, struct sl_error *why)
{
    uint64_t cursor = 0;
    sl_err err = bench->kind != BENCH_PUT || bench->evicting ? fill(bench, why) : SL_OK;
    if (err == SL_OK) {
        err = warm_up(bench, &cursor, why);
    }
    if (err == SL_OK) {
        err = rounds_run(bench, &cursor, why);
    }
    struct sl_error ignored;
    sl_err removed = keys_remove(bench, err == SL_OK ? why : &ignored);
    return err != SL_OK ? err : removed;
}
