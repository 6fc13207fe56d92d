/* tests/fault/thrash_report.c - summarizes a run, and whether the node kept its promises. */
#include "tests/fault/thrash_driver.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const action_names[THRASH_ACTION_COUNT] = {"kills", "stops", "restarts"};

static uint64_t tally_sum(const struct driver *driver, enum thrash_action action)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < THRASH_VICTIM_COUNT; i++) {
        sum += driver->tally[i][action];
    }
    return sum;
}

static uint64_t longest(const struct driver *driver, const char **name)
{
    uint64_t most = 0;
    *name = "";
    for (uint32_t i = 0; i < THRASH_WORKERS_MAX; i++) {
        const struct thrash_worker *worker = &driver->shared->workers[i];
        uint64_t ns = atomic_load_explicit(&worker->longest_ns, memory_order_relaxed);
        if (ns > most) {
            most = ns;
            *name = worker->longest_name;
        }
    }
    return most;
}

static uint64_t errors_of(const struct driver *driver, uint32_t code)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < THRASH_WORKERS_MAX; i++) {
        sum += atomic_load_explicit(&driver->shared->workers[i].errors[code], memory_order_relaxed);
    }
    return sum;
}

static int by_time(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Median and maximum in ms. */
static void times_sum_up(const struct driver_times *times, double *median_ms, double *most_ms)
{
    static uint64_t sorted[THRASH_TIMES_MAX];
    memcpy(sorted, times->ns, times->count * sizeof *sorted);
    qsort(sorted, times->count, sizeof *sorted, by_time);
    uint32_t last = times->count - (times->count > 0);
    uint32_t middle = last / 2;
    *median_ms = times->count == 0 ? 0 : (double)sorted[middle] / 1e6;
    *most_ms = times->count == 0 ? 0 : (double)sorted[last] / 1e6;
}

bool driver_passed(const struct driver *driver)
{
    bool fine = !driver->failed && !driver_interrupted() && driver->not_whole == 0 &&
                driver->hangs == 0 && driver->crashes == 0 && driver->leaks == 0 &&
                driver->leftovers == 0 && driver->contest.violations == 0;
    for (uint32_t i = 0; i < THRASH_COUNTER_COUNT; i++) {
        fine = fine && (!thrash_counter_must_be_zero((enum thrash_counter)i) ||
                        thrash_sum(driver->shared, (enum thrash_counter)i) == 0);
    }
    return fine && thrash_sum(driver->shared, THRASH_reads_verified) > 0;
}

static void faults_print(const struct driver *driver)
{
    (void)printf(
        "\n%-14s %6s %6s %9s   %s\n", "VICTIM", "kills", "stops", "restarts",
        "whole again after a kill (supervisor: after the next start): n, median, max (ms)");
    for (uint32_t i = 0; i < THRASH_VICTIM_COUNT; i++) {
        double median_ms;
        double most_ms;
        times_sum_up(&driver->whole[i], &median_ms, &most_ms);
        (void)printf("%-14s %6ju %6ju %9ju", thrash_victim_names[i],
                     (uintmax_t)driver->tally[i][THRASH_KILL],
                     (uintmax_t)driver->tally[i][THRASH_STOP],
                     (uintmax_t)driver->tally[i][THRASH_RESTART]);
        if (driver->whole[i].count > 0) {
            (void)printf("   %u, %.0f, %.0f", driver->whole[i].count, median_ms, most_ms);
        }
        (void)printf("\n");
    }
    double median_ms;
    double most_ms;
    times_sum_up(&driver->noticed, &median_ms, &most_ms);
    (void)printf("released after the kill of a client: n %u, median %.0f ms, max %.0f ms\n",
                 driver->noticed.count, median_ms, most_ms);
}

static void actors_print(const struct driver *driver)
{
    (void)printf("\n%-14s %27s   %22s\n", "ACTOR", "descriptors first/max/last",
                 "own memory max/last KiB");
    for (uint32_t i = 0; i < THRASH_ACTORS; i++) {
        const struct driver_actor *actor = &driver->actors[i];
        (void)printf("%-14s %19ju/%3ju/%3ju   %14ju/%7ju\n", thrash_victim_names[i],
                     (uintmax_t)actor->descriptors_first, (uintmax_t)actor->descriptors_max,
                     (uintmax_t)actor->descriptors_last, (uintmax_t)actor->anon_kib_max,
                     (uintmax_t)actor->anon_kib_last);
    }
}

static void waits_print(const struct driver *driver)
{
    struct ctl_histogram *all = calloc(1, sizeof *all);
    for (uint32_t i = 0; all != NULL && i < THRASH_WORKERS_MAX; i++) {
        const struct ctl_histogram *one = &driver->shared->workers[i].waits;
        for (uint32_t k = 0; k < CTL_HISTOGRAM_BUCKETS; k++) {
            all->counts[k] += one->counts[k];
        }
        all->count += one->count;
        all->max = SL_MAX(all->max, one->max);
    }
    if (all != NULL) {
        (void)printf("waits: median %.3f ms, 99 %% %.1f ms, 99.99 %% %.1f ms\n",
                     (double)ctl_histogram_quantile(all, 0.5) / 1e6,
                     (double)ctl_histogram_quantile(all, 0.99) / 1e6,
                     (double)ctl_histogram_quantile(all, 0.9999) / 1e6);
    }
    free(all);
}

static double contested_share(const struct driver *driver)
{
    uint64_t all = thrash_sum(driver->shared, THRASH_reads_verified);
    return all == 0
               ? 0.0
               : 100.0 * (double)thrash_sum(driver->shared, THRASH_contested_reads) / (double)all;
}

void driver_report(const struct driver *driver)
{
    const char *name;
    uint64_t longest_ns = longest(driver, &name);
    faults_print(driver);
    actors_print(driver);
    (void)printf("\n");
    for (uint32_t i = 0; i < THRASH_COUNTER_COUNT; i++) {
        (void)printf("%-20s %12ju%s\n", thrash_counter_name((enum thrash_counter)i),
                     (uintmax_t)thrash_sum(driver->shared, (enum thrash_counter)i),
                     thrash_counter_must_be_zero((enum thrash_counter)i) ? "   must be 0" : "");
    }
    (void)printf("errors:");
    for (uint32_t i = 1; i < SL_ERR_COUNT; i++) {
        if (errors_of(driver, i) > 0) {
            (void)printf(" %s %ju", sl_err_name((sl_err)i), (uintmax_t)errors_of(driver, i));
        }
    }
    (void)printf("\n");
    waits_print(driver);
    (void)printf(
        "squeezes %ju, stops over 2 s %ju, evicted %ju, dropped %ju, promoted %ju, reclaimed "
        "segments %ju\n",
        (uintmax_t)driver->squeezes, (uintmax_t)driver->long_stops, (uintmax_t)driver->evicted,
        (uintmax_t)driver->dropped, (uintmax_t)driver->promoted, (uintmax_t)driver->reclaimed);
    if (driver->options.upgrades) {
        (void)printf(
            "upgrades: %ju done, %ju cut short by faults, %ju of these killed themselves\n",
            (uintmax_t)driver->upgrade.done, (uintmax_t)driver->upgrade.cut,
            (uintmax_t)driver->upgrade.killed);
    }
    (void)printf(
        "at the end: %ju objects and %ju blocks read back, %ju bytes in use, %ju accounted "
        "for\n",
        (uintmax_t)driver->objects_at_end, (uintmax_t)driver->blocks_at_end,
        (uintmax_t)driver->used_bytes, (uintmax_t)driver->live_bytes);
    (void)printf(
        "contested: %ju of %ju verified reads (%.1f %%; %ju after a write of another within a "
        "second), %ju ops logged, %ju windows of at most %ju "
        "ops and %ju states, undecided %ju, not linearizable %ju\n",
        (uintmax_t)thrash_sum(driver->shared, THRASH_contested_reads),
        (uintmax_t)thrash_sum(driver->shared, THRASH_reads_verified), contested_share(driver),
        (uintmax_t)thrash_sum(driver->shared, THRASH_contested_moving),
        (uintmax_t)driver->contest.ops, (uintmax_t)driver->contest.windows,
        (uintmax_t)driver->contest.window_max, (uintmax_t)driver->contest.states_max,
        (uintmax_t)driver->contest.undecided, (uintmax_t)driver->contest.violations);
    uint64_t notes = atomic_load_explicit(&driver->shared->note_count, memory_order_relaxed);
    for (uint64_t i = 0; i < SL_MIN(notes, THRASH_NOTES); i++) {
        (void)printf("note: %s\n", driver->shared->notes[i]);
    }
    (void)printf("not whole %ju, hangs %ju, crashes %ju, leaks %ju, left over %ju\n",
                 (uintmax_t)driver->not_whole, (uintmax_t)driver->hangs, (uintmax_t)driver->crashes,
                 (uintmax_t)driver->leaks, (uintmax_t)driver->leftovers);
    (void)printf(
        "%s: seed %ju, %ju kills, %ju stops, %ju restarts, %ju reads verified, lost %ju, false "
        "misses %ju, wrong bytes %ju, not linearizable %ju (undecided %ju), longest wait %.3f s "
        "(%s) of %.1f s\n",
        driver_passed(driver) ? "PASS" : "FAIL", (uintmax_t)driver->options.seed,
        (uintmax_t)tally_sum(driver, THRASH_KILL), (uintmax_t)tally_sum(driver, THRASH_STOP),
        (uintmax_t)tally_sum(driver, THRASH_RESTART),
        (uintmax_t)thrash_sum(driver->shared, THRASH_reads_verified),
        (uintmax_t)thrash_sum(driver->shared, THRASH_lost),
        (uintmax_t)thrash_sum(driver->shared, THRASH_false_misses),
        (uintmax_t)thrash_sum(driver->shared, THRASH_wrong), (uintmax_t)driver->contest.violations,
        (uintmax_t)driver->contest.undecided, (double)longest_ns / 1e9, name,
        (double)driver->shared->timeout_ns / 1e9);
}

static json_t *u64(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *victims_json(const struct driver *driver)
{
    json_t *victims = json_object();
    for (uint32_t i = 0; i < THRASH_VICTIM_COUNT; i++) {
        json_t *victim = json_object();
        double median_ms;
        double most_ms;
        for (uint32_t k = 0; k < THRASH_ACTION_COUNT; k++) {
            (void)json_object_set_new(victim, action_names[k], u64(driver->tally[i][k]));
        }
        times_sum_up(&driver->whole[i], &median_ms, &most_ms);
        (void)json_object_set_new(victim, "whole_count", u64(driver->whole[i].count));
        (void)json_object_set_new(victim, "whole_median_ms", json_real(median_ms));
        (void)json_object_set_new(victim, "whole_max_ms", json_real(most_ms));
        (void)json_object_set_new(victims, thrash_victim_names[i], victim);
    }
    return victims;
}

sl_err driver_report_json(const struct driver *driver, const char *path, struct sl_error *why)
{
    const char *name;
    json_t *root = json_object();
    json_t *errors = json_object();
    json_t *notes = json_array();
    (void)json_object_set_new(root, "passed", json_boolean(driver_passed(driver)));
    (void)json_object_set_new(root, "seed", u64(driver->options.seed));
    (void)json_object_set_new(root, "seconds", u64(driver->options.seconds));
    (void)json_object_set_new(root, "mode", json_string(driver->options.mode));
    for (uint32_t i = 0; i < THRASH_ACTION_COUNT; i++) {
        (void)json_object_set_new(root, action_names[i],
                                  u64(tally_sum(driver, (enum thrash_action)i)));
    }
    for (uint32_t i = 0; i < THRASH_COUNTER_COUNT; i++) {
        (void)json_object_set_new(root, thrash_counter_name((enum thrash_counter)i),
                                  u64(thrash_sum(driver->shared, (enum thrash_counter)i)));
    }
    for (uint32_t i = 1; i < SL_ERR_COUNT; i++) {
        if (errors_of(driver, i) > 0) {
            (void)json_object_set_new(errors, sl_err_name((sl_err)i), u64(errors_of(driver, i)));
        }
    }
    (void)json_object_set_new(root, "errors", errors);
    (void)json_object_set_new(root, "longest_wait_ns", u64(longest(driver, &name)));
    (void)json_object_set_new(root, "upgrades_done", u64(driver->upgrade.done));
    (void)json_object_set_new(root, "upgrades_cut", u64(driver->upgrade.cut));
    (void)json_object_set_new(root, "upgrades_killed", u64(driver->upgrade.killed));
    (void)json_object_set_new(root, "longest_wait_of", json_string(name));
    (void)json_object_set_new(root, "not_linearizable", u64(driver->contest.violations));
    (void)json_object_set_new(root, "undecided", u64(driver->contest.undecided));
    (void)json_object_set_new(root, "not_whole", u64(driver->not_whole));
    (void)json_object_set_new(root, "hangs", u64(driver->hangs));
    (void)json_object_set_new(root, "crashes", u64(driver->crashes));
    (void)json_object_set_new(root, "leaks", u64(driver->leaks));
    (void)json_object_set_new(root, "left_over", u64(driver->leftovers));
    (void)json_object_set_new(root, "used_bytes", u64(driver->used_bytes));
    (void)json_object_set_new(root, "live_bytes", u64(driver->live_bytes));
    (void)json_object_set_new(root, "victims", victims_json(driver));
    uint64_t count = atomic_load_explicit(&driver->shared->note_count, memory_order_relaxed);
    for (uint64_t i = 0; i < SL_MIN(count, THRASH_NOTES); i++) {
        (void)json_array_append_new(notes, json_string(driver->shared->notes[i]));
    }
    (void)json_object_set_new(root, "notes", notes);
    bool standard = strcmp(path, "-") == 0;
    int failed = standard ? json_dumpf(root, stdout, JSON_INDENT(2))
                          : json_dump_file(root, path, JSON_INDENT(2));
    json_decref(root);
    return failed == 0 ? SL_OK : sl_fail(why, SL_ERR_IO, "cannot write '%s'", path);
}
