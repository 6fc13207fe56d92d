/* tests/support/fabric_remote.h - the other end of a fabric, in a process of its own that takes
 * commands over a socket pair (the control plane of these tests). Used by tests/cluster (two
 * network namespaces) and tests/rdma (two devices of one machine). Check assertions inside. */
#ifndef SL_TESTS_FABRIC_REMOTE_H
#define SL_TESTS_FABRIC_REMOTE_H

#include "tests/support/fabric_end.h"

#include <sys/types.h>

struct remote_options {
    struct sl_fabric_options fabric; /* of the remote; events are filled in */
    uint64_t length_bytes, chunk_bytes;
    uint64_t stride_bytes;         /* not 0: the memory is a pool */
    bool unread;                   /* peers read it only by tickets */
    void (*before)(void *context); /* runs first in the child; NULL: nothing */
    void (*job)(int control, unsigned char *memory, uint64_t length_bytes, uint64_t argument,
                uint64_t other); /* the function that remote_job runs there */
};
struct remote {
    pid_t pid; /* 0: none, or reaped */
    int control;
    bool ready;
    sl_err open_code;
    struct sl_error why; /* from opening its end */
    char about[192];
    unsigned char key[SL_FABRIC_BLOB_MAX]; /* of the last grant */
    uint32_t key_bytes, grant;
    sl_err grant_code;
    uint32_t answers, grants_ended;
    uint64_t value; /* of the last answer */
    struct sl_fabric_stats stats;
    struct end_done done; /* its last transfer */
    uint32_t done_count;
};

/* Forks the child, which opens its end and reports the result (ready). */
void remote_start(struct remote *remote, const struct remote_options *options);
void remote_stop(struct remote *remote); /* kills and reaps */
/* Runs one step of the local end and of the control plane; waits at most wait_ms. */
void remote_step(struct remote *remote, struct fabric_end *end, int wait_ms);
#define REMOTE_UNTIL(remote, end, condition)                                              \
    do {                                                                                  \
        uint64_t until_ns = sl_clock_monotonic_ns() + 120 * SL_NS_PER_S;                  \
        while (!(condition)) {                                                            \
            ck_assert_msg(sl_clock_monotonic_ns() < until_ns, "waited for %s (link: %s)", \
                          #condition, (end)->link_why);                                   \
            remote_step((remote), (end), 20);                                             \
        }                                                                                 \
    } while (0)

/* These wait for the child's answer. */
sl_err remote_grant(struct remote *remote, struct fabric_end *end, uint64_t offset_bytes,
                    uint64_t length_bytes); /* key, grant */
/* The key of remote_grant, opened at the local end. */
uint32_t remote_key(struct remote *remote, struct fabric_end *end, uint64_t offset_bytes,
                    uint64_t length_bytes);
void remote_grant_end(struct remote *remote, struct fabric_end *end, uint32_t grant);
void remote_fill(struct remote *remote, struct fabric_end *end, uint64_t seed); /* with a pattern */
void remote_set(struct remote *remote, struct fabric_end *end, unsigned char with);
bool remote_is_set(struct remote *remote, struct fabric_end *end, unsigned char with);
bool remote_is_pattern(struct remote *remote, struct fabric_end *end, uint64_t seed);
void remote_stats(struct remote *remote, struct fabric_end *end);
/* CPU time of the child so far, ns. */
uint64_t remote_cpu_ns(struct remote *remote, struct fabric_end *end);
/* Makes a grant of the local end for the remote, which moves the first length_bytes of it `count`
 * times, one transfer each time. */
uint32_t remote_move_local(struct remote *remote, struct fabric_end *end, uint32_t count,
                           uint64_t length_bytes);
/* Runs options.job in the child, which uses the control socket itself. */
void remote_job(struct remote *remote, uint64_t argument, uint64_t other);

#endif
