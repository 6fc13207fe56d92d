/* runtime/sl_limits.h - what the machine, a container and the shell let a process have: cgroups of
 * both versions with all levels above, resource limits, and system calls that a profile refuses. Read
 * by the start of a node, by doctor, by defaults and by what sizes threads, so that they agree. */
#ifndef SL_LIMITS_H
#define SL_LIMITS_H

#include "runtime/sl_config.h"

#define SL_NO_LIMIT          UINT64_MAX
#define SL_LIMITS_FILE_BYTES 256u
#define SL_LIMITS_TEXT_BYTES 640u

/* The tightest of one kind. */
struct sl_limit {
    uint64_t most;                   /* bytes, processes, or thousandths of a core; SL_NO_LIMIT */
    uint64_t left;                   /* the least that a level leaves; SL_NO_LIMIT */
    char file[SL_LIMITS_FILE_BYTES]; /* who says so; "" without a limit */
};

struct sl_limits {
    struct sl_limit memory; /* memory.max, memory.high, memory.limit_in_bytes; page cache is left */
    struct sl_limit cores;  /* cpu.max, cpu.cfs_quota_us */
    struct sl_limit processes; /* pids.max and RLIMIT_NPROC; threads count */
    uint64_t oom_kills;        /* that the kernel counted where memory is tightest */
    uint64_t file_bytes;       /* RLIMIT_FSIZE */
    uint64_t locked_bytes;     /* RLIMIT_MEMLOCK; SL_NO_LIMIT with CAP_IPC_LOCK */
    uint64_t data_bytes;       /* RLIMIT_DATA, for what is not shared */
    uint64_t address_bytes;    /* RLIMIT_AS */
    uint64_t descriptors;      /* RLIMIT_NOFILE, the hard one */
};

/* pid: 0, this process, or another one of this user: a node that a unit started is asked about from
 * a shell. root: "", or a directory that stands for / (tests): its proc/PID/cgroup, proc/PID/status,
 * proc/self/mountinfo, and what they name. What cannot be read is no limit. */
void sl_limits_read(const char *root, uint32_t pid, struct sl_limits *out);

/* Of the segment `counts`, which settings do not change. */
#define SL_LIMITS_COUNTS_BYTES (40 * SL_MIB)

/* Of the pages of all actors' metrics, with their flight recorders: files in shm_dir that are whole from the
 * start. */
uint64_t sl_limits_pages_bytes(const struct sl_config *config);

/* What the arena is where `memory` is not set: its standard (with the setting contributions there is
 * none), or less: 80 % of what the file system of
 * segments has free, half of what the tightest limit leaves, and what fits next to indexes and
 * actors under that limit. Whole MiB, at least one. */
uint64_t sl_limits_memory_default(const struct sl_config *config, const struct sl_limits *limits,
                                  uint64_t shm_free_bytes);

enum sl_limits_level { SL_LIMITS_FINE, SL_LIMITS_TIGHT, SL_LIMITS_BROKEN };

/* What a check is asked for. */
struct sl_limits_case {
    const struct sl_config *config;
    const struct sl_limits *limits;
    bool running;                    /* the node runs, what it takes is taken */
    char text[SL_LIMITS_TEXT_BYTES]; /* what was found */
};
/* One thing that a node of these settings needs; broken: it would not live. */
struct sl_limits_check {
    const char *name; /* "memory_limit" */
    const char *mend;
    enum sl_limits_level (*check)(struct sl_limits_case *at);
};
#define SL_LIMITS_CHECKS 11
extern const struct sl_limits_check sl_limits_checks[SL_LIMITS_CHECKS];

/* Whether a file may grow to this; else RLIMIT_FSIZE would end the process by SIGXFSZ. */
bool sl_file_may_have(uint64_t bytes);
/* ftruncate that asks first: -1 with EFBIG. */
int sl_file_resize(int fd, uint64_t bytes);

#endif
