/* runtime/net/fabric/core/runs.h - a position in a list of memory runs. */
#ifndef SL_FABRIC_CORE_RUNS_H
#define SL_FABRIC_CORE_RUNS_H

#include "runtime/base/sl_digest.h"

#include <string.h>
#include <sys/uio.h>

/* A list of runs; none is empty. */
struct sl_run {
    struct sl_run *next; /* NULL: the last */
    unsigned char *at;
    uint64_t length_bytes;
};
/* At the end of the last run, left_bytes is 0. Borrows the list. */
struct sl_runs {
    unsigned char *at;        /* NULL: none */
    uint64_t left_bytes;      /* of this run */
    const struct sl_run *run; /* NULL: there is only one */
};

static inline struct sl_runs sl_runs_of(void *at, uint64_t length_bytes)
{
    return (struct sl_runs){.at = at, .left_bytes = length_bytes};
}

static inline struct sl_runs sl_runs_from(const struct sl_run *first)
{
    return (struct sl_runs){.at = first->at, .left_bytes = first->length_bytes, .run = first};
}

static inline void sl_runs_skip(struct sl_runs *runs, uint64_t length_bytes)
{
    while (length_bytes >= runs->left_bytes && runs->run != NULL && runs->run->next != NULL) {
        length_bytes -= runs->left_bytes;
        *runs = sl_runs_from(runs->run->next);
    }
    SL_ASSERT(length_bytes <= runs->left_bytes);
    runs->at += length_bytes;
    runs->left_bytes -= length_bytes;
}

/* Gives the next bytes, as many as are in one run. At least length_bytes must be left. */
static inline struct iovec sl_runs_part(const struct sl_runs *runs, uint64_t length_bytes)
{
    return (struct iovec){.iov_base = runs->at, .iov_len = SL_MIN(runs->left_bytes, length_bytes)};
}

/* Gives the next length_bytes in at most part_max (1 or more) parts, and their total length. */
static inline uint64_t sl_runs_parts(struct sl_runs runs, uint64_t length_bytes,
                                     struct iovec *parts, uint32_t part_max, uint32_t *part_count)
{
    uint64_t held_bytes = 0;
    uint32_t count = 0;
    while (held_bytes < length_bytes && count < part_max) {
        parts[count] = sl_runs_part(&runs, length_bytes - held_bytes);
        held_bytes += parts[count].iov_len;
        sl_runs_skip(&runs, parts[count++].iov_len);
    }
    *part_count = count;
    return held_bytes;
}

static inline void sl_runs_feed(struct sl_runs runs, uint64_t length_bytes,
                                struct sl_digest_stream *digest)
{
    while (length_bytes > 0) {
        struct iovec part = sl_runs_part(&runs, length_bytes);
        sl_digest_feed(digest, part.iov_base, part.iov_len);
        sl_runs_skip(&runs, part.iov_len);
        length_bytes -= part.iov_len;
    }
}

static inline void sl_runs_write(struct sl_runs runs, const void *from, uint64_t length_bytes)
{
    const unsigned char *bytes = from;
    while (length_bytes > 0) {
        struct iovec part = sl_runs_part(&runs, length_bytes);
        memcpy(part.iov_base, bytes, part.iov_len);
        sl_runs_skip(&runs, part.iov_len);
        bytes += part.iov_len;
        length_bytes -= part.iov_len;
    }
}

#endif
