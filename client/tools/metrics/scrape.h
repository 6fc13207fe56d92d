/* client/tools/metrics/scrape.h - all metrics of a node as monitoring reads them, from shared
 * memory and /proc, without messages to actors. */
#ifndef SL_CLIENT_METRICS_SCRAPE_H
#define SL_CLIENT_METRICS_SCRAPE_H

#include "client/tools/metrics/table.h"
#include "runtime/base/sl_error.h"

#include <stdio.h>

#define SCRAPE_LABELS_MAX 6u
#define SCRAPE_TYPE       "text/plain; version=0.0.4; charset=utf-8" /* content type of scrape_text */

struct scrape_label {
    const char *name, *value;
};
/* value: a decimal number. suffix: "", or _bucket, _sum, _count of a histogram. All borrowed. */
struct scrape_sample {
    const char *suffix;
    struct scrape_label labels[SCRAPE_LABELS_MAX];
    uint32_t label_count;
    const char *value;
};
struct scrape_sink {
    void (*family)(void *context, const struct metric_fact *first); /* its samples follow */
    void (*sample)(void *context, const struct metric_fact *fact,
                   const struct scrape_sample *sample);
    void *context;
};

/* Passes all families with samples to the sink. Errors: SL_ERR_UNREACHABLE (no pages: no node),
 * SL_ERR_NO_MEMORY, those of shm files except SL_ERR_NOT_FOUND: registrars of older releases have
 * no counts of clients. */
sl_err scrape_node(const char *shm_dir, const struct scrape_sink *sink, struct sl_error *why);
/* Writes Prometheus' text format, version 0.0.4. Errors: as above; out may then have a part. */
sl_err scrape_text(const char *shm_dir, FILE *out, struct sl_error *why);

#endif
