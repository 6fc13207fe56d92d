/* tests/support/flood.h - a process that takes all connections of a port, for ever, and says
 * nothing or next to nothing. Check assertions inside. */
#ifndef SL_TESTS_FLOOD_H
#define SL_TESTS_FLOOD_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/types.h>

struct flood {
    _Atomic uint64_t connections; /* that it asked for */
    pid_t pid;
};

/* Connects from 127.0.0.2 and so many addresses behind it; keeps some hundreds open for as
 * long as it can, and opens several thousand a second where they are ended. drips: each sends a
 * byte now and then. It ends with the test. */
struct flood *flood_start(const struct sockaddr_in *to, uint32_t addresses, const char *drips);
void flood_stop(struct flood **flood); /* NULL inside: nothing */
/* Connects from 127.0.0.0 plus host. waits: until it is connected. -1: it could not. */
int flood_connect(const struct sockaddr_in *to, uint32_t host, int waits);

#endif
