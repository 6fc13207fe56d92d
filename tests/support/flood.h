/* tests/support/flood.h - a process that occupies all connections of a port, indefinitely, and
 * sends nothing or almost nothing. Check assertions inside. */
#ifndef SL_TESTS_FLOOD_H
#define SL_TESTS_FLOOD_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/types.h>

struct flood {
    _Atomic uint64_t connections; /* that it opened */
    pid_t pid;
};

/* Connects from 127.0.0.2 and the `addresses` addresses after it. Keeps some hundreds open for as
 * long as it can, and opens several thousand a second where the server ends them. drips: each sends
 * a byte now and then. The process ends with the test. */
struct flood *flood_start(const struct sockaddr_in *to, uint32_t addresses, const char *drips);
void flood_stop(struct flood **flood); /* accepts a pointer to NULL */
/* Connects from 127.0.0.0 plus host. waits: waits until connected. -1: it failed. */
int flood_connect(const struct sockaddr_in *to, uint32_t host, int waits);

#endif
