/* tests/support/redis_server.h - a real redis-server for one test, on a Unix socket. */
#ifndef SL_TESTS_REDIS_SERVER_H
#define SL_TESTS_REDIS_SERVER_H

#include "tests/support/tmpdir.h"

#include <sys/types.h>

struct sl_redis {
    pid_t pid; /* 0: not running */
    char directory[64];
    char socket[96];
    char url[128];
};

/* Whether there is a redis-server in PATH. */
bool sl_redis_installed(void);
/* Sets the names; starts nothing yet. */
void sl_redis_init(struct sl_redis *redis, const struct sl_tmpdir *tmpdir);
/* Starts it, empty, as a child that dies with its parent; password: NULL or "": none. Returns at
 * once: clients wait for the server themselves. A failure ends the test. */
void sl_redis_start(struct sl_redis *redis, const char *password);
/* Sends SIGKILL and waits for the end. */
void sl_redis_kill(struct sl_redis *redis);

#endif
