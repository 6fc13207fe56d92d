/* runtime/base/sl_limits.h - what a container lets a process have: cgroups of both versions with
 * all levels above. Read by the start of a node, by doctor, by defaults and by what sizes threads,
 * so that they agree. */
#ifndef SL_LIMITS_H
#define SL_LIMITS_H

#include "runtime/base/sl_config.h"

#define SL_NO_LIMIT          UINT64_MAX
#define SL_LIMITS_FILE_BYTES 256u

/* The tightest of one kind. */
struct sl_limit {
    uint64_t most;                   /* bytes, processes, or thousandths of a core; SL_NO_LIMIT */
    uint64_t left;                   /* the least that a level leaves; SL_NO_LIMIT */
    char file[SL_LIMITS_FILE_BYTES]; /* who says so; "" without a limit */
};

struct sl_limits {
    struct sl_limit memory; /* memory.max, memory.high, memory.limit_in_bytes; page cache is left */
    struct sl_limit cores;  /* cpu.max, cpu.cfs_quota_us */
    struct sl_limit processes; /* pids.max; threads count */
    uint64_t oom_kills;        /* that the kernel counted where memory is tightest */
};

/* pid: 0, this process, or another one of this user: a node that a unit started is asked about from
 * a shell. root: "", or a directory that stands for / (tests): its proc/PID/cgroup,
 * proc/self/mountinfo, and what they name. What cannot be read is no limit. */
void sl_limits_read(const char *root, uint32_t pid, struct sl_limits *out);

/* Of the segment `counts`, which settings do not change. */
#define SL_LIMITS_COUNTS_BYTES (40 * SL_MIB)

/* Actors of a node; each has a page of metrics with a flight recorder, a file in shm_dir that is
 * whole from the start; and what all of them take beside values and indexes. */
uint64_t sl_limits_actors(const struct sl_config *config);
uint64_t sl_limits_page_bytes(const struct sl_config *config);
uint64_t sl_limits_room_bytes(const struct sl_config *config);

/* What the arena is where `memory` is not set: its standard (with the setting contributions there
 * is none), or less: 80 % of what the file system of segments has free, half of what the tightest
 * limit leaves, and what fits next to indexes and actors under that limit. Whole MiB, at least one.
 */
uint64_t sl_limits_memory_default(const struct sl_config *config, const struct sl_limits *limits,
                                  uint64_t shm_free_bytes);

/* Whether a file may grow to this; else RLIMIT_FSIZE would end the process by SIGXFSZ. */
bool sl_file_may_have(uint64_t bytes);
/* ftruncate that asks first: -1 with EFBIG. */
int sl_file_resize(int fd, uint64_t bytes);

#endif
