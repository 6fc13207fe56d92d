/* client/tools/bench/histogram.h - a histogram of times with a fixed size: 64 buckets for each
 * power of two, so quantiles are at most 1.6 % off; the largest value is exact. */
#ifndef SL_CLIENT_BENCH_HISTOGRAM_H
#define SL_CLIENT_BENCH_HISTOGRAM_H

#include "runtime/base/sl_base.h"

#define CTL_HISTOGRAM_SUB     64u
#define CTL_HISTOGRAM_BUCKETS (CTL_HISTOGRAM_SUB * 59u)

struct ctl_histogram { /* zeroed is empty */
    uint64_t counts[CTL_HISTOGRAM_BUCKETS];
    uint64_t count, max;
};
void ctl_histogram_add(struct ctl_histogram *histogram, uint64_t value);
/* The value that `share` (0..1) of all values do not exceed; 0 when there are none. */
uint64_t ctl_histogram_quantile(const struct ctl_histogram *histogram, double share);

#endif
