/* client/tools/metrics/scrape.h - all metrics of a node as monitoring reads them. Only shared
 * memory and /proc are read: no actor is asked, and none notices. */
#ifndef SL_CLIENT_METRICS_SCRAPE_H
#define SL_CLIENT_METRICS_SCRAPE_H

#include "client/tools/metrics/table.h"
#include "runtime/base/sl_error.h"

#include <stdio.h>

#define SCRAPE_LABELS_MAX 6u
#define SCRAPE_TYPE       "text/plain; version=0.0.4; charset=utf-8" /* of what scrape_text writes */

struct scrape_label {
    const char *name, *value;
};
/* value: a decimal number. suffix: "", or what a histogram's series are called by. All borrowed. */
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

/* Families without samples are left out. Errors: SL_ERR_UNREACHABLE (no pages: no node),
 * SL_ERR_NO_MEMORY, those of segments but SL_ERR_NOT_FOUND: a registrar of a release without counts
 * of clients has none. */
sl_err scrape_node(const char *shm_dir, const struct scrape_sink *sink, struct sl_error *why);
/* In Prometheus' text form, version 0.0.4. Errors: as above, then out has a part of it at most. */
sl_err scrape_text(const char *shm_dir, FILE *out, struct sl_error *why);

#endif
