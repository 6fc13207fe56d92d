/* client/mooncake/daemons/rpc.c - a thread for each who connects to the main port. */
#include "client/mooncake/daemons/listen.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_strangers.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define STACK_BYTES     ((size_t)512 << 10)
#define LINGER_NS       SL_NS_PER_S
#define DISCARD_MAX     (64 * SL_KIB) /* who sends more is not worth waiting for */
#define ACCEPT_PAUSE_MS 100           /* when descriptors have run out */
#define OF_ONE_ADDRESS  (MC_RPC_MAX / 4)
#define ENDING_MS       20 /* between looks whether a thread that was told to end has ended */
#define ENDING_LOOKS    100u

enum rpc_state { RPC_FREE, RPC_RUNS, RPC_ENDED /* its thread is to be joined */ };
struct rpc_caller {
    struct mc_rpc *rpc;
    enum rpc_state state;
    int fd; /* while it runs */
    pthread_t thread;
};
struct mc_rpc {
    const struct mc_join_server *server;
    int fd, end_fd;
    pthread_t acceptor;
    pthread_mutex_t lock; /* of what follows */
    struct rpc_caller callers[MC_RPC_MAX];
    struct sl_strangers *strangers; /* callers that have not shown the secret */
};

/* Reads until the other side closes: a close with unread bytes would take the last line away from
 * it. */
static void linger(int fd)
{
    char scrap[4096];
    size_t total = 0;
    uint64_t until_ns = sl_clock_monotonic_ns() + LINGER_NS;
    (void)shutdown(fd, SHUT_WR);
    while (total < DISCARD_MAX) {
        uint64_t now_ns = sl_clock_monotonic_ns();
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (now_ns >= until_ns ||
            poll(&one, 1, (int)((until_ns - now_ns) / SL_NS_PER_MS) + 1) <= 0) {
            return;
        }
        ssize_t got = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
        if (got <= 0) {
            return;
        }
        total += (size_t)got;
    }
}

static uint32_t place_of(const struct rpc_caller *caller)
{
    return (uint32_t)(caller - caller->rpc->callers);
}

static void caller_known(void *context)
{
    const struct rpc_caller *caller = context;
    pthread_mutex_lock(&caller->rpc->lock);
    sl_strangers_remove(caller->rpc->strangers, place_of(caller));
    pthread_mutex_unlock(&caller->rpc->lock);
}

static void *caller_run(void *context)
{
    struct rpc_caller *caller = context;
    struct mc_rpc *rpc = caller->rpc;
    bool changed = false; /* what is new lies in files that are read by themselves */
    mc_join_serve(caller->fd, rpc->server, caller_known, caller, &changed);
    linger(caller->fd);
    pthread_mutex_lock(&rpc->lock);
    sl_strangers_remove(rpc->strangers, place_of(caller));
    (void)close(caller->fd);
    caller->state = RPC_ENDED;
    pthread_mutex_unlock(&rpc->lock);
    return NULL;
}

/* A place whose thread, if it had one, is gone; with the lock. NULL: all are taken. */
static struct rpc_caller *caller_place(struct mc_rpc *rpc)
{
    for (size_t i = 0; i < MC_RPC_MAX; i++) {
        struct rpc_caller *caller = &rpc->callers[i];
        if (caller->state == RPC_ENDED) {
            (void)pthread_join(caller->thread, NULL); /* it asks for nothing more */
            caller->state = RPC_FREE;
        }
        if (caller->state == RPC_FREE) {
            return caller;
        }
    }
    return NULL;
}

/* Its thread sees that, and ends. With the lock. */
static void caller_push(struct mc_rpc *rpc, uint32_t place)
{
    if (place != SL_STRANGERS_NONE) {
        (void)shutdown(rpc->callers[place].fd, SHUT_RDWR);
    }
}

/* As caller_place; when all are taken a stranger gives its place up, and is waited for. Who
 * connects meanwhile waits in the kernel. */
static struct rpc_caller *caller_place_made(struct mc_rpc *rpc)
{
    struct rpc_caller *caller = caller_place(rpc);
    if (caller != NULL) {
        return caller;
    }
    uint32_t goes = sl_strangers_push(rpc->strangers);
    caller_push(rpc, goes);
    for (uint32_t i = 0; goes != SL_STRANGERS_NONE && caller == NULL && i < ENDING_LOOKS; i++) {
        struct pollfd end = {.fd = rpc->end_fd, .events = POLLIN};
        pthread_mutex_unlock(&rpc->lock);
        int ended = poll(&end, 1, i == 0 ? 1 : ENDING_MS);
        pthread_mutex_lock(&rpc->lock);
        if (ended > 0) {
            return NULL;
        }
        caller = caller_place(rpc);
    }
    return caller;
}

