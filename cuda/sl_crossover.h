/* cuda/sl_crossover.h - chooses the fastest way of moving pieces. Speeds by direction, and by size
 * and number of a way's entries, are measured once on a machine and kept in a file; without them
 * published figures decide. Pure except for the file. */
#ifndef SL_CROSSOVER_H
#define SL_CROSSOVER_H

#include "runtime/base/sl_error.h"

enum sl_way {
    SL_WAY_COPIES, /* one DMA copy per piece */
    SL_WAY_BATCH,  /* one call with an entry per piece, if the driver has it */
    SL_WAY_STAGED, /* a kernel to or from device staging, and a batch with an entry per host run */
    SL_WAY_MAPPED, /* a kernel that accesses mapped host memory, piece by piece */
    SL_WAY_COUNT
};

#define SL_CROSSOVER_SIZES  9u /* 4 KiB << i */
#define SL_CROSSOVER_COUNTS 3u /* 16 << 4 i entries */
#define SL_CROSSOVER_LINES  (4 * SL_CROSSOVER_SIZES * SL_CROSSOVER_COUNTS)
#define SL_CROSSOVER_FIELDS (SL_CROSSOVER_LINES * SL_WAY_COUNT)
#define SL_CROSSOVER_TEXT   64u

struct sl_crossover {
    char machine[SL_CROSSOVER_TEXT]; /* GPU, driver, multiprocessors for copies: [a-z0-9.-] */
    bool measured;
    /* MB/s, [follows][to host][size][count][way], for entries scattered on both sides; 0: not
     * possible here. A single job includes its start-up time; jobs that follow each other hide
     * it. */
    uint32_t speed[2][2][SL_CROSSOVER_SIZES][SL_CROSSOVER_COUNTS][SL_WAY_COUNT];
};

const char *sl_way_name(enum sl_way way); /* "copies" */
uint64_t sl_crossover_piece_bytes(uint32_t size);
uint64_t sl_crossover_pieces(uint32_t count);

struct sl_crossover_job {
    bool to_host;
    bool follows;  /* the previous job is still in flight */
    bool computes; /* another process does: a kernel would be time-sliced with its kernels */
    uint64_t piece_bytes, pieces; /* from 1: contiguous on both sides, on average */
    uint64_t run_bytes, runs;     /* from 1: contiguous on the host, one value or several */
    bool possible[SL_WAY_COUNT];  /* at least one; copies or staged is among them */
};
/* Chooses the fastest possible way. Of nearly equal ones it prefers a way without a kernel, which
 * leaves the multiprocessors to others. While another process computes, it takes one without a
 * kernel if any is possible. */
enum sl_way sl_crossover_choose(const struct sl_crossover *crossover,
                                const struct sl_crossover_job *job);

/* The file is DIRECTORY/crossover-MACHINE. Load accepts only a complete file of this version, made
 * for crossover->machine, that no other user can write (sl_trust_read). Errors: SL_ERR_NOT_FOUND
 * (none), SL_ERR_CONFIG (others can write it, or it is not a file of this size), SL_ERR_FOREIGN
 * (another machine's), SL_ERR_CORRUPT (the text names the line). */
sl_err sl_crossover_load(const char *directory, struct sl_crossover *crossover,
                         struct sl_error *why);
/* Creates the directory (0700) if it is missing, and replaces the file atomically. */
sl_err sl_crossover_save(const char *directory, const struct sl_crossover *crossover,
                         struct sl_error *why);

#endif
