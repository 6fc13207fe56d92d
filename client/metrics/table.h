/* client/metrics/table.h - the one table of metrics: what actors write on their pages, what clients
 * count, and what is known of processes, each with the name, unit and sentence that monitoring sees.
 *
 * The rows are in table_*.h: kind, name on the page, type, unit, family, labels, help. Rows of one
 * family stand together and differ in their labels; the first has its help. README.md has the table
 * for people, made of the same rows (tests/structure/metrics_table.py --write). */
#ifndef SL_CLIENT_METRICS_TABLE_H
#define SL_CLIENT_METRICS_TABLE_H

#include "client/metrics/table_coordinator.h"
#include "client/metrics/table_events.h"
#include "client/metrics/table_node.h"
#include "client/metrics/table_registrar.h"
#include "client/metrics/table_transporter.h"
#include "client/metrics/table_workers.h"

#include <stddef.h>

#define METRICS_TABLE(X)   \
    METRICS_NODE(X)        \
    METRICS_CLIENT(X)      \
    METRICS_MODEL(X)       \
    METRICS_TENANT(X)      \
    METRICS_PROCESS(X)     \
    METRICS_REGISTRAR(X)   \
    METRICS_COORDINATOR(X) \
    METRICS_TRANSPORTER(X) \
    METRICS_TIERER(X)      \
    METRICS_SWAPPER(X)     \
    METRICS_KEYER(X)       \
    METRICS_EVENTS(X)

/* Where a value comes from: the pages of actors of one kind, those of all, the clients' counts
 * (name: of an enum sl_count, or TIME_ and a tier), counts by model or tenant (name: of an enum
 * sl_label_count, or NAME), or what scrape.c finds out by itself. */
enum metric_kind {
    METRIC_NODE,
    METRIC_CLIENT,
    METRIC_MODEL,
    METRIC_TENANT,
    METRIC_ANY,
    METRIC_REGISTRAR,
    METRIC_COORDINATOR,
    METRIC_TRANSPORTER,
    METRIC_TIERER,
    METRIC_SWAPPER,
    METRIC_KEYER,
    METRIC_EVENTS,
};
enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
/* What the page counts in. All of time becomes seconds. SINCE: a time of the monotonic clock in ns,
 * shown as how long ago it is; 0 is not shown. AGE: ns of a histogram whose buckets go to days. */
enum metric_unit {
    METRIC_ONE,
    METRIC_BYTES,
    METRIC_NS,
    METRIC_US,
    METRIC_MS,
    METRIC_SINCE,
    METRIC_AGE
};

struct metric_fact {
    enum metric_kind kind;
    const char *name; /* on the page */
    enum metric_type type;
    enum metric_unit unit;
    const char *family; /* name in monitoring */
    const char *labels; /* "tier=memory,..."; "": none */
    const char *help;   /* "": as in the row before */
};
extern const struct metric_fact metric_facts[];
extern const size_t metric_fact_count;

#endif
