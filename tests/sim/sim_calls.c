/* tests/sim/sim_calls.c - calls of processes with threads that the linker directs here (--wrap):
 * for threads, locks, polls and sockets. Calls that the directory's library makes as well are in
 * sim_redis.c, calls for files in sim_files.c. */
#include "tests/sim/sim_internal.h"
#include "tests/sim/sim_process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>

#define LOCK_NS_MAX (50 * SL_NS_PER_US)

bool sim_locks_lock_nothing;

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int REAL(pthread_create)(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *context),
                         void *context);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *context),
                          void *context);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *how, void *(*run)(void *context),
                          void *context)
{
    const struct sim_thread *thread = sim_thread_running();
    if (thread == NULL) {
        return REAL(pthread_create)(out, how, run, context);
    }
    *out = (pthread_t)sim_thread_start(sim_world, thread->process, run, context);
    return 0;
}

int REAL(pthread_join)(pthread_t thread, void **out);
int __wrap_pthread_join(pthread_t thread, void **out);
int __wrap_pthread_join(pthread_t thread, void **out)
{
    if (sim_thread_running() == NULL) {
        return REAL(pthread_join)(thread, out);
    }
    sim_thread_join((uint64_t)thread);
    return 0;
}

int REAL(pthread_mutex_lock)(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (sim_thread_running() == NULL) {
        return REAL(pthread_mutex_lock)(lock);
    }
    while (pthread_mutex_trylock(lock) == EBUSY && !sim_locks_lock_nothing) {
        sim_sleep(1 + sim_random_below(sim_world, LOCK_NS_MAX));
    }
    return 0;
}

int REAL(poll)(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return count > 0 && sim_tcp_has(fds[0].fd) ? sim_tcp_poll(fds, count, timeout_ms)
                                               : REAL(poll)(fds, count, timeout_ms);
}

int REAL(eventfd)(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags)
{
    return sim_thread_running() != NULL ? sim_tcp_event() : REAL(eventfd)(value, flags);
}

int REAL(bind)(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
    return sim_tcp_has(fd) ? sim_tcp_bind(fd, address) : REAL(bind)(fd, address, bytes);
}

int REAL(listen)(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog)
{
    return sim_tcp_has(fd) ? sim_tcp_listen(fd) : REAL(listen)(fd, backlog);
}

int REAL(accept4)(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    return sim_tcp_has(fd) ? sim_tcp_accept(fd) : REAL(accept4)(fd, address, bytes, flags);
}

int REAL(getsockname)(int fd, struct sockaddr *address, socklen_t *bytes);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *bytes);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *bytes)
{
    return sim_tcp_has(fd) ? sim_tcp_name(fd, true, address, bytes)
                           : REAL(getsockname)(fd, address, bytes);
}

int REAL(getpeername)(int fd, struct sockaddr *address, socklen_t *bytes);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *bytes);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *bytes)
{
    return sim_tcp_has(fd) ? sim_tcp_name(fd, false, address, bytes)
                           : REAL(getpeername)(fd, address, bytes);
}

int REAL(shutdown)(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
    return sim_tcp_has(fd) ? sim_tcp_shutdown(fd, how) : REAL(shutdown)(fd, how);
}

int REAL(gethostname)(char *name, size_t bytes);
int __wrap_gethostname(char *name, size_t bytes);
int __wrap_gethostname(char *name, size_t bytes)
{
    if (sim_world == NULL) {
        return REAL(gethostname)(name, bytes);
    }
    (void)snprintf(name, bytes, "host"); /* all hosts have the same name */
    return 0;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
