/* cuda/sl_crossover.h - which way of moving pieces is fastest: figures by direction, and by size
 * and number of what one entry of the way covers, measured once on a machine and kept in a file;
 * without them, published ones decide. Pure but for the file. */
#ifndef SL_CROSSOVER_H
#define SL_CROSSOVER_H

#include "runtime/base/sl_error.h"

enum sl_way {
    SL_WAY_COPIES, /* a DMA copy a piece */
    SL_WAY_BATCH,  /* one call with an entry a piece, where the driver has it */
    SL_WAY_STAGED, /* a kernel to or from staging on the device, and a batch: an entry a host run */
    SL_WAY_MAPPED, /* a kernel that reaches into mapped host memory, piece by piece */
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
    /* MB/s, [follows][to host][size][count][way], of entries that lie scattered on both sides; 0:
     * cannot be used here. A job alone is as fast as its start lets it be, of jobs that follow each
     * other the start is hidden. */
    uint32_t speed[2][2][SL_CROSSOVER_SIZES][SL_CROSSOVER_COUNTS][SL_WAY_COUNT];
};

const char *sl_way_name(enum sl_way way); /* "copies" */
uint64_t sl_crossover_piece_bytes(uint32_t size);
uint64_t sl_crossover_pieces(uint32_t count);

struct sl_crossover_job {
    bool to_host;
    bool follows;                 /* another job, which is still on its way */
    bool computes;                /* another process, which a kernel would take turns with */
    uint64_t piece_bytes, pieces; /* from 1: what lies in one run on both sides, on average */
    uint64_t run_bytes, runs;     /* from 1: what lies in one run on the host, a value or several */
    bool possible[SL_WAY_COUNT];  /* at least one; of staged and copies one */
};
/* The fastest possible way; of two that are measured to be nearly as fast the one without a kernel,
 * which leaves the multiprocessors alone. While another process computes, of those without a
 * kernel, if one is possible. */
enum sl_way sl_crossover_choose(const struct sl_crossover *crossover,
                                const struct sl_crossover_job *job);

/* DIRECTORY/crossover-MACHINE. Load takes only a whole file of this version, made for
 * crossover->machine, that nobody else could write (sl_trust_read). Errors: SL_ERR_NOT_FOUND
 * (none), SL_ERR_CONFIG (others could write it, or it is no file of this size), SL_ERR_FOREIGN
 * (another machine's), SL_ERR_CORRUPT (the text names the line). */
sl_err sl_crossover_load(const char *directory, struct sl_crossover *crossover,
                         struct sl_error *why);
/* Makes the directory (0700) when it is not there, and switches to a new file in one step. */
sl_err sl_crossover_save(const char *directory, const struct sl_crossover *crossover,
                         struct sl_error *why);

#endif
