/* client/tools/bench/kinds.h - the benches of an engine, a disk and a GPU. Each gives the exit
 * code. */
#ifndef SL_CLIENT_BENCH_KINDS_H
#define SL_CLIENT_BENCH_KINDS_H

#include "client/tools/command/command.h"

/* A progress bar on a terminal, since rows are printed only at the end. */
void bench_progress(const struct ctl *ctl, uint64_t done, uint64_t total);
/* size_bytes 0: the four standard sizes; total_bytes 0: twice the memory of the node. */
int ctl_bench_disk(struct ctl *ctl, uint64_t size_bytes, uint64_t total_bytes);
/* Options of `bench gpu`: lists with commas as given; NULL: all. */
struct bench_gpu_asked {
    uint64_t total_bytes; /* of device and of host memory; 0: 7 GiB */
    uint64_t limit_ns;    /* no row begins later; 0: 90 s */
    const char *sizes, *counts, *ways, *values, *memory;
};
int ctl_bench_gpu(struct ctl *ctl, const struct bench_gpu_asked *asked);
/* Options of `bench engine`; 0: the default (bench.c's help). */
struct bench_engine_asked {
    uint64_t ranks, blocks, part_bytes, layers;
    uint64_t ops;        /* least number of each kind; 0: until measure_ns is over */
    uint64_t measure_ns; /* used without ops */
    bool plain;          /* private memory, which swappers cannot map */
};
int ctl_bench_engine(struct ctl *ctl, const struct bench_engine_asked *asked);

#endif
