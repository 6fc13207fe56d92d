/* client/tools/metrics/table.h - the table of metrics: those of actors' pages, of clients and of
 * processes, each with its name, unit and help text in monitoring. README.md has the table, one row
 * for each series; facts.awk makes the array from it. */
#ifndef SL_CLIENT_METRICS_TABLE_H
#define SL_CLIENT_METRICS_TABLE_H

#include <stddef.h>

struct metric_fact {
    /* The source: the page of an actor (its name without the number) or of all actors ("actor");
     * "client" (an enum sl_count, or TIME_ and a tier), "model" and "tenant" (an enum
     * sl_label_count, or NAME), or "node" (computed by scrape.c). */
    const char *kind;
    const char *name; /* in the source */
    const char *type; /* "counter", "gauge", "histogram" */
    /* "", "bytes", "ns", "us", "ms"; times are converted to seconds. "since": a monotonic time in
     * ns, shown as the time since then; 0 is not shown. "age": a histogram in ns whose buckets
     * reach days. */
    const char *unit;
    const char *family; /* name in monitoring; its rows are adjacent, and the first has the help */
    const char *labels; /* "tier=memory,..."; "": none */
    const char *help;
};
extern const struct metric_fact metric_facts[];
extern const size_t metric_fact_count;

#endif
