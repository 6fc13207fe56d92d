/* client/ctl_bench_disk.h - `sluicectl bench disk`. */
#ifndef SL_CTL_BENCH_DISK_H
#define SL_CTL_BENCH_DISK_H

#include "client/ctl.h"

/* size_bytes 0: the four standard sizes; total_bytes 0: twice the memory of the node. Gives the
 * exit code. */
int ctl_bench_disk(struct ctl *ctl, uint64_t size_bytes, uint64_t total_bytes);

#endif
