/* tests/sim/sim_internal.h - declarations shared by the simulator's files. */
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
    EVENT_STREAM,    /* a socket is ready */
    EVENT_REDIS,     /* of no process: the directory's server (sim_redis.c) */
    EVENT_BEAT,      /* an idle process sends its heartbeat */
    EVENT_SUPERVISOR /* checks the process (sim_supervisor.c) */
};

struct sim_event {
    uint64_t at_ns, tie, number;
    enum sim_event_kind kind;
    uint32_t node;
    uint64_t incarnation; /* of node; if the process has another one, the event is void */
    uint64_t cookie;
    struct sl_proc_id proc;
    sl_err result;
    void *frame; /* owned */
    size_t frame_bytes;
    /* of EVENT_IO */
    struct sl_disk_request io;
    char io_name[40]; /* of a file to be made or removed */
    int os_code;
    uint64_t io_bytes; /* bytes that the request is to transfer */
    bool applied;      /* its effect has happened, its completion is not yet reported */
    bool orphaned;     /* its process died; it continues for a while */
};

/* A machine. */
struct sim_host {
    struct sl_paths paths;
    const char *const *settings;
    struct mem_disk disks[SIM_DISKS]; /* by number of the tierer, which they outlive */
    uint64_t fault_until_ns[SIM_DISKS][SIM_FAULT_COUNT];
    uint32_t reads_failed[SIM_DISKS]; /* the most recent ones, in a row */
};

/* From one host to another. */
struct sim_link {
    uint64_t cut_until_ns, slow_until_ns, slow_ns;
};

/* Carries frames from one host's transporter to another's. */
struct sim_connection {
    uint64_t number; /* counts its lives */
    bool up;
    uint64_t asker_life, listener_life; /* incarnations of the processes */
    uint64_t usable_ns;                 /* up: since when; down: no new attempt before this time */
    uint64_t broken_ns;                 /* up: when a cut ends it; SL_NEVER_NS: never */
    uint64_t order_ns[2];               /* last arrival: of requests, of answers */
};

struct sim_program;
struct sim_node {
    struct sl_env env; /* first: the ops find the rest by it */
    struct sim *sim;
    struct sim_host *host;
    struct sl_network network;    /* a transporter's view of the network */
    struct sim_control *control;  /* opened in this life */
    struct sim_fabric *fabric;    /* likewise */
    const struct sl_actor *actor; /* NULL: a program */
    struct sim_program *program;
    void *state, *context;
    struct sl_config *config;
    char name[32];
    uint64_t incarnation;
    uint64_t died_ns; /* when its last life ended */
    uint64_t wake_ns, stopped_until_ns, deferred;
    uint64_t stopped_ns, beat_ns; /* when it was stopped; when its loop last turned */
    uint64_t stalled_ns;          /* how long it was stopped, in total */
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
    uint32_t late_of;       /* one in late_of messages is very late; 0: none */
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
    uint32_t corrupt_of;    /* one in corrupt_of slices that peers read is damaged; 0: none */
    uint32_t slow_of;       /* one in slow_of units that peers read is slow; 0: none */
    struct sl_codec *codec; /* for decoding: a message is handled before the next */
    struct sl_log *log;
    uint64_t events_done, at_once;
    struct sim_node *turn;             /* the process whose event is handled; NULL: none */
    struct sim_redis *redis;           /* NULL: no such server runs */
    struct sim_supervisor *supervisor; /* NULL: actors that hang are not detected */
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
void sim_mix(struct sim *sim, uint64_t word); /* mixes a word into the hash of the run */

static inline uint32_t sim_host_number(const struct sim_node *node)
{
    return (uint32_t)(node->host - node->sim->hosts);
}
/* The living process of this name; NULL: none. */
struct sim_node *sim_node_named(const struct sim_host *host, struct sim *sim, const char *name);

/* sim_network.c */
#define SIM_DOOR "transporter.0" /* of a host */
enum sim_packet_kind {
    PACKET_FRAME,   /* control: a request or an answer */
    PACKET_HELLO,   /* fabric: asks for a link */
    PACKET_WELCOME, /* the link exists, or not: code */
    PACKET_RESET,   /* the other end has closed */
    PACKET_ASK,     /* asks for a unit */
    PACKET_SERVE,   /* the holder to itself: send the next slice */
    PACKET_DATA     /* a slice, or the unit's result */
};
struct sim_packet {
    struct sim_packet *next;
    enum sim_packet_kind kind;
    uint32_t from; /* host */
    uint64_t from_life;
    uint64_t connection; /* its number */
    bool answer;
    bool late;           /* of a connection that has ended */
    uint32_t peer, lane; /* of the requesting fabric */
    uint64_t unit, turn;
    struct sl_wire_request ask;
    uint64_t at_bytes, slice_ns; /* offset in the unit; time between two slices */
    sl_err code;
    bool last;
    size_t length_bytes;
    unsigned char bytes[];
};
struct sim_packet *sim_packet_make(const struct sim_node *from, enum sim_packet_kind kind,
                                   const void *bytes, size_t length_bytes);
/* Takes the packet. It arrives after *order_ns, which is advanced to its arrival. False: the
 * receiving process has ended, and the sender is notified. */
bool sim_packet_send(struct sim_node *from, uint32_t host, uint64_t life, struct sim_packet *packet,
                     uint64_t *order_ns);
/* Takes the packet, which a process sends to itself. */
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
/* A job of this process has ended: its changes to names are durable. */
void sim_disk_job_ended(struct sim_node *node);
/* Applies the request. False: it was postponed (its process is dead). */
bool sim_disk_apply(struct sim *sim, struct sim_event *event, bool orphan);

/* sim_program.c */
extern struct sim *sim_world; /* the one in this process */
void sim_program_begin(struct sim_node *node);
void sim_program_message(struct sim_node *node, const struct sim_event *event);
void sim_program_resume(struct sim_node *node);
void sim_program_drop(struct sim_node *node);
/* Suspends the calling program until that time, or until sim_env_wake_at wakes it. */
void sim_program_wait(uint64_t until_ns);
/* Starts a program under the number of one that has ended or was killed, on the host in use. */
void sim_program_restart(struct sim *sim, uint32_t number, void (*run)(void *context),
                         void *context);

/* sim_process.c */
struct sim_thread {
    uint32_t node, process; /* process 0: none */
    bool ended, polls;      /* polls: any input on a socket of its process wakes it */
    void (*run)(void *context);
    void *(*run_thread)(void *context);
    void *context;
};
/* The running thread; NULL: the running process has no threads. */
struct sim_thread *sim_thread_running(void);
/* Starts a thread of the running process. Returns its number for sim_thread_join, which waits. */
uint64_t sim_thread_start(struct sim *sim, uint32_t process, void *(*run)(void *context),
                          void *context);
void sim_thread_join(uint64_t number);
/* Wakes the threads of this process that poll, at that time. */
void sim_process_wake(uint32_t process, uint64_t at_ns);

/* sim_tcp.c: sockets of processes with threads, with the semantics of the calls of these names. */
bool sim_tcp_has(int fd);
int sim_tcp_socket(void);
int sim_tcp_connect(int fd, const struct sockaddr *address, socklen_t bytes);
int sim_tcp_error(int fd, void *code);
ssize_t sim_tcp_send(int fd, const void *bytes, size_t length);
ssize_t sim_tcp_recv(int fd, void *to, size_t length);
int sim_tcp_close(int fd);
/* Closes all sockets of a process: its system closes them, or has lost power (power). */
void sim_tcp_close_all(uint32_t process, bool power);
/* The other calls, for the running thread. They return -1 and set errno, as the originals do. */
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
