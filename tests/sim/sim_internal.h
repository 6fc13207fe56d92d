/* tests/sim/sim_internal.h - what the files of the simulator share. */
#ifndef SL_TEST_SIM_INTERNAL_H
#define SL_TEST_SIM_INTERNAL_H

#include "actors/transporter/control/network.h"
#include "runtime/net/fabric/core/wire.h"
#include "tests/sim/sim.h"
#include "tests/support/mem_disk.h"

#include <sys/socket.h>

enum sim_event_kind {
    EVENT_MESSAGE,
    EVENT_TICK,
    EVENT_DIED,
    EVENT_JOB,
    EVENT_IO,
    EVENT_RESTART,
    EVENT_HELLO,
    EVENT_NETWORK,
    EVENT_STREAM,    /* a socket has something */
    EVENT_REDIS,     /* of no process: the directory's server (sim_redis.c) */
    EVENT_BEAT,      /* the process has nothing to do, and says so */
    EVENT_SUPERVISOR /* looks at the process (sim_supervisor.c) */
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
    char io_name[40]; /* of a file to be made or removed */
    int os_code;
    uint64_t io_bytes; /* that the request is to move */
    bool applied;      /* its effect is there, the completion is still to be told */
    bool orphaned;     /* its process died, it goes on for a while */
};

/* A machine. */
struct sim_host {
    struct sl_paths paths;
    const char *const *settings;
    struct mem_disk disks[SIM_DISKS]; /* by number of the tierer, which they outlive */
    uint64_t fault_until_ns[SIM_DISKS][SIM_FAULT_COUNT];
    uint32_t reads_failed[SIM_DISKS]; /* the last ones, in a row */
};

/* From one host to another. */
struct sim_link {
    uint64_t cut_until_ns, slow_until_ns, slow_ns;
};

/* Of one host's transporter to another's, for frames. */
struct sim_connection {
    uint64_t number; /* of its life */
    bool up;
    uint64_t asker_life, listener_life; /* incarnations of the processes */
    uint64_t usable_ns;                 /* up: since when; down: not tried before */
    uint64_t broken_ns;                 /* up: a cut ends it then; SL_NEVER_NS: none does */
    uint64_t order_ns[2];               /* last arrival: of requests, of answers */
};

