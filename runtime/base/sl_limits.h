/* runtime/base/sl_limits.h - resources that a container grants a process: limits of cgroups v1 and
 * v2, at all levels of the hierarchy. Node start, doctor, defaults and thread pools use the same
 * figures, so they agree. */
#ifndef SL_LIMITS_H
#define SL_LIMITS_H

#include "runtime/base/sl_config.h"

#define SL_NO_LIMIT          UINT64_MAX
#define SL_LIMITS_FILE_BYTES 256u

/* The tightest limit of one kind. */
struct sl_limit {
    uint64_t most;                   /* bytes, processes, or thousandths of a core; SL_NO_LIMIT */
    uint64_t left;                   /* the least that is left at any level; SL_NO_LIMIT */
    char file[SL_LIMITS_FILE_BYTES]; /* file that sets the limit; "" without one */
};

struct sl_limits {
    struct sl_limit
        memory; /* memory.max, memory.high, memory.limit_in_bytes; page cache counts as left */
    struct sl_limit cores;     /* cpu.max, cpu.cfs_quota_us */
    struct sl_limit processes; /* pids.max; threads count */
    uint64_t oom_kills;        /* kernel's count in the cgroup with the tightest memory limit */
};

/* Reads the limits of process pid (0: this process; a shell can ask about a node that systemd
 * started). root: "", or a directory used as / (tests) for proc/PID/cgroup, proc/self/mountinfo and
 * the files they name. Unreadable files count as no limit. */
void sl_limits_read(const char *root, uint32_t pid, struct sl_limits *out);

/* Size of the shm file `counts`, which settings do not change. */
#define SL_LIMITS_COUNTS_BYTES (40 * SL_MIB)

/* Number of a node's actors; bytes of their metrics pages with flight recorders, each a file in
 * shm_dir of full size from the start; and memory that all of them take besides values and
 * indexes. */
uint64_t sl_limits_actors(const struct sl_config *config);
uint64_t sl_limits_page_bytes(const struct sl_config *config);
uint64_t sl_limits_room_bytes(const struct sl_config *config);

/* The size of the arena if `memory` is not set. It is the setting's default (no limit with
 * contributions), or less: 80 % of the free space of the shm file system, half of what the tightest
 * limit leaves, or what fits next to indexes and actors under that limit. Whole MiB, at least
 * one. */
uint64_t sl_limits_memory_default(const struct sl_config *config, const struct sl_limits *limits,
                                  uint64_t shm_free_bytes);

/* Whether RLIMIT_FSIZE lets a file grow to this size; else SIGXFSZ would end the process. */
bool sl_file_size_allowed(uint64_t bytes);
/* ftruncate that checks the limit first: -1 with EFBIG. */
int sl_file_resize(int fd, uint64_t bytes);

#endif
