/* client/ctl_bench_gpu.h - `sluicectl bench gpu`. */
#ifndef SL_CTL_BENCH_GPU_H
#define SL_CTL_BENCH_GPU_H

#include "client/ctl.h"

/* total_bytes: of device and of pinned memory, 0: 7 GiB. Gives the exit code. */
int ctl_bench_gpu(struct ctl *ctl, uint64_t total_bytes);

#endif