struct sim_program;
struct sim_node {
    struct sl_env env; /* first: the ops find the rest by it */
    struct sim *sim;
    struct sim_host *host;
    struct sl_network network;    /* what a transporter gets of it */
    struct sim_control *control;  /* that it opened in this life */
    struct sim_fabric *fabric;    /* likewise */
    const struct sl_actor *actor; /* NULL: a program */
    struct sim_program *program;
    void *state, *context;
    struct sl_config *config;
    char name[32];
    uint64_t incarnation;
    uint64_t died_ns; /* the last life */
    uint64_t wake_ns, stopped_until_ns, deferred;
    uint64_t stopped_ns, beat_ns; /* since when it is stopped; when its loop turned last */
    uint64_t stalled_ns;          /* how long it was stopped, in all of its life */
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
    uint64_t seed, now_ns, rng, delay_ns_max, disturbed_ns, event_number, hash;
    uint64_t suspended_ns;
    int64_t wall_offset_ns; /* of the wall clock, which may be set to anything at any time */
    uint32_t late_of;       /* one message of so many is very late; 0: none */
    struct sim_event *heap;
    uint32_t event_count, event_capacity;
    struct sim_node nodes[SIM_NODES_MAX];
    uint32_t node_count, next_pid;
    struct sim_watch watches[SIM_WATCHES_MAX];
    uint32_t watch_count;
    struct sim_host hosts[SIM_HOSTS_MAX];
    uint32_t host_count, host;                           /* host: where the next process starts */
    struct sim_link links[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* from, to */
    struct sim_connection connections[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* asker, listener */
    uint64_t connection_number;
    uint32_t corrupt_of;    /* one slice of so many that peers read is not what was sent; 0: none */
    uint32_t slow_of;       /* one unit of so many that peers read comes slowly; 0: none */
    struct sl_codec *codec; /* decoding: a message is handled before the next */
    struct sl_log *log;
    uint64_t events_done, at_once;
    struct sim_node *turn;             /* whose event it is; NULL: nobody's */
    struct sim_redis *redis;           /* NULL: there is no such server */
    struct sim_supervisor *supervisor; /* NULL: nobody looks whether actors hang */
    void (*seen)(void *context);
    void *seen_context;
};

uint32_t sim_number(const struct sim_node *node);
struct sim_event sim_event_for(const struct sim_node *node, enum sim_event_kind kind,
                               uint64_t at_ns);
void sim_event_add(struct sim *sim, struct sim_event event);
sl_err sim_env_send(struct sl_env *env, const char *to, const void *frame, size_t length_bytes,
                    bool reply);
void sim_env_wake_at(struct sl_env *env, uint64_t at_ns);
void sim_mix(struct sim *sim, uint64_t word); /* into the hash of the run */

static inline uint32_t sim_host_number(const struct sim_node *node)
{
    return (uint32_t)(node->host - node->sim->hosts);
}
/* The living process of this name; NULL: none. */
struct sim_node *sim_node_named(const struct sim_host *host, struct sim *sim, const char *name);

/* sim_network.c */
#define SIM_DOOR "transporter.0" /* of a host */
enum sim_packet_kind {
    PACKET_FRAME,   /* control: a request, or an answer */
    PACKET_HELLO,   /* fabric: a link is to be built */
    PACKET_WELCOME, /* it is, or not: code */
    PACKET_RESET,   /* the other end is gone */
    PACKET_ASK,     /* a unit */
    PACKET_SERVE,   /* the holder's own: the next slice of what was asked for */
    PACKET_DATA     /* a slice, or how the unit ended */
};
struct sim_packet {
    struct sim_packet *next;
    enum sim_packet_kind kind;
    uint32_t from; /* host */
    uint64_t from_life;
    uint64_t connection; /* number of */
    bool answer;
    bool late;           /* of a connection that has ended */
    uint32_t peer, lane; /* of the fabric that asks */
    uint64_t unit, turn;
    struct sl_wire_request ask;
    uint64_t at_bytes, slice_ns; /* in the unit; between two slices of it */
    sl_err code;
    bool last;
    size_t length_bytes;
    unsigned char bytes[];
};
struct sim_packet *sim_packet_make(const struct sim_node *from, enum sim_packet_kind kind,
                                   const void *bytes, size_t length_bytes);
/* Takes the packet; it arrives behind *order_ns, which it moves. False: there is no such process
 * any more, and the sender hears of it. */
bool sim_packet_send(struct sim_node *from, uint32_t host, uint64_t life, struct sim_packet *packet,
                     uint64_t *order_ns);
/* Takes the packet, which is for the process itself. */
void sim_packet_later(struct sim_node *node, struct sim_packet *packet, uint64_t at_ns);
bool sim_link_is_cut(const struct sim *sim, uint32_t from, uint32_t to);
void sim_network_boot(struct sim_node *node);
sl_err sim_network_event(struct sim_node *node, struct sim_event *event);
void sim_network_drop(struct sim_node *node);
void sim_network_stopped(struct sim_node *node, uint64_t duration_ns);

/* sim_fabric.c */
extern const struct fabric_backend sim_fabric_backend;
void sim_fabric_take(struct sim_fabric *fabric, struct sim_packet *packet); /* takes it */
void sim_fabric_dropped(struct sim_fabric *fabric);

/* sim_redis.c */
void sim_redis_event(struct sim *sim, const struct sim_event *event);
void sim_redis_end(struct sim *sim);

/* sim_supervisor.c */
void sim_supervisor_boot(struct sim *sim, struct sim_node *node);
void sim_supervisor_beat(struct sim *sim, const struct sim_node *node);
void sim_supervisor_look(struct sim *sim, struct sim_node *node);
void sim_supervisor_resumed(struct sim *sim);
void sim_supervisor_end(struct sim *sim);

/* sim_disk.c */
sl_err sim_disk_open(struct sl_env *env, const char *directory, uint32_t queue_depth, bool direct,
                     struct sl_disk **out, struct sl_error *why);
/* A job of this process has ended: what it did to names is durable. */
void sim_disk_job_ended(struct sim_node *node);
/* The request takes effect. False: not yet, it was put off (its process is dead). */
bool sim_disk_apply(struct sim *sim, struct sim_event *event, bool orphan);

/* sim_program.c */
extern struct sim *sim_world; /* the one of this process */
void sim_program_begin(struct sim_node *node);
void sim_program_message(struct sim_node *node, const struct sim_event *event);
void sim_program_resume(struct sim_node *node);
void sim_program_drop(struct sim_node *node);
/* Of the program that calls: until then, or until something wakes it (sim_env_wake_at). */
void sim_program_wait(uint64_t until_ns);
/* A program that has ended, or was killed, is another one from now on, on the host in use. */
void sim_program_again(struct sim *sim, uint32_t number, void (*run)(void *context), void *context);

/* sim_process.c */
struct sim_thread {
    uint32_t node, process; /* process 0: none */
    bool ended, polls;      /* polls: what comes to a socket of its process wakes it */
    void (*run)(void *context);
    void *(*run_thread)(void *context);
    void *context;
};
/* Whose turn it is; NULL: of no process with threads. */
struct sim_thread *sim_thread_of_turn(void);
/* Of the process whose turn it is. Gives its number, for sim_thread_join, which waits for its end.
 */
uint64_t sim_thread_start(struct sim *sim, uint32_t process, void *(*run)(void *context),
                          void *context);
void sim_thread_join(uint64_t number);
/* Threads of this process that poll look again then. */
void sim_process_wake(uint32_t process, uint64_t at_ns);

/* sim_tcp.c: sockets of processes with threads; as the calls of the same names. */
bool sim_tcp_has(int fd);
int sim_tcp_socket(void);
int sim_tcp_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int sim_tcp_error(int fd, void *code);
ssize_t sim_tcp_send(int fd, const void *bytes, size_t length);
ssize_t sim_tcp_recv(int fd, void *to, size_t length);
int sim_tcp_close(int fd);
/* What a process has open: its system closes it, or is gone with it (power). */
void sim_tcp_gone(uint32_t process, bool power);
/* For the other calls, of the thread whose turn it is. Give -1 and set errno, as those. */
int sim_tcp_bind(int fd, const struct sockaddr *address);
int sim_tcp_listen(int fd);
int sim_tcp_accept(int fd);
int sim_tcp_name(int fd, bool own, struct sockaddr *address, socklen_t *bytes);
int sim_tcp_shutdown(int fd, int how);
int sim_tcp_event(void); /* an eventfd */
void sim_tcp_event_add(int fd, uint64_t value);
struct pollfd;
int sim_tcp_poll(struct pollfd *fds, uint64_t count, int timeout_ms);

#endif