/* Takes fd. */
static void caller_start(struct mc_rpc *rpc, int fd)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t from_bytes = sizeof from;
    pthread_attr_t attributes;
    bool started = false;
    if (getpeername(fd, (struct sockaddr *)&from, &from_bytes) != 0) {
        (void)close(fd); /* gone already */
        return;
    }
    pthread_mutex_lock(&rpc->lock);
    struct rpc_caller *caller = caller_place_made(rpc);
    if (caller != NULL && pthread_attr_init(&attributes) == 0) {
        *caller = (struct rpc_caller){.rpc = rpc, .state = RPC_RUNS, .fd = fd};
        caller_push(rpc, sl_strangers_add(rpc->strangers, place_of(caller), &from));
        started = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                  pthread_create(&caller->thread, &attributes, caller_run, caller) == 0;
        (void)pthread_attr_destroy(&attributes);
        caller->state = started ? RPC_RUNS : RPC_FREE;
        if (!started) {
            sl_strangers_remove(rpc->strangers, place_of(caller));
        }
    }
    pthread_mutex_unlock(&rpc->lock);
    if (!started) {
        (void)close(fd);
    }
}

static void *accept_run(void *context)
{
    struct mc_rpc *rpc = context;
    for (;;) {
        struct pollfd both[2] = {{.fd = rpc->fd, .events = POLLIN},
                                 {.fd = rpc->end_fd, .events = POLLIN}};
        if (poll(both, 2, -1) < 0 && errno != EINTR) {
            return NULL;
        }
        if (both[1].revents != 0) {
            return NULL;
        }
        int fd = accept4(rpc->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            caller_start(rpc, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            (void)poll(&both[1], 1, ACCEPT_PAUSE_MS);
        }
    }
}

static void rpc_free(struct mc_rpc *rpc)
{
    (void)close(rpc->fd);
    if (rpc->end_fd >= 0) {
        (void)close(rpc->end_fd);
    }
    sl_strangers_destroy(&rpc->strangers);
    pthread_mutex_destroy(&rpc->lock);
    free(rpc);
}

sl_err mc_rpc_start(int fd, const struct mc_join_server *server, struct mc_rpc **out,
                    struct sl_error *why)
{
    struct mc_rpc *rpc = calloc(1, sizeof *rpc);
    if (rpc == NULL) {
        (void)close(fd);
        return sl_fail(why, SL_ERR_NO_MEMORY, "rpc port");
    }
    rpc->server = server;
    rpc->fd = fd;
    rpc->end_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&rpc->lock, NULL);
    sl_err err = sl_strangers_create(MC_RPC_MAX, OF_ONE_ADDRESS, &rpc->strangers, why);
    if (err != SL_OK) {
        rpc_free(rpc);
        return err;
    }
    int code = rpc->end_fd < 0 ? errno : pthread_create(&rpc->acceptor, NULL, accept_run, rpc);
    if (code != 0) {
        rpc_free(rpc);
        return sl_fail_os(why, code, "rpc port");
    }
    *out = rpc;
    return SL_OK;
}

void mc_rpc_stop(struct mc_rpc **rpc)
{
    struct mc_rpc *gone = *rpc;
    if (gone == NULL) {
        return;
    }
    const uint64_t one = 1;
    bool began[MC_RPC_MAX];
    (void)!write(gone->end_fd, &one, sizeof one);
    (void)pthread_join(gone->acceptor, NULL);
    pthread_mutex_lock(&gone->lock);
    for (size_t i = 0; i < MC_RPC_MAX; i++) {
        began[i] = gone->callers[i].state != RPC_FREE;
        if (gone->callers[i].state == RPC_RUNS) {
            (void)shutdown(gone->callers[i].fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&gone->lock);
    for (size_t i = 0; i < MC_RPC_MAX; i++) { /* the acceptor has ended: no place changes hands */
        if (began[i]) {
            (void)pthread_join(gone->callers[i].thread, NULL);
        }
    }
    rpc_free(gone);
    *rpc = NULL;
}
