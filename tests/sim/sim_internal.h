/* tests/sim/sim_internal.h - what the files of the simulator share. */
#ifndef SL_TEST_SIM_INTERNAL_H
#define SL_TEST_SIM_INTERNAL_H

#include "tests/sim/sim.h"
#include "tests/support/mem_disk.h"

enum sim_event_kind {
    EVENT_MESSAGE,
    EVENT_TICK,
    EVENT_DIED,
    EVENT_JOB,
    EVENT_IO,
    EVENT_RESTART,
    EVENT_HELLO
};

struct sim_event {
    uint64_t at_ns, tie, number;
    enum sim_event_kind kind;
    uint32_t node;
    uint64_t incarnation; /* of node; others: the event is gone with it */
    uint64_t cookie;
    struct sl_proc_id proc;
    sl_err result;
    void *frame; /* owned */
    size_t frame_bytes;
    /* of EVENT_IO */
    struct sl_disk_request io;
    int os_code;
    uint64_t io_bytes; /* that the request is to move */
    bool applied;      /* its effect is there, the completion is still to be told */
    bool orphaned;     /* its process died, it goes on for a while */
};

struct sim_program;
struct sim_node {
    struct sl_env env; /* first: the ops find the rest by it */
    struct sim *sim;
    const struct sl_actor *actor; /* NULL: a program */
    struct sim_program *program;
    void *state, *context;
    struct sl_config *config;
    char name[32];
    uint64_t incarnation;
    uint64_t wake_ns, stopped_until_ns, deferred;
    uint64_t stalled_ns; /* how long it was stopped, in all of its life */
    uint64_t pair_ns[2]
                    [SIM_NODES_MAX]; /* last arrival at each other node: of requests, of replies */
    bool alive, finished, fixed_name;
};

struct sim_watch {
    uint32_t node;
    uint64_t incarnation, cookie;
    struct sl_proc_id proc;
};

#define SIM_WATCHES_MAX 1024u
struct sim {
    uint64_t now_ns, rng, delay_ns_max, disturbed_ns, event_number, hash;
    uint64_t suspended_ns;
    int64_t wall_offset_ns; /* of the wall clock, which may be set to anything at any time */
    uint32_t late_of;       /* one message of so many is very late; 0: none */
    struct sim_event *heap;
    uint32_t event_count, event_capacity;
    struct sim_node nodes[SIM_NODES_MAX];
    uint32_t node_count, next_pid;
    struct sim_watch watches[SIM_WATCHES_MAX];
    uint32_t watch_count;
    struct mem_disk disks[SIM_DISKS]; /* by number of the tierer, which they outlive */
    uint64_t fault_until_ns[SIM_DISKS][SIM_FAULT_COUNT];
    uint32_t reads_failed[SIM_DISKS]; /* the last ones, in a row */
    struct sl_codec *codec;           /* decoding: a message is handled before the next */
    struct sl_paths paths;
    struct sl_log *log;
    const char *const *settings;
    uint64_t events_done, at_once;
};

uint32_t sim_number(const struct sim_node *node);
struct sim_event sim_event_for(const struct sim_node *node, enum sim_event_kind kind,
                               uint64_t at_ns);
void sim_event_add(struct sim *sim, struct sim_event event);
sl_err sim_env_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                    bool reply);
void sim_env_wake_at(struct sl_env *env, uint64_t at_ns);
void sim_mix(struct sim *sim, uint64_t word); /* into the hash of the run */

/* sim_disk.c */
sl_err sim_disk_open(struct sl_env *env, const char *directory, uint32_t queue_depth, bool direct,
                     struct sl_disk **out, struct sl_error *why);
/* The request takes effect. False: not yet, it was put off (its process is dead). */
bool sim_disk_apply(struct sim *sim, struct sim_event *event, bool orphan);

/* sim_program.c */
extern struct sim *sim_world; /* the one of this process */
void sim_program_begin(struct sim_node *node);
void sim_program_message(struct sim_node *node, const struct sim_event *event);
void sim_program_resume(struct sim_node *node);
void sim_program_drop(struct sim_node *node);

#endif
