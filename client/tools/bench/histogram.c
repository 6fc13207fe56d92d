/* client/tools/bench/histogram.c - see histogram.h. */
#include "client/tools/bench/histogram.h"

/* Each value below 64 has its own bucket. Above, the power of two selects a row and the next six
 * bits a bucket in it. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < CTL_HISTOGRAM_SUB) {
        return (uint32_t)value;
    }
    uint32_t power = 63u - (uint32_t)__builtin_clzll(value); /* 6..63 */
    uint32_t sub = (uint32_t)(value >> (power - 6)) & (CTL_HISTOGRAM_SUB - 1);
    return (power - 5) * CTL_HISTOGRAM_SUB + sub;
}

/* Largest value of a bucket. */
static uint64_t bucket_top(uint32_t bucket)
{
    if (bucket < CTL_HISTOGRAM_SUB) {
        return bucket;
    }
    uint32_t power = bucket / CTL_HISTOGRAM_SUB + 5;
    uint64_t sub = bucket % CTL_HISTOGRAM_SUB;
    uint64_t width = UINT64_C(1) << (power - 6);
    return (UINT64_C(1) << power) + sub * width + (width - 1);
}

void ctl_histogram_add(struct ctl_histogram *histogram, uint64_t value)
{
    histogram->counts[bucket_of(value)]++;
    histogram->count++;
    histogram->max = SL_MAX(histogram->max, value);
}

uint64_t ctl_histogram_quantile(const struct ctl_histogram *histogram, double share)
{
    if (histogram->count == 0) {
        return 0;
    }
    double exact = share * (double)histogram->count;
    uint64_t rank = (uint64_t)exact;
    rank += (double)rank < exact; /* rounded up: this number of values is at or below the result */
    rank = SL_MIN(SL_MAX(rank, 1), histogram->count);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < CTL_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen >= rank) {
            return SL_MIN(bucket_top(i), histogram->max);
        }
    }
    return histogram->max;
}
