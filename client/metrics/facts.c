/* client/metrics/facts.c - the rows of the table as data. */
#include "client/metrics/table.h"

/* clang-format off */
#define ROW(kind, name, type, unit, family, labels, help) \
    {METRIC_##kind, name, METRIC_##type, METRIC_##unit, family, labels, help},
/* clang-format on */

const struct metric_fact metric_facts[] = {METRICS_TABLE(ROW)};
const size_t metric_fact_count = sizeof metric_facts / sizeof *metric_facts;
