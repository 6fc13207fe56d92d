/* client/tools/metrics/table.h - the table of metrics: what actors write on their pages, what
 * clients count, and what is known of processes, each with the name, unit and sentence that
 * monitoring sees. README.md has the table itself, a row a series; facts.awk makes the array of it.
 */
#ifndef SL_CLIENT_METRICS_TABLE_H
#define SL_CLIENT_METRICS_TABLE_H

#include <stddef.h>

struct metric_fact {
    /* Whose page has it: an actor's name without its number, or "actor" for all of them. Else
     * "client" (counts of clients: an enum sl_count, or TIME_ and a tier), "model" and "tenant" (an
     * enum sl_label_count, or NAME), or "node" (what scrape.c finds out by itself). */
    const char *kind;
    const char *name; /* there */
    const char *type; /* "counter", "gauge", "histogram" */
    /* What it counts in: "", "bytes", "ns", "us", "ms"; all of time becomes seconds. "since": a
     * time of the monotonic clock in ns, shown as how long ago it is; 0 is not shown. "age": ns of
     * a histogram whose buckets go to days. */
    const char *unit;
    const char
        *family; /* name in monitoring; rows of one stand together, and the first has its help */
    const char *labels; /* "tier=memory,..."; "": none */
    const char *help;
};
extern const struct metric_fact metric_facts[];
extern const size_t metric_fact_count;

#endif
